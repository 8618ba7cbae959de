"""How fast the slot engine samples multi-turn trajectories, against turn-barrier `generate()`.

64 trajectories (8 groups of 8), 3 turns, a prompt of 120 tokens, 40 sampled tokens and 15 tool
tokens per turn. The baseline is what trainers without an engine do: all trajectories wait for each
other, are padded at the left, and every turn computes the whole history again; unlike the engine it
returns no log-probabilities. Both run in every round, one after the other, so that a busy machine
slows both; the ratio is the figure to read.

    OMP_NUM_THREADS=2 python benchmarks/engine_throughput.py

On a machine with other work set GOMP_SPINCOUNT=0 too: OpenMP threads that spin while they wait for
a core slow `generate()`, with its many small operations, out of all proportion.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from transformers import (
    AutoModelForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentgym.engines.base import Sampling
from agentgym.engines.transformers import TransformersEngine

Model = Any
"""A causal language model of transformers."""
GROUPS, MEMBERS, TURNS = 8, 8, 3
PROMPT_TOKENS, TOOL_TOKENS = 120, 15


@dataclass(frozen=True)
class Scenario:
    """What the trajectories look like."""

    name: str
    latency_s: float
    """Tools take between 0 and this long."""
    turn_tokens: tuple[int, int]
    """Fewest and most sampled tokens of a turn."""


SCENARIOS = (
    Scenario("no tool latency", 0.0, (40, 40)),
    Scenario("tools take 0 to 0.3 s", 0.3, (40, 40)),
    Scenario("turns of 10 to 70 tokens", 0.0, (10, 70)),
)


class Player:
    """One trajectory's prompt, turn lengths and tools, the same for both contestants."""

    def __init__(self, group: int, member: int, scenario: Scenario, vocabulary: int) -> None:
        task, own = random.Random(group), random.Random(1000 * group + member)
        self.ids = task.choices(range(vocabulary), k=PROMPT_TOKENS)
        self.session = f"{group}/{member}"
        self.lengths = [own.randint(*scenario.turn_tokens) for _ in range(TURNS)]
        self._latencies = [own.uniform(0, scenario.latency_s) for _ in range(TURNS)]
        self._tools = [own.choices(range(vocabulary), k=TOOL_TOKENS) for _ in range(TURNS)]

    async def take(self, turn: int, sampled: list[int]) -> None:
        """Append what was sampled, wait for the tool, append its result."""
        self.ids += sampled
        if self._latencies[turn]:
            await asyncio.sleep(self._latencies[turn])
        self.ids += self._tools[turn]


async def barrier(model: Model, players: list[Player]) -> None:
    """All trajectories turn by turn; each is cut to its length afterwards."""
    settings: dict[str, Any] = {"do_sample": True, "top_k": 0, "pad_token_id": 0}
    for turn in range(TURNS):
        width = max(len(player.ids) for player in players)
        ids = torch.zeros(len(players), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, player in enumerate(players):
            ids[line, width - len(player.ids) :] = torch.tensor(player.ids)
            mask[line, width - len(player.ids) :] = 1
        longest = max(player.lengths[turn] for player in players)
        output = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=longest, **settings
        )
        sampled = output[:, width:].tolist()
        await asyncio.gather(
            *[p.take(turn, s[: p.lengths[turn]]) for p, s in zip(players, sampled, strict=True)]
        )


async def slots(model: Model, players: list[Player]) -> None:
    """Every trajectory at its own pace."""
    engine = TransformersEngine(model, max_rows=len(players))

    async def play(player: Player) -> None:
        for turn, length in enumerate(player.lengths):
            answer = await engine.generate(
                tuple(player.ids),
                Sampling(max_tokens=length, seed=turn),
                session=player.session,
            )
            await player.take(turn, list(answer.token_ids))
        engine.release(player.session)

    await asyncio.gather(*map(play, players))
    await engine.aclose()


Contestant = Callable[[Model, list[Player]], Awaitable[None]]


class Speed(NamedTuple):
    """Sampled tokens that trajectories used."""

    per_second: float
    """Of wall clock."""
    per_cpu_second: float
    """Of this process on all cores; tells more on a shared machine."""


def measure(contestant: Contestant, model: Model, scenario: Scenario) -> Speed:
    """Play all trajectories once."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    players = [
        Player(group, member, scenario, vocabulary)
        for group in range(GROUPS)
        for member in range(MEMBERS)
    ]

    async def run() -> None:
        await contestant(model, players)

    started, cpu_started = time.perf_counter(), time.process_time()
    asyncio.run(run())
    tokens = sum(sum(player.lengths) for player in players)
    return Speed(
        tokens / (time.perf_counter() - started), tokens / (time.process_time() - cpu_started)
    )


def tiny_model() -> Model:
    """The shape of the embedded policy, with random weights."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=512,
            hidden_size=128,
            intermediate_size=320,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=None,
        )
    ).eval()


def compare(model: Model, rounds: int) -> Table:
    """Medians over interleaved rounds; ratios are medians of the rounds' ratios."""
    table = Table(
        "scenario", "generate()", "slots", "ratio (rounds)", "CPU: generate()", "slots", "ratio"
    )
    for scenario in SCENARIOS:
        pairs = [
            (measure(barrier, model, scenario), measure(slots, model, scenario))
            for _ in range(rounds + 1)
        ][1:]
        ratios = [ours.per_second / base.per_second for base, ours in pairs]
        cpu_ratios = [ours.per_cpu_second / base.per_cpu_second for base, ours in pairs]
        table.add_row(
            scenario.name,
            f"{median(base.per_second for base, _ in pairs):.0f}",
            f"{median(ours.per_second for _, ours in pairs):.0f}",
            f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            f"{median(base.per_cpu_second for base, _ in pairs):.0f}",
            f"{median(ours.per_cpu_second for _, ours in pairs):.0f}",
            f"{median(cpu_ratios):.2f}",
        )
    return table


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up")
    parser.add_argument("--model", help="path or hub id; default: the tiny shape, random weights")
    options = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(options.model) if options.model else tiny_model()
    console = Console()
    console.print(
        f"{GROUPS * MEMBERS} trajectories, {torch.get_num_threads()} threads, sampled tokens per "
        f"second and per CPU second; load average {os.getloadavg()[0]:.1f}"
    )
    console.print(compare(model, options.rounds))


if __name__ == "__main__":
    main()
