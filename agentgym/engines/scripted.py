"""Engines without a model: turns come from a policy function or from a prepared script.

They obey the limits of a real engine (token budget, context length, stop tokens), so that tests,
oracle policies and `--policy scripted:FILE` go through the very loop that training uses. Calls are
recorded for who asks for it: what the loop sent is what a test wants to see.
"""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from agentgym.engines.base import FinishReason, Generation, Sampling, refuse_unknown_ids
from agentgym.engines.stops import Decode, length_until_stop, watch
from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError, EngineError, boundary

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCall:
    """What the engine was asked for."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    session: str
    turn: int
    """Calls of this session before this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """One prepared completion, as ids or as text."""

    text: str | None = None
    """Encoded by the engine's `encode`; a stop token follows if `finish_reason` is `stop`."""
    token_ids: Sequence[int] = ()
    """[T] used as they are, if there is no text."""
    logprobs: Sequence[float] | None = None
    """[T] nats, stop token included; `None` = 0.0 each."""
    finish_reason: FinishReason | None = None
    """`None` = `stop` for text and for ids that end with a stop token, else `length`."""


Turn = ScriptedTurn | str | Sequence[int]
Policy = Callable[[EngineCall], Turn | Awaitable[Turn]]
Script = Sequence[Turn] | Mapping[str, Sequence[Turn]]
"""Turns of every session, or by session name; names may hold `*` and `?`, first match counts."""


class CallableEngine:
    """Asks a function for every turn; the function may be async.

    A turn's constraint is in the call, for the function to keep; nothing enforces it here.

    Args:
        policy: the turn for a call; what it raises fails that call with `EngineError`.
        encode: text to ids; needed if the policy answers with text.
        decode: ids to text; needed for stop strings.
        stop_token_id: ends turns given as text; by default the only stop id of the request.
        max_context: longest prompt plus completion, in tokens.
        vocabulary: number of token ids; without it any id is taken.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        encode: Encode | None = None,
        decode: Decode | None = None,
        stop_token_id: int | None = None,
        max_context: int = 1 << 20,
        vocabulary: int | None = None,
    ) -> None:
        self._calls: list[EngineCall] | None = None
        self._policy = policy
        self._encode = encode
        self._decode = decode
        self._vocabulary = vocabulary
        self._stop_token_id = stop_token_id
        self._max_context = max_context
        self._version = 0
        self._turns: Counter[str] = Counter()
        self._closed = False

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._max_context

    @property
    def policy_version(self) -> int:
        """Weight updates seen so far."""
        return self._version

    def recording(self) -> Self:
        """This engine, which from now on keeps every call, its whole prompt included."""
        self._calls = []
        return self

    @property
    def calls(self) -> list[EngineCall]:
        """Calls so far.

        Raises:
            ConfigError: they are not recorded.
        """
        if self._calls is None:
            raise ConfigError("the engine keeps no calls: build it as Engine(...).recording()")
        return self._calls

    def prompts(self, session: str) -> list[tuple[int, ...]]:
        """Prompts of one session, in the order they came."""
        return [call.prompt_ids for call in self.calls if call.session == session]

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """Play one turn; cut by `max_tokens`, the context and stop strings like a sampled one.

        Raises:
            EngineError: the prompt does not fit, the policy failed or said what no model could, or
                the engine is closed.
            ConfigError: there are stop strings, but no `decode`.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        room = self._max_context - len(prompt_ids)
        if room < 1:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of "
                f"{self._max_context}"
            )
        turn = self._turns[session]
        call = EngineCall(prompt_ids=prompt_ids, sampling=sampling, session=session, turn=turn)
        self._turns[session] += 1
        if self._calls is not None:
            self._calls.append(call)
        with boundary(EngineError, f"policy of session {session!r}"):
            answer = self._policy(call)
            prepared = await answer if inspect.isawaitable(answer) else answer
        return self._complete(prepared, sampling, min(room, sampling.max_tokens))

    def release(self, session: str) -> None:
        """The trajectory is over; the session's next call is its turn 0."""
        self._turns.pop(session, None)

    async def update_weights(self, weights: Weights | None = None) -> int:
        """Count an update; there are no weights."""
        self._version += 1
        return self._version

    async def aclose(self) -> None:
        """Refuse further calls; the record stays."""
        self._closed = True

    def _complete(self, answer: Turn, sampling: Sampling, limit: int) -> Generation:
        turn = _as_turn(answer)
        ids = list(turn.token_ids) if turn.text is None else self._encode_turn(turn, sampling)
        logprobs = [0.0] * len(ids) if turn.logprobs is None else list(turn.logprobs)
        if not ids or len(logprobs) != len(ids):
            raise EngineError(
                f"a turn needs one logprob per token and at least one token, got {len(ids)} tokens "
                f"and {len(logprobs)} logprobs"
            )
        if self._vocabulary is not None:
            refuse_unknown_ids("the turn", ids, self._vocabulary)
        reason = turn.finish_reason or ("stop" if ids[-1] in self._stops(sampling) else "length")
        length, reason = self._cut(ids, reason, sampling, limit)
        return Generation(
            token_ids=tuple(ids[:length]),
            logprobs=tuple(logprobs[:length]),
            finish_reason=reason,
            policy_version=self._version,
        )

    def _cut(
        self, ids: list[int], reason: FinishReason, sampling: Sampling, limit: int
    ) -> tuple[int, FinishReason]:
        """How much of a turn is sampled, and what ends it: the first of its limits."""
        watched = watch(sampling.stop, self._decode)
        end = len(ids) - (reason == "stop")
        stopped = length_until_stop(ids[: min(end, limit)], watched)
        if stopped is not None:
            return stopped, "stop_string"
        return (len(ids), reason) if len(ids) <= limit else (limit, "length")

    def _stops(self, sampling: Sampling) -> frozenset[int]:
        own = frozenset() if self._stop_token_id is None else frozenset({self._stop_token_id})
        return sampling.stop_token_ids | own

    def _encode_turn(self, turn: ScriptedTurn, sampling: Sampling) -> list[int]:
        if self._encode is None:
            raise ConfigError(
                f"the turn {turn.text!r} is text: give the engine an `encode` function"
            )
        ids = list(self._encode(turn.text or ""))
        if turn.finish_reason in (None, "stop"):
            ids.append(self._turn_end(sampling))
        return ids

    def _turn_end(self, sampling: Sampling) -> int:
        if self._stop_token_id is not None:
            return self._stop_token_id
        if len(sampling.stop_token_ids) != 1:
            raise ConfigError(
                f"a turn given as text may end with any of {sorted(sampling.stop_token_ids)}: "
                "give the engine a `stop_token_id`"
            )
        return next(iter(sampling.stop_token_ids))


