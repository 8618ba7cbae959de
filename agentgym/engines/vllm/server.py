"""vLLM's own servers as the engine: tokens in, tokens out, and weights that follow the trainer's.

Everything is HTTP to endpoints that vLLM has; one or several servers hold the same weights and
share the trajectories.
"""

import asyncio
import math
import os
import threading
import time
from typing import Literal

from agentgym.deadlines import together
from agentgym.engines.base import Generation, Sampling
from agentgym.engines.http import FailedCallError, JsonClient, UnreachableError
from agentgym.engines.promises import is_about_a_constraint
from agentgym.engines.vllm.adapters import Adapters, loaded_names
from agentgym.engines.vllm.endable import Endable
from agentgym.engines.vllm.fleet import Server, coarsest, on_all
from agentgym.engines.vllm.health import Facts, label_of, look
from agentgym.engines.vllm.policy import Policy, version_of
from agentgym.engines.vllm.ports import place_of
from agentgym.engines.vllm.presence import Presence
from agentgym.engines.vllm.replies import ConstraintRefusedError
from agentgym.engines.vllm.routing import Router
from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.engines.vllm.turns import Turn, Turns
from agentgym.engines.vllm.updating import Updater
from agentgym.engines.vllm.watch import Watch
from agentgym.engines.weights import Weights
from agentgym.errors import AgentGymError, ConfigError, EngineError
from agentgym.threads import in_thread, run_coroutine

_BAD_REQUEST = 400
_FOLLOW_STEP_S = 0.2


class VllmServerEngine:
    """Samples from one policy on one or several vLLM servers.

    Servers are looked at when they are first needed. Event loops may come and go.

    Args:
        servers: where they are, and how long to wait for them.
    """

    keeps_weights: Literal[True] = True
    is_shared = True

    def __init__(self, servers: VllmServers) -> None:
        self._settings = servers
        self._servers = [
            _server(number, client, servers.deadlines)
            for number, client in enumerate(_clients(servers))
        ]
        self._policy = Policy()
        self._router = Router(len(self._servers))
        self._updater = Updater(self._servers, self._policy, servers)
        self._adapters = Adapters(self._servers, self._policy, servers)
        self._turns = Turns(
            self._servers, self._policy, self._adapters, self._router, servers.deadlines
        )
        self._max_context: int | None = None
        self._looking = threading.Lock()
        self._looked: tuple[float, AgentGymError | None] = (-math.inf, None)
        """When the last look ended, and how it failed."""
        self._update: Endable[None] | None = None
        self._is_closed = False

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens; the servers are waited for.

        Raises:
            ConfigError: a server is not what is needed.
            EngineError: one did not answer in time.
        """
        self._look()
        assert self._max_context is not None
        return self._max_context

    @property
    def policy_version(self) -> int:
        """What the next turn is sampled with."""
        return self._policy.version

    @property
    def loads(self) -> list[int]:
        """Sessions per server."""
        return self._router.loads

    @property
    def run(self) -> str:
        """Mark of this process' run among others on the same servers."""
        return self._adapters.run

    def take_part_in(self, run: str) -> None:
        """Share adapters with the engines of other processes that take part in `run`."""
        self._adapters.run = run

    def places(self) -> frozenset[str]:
        """A name for each server, the same wherever it is asked for."""
        return frozenset(map(place_of, self._settings.urls))

    def dtype(self) -> str:
        """The coarsest that a server computes in; the servers are waited for.

        Raises:
            ConfigError: a server is not what is needed.
            EngineError: one did not answer in time.
        """
        self._look()
        return coarsest(server.facts.dtype for server in self._servers if server.facts)

    async def connect(self) -> None:
        """Look at the servers, unless that was done.

        Raises:
            ConfigError: a server is not what is needed.
            EngineError: one did not answer in time.
        """
        self._refuse_closed()
        if self._max_context is None:
            await in_thread(self._look)
            self._refuse_closed()

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """Sample one turn; cancelling the awaiting task ends it at the server.

        Raises:
            ConfigError: a server is not what is needed, or takes no such request.
            ConstraintError: the server cannot enforce the turn's constraint.
            EngineError: the prompt does not fit, or no server gave the turn.
            OutageError: all servers are gone, give no turn, or have lost the policy's weights.
        """
        await self.connect()
        limit = min(sampling.max_tokens, self._room(len(prompt_ids)))
        try:
            return await self._turns.play(Turn(prompt_ids, sampling, session, limit))
        except FailedCallError as error:
            constraint = sampling.constraint
            is_refusal = error.status == _BAD_REQUEST and is_about_a_constraint(error.said)
            if constraint is None or not is_refusal:
                raise
            raise ConstraintRefusedError(constraint, error.said) from error

    def release(self, session: str) -> None:
        """The trajectory is over: what still runs for it is aborted."""
        self._turns.end(EngineError(f"the trajectory {session} is over"), session)
        self._router.release(session)

    async def update_weights(self, weights: Weights | None = None) -> int:
        """Bring all servers to new weights; turns under way go on.

        Raises:
            ConfigError: they are not those of the servers' model, or there are none.
            EngineError: they did not arrive; says what the servers have.
        """
        self._refuse_closed()
        if weights is None:
            raise ConfigError("vLLM servers keep weights of their own: hand over the new ones")
        if self._update is not None:
            raise EngineError("the weights are being updated already")
        self._update = Endable(self._pushed(weights))
        try:
            await self._update.result()
        finally:
            self._update = None
        return self.policy_version

    async def _pushed(self, weights: Weights) -> None:
        await self.connect()
        await (self._adapters if weights.kind == "lora" else self._updater).push(weights)
        self._router.wake()

    async def follow(self, version: int) -> None:
        """Another process has brought the servers to `version`; wait until all say so.

        Raises:
            EngineError: a server says otherwise.
        """
        await self.connect()
        patience_s = self._settings.deadlines.hung_s
        name = self._adapters.name_of(version)
        kinds = await on_all(self._servers, lambda s: _arrived(s, version, name, patience_s))
        if len(set(kinds)) > 1:
            raise EngineError(f"some servers have version {version} as an adapter, others do not")
        if kinds[0] == "lora":
            self._policy.version, self._policy.adapter = version, name
        else:
            if self._policy.label != str(version):
                self._policy.move(str(version), version)
            for server in self._servers:
                server.found = None
        self._policy.trouble = None
        self._router.wake()

    async def aclose(self) -> None:
        """End what runs, and leave the servers as they are; idempotent."""
        self._is_closed = True
        failure = EngineError("the engine was closed")
        self._turns.end(failure)
        if self._update is not None:
            self._update.end(failure)
            await self._update.over()
        await self._updater.aclose()
        await self._adapters.aclose()
        for server in self._servers:
            await server.client.aclose()

    def _room(self, num_prompt: int) -> int:
        if num_prompt == 0:
            raise EngineError("the prompt is empty")
        room = self.max_context - num_prompt
        if room < 1:
            raise EngineError(
                f"a prompt of {num_prompt} tokens leaves no room in a context of {self.max_context}"
            )
        return room

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise EngineError("the engine was closed")

    def _look(self) -> None:
        """Once, for whichever threads and event loops ask; who waits for a look shares its end."""
        since = time.monotonic()
        with self._looking:
            if self._max_context is None and self._looked[0] < since:
                failure = self._look_at_all()
                self._looked = time.monotonic(), failure
            failure = self._looked[1]
        if failure is not None:
            raise failure

    def _look_at_all(self) -> AgentGymError | None:
        """How it failed."""
        try:
            self._adopt(run_coroutine(_looked_at(self._settings)))
        except AgentGymError as error:
            return error
        return None

    def _adopt(self, facts: list[Facts]) -> None:
        """Take what the servers have for what they should have, if that is one thing."""
        for server, fact in zip(self._servers, facts, strict=True):
            server.facts = fact
        labels = [fact.label for fact in facts]
        versions = [version_of(label) for label in labels]
        if None in versions or len(set(labels)) > 1:
            self._policy.trouble = (
                f"the servers have weights {', '.join(map(repr, labels))}, which are not of one "
                "version: update the weights before sampling"
            )
        else:
            self._policy.labels[:] = labels[:1]
        self._policy.version = max((v for v in versions if v is not None), default=0)
        self._max_context = min(fact.max_model_len for fact in facts)


