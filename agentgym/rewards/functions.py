"""Reward functions that make sense for any env; registered under their names.

None of them says whether the task was solved: they shape how it is solved, with a small weight.
"""

from agentgym.rewards.rubric import Score
from agentgym.trajectory import RolloutOutput, StopReason

_ENDED = (StopReason.FINAL_ANSWER, StopReason.TERMINATED)


def finished(output: RolloutOutput) -> Score:
    """1.0 if the episode came to its own end, 0.0 if a limit cut it."""
    return float(output.stop_reason in _ENDED)


def tool_success(output: RolloutOutput) -> Score:
    """Share of the tool calls that delivered; unscored if there was none."""
    calls = output.rollout_infos.get("num_tool_calls", 0)
    failures = sum(output.rollout_infos.get("tool_failures", {}).values())
    return 1.0 - failures / calls if calls else None


def brevity(output: RolloutOutput) -> Score:
    """1 / turns: an answer at once is 1.0; unscored if nothing was said."""
    return 1.0 / output.num_turns if output.num_turns else None
