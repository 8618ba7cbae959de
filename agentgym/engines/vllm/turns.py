"""One turn at one of several servers, asked again elsewhere while there is hope.

A turn follows from its prompt, its seed and the weights, so whichever server answers, and after
however many attempts, it is the same one.
"""

import asyncio
import math
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.http import AskAgainError, RefusedError, UnreachableError, pause_s
from agentgym.engines.vllm.adapters import Adapters
from agentgym.engines.vllm.fleet import Server
from agentgym.engines.vllm.health import label_of, until_alive
from agentgym.engines.vllm.policy import Policy
from agentgym.engines.vllm.replies import Reply, read_reply, to_generation
from agentgym.engines.vllm.routing import Router
from agentgym.engines.vllm.sampling import sampling_fields
from agentgym.engines.vllm.settings import Deadlines
from agentgym.errors import EngineError

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

    async def play(self, turn: Turn) -> Generation:
        """The turn.

        Raises:
            ConfigError: no server takes such a request.
            EngineError: no server gave it in time, or with the right weights.
        """
        clock, first = asyncio.get_running_loop().time, math.inf
        for attempt in count():
            self._policy.refuse_trouble()
            server = self._servers[self._router.server_of(turn.session)]
            try:
                return await self._attempt(server, turn)
            except AskAgainError as error:
                failure = error
            first = min(first, clock())
            limit_s = self._deadlines.turn_s if failure.is_busy else self._deadlines.gone_s
            self._move(server, turn, failure)
            await self._before_next(server, turn, failure, first + limit_s - clock(), attempt)
        raise AssertionError

    async def _attempt(self, server: Server, turn: Turn) -> Generation:
        if server.must_resume and not server.watch.is_paused:
            await server.resume(self._deadlines.hung_s)
        policy, since = self._policy, len(self._policy.labels) - 1
        version, adapter = policy.version, policy.adapter
        body = self._body(server, turn, adapter)
        answer = await server.watch.turn(self._posted(server, body, adapter), turn.session)
        reply = read_reply(answer)
        versions = await policy.versions(
            reply.labels, since=since, patience_s=self._deadlines.hung_s
        )
        if versions is None:
            self._mark_stale(server, reply)
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
        if await label_of(server.client, self._deadlines.hung_s) != self._policy.label:
            raise _StaleError(self._other_weights(server, "other weights"))
        if not await self._adapters.restore(server, adapter):
            raise EngineError(f"{server.url} has lost the adapter {adapter}: it was restarted")
        return await server.client.post_once(_GENERATE, body)

    def _move(self, server: Server, turn: Turn, failure: AskAgainError) -> None:
        """To another server, if there is one that does not rest."""
        rest_s = _BUSY_REST_S if failure.is_busy else _REST_S
        self._router.release(turn.session)
        self._router.rest(server.number, math.inf if server.is_stale else rest_s)

    async def _before_next(
        self, server: Server, turn: Turn, failure: AskAgainError, left_s: float, attempt: int
    ) -> None:
        """Wait, if this server is to be asked again.

        Raises:
            EngineError: there is no hope left.
        """
        if all(server.is_stale for server in self._servers):
            raise EngineError(str(failure))
        if left_s <= 0:
            raise EngineError(f"{server.url}: {failure}; gave up")
        following = self._servers[self._router.server_of(turn.session)]
        wait_s = failure.wait_s
        if following is server and isinstance(failure, UnreachableError):
            await self._returned(server, left_s)
        elif following is server or failure.is_busy:
            wait_s = min(pause_s(attempt), _MOST_PAUSE_S) if wait_s is None else wait_s
            await asyncio.sleep(min(wait_s, left_s))

    async def _returned(self, server: Server, left_s: float) -> None:
        """Wait for a server to come back, with the weights it had.

        Raises:
            EngineError: it does not.
        """
        await asyncio.sleep(min(pause_s(0), left_s))
        try:
            await until_alive(server.client, left_s)
            label = await label_of(server.client, self._deadlines.hung_s)
        except AskAgainError as error:
            raise EngineError(f"{error}; gave up") from error
        if label != self._policy.label:
            server.is_stale = True
            raise EngineError(self._other_weights(server, label))

    def _mark_stale(self, server: Server, reply: Reply) -> None:
        server.is_stale = True
        raise _StaleError(self._other_weights(server, ", ".join(reply.labels)))

    def _other_weights(self, server: Server, found: str) -> str:
        return (
            f"{server.url} has the weights {found!r} instead of {self._policy.label!r}: it was "
            "restarted, or somebody else has updated it; update the weights before sampling goes on"
        )
