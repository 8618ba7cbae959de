"""What holds for every env, however its author wrote it.

`pair_up` gives each env class both sides of `reset`, `step` and `close`, sync and async, from the
one its author defined, and puts the checks of `Contract` around both: seeded before the author's
code runs, no step out of order, plain and finite values, a turn limit that truncates.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
import numpy as np

from agentgym.errors import ConfigError, EnvError, EpisodeOverError
from agentgym.messages import Message, assistant, user
from agentgym.threads import run_coroutine
from agentgym.trajectory import StopReason

if TYPE_CHECKING:
    from agentgym.envs.base import Env

Observation = list[Message]
Info = dict[str, Any]
ResetResult = tuple[Observation, Info]
StepResult = tuple[Observation, float, bool, bool, Info]


class _StepAfterEndError(EpisodeOverError, gymnasium.error.ResetNeeded):
    """Known to Gymnasium's users by their own class too."""


class Phase(Enum):
    """Where an env stands in its episode."""

    NEW = "not reset"
    PLAYING = "playing"
    OVER = "over"


@dataclass(slots=True)
class Contract:
    """State of one env's checks."""

    phase: Phase = Phase.NEW
    turn: int = 0
    """Steps of this episode, the one being taken included."""
    entered: bool = False
    """A checked call is running; what it calls through `super()` is not checked again."""
    closed: bool = False

    @contextmanager
    def entering(self) -> Iterator[None]:
        """A call of the author's code; one that raises leaves the env to be reset."""
        self.entered, self.phase = True, Phase.NEW
        try:
            yield
        finally:
            self.entered = False

    def accept_reset(self, result: Any) -> ResetResult:
        """What `reset` returned, checked; the episode begins."""
        observation, info = _unpack("reset", result, 2)
        checked = as_messages(observation, "reset"), _as_info(info, "reset")
        self.phase, self.turn, self.closed = Phase.PLAYING, 0, False
        return checked

    def before_step(self, action: Any) -> Message:
        """The action as a message.

        Raises:
            gymnasium.error.ResetNeeded: there is no episode.
            EpisodeOverError: it has ended.
            ConfigError: an action is text or an assistant message.
        """
        if self.phase is Phase.NEW:
            raise gymnasium.error.ResetNeeded("call reset before step")
        if self.phase is Phase.OVER:
            raise _StepAfterEndError("the episode is over: call reset before the next step")
        message = as_action(action)
        self.turn += 1
        return message

    def accept_step(self, result: Any, max_turns: int | None) -> StepResult:
        """What `step` returned, as plain values; reaching `max_turns` truncates."""
        observation, reward, terminated, truncated, given = _unpack("step", result, 5)
        messages, info = as_messages(observation, "step"), _as_info(given, "step")
        number = as_number(reward, "the reward")
        ended = _as_bool(terminated, "terminated")
        cut = _as_bool(truncated, "truncated")
        if "rewards" in info:
            info["rewards"] = as_rewards(info["rewards"])
        if max_turns is not None and self.turn >= max_turns and not (ended or cut):
            cut = True
            info.setdefault("stop_reason", StopReason.MAX_TURNS.value)
        self.phase = Phase.OVER if ended or cut else Phase.PLAYING
        return messages, number, ended, cut, info

    def closing(self) -> bool:
        """True the first time."""
        first, self.closed = not self.closed, True
        return first


def as_action(action: Any) -> Message:
    """The policy's message; text becomes one.

    Raises:
        ConfigError: it is neither text nor an assistant message.
    """
    if isinstance(action, str):
        return assistant(str(action))
    if isinstance(action, Message) and action.role == "assistant":
        return action
    raise ConfigError(f"an action is text or an assistant message, got {action!r}")


def as_messages(observation: Any, where: str) -> Observation:
    """A list of messages; text becomes a user message.

    Raises:
        EnvError: it is neither text, nor a message, nor a list of messages.
    """
    if isinstance(observation, str):
        return [user(str(observation))]
    if isinstance(observation, Message):
        return [observation]
    if isinstance(observation, list | tuple) and all(isinstance(m, Message) for m in observation):
        return list(observation)
    raise EnvError(f"{where} returned an observation that is no list of messages: {observation!r}")


