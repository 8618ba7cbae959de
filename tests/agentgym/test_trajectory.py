"""The record survives JSON, and its views agree with its segments."""

import functools
import json
import operator
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.errors import ConfigError
from agentgym.messages import assistant, user
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason, read_jsonl, to_jsonl

turn_ids = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)
rewards = st.dictionaries(st.sampled_from("abc"), st.none() | st.floats(-2, 2), max_size=3)


def sampled(ids: tuple[int, ...], *, constrained: bool = False) -> Segment:
    return Segment(
        ids=ids,
        source="sampled",
        logprobs=(-1.0,) * len(ids),
        policy_version=3,
        constrained=constrained,
    )


@st.composite
def outputs(draw: st.DrawFn) -> RolloutOutput:
    segments = [Segment(ids=draw(turn_ids), source="template")]
    for _ in range(draw(st.integers(0, 3))):
        turn = sampled(draw(turn_ids), constrained=draw(st.booleans()))
        segments += [turn, Segment(ids=draw(turn_ids), source="env")]
    return RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="calculator",
        seed=7,
        messages=(user("q\n\u2028"), assistant("", ("f", {"x": [1, "é"]}))),
        segments=tuple(segments),
        rewards=draw(rewards),
        reward=draw(st.none() | st.floats(-2, 2)),
        stop_reason=draw(st.sampled_from(StopReason)),
        rollout_infos={"n": 1},
    )


@given(outputs())
def test_json_round_trip_is_the_identity(output: RolloutOutput):
    """Offline debugging reads exactly what training wrote."""
    assert RolloutOutput.from_json(output.to_json()) == output


@given(outputs())
def test_views_are_the_segments_seen_by_turn(output: RolloutOutput):
    """Prompt and turns, concatenated, are the whole trajectory."""
    turns = output.response_token_ids

    assert output.prompt_token_ids + functools.reduce(operator.iadd, turns, []) == output.token_ids
    assert len(turns) == output.num_turns
    for ids, mask, logprobs in zip(
        turns, output.response_loss_mask, output.rollout_logprobs, strict=True
    ):
        assert len(ids) == len(mask) == len(logprobs)
    assert sum(map(sum, output.response_loss_mask)) == sum(len(s.ids) for s in output.sampled)


@given(outputs())
def test_a_line_names_the_weighted_sum_return(output: RolloutOutput):
    """The file speaks the words of the field, views included."""
    line = json.loads(output.to_json())

    assert line["return"] == output.reward
    assert {"prompt_token_ids", "response_token_ids", "response_loss_mask"} <= line.keys()
    assert {"rollout_logprobs", "num_turns", "policy_versions"} <= line.keys()


@given(st.lists(outputs(), max_size=3))
def test_a_file_holds_one_line_for_each_trajectory(written: list[RolloutOutput]):
    """Whatever they say: line breaks inside a text must not end the line."""
    content = to_jsonl(written)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        read = list(read_jsonl(Path(file.name)))

    assert read == written
    assert content.count(b"\n") == len(written)


def test_a_failed_trajectory_is_not_evidence():
    """An env that died says nothing of the policy, whatever number was left behind."""
    failed = RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="e",
        seed=0,
        messages=(),
        segments=(),
        reward=0.0,
        stop_reason=StopReason.ENV_ERROR,
    )

    assert not failed.is_scored


def test_a_broken_line_is_named(tmp_path: Path):
    """A file cut in the middle says where."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"request_id": 1}\n')

    with pytest.raises(ConfigError, match=r"t\.jsonl:1"):
        list(read_jsonl(path))
