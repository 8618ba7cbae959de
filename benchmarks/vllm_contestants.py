"""What `vllm_loop.py` lets play: the agent loop over both vLLM engines, and vLLM alone."""

import asyncio
import atexit
import os
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from agentgym.engines.base import Engine, Generation, Sampling
from agentgym.engines.vllm.server_command import ServerSettings, server_argv, server_environment
from agentgym.envs.base import TaskSet
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.trajectory import Task

MAX_CONTEXT, MAX_NUM_SEQS, KV_CACHE_BYTES = 512, 64, 1 << 30
ANSWER_WORDS = 12
WORDS = ("apple", "river", "seven", "stone", "cloud", "bread", "window", "green", "nine")


class Plan(NamedTuple):
    """What every contestant is given."""

    model: str
    trajectories: int
    turn_tokens: int
    prompt_words: int
    turns: int


class Asked(NamedTuple):
    """One request, as the engine gets it."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling


class Order(NamedTuple):
    """One round."""

    number: int
    asked: list[Asked]
    """For `vLLM offline`, which makes no requests of its own."""


class Round(NamedTuple):
    """What one contestant did."""

    tokens: int
    seconds: float
    asked: list[Asked]


Play = Callable[[Order], Round]


class Chat(TextEnv):
    """Random words as the prompt and as every answer."""

    def __init__(self, words: int) -> None:
        self._words = words

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def start(self, task: Task) -> str:
        self._random = random.Random(task.id)
        return self._said(self._words)

    def respond(self, text: str) -> TextStep:
        return TextStep(self._said(ANSWER_WORDS))

    def _said(self, num: int) -> str:
        return " ".join(self._random.choices(WORDS, k=num))


class Noting:
    """An engine that writes down what it is asked.

    Args:
        inner: samples.
        ends: a turn that was cut ends as if the policy had, so that the next one comes.
    """

    def __init__(self, inner: Engine, *, ends: bool) -> None:
        self._inner = inner
        self._ends = ends
        self.asked: list[Asked] = []
        self.release, self.aclose = inner.release, inner.aclose

    @property
    def max_context(self) -> int:
        return self._inner.max_context

    @property
    def policy_version(self) -> int:
        return self._inner.policy_version

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        self.asked.append(Asked(prompt_ids, sampling))
        answer = await self._inner.generate(prompt_ids, sampling, session=session)
        if not self._ends or answer.finish_reason != "length":
            return answer
        end = min(sampling.stop_token_ids)
        return replace(answer, token_ids=(*answer.token_ids[:-1], end), finish_reason="stop")


def loop_over(engine: Engine, plan: Plan) -> Play:
    """Plays all trajectories of a round."""
    from transformers import AutoTokenizer

    from agentgym.rendering import renderer_for
    from agentgym.rollout.collect import collect
    from agentgym.rollout.gym_scheduler import GymScheduler
    from agentgym.rollout.player import Player
    from agentgym.trajectory import Budget, RolloutRequest

    noting = Noting(engine, ends=plan.turns > 1)
    player = Player(
        engine=noting,  # type: ignore[arg-type]
        renderer=renderer_for(AutoTokenizer.from_pretrained(plan.model)),
        scheduler=GymScheduler(lambda: Chat(plan.prompt_words)),
        budget=Budget(
            max_turns=plan.turns,
            max_turn_tokens=plan.turn_tokens,
            max_sampled_tokens=plan.turns * plan.turn_tokens,
            max_parse_errors=plan.turns,
            max_blank_turns=plan.turns,
        ),
        concurrency=plan.trajectories,
    )

    def play(order: Order) -> Round:
        requests = [
            RolloutRequest(
                request_id=f"{order.number}-{index}",
                group_id=f"{order.number}-{index}",
                env="chat",
                task=Task(id=f"{order.number}-{index}"),
                seed=index,
                sampling_seed=index,
            )
            for index in range(plan.trajectories)
        ]
        noting.asked = []
        started = time.perf_counter()
        outputs = asyncio.run(collect(requests, player))
        seconds = time.perf_counter() - started
        num = sum(len(segment.ids) for output in outputs for segment in output.sampled)
        return Round(num, seconds, noting.asked)

    return play


def in_process(plan: Plan, *, prefix_caching: bool = True) -> Play:
    """The loop over `VllmEngine`."""
    from agentgym.engines.vllm.engine import VllmEngine
    from agentgym.engines.vllm.local_settings import VllmSettings

    settings = VllmSettings(
        max_context=MAX_CONTEXT,
        max_num_seqs=MAX_NUM_SEQS,
        kv_cache_bytes=KV_CACHE_BYTES,
        enable_prefix_caching=prefix_caching,
    )
    return loop_over(VllmEngine(plan.model, settings), plan)


def through_server(plan: Plan) -> Play:
    """The loop over `VllmServerEngine`, and a server."""
    from agentgym.engines.vllm.ports import free_port
    from agentgym.engines.vllm.server import VllmServerEngine
    from agentgym.engines.vllm.settings import VllmServers

    port = free_port("127.0.0.1")
    settings = ServerSettings(
        model=plan.model,
        port=port,
        dtype="float32",
        max_context=MAX_CONTEXT,
        kv_cache_bytes=KV_CACHE_BYTES,
        extra=("--max-num-seqs", str(MAX_NUM_SEQS)),
    )
    server = subprocess.Popen(
        server_argv(settings), env=server_environment(settings, os.environ, key=None)
    )
    atexit.register(server.terminate)
    return loop_over(VllmServerEngine(VllmServers(urls=(f"http://127.0.0.1:{port}",))), plan)


def offline(plan: Plan) -> Play:
    """`vllm.LLM.generate`."""
    from vllm import LLM
    from vllm.inputs import TokensPrompt

    from agentgym.engines.vllm.core import _params
    from agentgym.engines.vllm.sampling import sampling_fields

    llm = LLM(
        plan.model,
        dtype="float32",
        max_model_len=MAX_CONTEXT,
        max_num_seqs=MAX_NUM_SEQS,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        block_size=32,
        enforce_eager=True,
        enable_chunked_prefill=False,
        generation_config="vllm",
    )

    def play(order: Order) -> Round:
        started = time.perf_counter()
        prompts = [TokensPrompt(prompt_token_ids=list(one.prompt_ids)) for one in order.asked]
        wanted = [
            _params(sampling_fields(one.sampling, max_tokens=one.sampling.max_tokens))
            for one in order.asked
        ]
        outputs = llm.generate(prompts, wanted, use_tqdm=False)
        seconds = time.perf_counter() - started
        return Round(sum(len(o.outputs[0].token_ids) for o in outputs), seconds, order.asked)

    return play
