"""Two real vLLM servers of the package's policy, and an engine over both.

from vllm_pair_kit import Pair, two_running  # the context manager
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_engine_kit import CONTEXT, DEADLINES, ModelWeights, off_by, prompt_of
from vllm_kit import Served, load, perturbed, serving, settings_for, weights_of

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.engines.vllm.server_command import ServerSettings
from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.engines.weights import Bucket
from agentgym.trainer.tiny_policy import PATH

PATIENT = replace(DEADLINES, hung_s=30.0)
QUICK = replace(DEADLINES, hung_s=8.0, gone_s=8.0, update_s=40.0, resume_s=4.0)


@dataclass
class HookedWeights(ModelWeights):
    """Those of a model, in buckets of one tensor; something happens on the way."""

    at: int = -1
    """Before which bucket; -1 = after the last one."""
    hook: Callable[[], None] = lambda: None

    def buckets(self) -> Iterator[Bucket]:
        """Each tensor alone."""
        for number, (name, tensor) in enumerate(self.tensors.items()):
            if number == self.at:
                self.hook()
            yield {name: tensor}
        if self.at < 0:
            self.hook()


@dataclass
class Pair:
    """Two servers and the weights that both should have."""

    settings: list[ServerSettings]
    served: list[Served] = field(default_factory=list)
    model: Any = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.served)

    @property
    def labels(self) -> list[str]:
        """Of the weights of each."""
        return [str(server.call("/weight_info")["weight_version"]) for server in self.served]

    def start(self) -> None:
        """Both at once."""
        with ThreadPoolExecutor(2) as threads:
            self.served = list(threads.map(self._start, self.settings))
        self.model = load(PATH)

    def kill(self, number: int) -> None:
        """Without a word."""
        process = self.served[number].process
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)

    def restart(self, number: int) -> None:
        """Where it was, with the policy's first weights."""
        self.served[number] = self._start(self.settings[number])

    def stop(self) -> None:
        """End both."""
        self._stack.close()

    def engine(self, deadlines: Deadlines = PATIENT, *, only: int | None = None) -> "Over":
        """An engine over both, or over one."""
        urls = self.urls if only is None else (self.urls[only],)
        return Over(self, VllmServerEngine(VllmServers(urls=urls, deadlines=deadlines)))

    def metric(self, name: str) -> list[float]:
        """Of each server, summed over its labels."""
        return [_metric(server, name) for server in self.served]

    async def sampling(self) -> None:
        """Wait until each server has sampled something from now on."""
        before = await asyncio.to_thread(lambda: self._sampled)
        while True:
            now = await asyncio.to_thread(lambda: self._sampled)
            if min(b - a for a, b in zip(before, now, strict=True)) >= 1:
                return

    @property
    def _sampled(self) -> list[float]:
        return self.metric("vllm:generation_tokens_total")

    def _start(self, settings: ServerSettings) -> Served:
        return self._stack.enter_context(serving(settings))


@dataclass
class Over:
    """An engine over some of a pair's servers."""

    pair: Pair
    engine: VllmServerEngine

    async def ask(self, prompt: tuple[int, ...], session: str, **how: Any) -> Generation:
        settings = Sampling(**{"max_tokens": 8, "seed": 1, **how})
        return await self.engine.generate(prompt, settings, session=session)

    async def of_each(self, prompt: tuple[int, ...]) -> list[Generation]:
        """The same turn by every server: new sessions go where there are fewest."""
        names = [f"each-{number}" for number in range(len(self.pair.served))]
        answers = await asyncio.gather(*[self.ask(prompt, name) for name in names])
        for name in names:
            self.engine.release(name)
        return list(answers)

    async def update(self, seed: int, **hooked: Any) -> int:
        """Weights of a random step."""
        model = perturbed(load(PATH), seed=seed)
        version = await self.engine.update_weights(HookedWeights(weights_of(model), **hooked))
        self.pair.model = model
        return version

    async def error(self, seed: int = 0) -> float:
        """Largest difference of the servers' logprobs from those of the pair's model."""
        prompt = prompt_of(seed)
        answers = await self.of_each(prompt)
        found = [off_by(self.pair.model, prompt, a.token_ids, a.logprobs) for a in answers]
        return max(found)

    async def close(self) -> None:
        await self.engine.aclose()


@contextmanager
def two_running(backend: str) -> Iterator[Pair]:
    """Both take weights in one way."""
    extra = ("--enable-prompt-tokens-details",)
    pair = Pair(
        [settings_for(PATH, max_context=CONTEXT, backend=backend, extra=extra) for _ in range(2)]
    )
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


def _metric(served: Served, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(served.url + "/metrics", timeout=10) as answer:
        text = answer.read().decode()
    lines = re.findall(rf"^{re.escape(name)}(?:\{{[^\n]*\}})? (\S+)$", text, re.M)
    return sum(map(float, lines))
