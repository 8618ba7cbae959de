"""Proof that the engine samples from the policy that is trained: two opinions on the same tokens.

A few short turns are sampled at once, so that each of several servers gets one, and the
log-probabilities that the engine reports are held against those of the trainer's own forward pass.
An engine with another model, temperature, prompt or a broken cache cannot agree on all of them.
Both opinions are formed in the coarser of their number formats: what weights lose on their way to a
coarser engine is a difference between policies, and none that the probe is there to find.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch

from agentgym.deadlines import together
from agentgym.engines.base import Engine, Generation, Sampling
from agentgym.engines.weights import KnowsDtype
from agentgym.errors import ConfigError, EngineError, UsageError
from agentgym.messages import Message
from agentgym.rendering.base import Renderer
from agentgym.rollout.background import LoopThread
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.packing import PackedBatch, Sample, pack, padded
from agentgym.trainer.ranks import Ranks

_QUESTION = "Count from one to twenty, then say which of these numbers you like best, and why."
_NUM_TOKENS = 32
_NUM_TURNS = 4
_SESSION = "agentgym-probe"
_FINE = ("float32", "float64")
_HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_TIMEOUT_S = 300.0

Score = Callable[[PackedBatch], TokenLogprobs]


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """When to compare, and what may differ."""

    every: int = 50
    """Updates from one comparison to the next, the first included; 0 = never."""
    max_abs: float = 1e-3
    """Nats by which a token may differ where both sides compute in float32."""
    mean_abs: float = 0.1
    """Nats by which the tokens of a turn may differ on average, where one side computes in half
    precision."""

    def __post_init__(self) -> None:
        if self.every < 0 or not (self.max_abs > 0 and self.mean_abs > 0):
            raise ConfigError(f"{self}: need every >= 0 and tolerances above 0")


class Difference(NamedTuple):
    """Nats between the two opinions."""

    max_abs: float
    """Of the token that differs most."""
    mean_abs: float
    """Of the tokens of the turn that differs most."""

    @classmethod
    def of(cls, turns: Sequence[torch.Tensor]) -> Self:
        """Of [T] nats by turn; not a number if one of them is not."""
        largest, means = zip(*[(turn.max(), turn.mean()) for turn in turns], strict=True)
        return cls(torch.stack(largest).max().item(), torch.stack(means).max().item())


class Prober:
    """Compares after the first update and then every so many.

    Args:
        settings: when, and what may differ.
        renderer: for the prompt.
        score: the trainer's log-probabilities at the training temperature, without gradient.
        dtype: what the trainer computes in, as in `torch.bfloat16`, without the `torch.`.
        device: type of the trainer's device.
        padding: whether the model cannot have packed rows.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        *,
        renderer: Renderer,
        score: Score,
        dtype: str,
        device: str,
        padding: bool,
    ) -> None:
        self._settings = settings
        self._renderer = renderer
        self._score = score
        self._dtype = dtype
        self._device = device
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
        samples = ranks.together(lambda: self._sample(engine, loop, temperature))
        return ranks.together(lambda: self._compare(engine, samples))

    def _sample(self, engine: Engine, loop: LoopThread, temperature: float) -> list[Sample]:
        prompt = self._renderer.render([Message(role="user", content=_QUESTION)], ())
        count = max(min(_NUM_TOKENS, engine.max_context - 1), 1)
        prompt = prompt[-max(engine.max_context - count, 1) :]
        settings = [
            Sampling(max_tokens=count, seed=seed, temperature=temperature)
            for seed in range(self._updates * _NUM_TURNS, (self._updates + 1) * _NUM_TURNS)
        ]
        turns = loop.run(_ask(engine, tuple(prompt), settings))
        return [
            Sample(
                ids=[*prompt, *turn.token_ids],
                mask=[False] * len(prompt) + [True] * len(turn.token_ids),
                logprobs=[0.0] * len(prompt) + list(turn.logprobs),
                advantage=0.0,
                group=index,
                index=index,
            )
            for index, turn in enumerate(turns)
        ]

    def _compare(self, engine: Engine, samples: Sequence[Sample]) -> Difference:
        theirs = engine.dtype() if isinstance(engine, KnowsDtype) else self._dtype
        with self._as_coarse_as(theirs):
            found = Difference.of([self._gaps(sample) for sample in samples])
        self._refuse(found, theirs)
        return found

    def _gaps(self, sample: Sample) -> torch.Tensor:
        """[T] nats, by sampled token."""
        (batch,) = self._pack([sample], token_budget=len(sample.ids))
        scored = self._score(batch).logprobs.float().cpu()
        return (scored - batch.old_logprobs.cpu()).abs()

    def _as_coarse_as(self, theirs: str) -> AbstractContextManager[object]:
        """Computing in the engine's half precision, if the trainer's own is finer."""
        if self._dtype not in _FINE or theirs not in _HALF:
            return nullcontext()
        return torch.autocast(self._device, dtype=_HALF[theirs])

    def _refuse(self, found: Difference, theirs: str) -> None:
        is_half = not {self._dtype, theirs} <= {*_FINE}
        name = "probe_mean_abs" if is_half else "probe_max_abs"
        gap = found.mean_abs if is_half else found.max_abs
        allowed = self._settings.mean_abs if is_half else self._settings.max_abs
        if gap <= allowed:
            return
        raise UsageError(
            f"after weight update {self._updates} the engine's log-probabilities differ from the "
            f"trainer's by {gap:.3g} nats ({'mean' if is_half else 'largest'} of a turn's tokens; "
            f"{name} allows {allowed:g}, for a trainer in {self._dtype} and an engine in "
            f"{theirs}): look at the engine's model, temperature and prefix cache"
        )


async def _ask(
    engine: Engine, prompt: tuple[int, ...], settings: Sequence[Sampling]
) -> list[Generation]:
    """A turn for each of the settings, of as many sessions."""

    async def turn(number: int, sampling: Sampling) -> Generation:
        session = f"{_SESSION}-{number}"
        try:
            return await engine.generate(prompt, sampling, session=session)
        finally:
            engine.release(session)

    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await together(
                [asyncio.ensure_future(turn(*each)) for each in enumerate(settings)]
            )
    except TimeoutError as error:
        raise EngineError(f"the probe was not answered within {_TIMEOUT_S:g} s") from error
