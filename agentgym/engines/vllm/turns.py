"""One turn at one of several servers, asked again elsewhere while there is hope.

A turn follows from its prompt, its seed and the weights, so whichever server answers, and after
however many attempts, it is the same one.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.http import AskAgainError, RefusedError, UnreachableError, pause_s
from agentgym.engines.vllm.adapters import Adapters
from agentgym.engines.vllm.endable import Endable
from agentgym.engines.vllm.fleet import Server
from agentgym.engines.vllm.health import label_of
from agentgym.engines.vllm.policy import Policy
from agentgym.engines.vllm.replies import FIRST_LABEL, read_reply, to_generation
from agentgym.engines.vllm.routing import Router
from agentgym.engines.vllm.sampling import sampling_fields
from agentgym.engines.vllm.settings import Deadlines
from agentgym.engines.weights import WeightsLostError
from agentgym.errors import EngineError, OutageError

_GENERATE = "/inference/v1/generate"
_REST_S = 15.0
_BUSY_REST_S = 1.0
_MOST_PAUSE_S = 5.0


class Turn(NamedTuple):
    """What is asked for."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    session: str
    max_tokens: int


class _StaleError(AskAgainError):
    """The server has other weights than it should; another one may have the right ones."""


class Turns:
    """Asks the servers.

    Args:
        servers: all of them.
        policy: what they should have.
        adapters: what they may have lost.
        router: which of them a session is at.
        deadlines: how long to hope.
    """

    def __init__(
        self,
        servers: list[Server],
        policy: Policy,
        adapters: Adapters,
        router: Router,
        deadlines: Deadlines,
    ) -> None:
        self._servers = servers
        self._policy = policy
        self._adapters = adapters
        self._router = router
        self._deadlines = deadlines
        self._under_way: dict[Endable[Generation], str] = {}
        """With their sessions."""
        self._last_good = -math.inf
        """When the last turn began that was answered."""

    async def play(self, turn: Turn) -> Generation:
        """The turn.

        Raises:
            ConfigError: no server takes such a request.
            EngineError: no server gave this one in time, or it was ended.
            OutageError: all servers are gone, give no turn at all, or have other weights.
        """
        asked = Endable(self._played(turn))
        self._under_way[asked] = turn.session
        try:
            return await asked.result()
        finally:
            del self._under_way[asked]

    def end(self, failure: EngineError, session: str | None = None) -> None:
        """Fail what is under way, of one session or of all."""
        for asked, owner in self._under_way.items():
            if session in (None, owner):
                asked.end(failure)

    async def _played(self, turn: Turn) -> Generation:
        hope, silent = _Hope(self._deadlines), set[int]()
        while True:
            self._policy.refuse_trouble()
            server = self._servers[self._router.server_of(turn.session)]
            try:
                return await self._attempt(server, turn)
            except AskAgainError as error:
                failure = error
            self._move(server, turn, failure)
            self._refuse_stale(failure)
            pause_s = hope.pause_s(failure)
            if pause_s is None:
                raise self._given_up(server, failure, hope)
            if isinstance(failure, UnreachableError):
                silent.add(server.number)
            following = self._router.server_of(turn.session)
            if following in silent or following == server.number or failure.is_busy:
                await asyncio.sleep(pause_s)
            if following in silent:
                self._router.wake(await self._any_back(failure))
                self._router.release(turn.session)
                silent.clear()

    async def _attempt(self, server: Server, turn: Turn) -> Generation:
        if server.must_resume and not server.watch.is_paused:
            await server.resume(self._deadlines.hung_s)
        policy, since, began = self._policy, len(self._policy.labels) - 1, time.monotonic()
        version, adapter = policy.version, policy.adapter
        body = self._body(server, turn, adapter)
        answer = await server.watch.turn(self._posted(server, body, adapter))
        server.presence.back()
        self._last_good = max(self._last_good, began)
        reply = read_reply(answer)
        versions = await policy.versions(
            reply.labels, since=since, patience_s=self._deadlines.hung_s
        )
        if versions is None:
            raise self._stale(server, *reply.labels)
        if adapter is not None:
            versions = dict.fromkeys(reply.labels, version)
        return to_generation(reply, turn.sampling, versions or {})

    def _body(self, server: Server, turn: Turn, adapter: str | None) -> dict[str, Any]:
        assert server.facts is not None
        return {
            "token_ids": list(turn.prompt_ids),
            "sampling_params": sampling_fields(turn.sampling, max_tokens=turn.max_tokens),
            "model": adapter or server.facts.model,
            "cache_salt": str(self._policy.version),
        }

    async def _posted(self, server: Server, body: Mapping[str, Any], adapter: str | None) -> Any:
        try:
            return await server.client.post_once(_GENERATE, body)
        except RefusedError as error:
            if error.status != 404 or adapter is None:
                raise
        label = await label_of(server.client, self._deadlines.hung_s)
        if label != self._policy.label:
            raise self._stale(server, label)
        if not await self._adapters.restore(server, adapter):
            raise EngineError(f"{server.url} has lost the adapter {adapter}: it was restarted")
        return await server.client.post_once(_GENERATE, body)

    def _given_up(
        self, server: Server, failure: AskAgainError, hope: "_Hope"
    ) -> EngineError | OutageError:
        """The turn is to blame only if others went through meanwhile."""
        is_alone = self._last_good > hope.since
        return (EngineError if is_alone else OutageError)(f"{server.url}: {failure}; gave up")

    def _move(self, server: Server, turn: Turn, failure: AskAgainError) -> None:
        """To another server, if there is one that does not rest."""
        rest_s = _BUSY_REST_S if failure.is_busy else _REST_S
        self._router.release(turn.session)
        self._router.rest(server.number, math.inf if server.is_stale else rest_s)

    def _refuse_stale(self, failure: AskAgainError) -> None:
        """Raise an `OutageError` if no server has the policy's weights."""
        if not all(server.is_stale for server in self._servers):
            return
        is_anew = all(server.found == FIRST_LABEL for server in self._servers)
        told = str(failure)
        if not isinstance(failure, _StaleError):  # it was silent, or busy, after that
            told = self._other_weights(self._servers[0], str(self._servers[0].found))
        raise (WeightsLostError if is_anew else OutageError)(told)

    async def _any_back(self, failure: AskAgainError) -> int:
        """Wait for the first server to be back, with the weights it had; its number.

        Args:
            failure: why it is waited for, if none is left to wait for.

        Raises:
            OutageError: none is.
        """
        waits = [
            asyncio.ensure_future(self._back(server))
            for server in self._servers
            if not server.is_stale
        ]
        try:
            for wait in asyncio.as_completed(waits):
                try:
                    return await wait
                except AskAgainError as error:
                    failure = error
        finally:
            for pending in waits:
                pending.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self._refuse_stale(failure)
        raise OutageError(str(failure))

    async def _back(self, server: Server) -> int:
        label = await server.presence.returned()
        if label != self._policy.label and not server.watch.is_paused:
            raise self._stale(server, label)
        return server.number

    def _stale(self, server: Server, *labels: str) -> _StaleError:
        """Send nothing more there; the error to raise."""
        server.found = labels[-1]
        return _StaleError(self._other_weights(server, ", ".join(labels)))

    def _other_weights(self, server: Server, found: str) -> str:
        return (
            f"{server.url} has the weights {found!r} instead of {self._policy.label!r}: it was "
            "restarted, or somebody else has updated it; update the weights before sampling goes on"
        )


class _Hope:
    """How long a turn is still asked for: servers that are well but busy are waited for longer.

    Args:
        deadlines: `turn_s` for busy servers and for all together, else `gone_s`.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._began = self._since = time.monotonic()
        self._num, self._was_busy = 0, False

    @property
    def since(self) -> float:
        """From when on it was in vain: all of the turn, unless the last trouble alone took long."""
        is_long = time.monotonic() - self._since >= self._deadlines.gone_s
        return self._since if is_long else self._began

    def pause_s(self, failure: AskAgainError) -> float | None:
        """Seconds to rest before another attempt; `None` if there is no hope left."""
        now = time.monotonic()
        if not self._num or failure.is_busy != self._was_busy:
            self._num, self._since, self._was_busy = 0, now, failure.is_busy
        limit_s = self._deadlines.turn_s if failure.is_busy else self._deadlines.gone_s
        left_s = min(self._since + limit_s, self._began + self._deadlines.turn_s) - now
        pause = min(pause_s(self._num), _MOST_PAUSE_S)
        self._num += 1
        wait_s = pause if failure.wait_s is None else failure.wait_s
        return min(wait_s, left_s) if left_s > 0 else None
