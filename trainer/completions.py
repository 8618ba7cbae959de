"""Trajectories in the form of TRL's completions table (`log_completions`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentgym.trainer.ranks import Ranks
from agentgym.trajectory import RolloutOutput


class _Row(NamedTuple):
    prompt: list[dict[str, Any]]
    completion: list[dict[str, Any]]
    rewards: dict[str, float | None]
    advantage: float


def fill_table(
    logs: Any, outputs: Sequence[RolloutOutput], advantages: Sequence[float], ranks: Ranks
) -> None:
    """Add a window's trajectories to TRL's `_logs`; collective."""
    rows = ranks.gather_all(
        [_row(output, advantage) for output, advantage in zip(outputs, advantages, strict=True)]
    )
    names = sorted({name for row in rows for name in row.rewards})
    for row in rows:
        logs["prompt"].append(row.prompt)
        logs["completion"].append(row.completion)
        logs["advantages"].append(row.advantage)
        for name in names:
            value = row.rewards.get(name)
            logs["rewards"][name].append(float("nan") if value is None else value)


def _row(output: RolloutOutput, advantage: float) -> _Row:
    prompt, completion = split_chat(output)
    return _Row(prompt, completion, dict(output.rewards), advantage)


def split_chat(output: RolloutOutput) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages before the first of the policy's, and the others, as chat dictionaries."""
    messages = [message.to_chat() for message in output.messages]
    roles = [message["role"] for message in messages]
    start = roles.index("assistant") if "assistant" in roles else len(roles)
    return messages[:start], messages[start:]
