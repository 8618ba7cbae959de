"""Whole runs of an env whose turns have a form, and what must hold in each of their records."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gymnasium.envs.registration import registry

from agentgym.plugins import module_name
from agentgym.registry import SCHEDULERS
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason, read_jsonl

PLUGIN = Path(__file__).with_name("forms_plugin.py")
MARK = re.compile("[0-9]{2}")
ENDED = {StopReason.TERMINATED, StopReason.LENGTH}
"""Last words may be cut."""


@pytest.fixture
def forms() -> Iterator[list[str]]:
    """Flags that choose the env; afterwards nobody knows it."""
    yield ["--plugins", str(PLUGIN), "--env", "forms"]
    sys.modules.pop(module_name(PLUGIN), None)
    registry.pop("agentgym/Forms-v0", None)
    SCHEDULERS._entries.pop("strict", None)


def check_record(path: Path, *, num: int, strict: bool = False) -> list[RolloutOutput]:
    """The trajectories of a file: all turns are as they must be, and only free ones are trained."""
    outputs = list(read_jsonl(path))
    assert len(outputs) == num
    for output in outputs:
        assert output.stop_reason in ENDED, output.error
        mark, verdict, *_ = said = [m.content for m in output.messages if m.role == "assistant"]
        assert MARK.fullmatch(mark)
        assert isinstance(json.loads(verdict)["fine"], bool)
        assert not strict or said[2] in {"yes", "no"}
        turns = [segment for segment in output.segments if segment.source == "sampled"]
        assert [turn.is_trained for turn in turns] == [False, False, not strict]
        assert [turn.constrained for turn in turns] == [True, True, strict]
        assert output.num_turns == len(turns) == 3
        assert all(len(turn.logprobs) == len(turn.ids) for turn in turns)
        assert not any(turn.frozen for turn in turns)
    return outputs


def constrained_fraction(outputs: list[RolloutOutput]) -> float:
    """Over all tokens of these."""

    def size(turns: list[Segment]) -> int:
        return sum(len(turn.ids) for turn in turns)

    turns = [turn for output in outputs for turn in output.spoken]
    return size([turn for turn in turns if turn.constrained]) / size(turns)
