"""Rollouts per second with a scripted policy: agentgym, GEM and verifiers on one task.

The task (`rivals/arithmetic.py`) takes two calls of a calculator and an answer: three turns, the
same words and the same tool for all. Each contestant is a process of its own that times itself
without its start-up; rounds are interleaved, so that a busy machine slows all alike, and the ratio
of medians is the figure to read. On a machine with other work, processor time says more than the
wall clock.

    python benchmarks/scripted_rollouts.py --gem-python VENV/bin/python \
        --verifiers-python VENV/bin/python

Interpreters: GEM needs `gem-llm` and `transformers`, verifiers `verifiers>=0.4` and `uv`.
What is done for each rollout differs, and the table says how:

- agentgym: exact token ids with mask and log-probabilities, validated arguments, deadlines, a
  record. `agentgym, env only` steps the env by itself, without loop and tokens.
- GEM: a plain loop over strings; with its chat wrapper and a tokenizer it also renders the whole
  conversation at every turn, as its training examples do, and encodes prompts and answers.
- verifiers, null harness: a process per rollout, a tool server, HTTP; text alone.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

RIVALS = Path(__file__).parent / "rivals"
sys.path.insert(0, str(RIVALS))

import arithmetic  # noqa: E402

from agentgym.engines.scripted import CallableEngine, EngineCall  # noqa: E402
from agentgym.envs import Episode, Task, TaskSet, ToolEnv  # noqa: E402
from agentgym.messages import assistant  # noqa: E402
from agentgym.rendering import renderer_for  # noqa: E402
from agentgym.rollout import GymScheduler, Player, collect  # noqa: E402
from agentgym.testing import byte_tokenizer  # noqa: E402
from agentgym.tools import tool  # noqa: E402
from agentgym.trajectory import Budget, RolloutRequest  # noqa: E402


class Arithmetic(ToolEnv):
    """The shared task."""

    tools = (tool(arithmetic.calculate),)

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=str(index), data={"index": index}))

    def prompt(self, task: Task) -> str:
        return arithmetic.question(task["index"])

    async def score(self, episode: Episode) -> dict[str, float | None]:
        return {"right": float(episode.answer == arithmetic.answer(episode.task["index"]))}


def request(index: int) -> RolloutRequest:
    """One trajectory of its own group."""
    return RolloutRequest(
        request_id=str(index),
        group_id=str(index),
        env="arithmetic",
        task=Task(id=str(index), data={"index": index}),
        seed=index,
        sampling_seed=index,
    )


async def play_whole(count: int) -> float:
    """Returns of `count` trajectories through the loop."""
    tokenizer = byte_tokenizer()
    renderer = renderer_for(tokenizer)

    def policy(call: EngineCall) -> list[int]:
        said = arithmetic.turns(int(call.session.partition("~")[0]))[call.turn]
        return tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)

    player = Player(
        engine=CallableEngine(policy),
        renderer=renderer,
        scheduler=GymScheduler(Arithmetic),
        budget=Budget(max_sampled_tokens=1 << 16),
    )
    outputs = await collect([request(index) for index in range(count)], player)
    return sum(output.reward or 0.0 for output in outputs)


async def play_env_only(count: int) -> float:
    """Returns of `count` episodes of the env, one after another."""
    total = 0.0
    for index in range(count):
        env = Arithmetic()
        await env.areset(seed=index, options={"task": request(index).task})
        calls = [assistant("", (arithmetic.TOOL, {"expression": text})) for text in
                 arithmetic.expressions(index)]  # fmt: skip
        for action in (*calls, assistant(arithmetic.answer(index))):
            _, reward, _, _, _ = await env.astep(action)
            total += reward
        await env.aclose()
    return total


OWN = {"whole": play_whole, "env": play_env_only}


async def contest(kind: str, count: int) -> None:
    """Be a contestant: play, and print what a rival prints."""
    await OWN[kind](8)
    started = arithmetic.Clock()
    correct = await OWN[kind](count)
    print(json.dumps({**started.spent(), "correct": correct}))


@dataclass
class Contestant:
    """How to run one, and how fast it was."""

    name: str
    command: Sequence[str]
    count: int
    path: str = ""
    """Put before the others in PATH."""
    speeds: list[float] = field(default_factory=list)
    """Rollouts per second of wall clock, by round."""
    frugality: list[float] = field(default_factory=list)
    """Rollouts per second of processor time, children included."""

    def run(self) -> None:
        """One round."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(RIVALS)}
        environment["PATH"] = f"{self.path}:{environment['PATH']}"
        done = subprocess.run(
            self.command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=RIVALS
        )
        said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if said["correct"] != self.count:
            raise SystemExit(f"{self.name}: {said['correct']} of {self.count} rollouts were right")
        self.speeds.append(self.count / said["seconds"])
        self.frugality.append(self.count / said["cpu_seconds"])


class Given(NamedTuple):
    """From the command line."""

    gem: str | None
    verifiers: str | None
    rounds: int
    count: int


def contestants(given: Given, tokenizer: str) -> list[Contestant]:
    """Those whose interpreters were given."""
    me = [sys.executable, __file__, "--contest"]
    found = [
        Contestant("agentgym", [*me, "whole", f"--count={given.count}"], given.count),
        Contestant("agentgym, env only", [*me, "env", f"--count={given.count}"], given.count),
    ]
    if given.gem:
        script = [given.gem, str(RIVALS / "gem_rollouts.py"), str(given.count)]
        found.append(Contestant("GEM, chat wrapper + tokenizer", [*script, tokenizer], given.count))
        found.append(Contestant("GEM, text only", script, given.count))
    if given.verifiers:
        count = max(8, given.count // 50)
        script = [given.verifiers, str(RIVALS / "verifiers_rollouts.py"), str(count), "4"]
        path = str(Path(given.verifiers).parent)
        found.append(Contestant("verifiers, null harness", script, count, path))
    return found


def show(found: Sequence[Contestant]) -> None:
    """Medians and their ratios to ours."""
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    table = Table(title=f"scripted rollouts of 3 turns, {load}; ratio: agentgym / contestant")
    table.add_column("contestant")
    for column in ("per second", "least", "most", "ratio", "per CPU second", "ratio"):
        table.add_column(column, justify="right")
    wall, cpu = median(found[0].speeds), median(found[0].frugality)
    for one in found:
        speed, frugal = median(one.speeds), median(one.frugality)
        figures = (speed, min(one.speeds), max(one.speeds), wall / speed, frugal, cpu / frugal)
        table.add_row(one.name, *(f"{figure:.3g}" for figure in figures))
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gem-python", help="interpreter with gem-llm and transformers")
    parser.add_argument("--verifiers-python", help="interpreter with verifiers>=0.4, beside uv")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=400, help="rollouts of each round")
    parser.add_argument("--contest", choices=sorted(OWN), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.contest:
        asyncio.run(contest(asked.contest, asked.count))
        return
    given = Given(asked.gem_python, asked.verifiers_python, asked.rounds, asked.count)
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer().save_pretrained(folder)
        found = contestants(given, folder)
        for _ in range(given.rounds):
            for one in found:
                one.run()
    show(found)


if __name__ == "__main__":
    main()
