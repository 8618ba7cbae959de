"""`agentgym train` when something it needs is gone: what is kept, what is said, how it goes on."""

import json
from pathlib import Path

import pytest

from agentgym.cli import main

pytestmark = pytest.mark.slow

PLUGIN = """\
from pathlib import Path

from agentgym import registry
from agentgym.errors import OutageError, WrongServerError

async def needs_a_server(trajectory):
    number = len(list(Path("run").glob("trajectories/step-*.jsonl")))
    if Path("gone").exists() and number == int(Path("gone").read_text()):
        raise OutageError("http://judge:1 was not there within 60 s")
    if Path("other").exists() and number == int(Path("other").read_text()):
        raise WrongServerError("http://judge:1 wants another API key")
    return 1.0

if "needs_a_server" not in registry.REWARDS.names():
    registry.REWARDS.register("needs_a_server", needs_a_server)
"""
RUN = [
    *("train", "--run-dir", "run", "--steps", "3", "--num-tasks", "1", "--group-size", "2"),
    *("--eval-tasks", "0", "--max-tokens", "24"),
    *("--plugins", "mine.py", "--rewards", "needs_a_server"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    return tmp_path


def test_what_was_learned_is_kept_and_gone_on_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint of every step would be dear; one when it is known that the run ends is not."""
    (folder / "gone").write_text("1")
    assert main([*RUN, "--save-steps", "100"]) == 1
    (gone,) = capsys.readouterr().err.splitlines()
    (folder / "gone").rename(folder / "other").write_text("2")
    assert main(["train", "--resume", "--run-dir", "run"]) == 2
    (other,) = capsys.readouterr().err.splitlines()
    (folder / "other").unlink()
    kept = [path.name for path in (folder / "run" / "checkpoints").glob("checkpoint-*")]
    assert main(["train", "--resume", "--run-dir", "run"]) == 0

    go_on = "is kept, go on with: agentgym train --resume --run-dir run"
    assert gone == f"agentgym: http://judge:1 was not there within 60 s; step 1 {go_on}"
    assert other == f"agentgym: http://judge:1 wants another API key; step 2 {go_on}"
    assert sorted(kept) == ["checkpoint-1", "checkpoint-2"]
    rows = [
        json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_a_run_that_never_began_is_begun_again_by_the_same_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "gone").write_text("0")
    assert main(RUN) == 1
    said = capsys.readouterr().err
    assert main(["train", "--resume", "--run-dir", "run"]) == 2
    resumed = capsys.readouterr().err
    (folder / "gone").unlink()
    assert main([*RUN, "--steps", "1"]) == 0
    assert main([*RUN, "--steps", "1"]) == 2

    assert "nothing was trained yet: begin again with the same command\n" in said
    assert "no complete checkpoint" in resumed
    assert "is not empty" in capsys.readouterr().err
