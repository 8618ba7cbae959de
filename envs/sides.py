"""Gives each env class both sides of `reset`, `step` and `close`, sync and async.

Its author defines one; the other is made from it, and the checks of `Contract` go around both. What
a class defines itself wins over what it inherits, whichever side that was, so that overriding
`step` of an async env also changes what the loop plays.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentgym.envs.contract import Info, ResetResult, StepResult
from agentgym.threads import run_coroutine

if TYPE_CHECKING:
    from agentgym.envs.base import Env

_Side = Callable[..., Any]


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
        self._contract.before_reset()
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
        self._contract.before_reset()
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
            try:
                with self._contract.entering():
                    side(self)
            finally:
                self._close_sandbox()
            self._worker.stop()

    return close


def _checked_aclose(aside: _Side) -> _Side:
    @functools.wraps(aside)
    async def aclose(self: "Env") -> None:
        if self._contract.entered:
            await aside(self)
        elif self._contract.closing():
            try:
                with self._contract.entering():
                    await aside(self)
            finally:
                await self._sandbox.aclose()
            self._worker.stop()

    return aclose
