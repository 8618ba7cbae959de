"""What the agent loop costs on top of vLLM, and what prefix caching saves it.

Turns are sampled by vLLM's `LLMEngine` alone, given all at once and stepped in a plain loop, which
is what `LLM.generate` does behind its progress bar, and by `VllmEngine`, asked by as many
coroutines. Both get turns of the same seeds and lengths over random prompts of one length; the
prompts differ, or the second would find those of the first in the cache. Then trajectories of three
turns, in groups, as they are, and with a first token that is new in every turn, so that nothing is
found in the cache. Contestants take turns in every round, so that a busy machine slows all alike;
medians of the ratios are the figures to read. All share one vLLM: a process can have only one.

    VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=2 GOMP_SPINCOUNT=0 \
        python benchmarks/vllm_loop.py [MODEL] [ROUNDS]
"""

import asyncio
import random
import sys
import time
from statistics import median
from typing import Any, NamedTuple

from agentgym.engines.base import Sampling
from agentgym.engines.vllm.core import _params
from agentgym.engines.vllm.engine import VllmEngine
from agentgym.engines.vllm.local_settings import VllmSettings
from agentgym.engines.vllm.sampling import sampling_fields
from agentgym.trainer.tiny_policy import PATH

NUM, PROMPT_TOKENS, TURNS, TOOL_TOKENS = 64, 120, 3, 15
SHORTEST, LONGEST = 20, 60


class Turn(NamedTuple):
    """One request."""

    prompt: tuple[int, ...]
    sampling: Sampling


def turns(round_number: int, vocabulary: int) -> list[Turn]:
    """Prompts that nobody has seen, in groups of 8."""
    made = []
    for index in range(NUM):
        own = random.Random(index)
        group = random.Random(f"{round_number} {index // 8}")
        prompt = tuple(group.choices(range(3, vocabulary), k=PROMPT_TOKENS))
        made.append(Turn(prompt, Sampling(max_tokens=own.randint(SHORTEST, LONGEST), seed=index)))
    return made


def offline(engine: VllmEngine, asked: list[Turn]) -> int:
    """Tokens that vLLM samples alone, in the calling thread."""
    from vllm.inputs.engine import tokens_input

    vllm = engine._vllm
    for index, (prompt, sampling) in enumerate(asked):
        fields = sampling_fields(sampling, max_tokens=sampling.max_tokens)
        vllm.add_request(f"offline-{index}", tokens_input(list(prompt)), _params(fields))
    num = 0
    while vllm.has_unfinished_requests():
        num += sum(len(o.outputs[0].token_ids) for o in vllm.step() if o.finished)
    return num


async def asked_for(engine: VllmEngine, asked: list[Turn]) -> int:
    """Tokens sampled through the engine."""
    answers = await asyncio.gather(
        *[
            engine.generate(turn.prompt, turn.sampling, session=str(index))
            for index, turn in enumerate(asked)
        ]
    )
    return sum(len(answer.token_ids) for answer in answers)


async def trajectories(engine: VllmEngine, asked: list[Turn], *, cached: bool) -> int:
    """Tokens of whole trajectories, three turns each."""

    async def play(index: int, turn: Turn) -> int:
        ids, num = turn.prompt, 0
        for number in range(TURNS):
            if not cached:
                ids = (3 + (index + number) % 400, *ids[1:])
            answer = await engine.generate(ids, turn.sampling, session=str(index))
            num += len(answer.token_ids)
            ids = (*ids, *answer.token_ids, *turn.prompt[:TOOL_TOKENS])
        return num

    return sum(await asyncio.gather(*[play(*numbered) for numbered in enumerate(asked)]))


def timed(work: Any) -> float:
    """Tokens per second of a function."""
    started = time.perf_counter()
    num: int = work()
    return num / (time.perf_counter() - started)


def main() -> None:
    """Print medians."""
    model = sys.argv[1] if len(sys.argv) > 1 else str(PATH)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    engine = VllmEngine(model, VllmSettings(max_context=512, kv_cache_bytes=1 << 30))
    vocabulary = engine._vocabulary
    kinds = {
        "vLLM alone": lambda asked: offline(engine, asked),
        "VllmEngine": lambda asked: asyncio.run(asked_for(engine, asked)),
        "3 turns, no shared prefix": lambda a: asyncio.run(trajectories(engine, a, cached=False)),
        "3 turns, prefix caching": lambda a: asyncio.run(trajectories(engine, a, cached=True)),
    }
    speeds: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds + 1):
        order = list(kinds) if number % 2 else list(reversed(kinds))
        for name in order:
            asked = turns(1000 * number + list(kinds).index(name), vocabulary)
            speed = timed(lambda work=kinds[name], asked=asked: work(asked))
            if number:  # the first round warms up
                speeds[name].append(speed)
    for name, values in speeds.items():
        print(f"{name:>28}: {median(values):8.0f} tokens/s")
    for one, other in (list(kinds)[1::-1], list(kinds)[:1:-1]):
        ratios = [a / b for a, b in zip(speeds[one], speeds[other], strict=True)]
        print(
            f"{one} / {other}: {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"
        )
    asyncio.run(engine.aclose())


if __name__ == "__main__":
    main()
