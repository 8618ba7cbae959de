"""Full weights to all servers, or to none.

Running turns are kept and go on with the new weights. Servers only stage what they are sent, so
until the last step a failure leaves the old weights everywhere; in that step a server may swap and
another one not. Then nobody knows what a token would be sampled with, so none is until the next
update has come through. Whatever happens, every server is told to go on.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from agentgym.deadlines import to_its_end
from agentgym.engines.http import FailedCallError
from agentgym.engines.vllm.fleet import Server, on_all, outcomes, while_there
from agentgym.engines.vllm.health import HOW_TO_START, look, refuse_other
from agentgym.engines.vllm.policy import Policy
from agentgym.engines.vllm.ports import address_towards
from agentgym.engines.vllm.refusals import REFUSED
from agentgym.engines.vllm.settings import VllmServers
from agentgym.engines.vllm.swapping import Swap
from agentgym.engines.vllm.transfer import Sender, sender_for
from agentgym.engines.weights import Bucket, Weights
from agentgym.errors import ConfigError, EngineError, WrongServerError
from agentgym.threads import Worker

_STEP_S = 0.25
_MOST_SETTLING_S = 10.0


class Updater:
    """Brings servers to a version.

    Args:
        servers: all of them, looked at before the first update.
        policy: is kept true.
        settings: deadlines, and where this process is.
    """

    def __init__(self, servers: list[Server], policy: Policy, settings: VllmServers) -> None:
        self._servers = servers
        self._policy = policy
        self._settings = settings
        self._deadlines = settings.deadlines
        self._sender: Sender | None = None
        self._ends = 0.0

    async def push(self, weights: Weights) -> None:
        """Swap the weights of every server.

        Raises:
            ConfigError: they are not those of the model; the servers have what they had.
            EngineError: they did not arrive; says what the servers have.
        """
        self._ends = time.monotonic() + self._deadlines.update_s
        for server in self._servers:
            server.watch.pause()
        try:
            await self._push(weights)
        except BaseException:
            try:
                await self.aclose()
            finally:
                await self._resume()
            raise
        else:
            self._refuse_deaf(await self._resume())
        finally:
            for server in self._servers:
                server.watch.resume()

    async def aclose(self) -> None:
        """Free what the transfer holds, which may take seconds if a worker hangs."""
        sender, self._sender = self._sender, None
        if sender is not None:
            await Worker().run_last(sender.close)

    async def _push(self, weights: Weights) -> None:
        try:
            async with asyncio.timeout(self._left_s):
                await while_there(self._servers, self._stage(weights))
        except TimeoutError as error:
            limit = f"{self._deadlines.update_s:g} s"
            raise self._unchanged(f"not all there within {limit}") from error
        except FailedCallError as error:
            self._refuse(error)
        except EngineError as error:
            raise self._unchanged(str(error)) from error
        await self._commit(str(weights.version), weights.version)

    async def _stage(self, weights: Weights) -> None:
        sender = await self._connected(str(weights.version))
        await self._post_all("/pause?mode=keep")
        answers = await self._post_all("/reset_prefix_cache?reset_running_requests=true")
        if not all(isinstance(answer, dict) and answer.get("success") for answer in answers):
            raise EngineError("a server did not forget what it computed with the old weights")
        await self._post_all("/start_weight_update")

        async def post(info: dict[str, Any]) -> None:
            await self._post_all("/update_weights", {"update_info": info})

        worker, buckets = Worker(), weights.buckets()
        try:
            while (bucket := await worker.run(lambda: _next(buckets))) is not None:
                await sender.send(bucket, post)
        finally:
            worker.stop()

    async def _connected(self, new: str) -> Sender:
        """A transfer that every server has joined; anew if one of them is not what it was.

        Raises:
            ConfigError: a server was started anew as another one.
            EngineError: a server is not there, or the label `new` stands for other weights there.
        """
        labels = await on_all(self._servers, lambda server: server.presence.returned())
        taken = [s.url for s, label in zip(self._servers, labels, strict=True) if label == new]
        if taken:
            raise EngineError(
                f"{', '.join(taken)} has weights of a version {new} that are not these: somebody "
                "else updates it; give every run servers of its own"
            )
        if self._sender is not None and set(labels) == {self._policy.label}:
            return self._sender
        await self.aclose()
        await on_all(self._servers, self._look_again)
        self._sender = sender = await self._new_sender()
        await on_all(
            self._servers,
            lambda server: server.client.call(
                "POST",
                "/init_weight_transfer_engine",
                {"init_info": sender.init_info(server.number)},
                timeout_s=self._left_s,
            ),
        )
        return sender

    async def _look_again(self, server: Server) -> None:
        """It may have been started anew, and otherwise."""
        facts = await look(server.client, self._settings.model, self._deadlines)
        if server.facts is not None:
            refuse_other(server.client, server.facts, facts)
        server.facts = facts

    async def _new_sender(self) -> Sender:
        """Of the one kind that all servers take.

        Raises:
            ConfigError: there is none, or this process cannot be it.
        """
        facts = [server.facts for server in self._servers if server.facts is not None]
        backends = {fact.backend for fact in facts}
        backend = backends.pop()
        if backend is None or backends:
            raise WrongServerError(
                f"the servers do not all take weights in one way: {HOW_TO_START}"
            )
        workers = [fact.num_workers for fact in facts]
        worker = Worker()
        try:
            return await worker.run(
                lambda: sender_for(
                    backend,
                    workers=workers,
                    host=self._settings.host or address_towards(self._settings.urls),
                    timeout_s=self._left_s,
                )
            )
        finally:
            worker.stop()

    async def _commit(self, label: str, version: int) -> None:
        """Swap everywhere; until that is known, nothing may be sampled."""
        before, earlier = self._policy.label, self._policy.trouble
        self._policy.trouble = self._trouble(version, "it was cut")
        swap = Swap(
            before=before,
            label=label,
            timeout_s=self._left_s,
            settle_s=min(self._deadlines.resume_s, _MOST_SETTLING_S),
        )
        verdict = await swap.run(self._servers)
        if len(verdict.swapped) == len(self._servers):
            self._policy.move(label, version)
            for server in self._servers:
                server.found = None
            return
        failure = verdict.failure
        if len(verdict.old) == len(self._servers):
            self._policy.trouble = earlier
            if isinstance(failure, FailedCallError):
                self._refuse(failure)
        self._policy.trouble = self._trouble(version, f"{failure}; {verdict}")
        raise EngineError(self._policy.trouble) from failure

    def _trouble(self, version: int, reason: str) -> str:
        return (
            f"the weight update to version {version} did not end: {reason}; update the weights "
            "of all servers before sampling goes on"
        )

    async def _resume(self) -> list[str]:
        """Let every server go on, whoever is cancelled; those that could not be told."""
        ends = await to_its_end(outcomes(self._servers, self._resume_one))
        return [s.url for s, end in zip(self._servers, ends, strict=True) if end is not None]

    def _refuse_deaf(self, urls: list[str]) -> None:
        if urls:
            raise EngineError(f"{', '.join(urls)} could not be told to go on after a weight update")

    async def _resume_one(self, server: Server) -> None:
        ends, server.must_resume = time.monotonic() + self._deadlines.resume_s, True
        while True:
            left_s = max(ends - time.monotonic(), 0.1)
            try:
                await server.resume(left_s)
                return
            except EngineError:
                if time.monotonic() + _STEP_S > ends:
                    raise
            await asyncio.sleep(_STEP_S)

    async def _post_all(self, path: str, body: Any = None) -> list[Any]:
        return await on_all(
            self._servers,
            lambda server: server.client.call("POST", path, body, timeout_s=self._left_s),
        )

    @property
    def _left_s(self) -> float:
        return max(self._ends - time.monotonic(), 0.1)

    def _unchanged(self, reason: str) -> EngineError:
        return EngineError(
            f"the weights were not updated: {reason}; the servers have those they had"
        )

    def _refuse(self, error: FailedCallError) -> NoReturn:
        """Say what a server says, and who must act."""
        message = error.message
        if REFUSED in message:
            raise ConfigError(message[message.index(REFUSED) :]) from error
        raise self._unchanged(str(error)) from error


def _next(buckets: Iterator[Bucket]) -> Bucket | None:
    return next(buckets, None)