class ScriptedEngine(CallableEngine):
    """Plays prepared turns, one after the other, in every session; a constraint changes none.

    Args:
        script: turns of every session, or turns by session name (see `Script`).
        encode: text to ids; needed if the script holds text.
        decode: ids to text; needed for stop strings.
        stop_token_id: ends turns given as text; by default the only stop id of the request.
        max_context: longest prompt plus completion, in tokens.
        vocabulary: number of token ids; without it any id is taken.
    """

    def __init__(
        self,
        script: Script,
        *,
        encode: Encode | None = None,
        decode: Decode | None = None,
        stop_token_id: int | None = None,
        max_context: int = 1 << 20,
        vocabulary: int | None = None,
    ) -> None:
        super().__init__(
            self._next_turn,
            encode=encode,
            decode=decode,
            stop_token_id=stop_token_id,
            max_context=max_context,
            vocabulary=vocabulary,
        )
        self._script = script if isinstance(script, Mapping) else {"*": script}

    def _next_turn(self, call: EngineCall) -> Turn:
        matches = (turns for name, turns in self._script.items() if _matches(call.session, name))
        turns = next(matches, None)
        if turns is None:
            raise EngineError(
                f"no script for session {call.session!r}; there are {', '.join(self._script)}"
            )
        if call.turn >= len(turns):
            raise EngineError(
                f"the script of session {call.session!r} has {len(turns)} turns and was asked for "
                f"one more"
            )
        return turns[call.turn]


def _matches(session: str, name: str) -> bool:
    """Whether a script is for this trajectory; each of its attempts plays it anew."""
    trajectory = session.partition("~")[0]
    return trajectory == name or fnmatchcase(trajectory, name)


def _as_turn(answer: Turn) -> ScriptedTurn:
    if isinstance(answer, ScriptedTurn):
        return answer
    if isinstance(answer, str):
        return ScriptedTurn(text=answer)
    return ScriptedTurn(token_ids=answer)
