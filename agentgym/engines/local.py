"""What engines in this process share: a thread that samples, and turns that come and go.

Requests may come from any event loop, also from several one after the other. What cannot be sampled
is refused before it reaches the thread, where it could take other turns down with it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from agentgym.engines.base import Generation, Sampling, refuse_unknown_ids
from agentgym.engines.worker import Core, Pending, Reply, Worker
from agentgym.errors import AgentGymError, EngineError, boundary


@dataclass(slots=True)
class EngineStats:
    """What an engine has done so far; `prefilled_tokens + reused_tokens` = prompt tokens."""

    requests: int = 0
    """Turns completed."""
    prefilled_tokens: int = 0
    """Prompt tokens that went through the model."""
    reused_tokens: int = 0
    """Prompt tokens whose keys and values were there: of an earlier turn or another trajectory."""
    sampled_tokens: int = 0
    decode_steps: int = 0
    """Forward calls that sampled one token per running row; of vLLM, all its steps."""
    prefill_calls: int = 0
    """Forward calls over prompts alone; vLLM makes none."""
    seconds: float = 0.0
    """Spent in the model and the sampler, by the worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One turn, as it was asked for and found possible."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    session: str
    limit: int
    """Most tokens to sample: budget and context length together."""
    reply: Reply[Generation]


R = TypeVar("R", bound=Pending)
R_contra = TypeVar("R_contra", bound=Pending, contravariant=True)


class TurnCore(Core, Protocol[R_contra]):
    """A core that takes turns; only called from its thread."""

    @property
    def policy_version(self) -> int:
        """Of the next token."""
        ...

    @property
    def stats(self) -> EngineStats:
        """What has been done so far."""
        ...

    def submit(self, request: R_contra) -> None:
        """Sample this turn as soon as there is room."""
        ...

    def cancel(self, request: R_contra) -> None:
        """Nobody waits for it any more: free what it holds."""
        ...

    def release(self, session: str) -> None:
        """The session will not come back."""
        ...


class LocalEngine(Generic[R]):
    """Samples on a thread of its own.

    Args:
        core: what samples.
        make_request: a turn in the core's own form; may raise a `ConfigError`.
        max_context: longest prompt plus completion, in tokens.
        vocabulary: number of ids that a prompt may hold.
    """

    def __init__(
        self,
        core: TurnCore[R],
        make_request: Callable[[Ask], R],
        *,
        max_context: int,
        vocabulary: int,
    ) -> None:
        self._turns = core
        self._make_request = make_request
        self._max_context = max_context
        self._vocabulary = vocabulary
        self._worker = Worker(core)

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._max_context

    @property
    def policy_version(self) -> int:
        """Weight updates seen so far."""
        return self._turns.policy_version

    @property
    def stats(self) -> EngineStats:
        """What has been done so far; grows while requests run."""
        return self._turns.stats

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """Sample one turn; cancelling the awaiting task frees its place before the next token.

        Raises:
            EngineError: the prompt does not fit or holds unknown ids, the model failed, or the
                engine was closed.
            ConfigError: this engine cannot sample in that way.
        """
        request = self._make_request(self._asked(prompt_ids, sampling, session))
        self._post(lambda: self._turns.submit(request))
        try:
            return await request.reply.future
        except asyncio.CancelledError:
            self._worker.post(lambda: self._turns.cancel(request))
            raise

    def release(self, session: str) -> None:
        """The trajectory is over: its place is free. Unknown sessions are fine."""
        self._worker.post(lambda: self._turns.release(session))

    async def aclose(self) -> None:
        """End the thread; requests in flight fail with `EngineError`. Idempotent."""
        reply: Reply[None] = Reply()
        if self._worker.close(lambda: self._end(reply)):
            await reply.future
        self._worker.join()

    def _free(self) -> None:
        """The thread's last act."""

    def _end(self, reply: Reply[None]) -> None:
        try:
            with boundary(EngineError, "the engine could not be freed"):
                self._free()
        except AgentGymError as error:
            reply.give(error)
        else:
            reply.give(None)

    def _post(self, command: Callable[[], None]) -> None:
        if not self._worker.post(command):
            raise EngineError("the engine is closed")

    def _asked(self, prompt_ids: tuple[int, ...], sampling: Sampling, session: str) -> Ask:
        if not prompt_ids:
            raise EngineError("the prompt is empty")
        room = self._max_context - len(prompt_ids)
        if room < 1:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of "
                f"{self._max_context}"
            )
        refuse_unknown_ids("the prompt", prompt_ids, self._vocabulary)
        return Ask(
            prompt_ids=prompt_ids,
            sampling=sampling,
            session=session,
            limit=min(sampling.max_tokens, room),
            reply=Reply(),
        )
