"""What the agent loop costs: a thousand scripted trajectories at once, with tools that take time.

Every trajectory asks for a tool call a turn and then answers; the policy is a script, so all that
is measured is the loop, the env, the tools and the renderer. A tool takes between 0 and 300 ms, by
the task's own random numbers; it waits either on the event loop (async) or in a thread (sync).

    OMP_NUM_THREADS=1 python benchmarks/loop_overhead.py [--profile]

`slept` is what the tools of the slowest trajectory took by themselves; a run could not be shorter.
What the wall clock shows beyond that is processor time: a thousand trajectories share one loop.
`wall / longest` holds the run against its slowest trajectory, start-up and all.
CPU per turn is that of the whole process, all threads together, with the
share that the renderer has in it: chat template, tokenizer and parser.
"""

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs import Episode, Task, TaskSet, ToolEnv
from agentgym.rendering import Renderer, renderer_for
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.testing import byte_tokenizer
from agentgym.tools import Tool, ToolContext, tool
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest

LATENCY_S = 0.3
CALL = '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'


@tool(name="look_up")
async def waits(context: ToolContext) -> str:
    """Look something up."""
    seconds = context.rng.uniform(0, LATENCY_S)
    await asyncio.sleep(seconds)
    return f"{seconds:.6f}"


@tool(name="look_up")
def blocks(context: ToolContext) -> str:
    """Look something up."""
    seconds = context.rng.uniform(0, LATENCY_S)
    time.sleep(seconds)
    return f"{seconds:.6f}"


@tool(name="look_up")
async def returns() -> str:
    """Look something up."""
    return "0"


@tool(name="look_up")
def returns_in_thread() -> str:
    """Look something up."""
    return "0"


