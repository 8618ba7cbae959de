"""One env per session: begun, stepped and closed, whatever the client does.

A session holds its place from before its env is built until after it is closed, so that the limit
on sessions is a limit on envs. Every call of an env has a deadline.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.envs.base import Env
from agentgym.errors import AgentGymError, EnvError, boundary
from agentgym.serving import wire
from agentgym.threads import in_thread

_EXITS = (SystemExit, KeyboardInterrupt)


class FullError(AgentGymError):
    """No place is free."""


class FactoryError(AgentGymError):
    """The env could not be built."""


class Session:
    """An env and the episode that is played on it; calls come one at a time."""

    def __init__(self, env: Env, *, timeout_s: float) -> None:
        self._env = env
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self.id = uuid.uuid4().hex
        self.state = wire.StateData()
        self.used = time.monotonic()
        self.closing: asyncio.Future[None] | None = None
        """Set once somebody closes it."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is being answered."""
        return self._lock.locked()

    async def reset(self, data: wire.ResetData) -> dict[str, Any]:
        """Begin an episode.

        Raises:
            EpisodeError: the env failed.
            UsageError: there is no such task.
        """
        async with self._alone():
            self.state = wire.StateData(episode_id=data.episode_id or self.id)
            options = await self._bounded("reset", self._options(data))
            observation, info = await self._bounded(
                "reset", self._env.areset(seed=data.seed, options=options)
            )
            self.state.task_id = info.get("task_id")
            metadata = {"task_id": self.state.task_id, "session_id": self.id}
            with boundary(EnvError, "reset"):
                told = wire.said(observation, [tool.to_schema() for tool in self._env.tools])
                return wire.answer(told, reward=None, done=False, metadata=metadata)

    async def step(self, data: wire.ActionData) -> dict[str, Any]:
        """Play a message of the policy.

        Raises:
            EpisodeError: the env failed.
            UsageError: there is no episode, or it is over.
        """
        async with self._alone():
            message = data.to_message()
            observation, reward, terminated, truncated, info = await self._bounded(
                "step", self._env.astep(message)
            )
            self.state.step_count += 1
            metadata = {
                "terminated": terminated,
                "truncated": truncated,
                **{key: info[key] for key in ("rewards", "stop_reason", "report") if key in info},
            }
            rewards = info.get("rewards", {})
            is_unscored = bool(rewards) and all(value is None for value in rewards.values())
            with boundary(EnvError, "step"):
                return wire.answer(
                    wire.said(observation),
                    reward=None if is_unscored else reward,
                    done=terminated or truncated,
                    metadata=metadata,
                )

    async def close(self) -> None:
        """Close the env, whatever it does about it."""
        try:
            await self._bounded("close", self._env.aclose())
        except AgentGymError:
            return

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        async with self._lock:
            try:
                yield
            finally:
                self.used = time.monotonic()

    async def _options(self, data: wire.ResetData) -> dict[str, Any]:
        if data.task is not None:
            return {"task": data.task}
        if data.task_index is None:
            return {}
        split, index = data.task_split, data.task_index
        return {"task": await in_thread(lambda: self._env.tasks(split)[index])}

    async def _bounded(self, action: str, work: Any) -> Any:
        async def guarded() -> Any:
            with boundary(EnvError, action, also=_EXITS):
                return await work

        try:
            return await bounded(guarded(), self._timeout_s)
        except TimeoutError as error:
            raise EnvError(f"{action}: no answer within {self._timeout_s:g} s") from error
        except SelfCancelledError as error:
            raise EnvError(f"{action}: {error}") from error


class Sessions:
    """All that are open.

    Args:
        make_env: builds the env of one.
        limit: most that may be open at once.
        timeout_s: longest a call of an env may take.
        idle_s: one that was kept by its id (not by a connection) is closed after so long unused.
    """

    def __init__(
        self, make_env: Callable[[], Env], *, limit: int, timeout_s: float, idle_s: float
    ) -> None:
        self._make_env = make_env
        self.limit = limit
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._places = 0
        self._kept: dict[str, Session] = {}
        self._unwanted: set[asyncio.Task[None]] = set()

    @property
    def num_open(self) -> int:
        return self._places

    async def open(self) -> Session:
        """A session with a new env.

        Raises:
            FullError: there are as many as there may be.
            FactoryError: the env could not be built, or not in time.
        """
        if self._places >= self.limit:
            await self.close_idle()
        if self._places >= self.limit:
            raise FullError(f"all {self.limit} sessions are taken; close one or try again later")
        self._places += 1
        building = asyncio.create_task(self._build())
        try:
            done, _ = await asyncio.wait({building}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            self._discard(building)
            raise
        if not done:
            self._discard(building)
            raise FactoryError(f"the env was not built within {self._timeout_s:g} s")
        return building.result()

    async def _build(self) -> Session:
        try:
            with boundary(FactoryError, "the env cannot be built", also=_EXITS):
                env = await in_thread(self._make_env)
        except BaseException:
            self._places -= 1
            raise
        return Session(env, timeout_s=self._timeout_s)

    def _discard(self, building: "asyncio.Task[Session]") -> None:
        """Close what nobody waits for any more, as soon as it is there."""

        async def close_when_built() -> None:
            with suppress(FactoryError):
                await self.close(await building)

        task = asyncio.create_task(close_when_built())
        self._unwanted.add(task)
        task.add_done_callback(self._unwanted.discard)

    async def close(self, session: Session) -> None:
        """Close a session, even if the caller is being cancelled; a second call waits for it."""
        self._kept.pop(session.id, None)
        if session.closing is None:
            session.closing = asyncio.ensure_future(self._release(session))
        await asyncio.shield(session.closing)

    async def _release(self, session: Session) -> None:
        try:
            await session.close()
        finally:
            self._places -= 1

    def keep(self, session: Session) -> None:
        """Let later requests find it by its id."""
        self._kept[session.id] = session

    def find(self, session_id: str) -> Session | None:
        """The kept session of this id."""
        return self._kept.get(session_id)

    async def close_idle(self) -> None:
        """Close kept sessions that nobody used for long."""
        now = time.monotonic()
        idle = [s for s in self._kept.values() if not s.is_busy and now - s.used > self._idle_s]
        await asyncio.gather(*map(self.close, idle))

    async def close_kept(self) -> None:
        """Close every kept session."""
        await asyncio.gather(*map(self.close, list(self._kept.values())))
