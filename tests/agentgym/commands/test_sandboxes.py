"""Flags of the sandbox, and when a command finds out that there is none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gymnasium.envs.registration import registry

from agentgym.cli import main
from agentgym.commands.rollout import RolloutConfig
from agentgym.config import load
from agentgym.tools.sandbox import shared
from agentgym.tools.sandbox.settings import SandboxSettings

PLUGIN = '''
"""An env whose answers are programs."""

from agentgym.envs import ToolEnv, register
from agentgym.messages import assistant
from agentgym.tools.sandbox.base import SandboxSpec


class Programs(ToolEnv):
    """Answers are cells; the reward is that they run."""

    sandbox = SandboxSpec(packages={packages!r})

    def prompt(self, task):
        return "Write a program."

    async def score(self, episode):
        sandbox = await episode.sandbox.get()
        return {{"ran": float((await sandbox.run_cell(episode.answer)).ok)}}

    def oracle(self, task, messages):
        return assistant("print(1)")


register("Programs-v0", Programs)
'''


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    registry.pop("agentgym/Programs-v0", None)
    shared.configure(SandboxSettings())
    shared.close_shared()


@pytest.fixture
def rollout(tmp_path: Path) -> list[str]:
    """A command line that plays the env of the plugin."""
    return _rollout(tmp_path, ())


def _rollout(folder: Path, packages: tuple[str, ...]) -> list[str]:
    plugin = folder / "programs.py"
    plugin.write_text(PLUGIN.format(packages=packages))
    wanted = ["--env", "programs", "--policy", "oracle", "--n", "2", "--show", "0"]
    return ["rollout", *wanted, "--plugins", str(plugin)]


@pytest.mark.parametrize(
    "flag", ["--sandbox.min-level", "--sandbox-min-level", "--sandbox.min_level"]
)
def test_the_level_may_be_written_with_a_dot(flag: str) -> None:
    """As one of the settings of the sandbox."""
    assert load(RolloutConfig, [flag, "3"]).sandbox_settings == SandboxSettings(min_level=3)
    assert load(RolloutConfig, [f"{flag}=3"]).sandbox_settings == SandboxSettings(min_level=3)


@pytest.mark.parametrize("arguments", [["--sandbox", "docker"], ["--sandbox-min-level", "5"]])
def test_a_setting_that_does_not_exist_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", *arguments]) == 2
    assert f"{arguments[0]} {arguments[1]}" in capsys.readouterr().err


def test_a_run_says_its_sandbox_and_records_it(
    rollout: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once at the start, and on each trajectory."""
    out = tmp_path / "out.jsonl"

    assert main([*rollout, "--out", str(out)]) == 0
    assert capfd.readouterr().err.count("sandbox: bwrap (level 3/4): ") == 1
    for line in out.read_text().splitlines():
        trajectory = json.loads(line)
        assert trajectory["rewards"] == {"ran": 1.0}
        assert trajectory["rollout_infos"]["sandbox"] == {"backend": "bwrap", "level": 3}


def test_a_run_below_its_level_is_refused_before_the_model(
    rollout: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """In one line, by exit code 2; a model that does not exist is not looked for."""
    arguments = ["--sandbox", "landlock", "--sandbox.min-level", "3", "--model", "/no/such/model"]

    assert main([*rollout, *arguments]) == 2
    error = capfd.readouterr().err
    assert "--sandbox-min-level 3: --sandbox landlock gives level 2 at most" in error
    assert error.count("\n") == 1


def test_a_package_that_is_missing_is_told_before_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And not by every trajectory."""
    assert main([*_rollout(tmp_path, ("no-such-package",)), "--model", "/no/such/model"]) == 2
    assert "'no-such-package' is not installed" in capfd.readouterr().err


def test_an_env_without_code_asks_for_no_sandbox(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever level was asked for."""
    wanted = ["--policy", "oracle", "--n", "1", "--show", "0", "--sandbox-min-level", "4"]

    assert main(["rollout", "--env", "calculator", *wanted]) == 0
    assert "sandbox" not in capfd.readouterr().err
