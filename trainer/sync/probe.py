"""Proof that the engine samples from the policy that is trained: two opinions on the same tokens.

A short text is sampled, and the log-probabilities that the engine reports are held against those of
the trainer's own forward pass. An engine with other weights, another temperature, another prompt or
a broken cache cannot agree on all of them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agentgym.engines.base import Engine, Generation, Sampling
from agentgym.errors import ConfigError, EngineError, UsageError
from agentgym.messages import Message
from agentgym.rendering.base import Renderer
from agentgym.rollout.background import LoopThread
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.packing import PackedBatch, Sample, pack, padded
from agentgym.trainer.ranks import Ranks

_QUESTION = "Count from one to twenty, then say which of these numbers you like best, and why."
_NUM_TOKENS = 24
_SESSION = "agentgym-probe"
_TIMEOUT_S = 300.0

Score = Callable[[PackedBatch], TokenLogprobs]


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """When to compare, and what may differ."""

    every: int = 50
    """Updates from one comparison to the next, the first included; 0 = never."""
    max_abs: float = 1e-3
    """Nats by which a token may differ where both sides compute in float32."""
    mean_abs: float = 0.15
    """Nats by which tokens may differ on average, where one side computes in half precision."""

    def __post_init__(self) -> None:
        if self.every < 0 or not (self.max_abs > 0 and self.mean_abs > 0):
            raise ConfigError(f"{self}: need every >= 0 and tolerances above 0")


class Difference(NamedTuple):
    """Nats between the two opinions."""

    max_abs: float
    mean_abs: float


class Prober:
    """Compares after the first update and then every so many.

    Args:
        settings: when, and what may differ.
        renderer: for the prompt.
        score: the trainer's log-probabilities at the training temperature, without gradient.
        is_half: whether the trainer or the engine computes in half precision.
        padding: whether the model cannot have packed rows.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        *,
        renderer: Renderer,
        score: Score,
        is_half: bool,
        padding: bool,
    ) -> None:
        self._settings = settings
        self._renderer = renderer
        self._score = score
        self._is_half = is_half
        self._pack = padded if padding else pack
        self._updates = 0

    def after_update(
        self, engine: Engine, loop: LoopThread, ranks: Ranks, *, temperature: float
    ) -> Difference | None:
        """Compare if it is due; collective.

        Returns:
            What was found; `None` if nothing was compared.

        Raises:
            UsageError: the two differ by more than they may.
        """
        due = self._settings.every and self._updates % self._settings.every == 0
        self._updates += 1
        if not due:
            return None
        sample = ranks.together(lambda: self._sample(engine, loop, temperature))
        difference = self._difference(sample)
        ranks.together(lambda: self._refuse(difference))
        return difference

    def _sample(self, engine: Engine, loop: LoopThread, temperature: float) -> Sample:
        prompt = self._renderer.render([Message(role="user", content=_QUESTION)], ())
        count = max(min(_NUM_TOKENS, engine.max_context - 1), 1)
        prompt = prompt[-max(engine.max_context - count, 1) :]
        sampling = Sampling(max_tokens=count, seed=self._updates, temperature=temperature)
        generation = loop.run(_ask(engine, tuple(prompt), sampling))
        return Sample(
            ids=[*prompt, *generation.token_ids],
            mask=[False] * len(prompt) + [True] * len(generation.token_ids),
            logprobs=[0.0] * len(prompt) + list(generation.logprobs),
            advantage=0.0,
            group=_SESSION,
            index=0,
        )

    def _difference(self, sample: Sample) -> Difference:
        batch = self._pack([sample], token_budget=len(sample.ids))[0]
        scored = self._score(batch).logprobs.float().cpu()
        gaps = (scored - batch.old_logprobs.cpu()).abs()
        return Difference(gaps.max().item(), gaps.mean().item())

    def _refuse(self, found: Difference) -> None:
        settings = self._settings
        name = "probe_mean_abs" if self._is_half else "probe_max_abs"
        gap = found.mean_abs if self._is_half else found.max_abs
        allowed = settings.mean_abs if self._is_half else settings.max_abs
        if gap <= allowed:
            return
        raise UsageError(
            f"after weight update {self._updates} the engine's log-probabilities differ from the "
            f"trainer's by {gap:.3g} nats ({'mean' if self._is_half else 'largest'} of a probe's "
            f"tokens; {name} allows {allowed:g}): look at the engine's model, dtype, "
            "temperature and prefix cache"
        )


async def _ask(engine: Engine, prompt: tuple[int, ...], sampling: Sampling) -> Generation:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await engine.generate(prompt, sampling, session=_SESSION)
    except TimeoutError as error:
        raise EngineError(f"the probe was not answered within {_TIMEOUT_S:g} s") from error
    finally:
        engine.release(_SESSION)