class Timed:
    """A renderer, and the processor seconds that its calls take."""

    def __init__(self, inner: Renderer) -> None:
        self._inner = inner
        self.seconds = 0.0
        self.stop_token_ids = inner.stop_token_ids
        for name in ("render", "bridge", "rewritten", "encode", "decode", "parse"):
            setattr(self, name, self._timed(getattr(inner, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            started = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                self.seconds += time.thread_time() - started

        return call


class LookUp(ToolEnv):
    """Answers are always right."""

    def __init__(self, used: Tool) -> None:
        self.tools = (used,)

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def prompt(self, task: Task) -> str:
        return "Look it up."

    async def score(self, episode: Episode) -> dict[str, float | None]:
        return {"answered": 1.0}


@dataclass
class Measured:
    """One run."""

    name: str
    wall_s: float
    cpu_s: float
    renderer_s: float
    """Processor time within `cpu_s`."""
    startup_s: float
    """Until the last trajectory asked the engine for the first time."""
    turns: int
    longest_s: float
    """Of the slowest trajectory, from reset to record."""
    slept_s: float
    """Sum over the tools of one trajectory, at most."""
    leaked: str
    grown_mb: float


@dataclass
class Clock:
    """When trajectories asked the engine for the first time."""

    started: float = field(default_factory=time.perf_counter)
    last_first_s: float = 0.0

    def policy(self, script: Sequence[list[int]], call: EngineCall) -> list[int]:
        if call.turn == 0:
            self.last_first_s = time.perf_counter() - self.started
        return script[call.turn]


def request(index: int) -> RolloutRequest:
    """One trajectory of its own group."""
    return RolloutRequest(
        request_id=str(index),
        group_id=str(index),
        env="look-up",
        task=Task(id=str(index)),
        seed=index,
        sampling_seed=index,
    )


class Open:
    """What this process holds."""

    def __init__(self) -> None:
        gc.collect()
        process = psutil.Process()
        self.threads = threading.active_count()
        self.fds = process.num_fds()
        self.rss = process.memory_info().rss

    def more_than(self, before: "Open", tasks: int) -> str:
        """Leaked tasks, threads and file descriptors; idle threads that wait for work are none."""
        idle = sum(t.name == "agentgym-worker" for t in threading.enumerate())
        threads = max(0, self.threads - before.threads - idle)
        return f"{tasks} / {threads} (+{idle} idle) / {self.fds - before.fds}"


async def _collect(requests: list[RolloutRequest], player: Player) -> tuple[Any, int]:
    outputs = await collect(requests, player)
    return outputs, len(asyncio.all_tasks()) - 1


def play(name: str, used: Tool, *, count: int, turns: int, profile: bool = False) -> Measured:
    """All trajectories once, at the same time."""
    tokenizer = byte_tokenizer()
    script = [tokenizer.encode(f"{text}<|im_end|>") for text in (*[CALL] * (turns - 1), "done")]
    renderer: Any = Timed(renderer_for(tokenizer))
    clock = Clock()
    engine = CallableEngine(lambda call: clock.policy(script, call))
    player = Player(
        engine=engine,
        renderer=renderer,
        scheduler=GymScheduler(lambda: LookUp(used)),
        budget=Budget(max_turns=turns + 1, max_sampled_tokens=1 << 20),
        concurrency=count,
    )
    requests = [request(index) for index in range(count)]
    asyncio.run(_collect(requests[:8], player))
    before, cpu = Open(), time.process_time()
    renderer.seconds, clock.started = 0.0, time.perf_counter()
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    outputs, tasks = asyncio.run(_collect(requests, player))
    profiler.disable()
    wall, cpu = time.perf_counter() - clock.started, time.process_time() - cpu
    measured = _measured(name, outputs, turns, Open().more_than(before, tasks))
    measured.wall_s, measured.cpu_s, measured.startup_s = wall, cpu, clock.last_first_s
    measured.renderer_s = renderer.seconds
    del outputs
    measured.grown_mb = (Open().rss - before.rss) / 2**20
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return measured


def _measured(name: str, outputs: list[RolloutOutput], turns: int, leaked: str) -> Measured:
    assert all(output.num_turns == turns and output.reward == 1.0 for output in outputs)
    return Measured(
        name=name,
        wall_s=0.0,
        cpu_s=0.0,
        renderer_s=0.0,
        startup_s=0.0,
        turns=turns * len(outputs),
        longest_s=max(output.timings["total"] for output in outputs),
        slept_s=max(map(_slept, outputs)),
        leaked=leaked,
        grown_mb=0.0,
    )


def _slept(output: RolloutOutput) -> float:
    return sum(float(message.content) for message in output.messages if message.role == "tool")


def show(console: Console, runs: list[Measured]) -> None:
    """One line per run."""
    table = Table(title=f"agent loop, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for column in (
        *("tools", "turns", "wall s", "start-up s", "longest s", "slept s"),
        *(
            "wall / longest",
            "CPU ms/turn",
            "renderer ms",
            "leaked tasks / threads / fds",
            "memory MB",
        ),
    ):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(
            run.name,
            str(run.turns),
            f"{run.wall_s:.2f}",
            f"{run.startup_s:.2f}",
            f"{run.longest_s:.2f}",
            f"{run.slept_s:.2f}",
            f"{run.wall_s / run.longest_s:.2f}",
            f"{1000 * run.cpu_s / run.turns:.2f}",
            f"{1000 * run.renderer_s / run.turns:.2f}",
            run.leaked,
            f"{run.grown_mb:+.0f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="trajectories at once")
    parser.add_argument("--turns", type=int, default=5, help="policy messages of each")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    given = parser.parse_args()
    random.seed(0)
    runs = [
        play(name, used, count=given.count, turns=given.turns, profile=given.profile)
        for name, used in (
            ("async, 0 ms", returns),
            ("sync, 0 ms", returns_in_thread),
            ("async, 0 to 300 ms", waits),
            ("sync, 0 to 300 ms", blocks),
        )
    ]
    show(Console(width=160), runs)


if __name__ == "__main__":
    main()