def as_number(value: Any, what: str) -> float:
    """A plain finite float.

    Raises:
        EnvError: it is none.
    """
    if not isinstance(value, SupportsFloat) or isinstance(value, str):
        raise EnvError(f"{what} must be a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise EnvError(f"{what} is {number}, which is not finite; None in `rewards` is unscored")
    return number


def as_rewards(rewards: Any) -> dict[str, float | None]:
    """Named rewards as plain finite floats; `None` stays: unscored.

    Raises:
        EnvError: one is neither a finite number nor `None`.
    """
    if not isinstance(rewards, Mapping):
        raise EnvError(f"rewards must be given by name, got {rewards!r}")
    return {
        str(name): None if value is None else as_number(value, f"the reward {name!r}")
        for name, value in rewards.items()
    }


def pair_up(cls: "type[Env]") -> None:
    """Give a new env class both sides, checked, of what it defines itself."""
    own = dict(cls.__dict__)
    for name, check, acheck, offload in (
        ("reset", _checked_reset, _checked_areset, _offloaded),
        ("step", _checked_step, _checked_astep, _offloaded),
        ("close", _checked_close, _checked_aclose, _offloaded_last),
    ):
        side, aside = own.get(name), own.get("a" + name)
        if side is None and aside is None:
            continue
        setattr(cls, name, check(side or _blocking(aside)))
        setattr(cls, "a" + name, acheck(aside or offload(side)))


_Side = Callable[..., Any]


def _blocking(aside: Any) -> _Side:
    @functools.wraps(aside)
    def side(self: "Env", *args: Any, **kwargs: Any) -> Any:
        return run_coroutine(aside(self, *args, **kwargs))

    return side


def _offloaded(side: Any) -> _Side:
    """In the env's own thread, because what one call opens may be bound to it."""

    @functools.wraps(side)
    async def aside(self: "Env", *args: Any, **kwargs: Any) -> Any:
        return await self._worker.run(functools.partial(side, self, *args, **kwargs))

    return aside


def _offloaded_last(side: Any) -> _Side:
    """Like `_offloaded`, but it happens even if nobody waits for it any more."""

    @functools.wraps(side)
    async def aside(self: "Env") -> Any:
        return await self._worker.run_last(functools.partial(side, self))

    return aside


def _checked_reset(side: _Side) -> _Side:
    @functools.wraps(side)
    def reset(self: "Env", *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        if self._contract.entered:
            return side(self, seed=seed, options=options)  # type: ignore[no-any-return]
        self.seed_generator(seed)
        with self._contract.entering():
            return self._contract.accept_reset(side(self, seed=seed, options=options))

    return reset


def _checked_areset(aside: _Side) -> _Side:
    @functools.wraps(aside)
    async def areset(
        self: "Env", *, seed: int | None = None, options: Info | None = None
    ) -> ResetResult:
        if self._contract.entered:
            return await aside(self, seed=seed, options=options)  # type: ignore[no-any-return]
        self.seed_generator(seed)
        with self._contract.entering():
            return self._contract.accept_reset(await aside(self, seed=seed, options=options))

    return areset


def _checked_step(side: _Side) -> _Side:
    @functools.wraps(side)
    def step(self: "Env", action: Any) -> StepResult:
        if self._contract.entered:
            return side(self, action)  # type: ignore[no-any-return]
        message = self._contract.before_step(action)
        with self._contract.entering():
            return self._contract.accept_step(side(self, message), self.max_turns)

    return step


def _checked_astep(aside: _Side) -> _Side:
    @functools.wraps(aside)
    async def astep(self: "Env", action: Any) -> StepResult:
        if self._contract.entered:
            return await aside(self, action)  # type: ignore[no-any-return]
        message = self._contract.before_step(action)
        with self._contract.entering():
            return self._contract.accept_step(await aside(self, message), self.max_turns)

    return astep


def _checked_close(side: _Side) -> _Side:
    @functools.wraps(side)
    def close(self: "Env") -> None:
        if self._contract.entered:
            side(self)
        elif self._contract.closing():
            with self._contract.entering():
                side(self)
            self._worker.stop()

    return close


def _checked_aclose(aside: _Side) -> _Side:
    @functools.wraps(aside)
    async def aclose(self: "Env") -> None:
        if self._contract.entered:
            await aside(self)
        elif self._contract.closing():
            with self._contract.entering():
                await aside(self)
            self._worker.stop()

    return aclose


def _unpack(method: str, result: Any, size: int) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != size:
        raise EnvError(f"{method} must return {size} values, got {result!r}")
    return result


def _as_info(info: Any, method: str) -> Info:
    if not isinstance(info, dict):
        raise EnvError(f"{method} returned an info that is no dict: {info!r}")
    return dict(info)


def _as_bool(value: Any, what: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise EnvError(f"step returned {what}={value!r}, which is no bool")
    return bool(value)
