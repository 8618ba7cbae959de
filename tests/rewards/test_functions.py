"""The bundled reward functions."""

from typing import Any

import pytest

from agentgym.registry import REWARDS
from agentgym.rewards import functions
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason


def trajectory(
    stop: StopReason = StopReason.FINAL_ANSWER, *, turns: int = 1, **infos: Any
) -> RolloutOutput:
    segments = [Segment(ids=(1,), source="template")]
    for _ in range(turns):
        segments.append(Segment(ids=(2,), source="sampled", logprobs=(-1.0,), policy_version=0))
        segments.append(Segment(ids=(3,), source="env"))
    return RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="e",
        seed=0,
        messages=(),
        segments=tuple(segments),
        stop_reason=stop,
        rollout_infos=infos,
    )


@pytest.mark.parametrize("name", ["finished", "tool_success", "brevity"])
def test_they_are_registered_under_their_names(name: str):
    """`--rewards finished` finds them."""
    assert REWARDS.get(name) is vars(functions)[name]


@pytest.mark.parametrize(
    ("stop", "reward"),
    [
        (StopReason.FINAL_ANSWER, 1.0),
        (StopReason.TERMINATED, 1.0),
        (StopReason.LENGTH, 0.0),
        (StopReason.MAX_TURNS, 0.0),
    ],
)
def test_finished_tells_an_end_from_a_cut(stop: StopReason, reward: float):
    """A turn cut by length is never an answer."""
    assert functions.finished(trajectory(stop)) == reward


def test_tool_success_is_a_share_of_the_calls():
    """Who calls nothing has no share, not a bad one."""
    output = trajectory(num_tool_calls=4, tool_failures={"timeout": 1, "bad_arguments": 1})

    assert functions.tool_success(output) == 0.5
    assert functions.tool_success(trajectory(num_tool_calls=0, tool_failures={})) is None


def test_brevity_falls_with_the_turns():
    """And is unscored for an episode without one."""
    assert functions.brevity(trajectory(turns=4)) == 0.25
    assert functions.brevity(trajectory(turns=0)) is None
