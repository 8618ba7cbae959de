"""The engines over a model in this process, and the choice between them."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from agentgym.constraint import ConstraintError
from agentgym.engines.base import Generation, Sampling
from agentgym.engines.grammar import Grammars, Guide
from agentgym.engines.local import Ask, LocalEngine
from agentgym.engines.stops import Decode, watch
from agentgym.engines.transformers.fallback import GenerateCore
from agentgym.engines.transformers.model import PolicyModel
from agentgym.engines.transformers.requests import Request
from agentgym.engines.transformers.scheduler import SlotCore
from agentgym.engines.transformers.slots import Slots
from agentgym.engines.transformers.support import refuse_unservable, slot_obstacle
from agentgym.engines.weights import Weights
from agentgym.engines.worker import Reply
from agentgym.errors import AgentGymError, ConfigError, EngineError, boundary
from agentgym.threads import in_thread

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

_COMPILE_S = 10.0
_log = logging.getLogger(__name__)


class TrainedModelEngine(LocalEngine[Request]):
    """Samples from a model object in this process.

    The weights are the model's own: a change is seen at once, so change them only while no request
    runs, and call `update_weights` afterwards. While requests run, the model is in evaluation mode;
    when the last one ends it is as its owner left it, before the outcome is delivered.
    """

    def __init__(
        self,
        model: PolicyModel,
        core: SlotCore | GenerateCore,
        max_context: int,
        *,
        decode: Decode | None,
        tokenizer: "Tokenizer | None",
    ) -> None:
        super().__init__(
            core,
            lambda ask: _request(ask, decode, self._guide(ask.sampling)),
            max_context=max_context,
            vocabulary=model.vocabulary,
        )
        self._core = core
        self._grammars = tokenizer and Grammars(tokenizer, model.vocabulary)
        if isinstance(core, GenerateCore):
            core.poll = self._worker.poll

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """See `LocalEngine.generate`; a grammar is compiled before, on another thread.

        Raises:
            ConstraintError: the turn's constraint cannot be enforced, or not compiled in time.
        """
        if sampling.constraint is not None:
            try:
                async with asyncio.timeout(_COMPILE_S):
                    await in_thread(lambda: self._guide(sampling))
            except TimeoutError as error:
                raise ConstraintError(
                    f"this constraint is too large: not compiled within {_COMPILE_S:g} s"
                ) from error
        return await super().generate(prompt_ids, sampling, session=session)

    def _guide(self, sampling: Sampling) -> Guide | None:
        if sampling.constraint is None:
            return None
        if self._grammars is None:
            raise ConfigError(
                "this engine was made without `tokenizer`, so it cannot constrain a turn; hand it "
                "the model's"
            )
        return self._grammars.guide(sampling.constraint, sampling.stop_token_ids)

    def count_from(self, version: int) -> None:
        """Call the present weights `version`, before anything is sampled."""
        self._core.policy_version = version

    async def update_weights(self, weights: Weights | None = None) -> int:
        """The weights have changed: drop every cache and return the new policy version.

        A turn that is running starts again from its prompt, with the same seed: what it had
        sampled came from weights that are gone, and a `Generation` has one policy version.

        Raises:
            EngineError: the engine is closed.
        """
        return await self.change_weights(lambda: None)

    async def change_weights(self, change: Callable[[], None]) -> int:
        """Like `update_weights`, with `change` made to the weights between two steps.

        Raises:
            EngineError: the engine is closed, or `change` raised.
        """
        reply: Reply[int] = Reply()
        self._post(lambda: reply.give(self._changed(change)))
        return await reply.future

    def _changed(self, change: Callable[[], None]) -> int | AgentGymError:
        try:
            with boundary(EngineError, "the weights could not be changed"):
                change()
        except AgentGymError as error:
            return error
        return self._core.restart()


class TransformersEngine(TrainedModelEngine):
    """Continuous sampling with the cache of every trajectory kept in place.

    Serves decoder-only models whose layers all see the whole context, in any PEFT, DDP or
    accelerate wrapping; `transformers_engine` falls back to `GenerateEngine` for others.

    Args:
        model: the model that is trained.
        max_rows: most turns at once, and most trajectories whose cache is kept; give at least the
            number of trajectories in flight. Memory is two numbers per row, position, layer,
            key/value head and dimension; it grows with the longest prompt and the rows in use.
        max_context: longest prompt plus completion; by default what the model was made for.
        decode: ids to text; needed for stop strings.
        tokenizer: a fast one; needed for constraints.

    Raises:
        ConfigError: the model cannot be served this way; says why.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        max_rows: int = 64,
        max_context: int | None = None,
        decode: Decode | None = None,
        tokenizer: "Tokenizer | None" = None,
    ) -> None:
        policy = PolicyModel(model)
        refuse_unservable(policy)
        context = _context(policy, max_rows, max_context)
        obstacle = slot_obstacle(policy, context)
        if obstacle:
            raise SlotObstacleError(f"{type(policy.base).__name__}: {obstacle}")
        slots = Slots(policy, max_rows=max_rows, max_context=context)
        super().__init__(policy, SlotCore(slots), context, decode=decode, tokenizer=tokenizer)


