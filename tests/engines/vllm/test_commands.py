"""Whole runs of the command line with vLLM: played by it and trained, with and without a server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms_kit import check_record, constrained_fraction, forms
from vllm_engine_kit import DEADLINES, Ground, bench_at
from vllm_kit import load

from agentgym.cli import main
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import read_jsonl

__all__ = ["forms"]
pytestmark = pytest.mark.vllm
GROUPS = ["--max-tokens", "48", "--group-size", "4"]
RUN = [*GROUPS, "--steps", "2", "--num-tasks", "2", "--eval-tasks", "0"]
IN_PROCESS = ["--engine", "vllm", "--kv-cache-gb", "0.06", "--max-context", "512"]


@pytest.fixture
def server(ground: Ground) -> Iterator[list[str]]:
    """Flags; it has the policy's own weights, before and after."""

    async def restore() -> None:
        bench = bench_at(ground, DEADLINES)
        await bench.update(load(PATH))
        ground.model = bench.model
        await bench.engine.aclose()

    assert ground.served is not None
    asyncio.run(restore())
    yield ["--server-url", ground.served.url]
    asyncio.run(restore())


def check_run(run: Path) -> None:
    """Two steps: each was taken, and the engine's log-probabilities are the trainer's."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        outputs = check_record(run / f"trajectories/step-{row['step']:06}.jsonl", num=8)
        expected = constrained_fraction(outputs)
        assert row["completions/constrained_fraction"] == pytest.approx(expected)
        assert row["sampling/logp_diff_max"] < 1e-3
        assert row["grad_norm"] > 0


def test_a_server_plays_the_calculator(
    server: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the engine over the model itself does, greedily and to the token."""
    plays = ["rollout", "--env", "calculator", "--n", "8", "--temperature", "0", "--show", "0"]
    for name, engine in {"server": server, "model": []}.items():
        assert main([*plays, *engine, "--out", str(tmp_path / name)]) == 0
        left = "which a training run has left on the server" in capsys.readouterr().out
        assert left is (name == "server")

    served, own = ({o.request_id: o for o in read_jsonl(tmp_path / n)} for n in ("server", "model"))
    assert len(served) == 8
    for name, output in served.items():
        assert output.token_ids == own[name].token_ids
        assert len(output.policy_versions) == 1


def test_turns_of_a_form_through_a_server(
    forms: list[str], server: list[str], tmp_path: Path
) -> None:
    played, run = tmp_path / "out.jsonl", tmp_path / "run"
    flags = [*forms, *server]
    strict = ["--scheduler", "strict", "--n", "4", "--out", str(played)]
    assert main(["rollout", *flags, *GROUPS, *strict]) == 0
    assert main(["train", *flags, *RUN, "--run-dir", str(run)]) == 0

    check_record(played, num=4, strict=True)
    check_run(run)


def test_a_form_that_the_server_refuses_is_the_envs_failure(
    forms: list[str], server: list[str], tmp_path: Path
) -> None:
    """In one line that says what was asked for and why it cannot be."""
    out = tmp_path / "out.jsonl"
    wrong = ["--env-args", '{"first": {"regex": "(?=a)b"}}', "--n", "2", "--out", str(out)]

    assert main(["rollout", *forms, *server, *wrong]) == 1
    for output in read_jsonl(out):
        assert output.stop_reason == "env_error"
        assert "(?=a)b" in str(output.error)
        assert "look" in str(output.error).lower()
        assert "\n" not in str(output.error)
        assert len(str(output.error)) < 500


@pytest.mark.usefixtures("alone")
def test_turns_of_a_form_in_this_process(forms: list[str], tmp_path: Path) -> None:
    """A run; then a rollout, in which the engine is made anew."""
    played, run = tmp_path / "out.jsonl", tmp_path / "run"
    assert main(["train", *forms, *IN_PROCESS, *RUN, "--run-dir", str(run)]) == 0
    rollout = ["--scheduler", "strict", "--n", "4", "--out", str(played)]
    assert main(["rollout", *forms, *IN_PROCESS, *GROUPS, *rollout]) == 0

    check_run(run)
    check_record(played, num=4, strict=True)
