"""How many updates of the weights lie between the sampling of a token and its use.

Engines count weights by versions of their own; here it is written down how many updates the policy
had seen when each version was given to the engine.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentgym.errors import EngineError
from agentgym.trainer.metrics import Metrics
from agentgym.trajectory import RolloutOutput


class Staleness(NamedTuple):
    """Ages of a window's trained tokens, in updates of the weights."""

    total: int = 0
    num_tokens: int = 0
    largest: int = 0

    @staticmethod
    def metrics(everyones: Iterable["Staleness"]) -> Metrics:
        """Over all processes."""
        parts = list(everyones)
        num_tokens = sum(part.num_tokens for part in parts)
        return {
            "staleness/mean": sum(part.total for part in parts) / max(num_tokens, 1),
            "staleness/max": float(max(part.largest for part in parts)),
        }


class Ages:
    """Counts updates of the weights, and what the engine has seen of them.

    Args:
        max_age: of a token that is still of use; older versions are forgotten.
    """

    def __init__(self, max_age: int) -> None:
        self.max_age = max_age
        self._now = 0
        self._pushed: dict[int, int] = {}
        """Updates by the version of the engine that has seen them."""

    def updated(self) -> None:
        """The weights have changed."""
        self._now += 1
        oldest = self._now - self.max_age
        self._pushed = {v: at for v, at in self._pushed.items() if at >= oldest}

    def pushed(self, version: int) -> None:
        """The engine has the present weights, and calls them `version`."""
        self._pushed[version] = self._now

    def of(self, outputs: Sequence[RolloutOutput], version: int, *, max_age: int) -> Staleness:
        """How stale these are.

        Args:
            outputs: that are to be used now.
            version: that the engine says it is at.
            max_age: of every token that was sampled.

        Raises:
            EngineError: some token is older, or of a version that nobody gave the engine.
        """
        ages = [age for output in outputs for age in self._ages(output, version, max_age)]
        return Staleness(sum(ages), len(ages), max(ages, default=0))

    def _ages(self, output: RolloutOutput, version: int, max_age: int) -> list[int]:
        """Of the trained tokens; all are held against the bound."""
        known = {v: self._now - at for v, at in self._pushed.items() if self._now - at <= max_age}
        if set(output.policy_versions) - known.keys():
            allowed = f", and {max_age} updates may lie between" if max_age else ""
            raise EngineError(
                f"{output.request_id} was sampled by policy versions {output.policy_versions}, "
                f"but the engine is at {version}{allowed}: it missed an update, or somebody else "
                "gave it one"
            )
        return [
            known[v]
            for segment in output.sampled
            for v in segment.token_versions or (segment.policy_version,) * len(segment.ids)
            if v is not None
        ]
