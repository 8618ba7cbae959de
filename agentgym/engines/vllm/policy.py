"""Which weights the servers are to have, as this process knows it.

A server stamps tokens with the label of its weights. Those of a turn must be labels that were
expected between the turn's beginning and its end; a server that was restarted, or that somebody
else has updated, gives itself away by another.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentgym.engines.vllm.replies import FIRST_LABEL
from agentgym.errors import EngineError

_STEP_S = 0.05


def version_of(label: str) -> int | None:
    """The policy version a label stands for; `None` if it is none of ours."""
    if label == FIRST_LABEL:
        return 0
    return int(label) if label.isascii() and label.isdigit() else None


@dataclass(slots=True)
class Policy:
    """What is expected."""

    version: int = 0
    """What the next turn is sampled with."""
    labels: list[str] = field(default_factory=lambda: [FIRST_LABEL])
    """Of the model's own weights, in the order they came; the last one is what servers have."""
    adapter: str | None = None
    """Its name, if the policy is one."""
    trouble: str | None = None
    """Why nothing may be sampled."""

    @property
    def label(self) -> str:
        """What every server has."""
        return self.labels[-1]

    def move(self, label: str, version: int) -> None:
        """Every server has other weights of its own."""
        self.labels.append(label)
        self.version, self.adapter, self.trouble = version, None, None

    def refuse_trouble(self) -> None:
        """Raise an `EngineError` if the servers' weights are not known."""
        if self.trouble is not None:
            raise EngineError(self.trouble)

    async def versions(
        self, labels: Sequence[str], *, since: int, patience_s: float
    ) -> dict[str, int] | None:
        """Policy version by label; `None` if one of them is not expected.

        Args:
            labels: what a server stamped.
            since: index in `self.labels` of what it had when it was asked.
            patience_s: for `follow` to hear of an update that another process is making.
        """
        ends = asyncio.get_running_loop().time() + patience_s
        while not set(labels) <= set(self.labels[since:]):
            unknown = [version_of(label) for label in set(labels) - set(self.labels[since:])]
            is_ahead = all(version is not None and version > self.version for version in unknown)
            if not is_ahead or asyncio.get_running_loop().time() > ends:
                return None
            await asyncio.sleep(_STEP_S)
        return {label: version_of(label) or 0 for label in labels}