class GenerateEngine(TrainedModelEngine):
    """Batched `generate()` of whole turns, for models that `TransformersEngine` cannot serve.

    Args:
        model: the model that is trained.
        max_rows: most turns in one batch.
        max_context: longest prompt plus completion; by default what the model was made for.
        decode: ids to text; needed for stop strings.
        tokenizer: a fast one; needed for constraints.

    Raises:
        ConfigError: the model cannot be served at all; says why.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        max_rows: int = 64,
        max_context: int | None = None,
        decode: Decode | None = None,
        tokenizer: "Tokenizer | None" = None,
    ) -> None:
        policy = PolicyModel(model)
        refuse_unservable(policy)
        context = _context(policy, max_rows, max_context)
        core = GenerateCore(policy, max_rows=max_rows)
        super().__init__(policy, core, context, decode=decode, tokenizer=tokenizer)


class SlotObstacleError(ConfigError):
    """The slot engine cannot serve this model; `GenerateEngine` can."""


def transformers_engine(
    model: nn.Module,
    *,
    max_rows: int = 64,
    max_context: int | None = None,
    decode: Decode | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> TrainedModelEngine:
    """The fastest engine for the model; logs why it is not the slot engine.

    Args:
        model: the model that is trained.
        max_rows: most turns at once.
        max_context: longest prompt plus completion; by default what the model was made for.
        decode: ids to text; needed for stop strings.
        tokenizer: a fast one; needed for constraints.

    Raises:
        ConfigError: no engine can serve the model, by its name.
    """
    try:
        return TransformersEngine(
            model, max_rows=max_rows, max_context=max_context, decode=decode, tokenizer=tokenizer
        )
    except SlotObstacleError as obstacle:
        _log.warning("sampling with batched generate(), which is slower: %s", obstacle)
        return GenerateEngine(
            model, max_rows=max_rows, max_context=max_context, decode=decode, tokenizer=tokenizer
        )


def _request(ask: Ask, decode: Decode | None, guide: Guide | None) -> Request:
    watched = watch(ask.sampling.stop, decode)
    prompt = np.asarray(ask.prompt_ids, dtype=np.int64)
    return Request(prompt, ask.sampling, ask.session, ask.limit, ask.reply, watched, guide)


def _context(model: PolicyModel, max_rows: int, max_context: int | None) -> int:
    """The context length to use.

    Raises:
        ConfigError: nothing says how long it may be, or it is longer than the model's.
    """
    if max_rows < 1:
        raise ConfigError(f"max_rows={max_rows}: an engine needs at least one row")
    own = model.max_context()
    if max_context is None and own is None:
        name = type(model.base).__name__
        raise ConfigError(f"{name} does not say how long its context is: give max_context")
    if own is not None and max_context is not None and max_context > own:
        raise ConfigError(f"max_context={max_context} exceeds the model's {own} positions")
    context = max_context or own
    assert context is not None
    if context < 2:
        raise ConfigError(f"max_context={context}: needs room for a prompt and one token")
    return context
