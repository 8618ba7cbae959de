"""What an episode earns: the final state decides, and what the customer was told.

Every part needs the one before it, so that a policy that does nothing, or everything, or guesses
without looking, earns nothing, although the right thing is often to change nothing.
"""

import re
from collections.abc import Sequence
from typing import Any

_ANSWER = re.compile(r"answer\W{0,4}:", re.IGNORECASE)
_OUTCOME = re.compile(r"(done|refused)(?:[\s:,-]{1,3}([a-z_]{1,40}))?", re.IGNORECASE)
_DECORATION = " \t\r\n*_`'\"."
SPARE_CALLS = 2
"""Tool calls beyond those of the oracle that are no waste."""


def read_outcome(message: str) -> tuple[str, str | None] | None:
    """`("done", None)` or `("refused", reason)`; `None` if there is not exactly one, at the end."""
    parts = _ANSWER.split(message)
    if len(parts) != 2:
        return None
    match = _OUTCOME.fullmatch(parts[1].strip(_DECORATION))
    if match is None:
        return None
    outcome, reason = match.group(1).lower(), match.group(2)
    return outcome, None if reason is None else reason.lower()


def score(
    turns: Sequence[dict[str, Any]], said: Sequence[str], *, state_is_right: bool, num_calls: int
) -> dict[str, float | None]:
    """Rewards by name.

    Args:
        turns: the task's requests with their right outcomes.
        said: the final messages, one per request, as far as the conversation came; empty where
            the order had not been looked up.
        state_is_right: whether the database is as it should be.
        num_calls: tool calls made.
    """
    outcomes = [read_outcome(message) for message in said]
    wanted = [("done" if turn["reason"] is None else "refused", turn["reason"]) for turn in turns]
    settled = len(outcomes) == len(wanted) and all(
        outcome is not None and outcome[0] == right[0]
        for outcome, right in zip(outcomes, wanted, strict=True)
    )
    resolved = state_is_right and settled
    explained = resolved and outcomes == wanted
    brief = explained and num_calls <= par(turns) + SPARE_CALLS
    return {"resolved": float(resolved), "reason": float(explained), "brief": float(brief)}


def par(turns: Sequence[dict[str, Any]]) -> int:
    """Calls of a clerk who looks up what there is to know, once, and does what is to be done."""
    return sum(3 + (turn["reason"] is None) for turn in turns)
