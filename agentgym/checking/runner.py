"""Runs checks one after the other, each with a deadline of its own.

Every check runs in a daemon thread with an event loop of its own, so that neither a call that never
returns nor a coroutine that blocks its loop can hang the checker. Once one did, the env is beyond
trust: nothing else is tried.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from agentgym.checking.report import CheckReport, CheckResult, Findings, Status
from agentgym.checking.subject import EXITS, Subject
from agentgym.deadlines import abandon
from agentgym.errors import AgentGymError, EnvError, UsageError, boundary


class Check(NamedTuple):
    """One thing that must hold."""

    name: str
    title: str
    """What holds if it passed."""
    run: Callable[[Subject], Awaitable[Findings]]
    needs: tuple[str, ...] = ()
    """Checks that must not have failed: without them this one says nothing."""


def run_checks(
    subject: Subject, checks: Iterable[Check], *, on_result: Callable[[CheckResult], None]
) -> CheckReport:
    """The report of all checks; `on_result` gets each line as it is known.

    Raises:
        UsageError: the env cannot be built as the caller asks for it.
    """
    results: dict[str, CheckResult] = {}
    others = set(threading.enumerate())
    hung = ""
    out: set[str] = set()
    for check in checks:
        missing = next((name for name in check.needs if name in out), None)
        if hung or missing:
            findings, seconds = Findings(skipped=hung or f"needs {missing!r}"), 0.0
        else:
            findings, seconds, is_over = _run(subject, check)
            if subject.refused is not None:
                raise subject.refused
            hung = "" if is_over else f"the env hung in {check.name!r}"
        result = CheckResult.of(check.name, check.title, findings, seconds)
        results[check.name] = result
        if missing or result.status is Status.FAILED:
            out.add(check.name)
        on_result(result)
    for thread in set(threading.enumerate()) - others:
        if not thread.daemon:
            abandon(thread)
    return CheckReport(subject.name, tuple(results.values()))


def _run(subject: Subject, check: Check) -> tuple[Findings, float, bool]:
    """Findings, seconds, and whether the check came to an end."""
    found: list[Findings] = []
    thread = threading.Thread(
        target=lambda: found.append(asyncio.run(_guarded(subject, check))),
        name=f"agentgym-check-{check.name}",
        daemon=True,
    )
    started = time.monotonic()
    thread.start()
    thread.join(subject.timeout_s)
    seconds = time.monotonic() - started
    if thread.is_alive():
        abandon(thread)
        return Findings(faults=[_late(subject)]), seconds, False
    return found[0] if found else Findings(faults=["the check's thread died"]), seconds, True


def _late(subject: Subject) -> str:
    waited = time.monotonic() - subject.since
    if waited > 0.5 * subject.timeout_s:
        return (
            f"hangs: no answer from {subject.doing} within {waited:.1f} s; give what it waits for "
            "a timeout of its own"
        )
    return (
        f"not done within {subject.timeout_s:g} s (at {subject.doing}): the env is too slow for "
        "this check; try --tasks 2 or a longer --timeout"
    )


async def _guarded(subject: Subject, check: Check) -> Findings:
    try:
        with boundary(EnvError, check.name, also=EXITS):
            return await check.run(subject)
    except AgentGymError as error:
        if isinstance(error, UsageError) and subject.is_being_built:
            subject.refused = error
        return Findings(faults=[str(error)])
