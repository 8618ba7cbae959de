"""Checks of what an env reports and of the time it takes."""

import time
from collections.abc import Callable
from typing import Any

from agentgym.checking.contract import CALLS
from agentgym.checking.looped import play_in_loop
from agentgym.checking.report import Findings
from agentgym.checking.session import Session
from agentgym.checking.subject import Subject
from agentgym.jsonable import why_not_json


async def records(subject: Subject) -> Findings:
    """What `info` reports can be written down as it is."""
    found = Findings()
    session = Session(subject, subject.tasks[0], seed=subject.seed, policy=CALLS)
    reset = session.env.areset
    with subject.asking("reset"):
        _, info = await reset(seed=subject.seed, options={"task": subject.tasks[0]})
    report = info.get("report", {})
    if not isinstance(report, dict):
        found.faults.append(f"info['report'] must be a dict by name, got {report!r}")
    else:
        try:
            reason = why_not_json(report)
        except TypeError as error:
            reason = str(error)
        if reason:
            found.warnings.append(f"info['report'] is not plain JSON ({reason}): {report!r}")
    await session.close()
    return found


async def speed(subject: Subject) -> Findings:
    """Resets and steps do not hold a run up."""
    resets: list[float] = []
    steps: list[float] = []
    for task in subject.tasks[:3]:
        session = Session(subject, task, seed=subject.seed, policy=CALLS)
        resets.append(await _timed(session.start))
        while not session.is_over and len(steps) < 3 * len(resets):
            steps.append(await _timed(session.move))
        await session.close()
    means = {"reset": sum(resets) / len(resets), "step": sum(steps) / max(1, len(steps))}
    played = await play_in_loop(subject, subject.tasks[0], CALLS)
    means["turn of the loop"] = played.output.timings["total"] / max(1, played.output.num_turns)
    slow = [
        f"a {what} takes {seconds:.2f} s: load data once, outside of it; start servers in advance"
        for what, seconds in means.items()
        if seconds > subject.slow_s
    ]
    note = ", ".join(f"{what} {1000 * seconds:.1f} ms" for what, seconds in means.items())
    return Findings(warnings=slow, note=note)


async def _timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started