def _server(number: int, client: JsonClient, deadlines: Deadlines) -> Server:
    presence = Presence(client, deadlines.gone_s)
    return Server(number, client, presence, Watch(client, deadlines, presence))


def _clients(settings: VllmServers) -> list[JsonClient]:
    token = os.environ.get(settings.key_variable)
    return [JsonClient(url, token=token, patience=settings.patience) for url in settings.urls]


async def _looked_at(settings: VllmServers) -> list[Facts]:
    """Facts of all servers, through connections of this event loop."""
    clients = _clients(settings)
    try:
        looks = [look(client, settings.model, settings.deadlines) for client in clients]
        return await together([asyncio.ensure_future(each) for each in looks])
    finally:
        for client in clients:
            await client.aclose()


async def _arrived(
    server: Server, version: int, adapter: str, patience_s: float
) -> Literal["full", "lora"]:
    """How a server has a version: as its own weights, or as an adapter of that name.

    Raises:
        EngineError: it does not, after a while.
    """
    clock = asyncio.get_running_loop().time
    ends = clock() + patience_s
    while True:
        try:
            label = await label_of(server.client, patience_s)
            if label == str(version):
                return "full"
            if adapter in await loaded_names(server, patience_s):
                return "lora"
        except UnreachableError:
            if clock() > ends:
                raise
        else:
            if clock() > ends:
                raise EngineError(
                    f"{server.url} has the weights {label!r}, not version {version}: it was "
                    "restarted, or the update has not reached it"
                )
        await asyncio.sleep(_FOLLOW_STEP_S)
