"""LoRA adapters as new weights: the servers read them from files, under a name with the version.

A turn names the adapter that samples it, so nothing is paused and a failed update changes nothing.
The adapter before the last stays loaded until the next update: turns that began with it end with
it, and so may those of other processes that have not heard of the new one yet. Names carry a mark
of their run, as others may have adapters on the same servers.
"""

import asyncio
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from agentgym.engines.http import FailedCallError, reading
from agentgym.engines.vllm.adapter_files import write_adapter
from agentgym.engines.vllm.fleet import Server, on_all, outcomes
from agentgym.engines.vllm.health import HOW_TO_START
from agentgym.engines.vllm.policy import Policy
from agentgym.engines.vllm.replies import FIRST_LABEL
from agentgym.engines.vllm.settings import VllmServers
from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError, EngineError, WrongServerError, boundary
from agentgym.threads import Worker

_LOAD, _UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_THERE = "has already been loaded"


async def loaded_names(server: Server, timeout_s: float) -> list[str]:
    """What a server can be asked for: its own model and all adapters."""
    cards = await server.client.call("GET", "/v1/models", timeout_s=timeout_s)
    with reading(server.url, cards):
        return [str(card["id"]) for card in cards["data"]]


class Adapters:
    """Those that servers have from us.

    Args:
        servers: all of them.
        policy: is kept true.
        settings: deadlines, and where the files go.
    """

    def __init__(self, servers: list[Server], policy: Policy, settings: VllmServers) -> None:
        self._servers = servers
        self._policy = policy
        self._settings = settings
        self._folder: Path | None = None
        self._names: list[str] = []
        """Loaded, in their order."""
        self.run = secrets.token_hex(4)
        """Mark of the run, in every name; the same in all its processes."""

    def name_of(self, version: int) -> str:
        """What the adapter of a policy version is called."""
        return f"agentgym-{self.run}-{version}"

    async def push(self, weights: Weights) -> None:
        """Load an adapter into every server and sample with it from now on.

        Raises:
            ConfigError: it is none for the servers' model or their weights, or they take none.
            EngineError: not every server has it, or one has another under its name; turns go on
                with the one before.
        """
        self._refuse_leftovers()
        name = self.name_of(weights.version)
        limit_s = self._settings.deadlines.update_s
        await on_all(self._servers, lambda server: self._refuse_taken(server, name))
        try:
            async with asyncio.timeout(limit_s):
                folder = await self._written(weights, name)
                await on_all(self._servers, lambda server: self._load(server, name, folder))
        except TimeoutError as error:
            await self._drop(name)
            message = f"the adapter {name} was not loaded everywhere within {limit_s:g} s"
            raise EngineError(message) from error
        except BaseException:
            await self._drop(name)
            raise
        self._names = [*(known for known in self._names if known != name), name]
        self._policy.version, self._policy.adapter = weights.version, name
        for old in self._names[:-2]:
            await self._drop(old)
        self._names = self._names[-2:]

    async def restore(self, server: Server, name: str) -> bool:
        """Load an adapter again into a server that has lost it; whether we had it."""
        if self._folder is None or name not in self._names:
            return False
        await self._load(server, name, self._folder / name)
        return True

    async def aclose(self) -> None:
        """Unload all and remove their files; idempotent."""
        names, self._names = self._names, []
        for name in names:
            await self._drop(name)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def _written(self, weights: Weights, name: str) -> Path:
        worker = Worker()
        try:
            with boundary(EngineError, f"cannot write the adapter {name} for the servers"):
                folder = self._made_folder() / name
                await worker.run(lambda: write_adapter(folder, weights))
        finally:
            worker.stop()
        return folder

    def _made_folder(self) -> Path:
        if self._folder is None:
            parent = self._settings.adapter_folder
            self._folder = Path(tempfile.mkdtemp(prefix="agentgym-lora-", dir=parent))
        return self._folder

    def _refuse_leftovers(self) -> None:
        """An adapter is for the model's own weights, or for what this run sent before it."""
        found, *sent = self._policy.labels
        if not sent and found != FIRST_LABEL:
            raise WrongServerError(
                f"{', '.join(self._settings.urls)} has weights of version {found} from another "
                "run, and an adapter is for those of the model: start it again, or send whole "
                "weights (sync_kind='full')"
            )

    async def _refuse_taken(self, server: Server, name: str) -> None:
        if name in await loaded_names(server, self._settings.deadlines.resume_s):
            raise EngineError(
                f"{server.url} has an adapter {name} that is not this one: somebody else loads "
                "adapters there; give every run servers of its own"
            )

    async def _load(self, server: Server, name: str, folder: Path) -> None:
        """Of ours; one that is there, such as from another turn that missed it, is fine."""
        limit_s = self._settings.deadlines.update_s
        body = {"lora_name": name, "lora_path": str(folder)}
        try:
            await server.client.call("POST", _LOAD, body, timeout_s=limit_s)
        except FailedCallError as error:
            if _THERE in error.text:
                return
            if error.status == 404 and "adapter" not in error.text.lower():
                message = f"{server.url} takes no LoRA adapters: {HOW_TO_START} --lora-rank R"
                raise WrongServerError(message) from error
            message = f"{server.url} refuses the adapter {name}: {error.said}"
            raise ConfigError(message) from error

    async def _unload(self, server: Server, name: str) -> None:
        """Of ours; one that is not there is fine."""
        with suppress(FailedCallError):
            limit_s = self._settings.deadlines.resume_s
            await server.client.call("POST", _UNLOAD, {"lora_name": name}, timeout_s=limit_s)

    async def _drop(self, name: str) -> None:
        """Best effort: a server without it is fine, and so is none."""
        await outcomes(self._servers, lambda server: self._unload(server, name))
        if self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)
