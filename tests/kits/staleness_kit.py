"""An engine with weights of its own that plays prepared turns, and envs that can be held up."""

from collections.abc import Callable
from typing import Any, Literal

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.engines.weights import Weights
from agentgym.threads import in_thread
from agentgym.trainer.callbacks import AgentCallback


class OwnWeights(CallableEngine):
    """Takes the weights it is given, and says what a function says.

    Args:
        policy: the turn for a call.
        keeps_version: never tells of a new one, as if it had not been given it.
    """

    keeps_weights: Literal[True] = True
    is_shared = False

    def __init__(
        self,
        policy: Callable[[EngineCall], Any] | None = None,
        *,
        keeps_version: bool = False,
    ) -> None:
        super().__init__(policy or (lambda call: [65 + call.sampling.seed % 26, 10]))
        self._keeps_version = keeps_version
        self.seeds: dict[str, list[int]] = {}
        """Sampling seeds by session, in the order of the turns."""
        self.received: list[int] = []
        """Versions, in the order they came."""

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        self.seeds.setdefault(session, []).append(sampling.seed)
        return await super().generate(prompt_ids, sampling, session=session)

    async def update_weights(self, weights: Weights | None = None) -> int:
        assert weights is not None
        names = await in_thread(lambda: {name for bucket in weights.buckets() for name in bucket})
        assert names == set(weights.specs)
        self.received.append(weights.version)
        if not (self._keeps_version and len(self.received) > 1):
            self._version = weights.version
        return weights.version

    async def follow(self, version: int) -> None:
        self._version = version


class Windows(AgentCallback):
    """Keeps the trajectories of windows and of evaluations."""

    def __init__(self) -> None:
        self.windows: list[list[Any]] = []
        self.evaluations: list[list[Any]] = []

    def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
        self.windows.append(list(window["outputs"]))

    def on_evaluation(self, args: Any, state: Any, control: Any, **played: Any) -> None:
        self.evaluations.append(list(played["outputs"]))
