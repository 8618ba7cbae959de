"""`agentgym check`: the report, the exit code, and that the process ends whatever the env does."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.checking.checklist import ENV_CHECKS
from agentgym.cli import main
from agentgym.envs import names

PLUGIN = str(Path(__file__).parents[2] / "broken_envs.py")
pytestmark = pytest.mark.usefixtures("broken_envs")
NEED_ARGUMENTS = {"mixture": "{parts: [calculator, lookup]}"}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "agentgym", "check", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def test_a_sound_env_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each check, and a verdict."""
    code = main(["check", "calculator", "--tasks", "2"])

    out = capsys.readouterr().out
    assert code == 0
    assert "✓ oracle           its oracle is at the top: mean return 1 of 1" in out
    assert out.splitlines()[-1].startswith(f"passed: {len(ENV_CHECKS)} passed in ")


def test_a_fault_is_named_and_the_exit_code_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong, the value, and what to do."""
    code = main(["check", "numpy-end", "--plugins", PLUGIN])

    out = capsys.readouterr().out
    assert code == 1
    assert "✗ episodes" in out
    assert "step returned terminated=np.True_ of type bool: no bool" in out
    assert "oracle           its oracle is at the top: needs 'reward_range'" in out
    assert "FAILED: " in out


def test_a_program_can_read_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but JSON on stdout."""
    code = main(["check", "nan-reward", "--plugins", PLUGIN, "--json"])

    report = json.loads(capsys.readouterr().out)
    failed = [check for check in report["checks"] if check["status"] == "failed"]
    assert code == 1
    assert (report["subject"], report["passed"]) == ("nan-reward", False)
    assert [check["name"] for check in failed] == ["episodes"]
    assert "not finite" in failed[0]["messages"][0]


def test_a_tool_is_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    """By its registered name."""
    code = main(["check", "calculator", "--tool"])

    assert code == 0
    assert "✓ schema" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calculatr"], "Did you mean 'calculator'?"),
        ([], "ENV is required"),
        (["calculator", "--tasks", "1"], "--tasks 1"),
        (["calculator", "--timeout", "nan"], "--timeout nan"),
        (["calculator", "--env-args", "{levels: [9]}"], "got [9]"),
        (["calculator", "--plugins", "nope.py"], "nope.py"),
        (["calculator", "again"], "'again'"),
        (["serch", "--tool"], "no tool is registered as 'serch'"),
    ],
)
def test_what_the_caller_must_change_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 2."""
    code = main(["check", *arguments])

    captured = capsys.readouterr()
    assert code == 2
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_terminal_without_unicode_gets_plain_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a bare container, or in a log of another encoding."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    code = main(["check", "no-range", "--plugins", PLUGIN])

    said = written.getvalue().decode("ascii")
    assert code == 1
    assert said.startswith("x build            it can be built\n")
    assert "\n- registration " in said


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_bundled_env_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As anybody would check it."""
    given = ["--env-args", NEED_ARGUMENTS[name]] if name in NEED_ARGUMENTS else []

    code = main(["check", name, "--tasks", "2", *given])

    assert code == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hangs", "blocks-the-loop"])
def test_the_process_ends_though_the_env_hangs(name: str) -> None:
    """With the report so far."""
    done = run(name, "--plugins", PLUGIN, "--timeout", "3")

    assert done.returncode == 1, done.stderr
    assert "hangs: no answer from step 1" in done.stdout
    assert "the env hung in 'episodes'" in done.stdout


@pytest.mark.slow
def test_the_process_ends_though_the_env_left_a_thread() -> None:
    """Python would wait for it."""
    arguments = ["keeps-the-process", "--plugins", PLUGIN, "--tasks", "2", "--json"]
    done = run(*arguments, AGENTGYM_MAY_HANG="1")

    report = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [c["name"] for c in report["checks"] if c["status"] == "failed"] == ["leaks"]
