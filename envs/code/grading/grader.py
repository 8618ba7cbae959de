"""Grades a program by its tests: it gets inputs, and what it answers is compared out here.

The program runs in a sandbox nobody has used before, a process per test; no word of it counts but
the data it prints or returns, and what was expected never goes in. Code of the tests that has to be
run gets a sandbox of its own. A failure of the infrastructure raises, so that it is nobody's score.
"""

import reprlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from agentgym.envs.code.grading.compare import same_output, same_value
from agentgym.envs.code.grading.fitting import as_source_text, fitted
from agentgym.envs.code.grading.folding import is_small
from agentgym.envs.code.grading.judging import (
    Verdict,
    answers_of,
    judge_bundle,
    judge_here,
    last_line,
    of_code,
    verdict_of,
    verdicts_of,
)
from agentgym.envs.code.grading.planning import AnyTest, Plan, limits_for, planned, spec_for
from agentgym.envs.code.grading.proxies import Session, play
from agentgym.envs.code.grading.questions import Check
from agentgym.envs.code.grading.tests import CallTest, StdioTest
from agentgym.tools.sandbox.base import (
    Case,
    ExecResult,
    Outcome,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)
from agentgym.tools.sandbox.limits import Limits

_MAX_REASON = 300
_OUT_OF_TIME = frozenset({Outcome.CPU_LIMIT, Outcome.WALL_TIMEOUT})
_PATIENCE_S = 30.0
"""Spent on runs that ended in a limit of time; after that, the others fail without being tried."""
_GIVEN_UP = "not tried: too many tests ran out of time"
_CHUNK = 4
_BUNDLE = 64
"""Checks judged in one process."""


class TestResult(NamedTuple):
    """What came of one test."""

    passed: bool
    outcome: Outcome = Outcome.OK
    """How the program ended, the first time it was not as it should be."""
    reason: str = ""
    """Why it did not pass; empty if it did."""
    cpu_s: float = 0.0
    """Processor seconds of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What came of a program."""

    results: tuple[TestResult, ...]
    """In the order of the tests."""
    tamper_resistance: Literal["full", "partial"] = "full"
    """Partial where test code that could not be rewritten handled the program's answers, or the
    program was asked how its own objects compare."""

    @property
    def passed(self) -> tuple[bool, ...]:
        """By test."""
        return tuple(result.passed for result in self.results)

    @property
    def fraction(self) -> float:
        """Share of tests passed, 0 to 1."""
        return sum(self.passed) / len(self.results)

    @property
    def all_passed(self) -> bool:
        return all(self.passed)


@dataclass(slots=True)
class _Job:
    """One case of a test."""

    index: int
    """Of the test."""
    case: Case
    check: Check | None
    result: ExecResult | None = None
    verdict: Verdict | None = None


@dataclass(slots=True, kw_only=True)
class Grading:
    """One grading in progress; `grade` is what to call."""

    provider: SandboxProvider
    spec: SandboxSpec
    limits: Limits | None
    random: Random
    gate: int = 0
    """Tests that are tried first; where one of them runs out of time, no other is tried."""

    async def run(self, program: str, plans: Sequence[Plan]) -> Graded:
        """Grade a program.

        Raises:
            SandboxError: the infrastructure failed.
            ConfigError: the tests cannot be run here.
        """
        jobs = [
            _Job(index, case, plans[index].checks[number] if plans[index].checks else None)
            for index in range(len(plans))
            for number, case in enumerate(plans[index].cases)
        ]
        self.random.shuffle(jobs)
        first = [job for job in jobs if job.index < self.gate]
        others = [job for job in jobs if job.index >= self.gate]
        async with self._opened() as sandbox:
            in_time = await self._ask(sandbox, program, first)
            await self._ask(sandbox, program, others, patience_s=_PATIENCE_S if in_time else 0.0)
            played = await self._judge(sandbox, program, plans, jobs)
        results = [_result_of(i, p, jobs, played.get(i)) for i, p in enumerate(plans)]
        is_partial = any(each.is_partial for each in plans)
        resistance: Literal["full", "partial"] = "partial" if is_partial else "full"
        return Graded(results=tuple(results), tamper_resistance=resistance)

    async def _ask(
        self,
        sandbox: Sandbox,
        program: str,
        jobs: list[_Job],
        *,
        patience_s: float = _PATIENCE_S,
    ) -> bool:
        """Get the answers to jobs; whether all came in time."""
        pending, size, spent_s = list(jobs), _CHUNK, 0.0
        while pending and spent_s < patience_s:
            now, pending = pending[:size], pending[size:]
            cases = [job.case for job in now]
            results = await sandbox.run_tests(program, cases, limits=self.limits)
            for job, result in zip(now, results, strict=False):
                job.result = of_code(result)
            waited_s = sum(result.wall_s for result in results if result.outcome in _OUT_OF_TIME)
            spent_s += waited_s
            size = 1 if waited_s else 2 * size
        for job in pending:
            job.verdict = Verdict(False, _GIVEN_UP, Outcome.CPU_LIMIT)
        return not spent_s and not pending

    async def _judge(
        self, sandbox: Sandbox, program: str, plans: Sequence[Plan], jobs: list[_Job]
    ) -> dict[int, Verdict]:
        """Decide every check; returns what came of tests that were not rewritten."""
        open_jobs = [job for job in jobs if job.check is not None and not _decided_here(job)]
        proxied = [index for index, each in enumerate(plans) if each.proxied]
        if not open_jobs and not proxied:
            return {}
        async with self._opened() as judge:
            await self._decide(judge, open_jobs)
            session = Session(sandbox, program, judge, self.limits)
            return {index: await _play_all(plans[index], session) for index in proxied}

    async def _decide(self, judge: Sandbox, jobs: list[_Job]) -> None:
        if not jobs:
            return
        bundles = _bundles(jobs)
        cases = [judge_bundle([_answered(job) for job in bundle]) for bundle in bundles]
        results = await judge.run_tests("", cases, limits=self.limits)
        for bundle, result in zip(bundles, results, strict=True):
            verdicts = verdicts_of(of_code(result), len(bundle))
            if verdicts is None:
                await self._decide_alone(judge, bundle)
                continue
            for job, verdict in zip(bundle, verdicts, strict=True):
                job.verdict = verdict

    async def _decide_alone(self, judge: Sandbox, jobs: list[_Job]) -> None:
        cases = [judge_bundle([_answered(job)]) for job in jobs]
        results = await judge.run_tests("", cases, limits=self.limits)
        for job, result in zip(jobs, results, strict=True):
            job.verdict = verdict_of(of_code(result))

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Sandbox]:
        """A sandbox that nobody has used."""
        sandbox = await self.provider.open(self.spec)
        try:
            yield sandbox
        finally:
            await sandbox.close()


async def grade(
    provider: SandboxProvider,
    program: str | None,
    tests: Iterable[AnyTest],
    *,
    spec: SandboxSpec | None = None,
    gate: int = 0,
    seed: int | None = None,
) -> Graded:
    """Grade a program by its tests.

    Args:
        provider: where sandboxes come from; one or two are opened, and closed again.
        program: its source; `None` or blank passes nothing.
        tests: of one problem; their order is shuffled.
        spec: limits of every run, and what program and tests may import.
        gate: how many tests are tried before the others, which fail untried if one of these runs
            out of time.
        seed: of the shuffle; another order every time if left out.

    Raises:
        ConfigError: there are no tests, or some that cannot be run; whatever the program is.
        SandboxError: the infrastructure failed; the program has no score.
    """
    plans = await planned(tests := tuple(tests))
    if program is None or not program.strip():
        nothing = TestResult(False, Outcome.ERROR, "there is no program")
        return Graded(results=(nothing,) * len(plans))
    program = as_source_text(program)
    plans = [each._replace(test=fitted(each.test, program)) for each in plans]
    grading = Grading(
        provider=provider,
        spec=spec_for(spec or SandboxSpec()),
        limits=limits_for(tests, None if spec is None else spec.limits),
        random=Random(seed),
        gate=gate,
    )
    return await grading.run(program, plans)


def _bundles(jobs: list[_Job]) -> list[list[_Job]]:
    """Jobs that can be judged in one process; those with large answers are alone."""
    by_setup: dict[str, list[_Job]] = {}
    alone = []
    for job in jobs:
        check, answers = _answered(job)
        if all(map(is_small, answers)):
            by_setup.setdefault(check.judge_setup, []).append(job)
        else:
            alone.append([job])
    return alone + [
        same[start : start + _BUNDLE]
        for same in by_setup.values()
        for start in range(0, len(same), _BUNDLE)
    ]


def _answered(job: _Job) -> tuple[Check, tuple[Any, ...]]:
    assert job.check is not None
    assert job.result is not None
    answers = answers_of(job.check, job.result.value)
    assert answers is not None
    return job.check, answers


def _decided_here(job: _Job) -> bool:
    """Whether the check needs no sandbox to be judged; notes the verdict."""
    assert job.check is not None
    job.verdict = job.verdict or _unanswered(job.result)
    if job.verdict is None and job.result is not None:
        answers = answers_of(job.check, job.result.value)
        if answers is None:
            job.verdict = Verdict(False, "the answer is no plain data")
        else:
            holds = judge_here(job.check, answers)
            job.verdict = None if holds is None else _verdict(holds, job.result.value)
    return job.verdict is not None


def _unanswered(result: ExecResult | None) -> Verdict | None:
    if result is None:
        return Verdict(False, "there is no result", Outcome.ERROR)
    if not result.ok:
        return Verdict(False, f"{result.outcome}: {last_line(result)}")
    return None if result.has_value else Verdict(False, "it ended without an answer")


def _verdict(holds: bool, value: Any) -> Verdict:
    return Verdict(holds, "" if holds else f"not what was expected: {_shown(value)}")


def _shown(value: Any) -> str:
    """The looks of a value, cut before they are made."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of too many digits
        return f"a {type(value).__name__} too large to be shown"


async def _play_all(plan: Plan, session: Session) -> Verdict:
    """The first verdict of a test's scripts that is none of success."""
    verdict = Verdict(False, "there is nothing to play")
    for proxied in plan.proxied:
        verdict = await play(proxied, session)
        if not verdict.holds:
            break
    return verdict


def _result_of(index: int, plan: Plan, jobs: list[_Job], played: Verdict | None) -> TestResult:
    if played is not None:
        return TestResult(played.holds, played.outcome, played.reason[:_MAX_REASON])
    own = [job for job in jobs if job.index == index]
    verdicts = [(job, job.verdict or _direct_verdict(plan.test, job.result)) for job in own]
    cpu_s = sum(job.result.cpu_s for job in own if job.result is not None)
    for job, verdict in verdicts:
        if not verdict.holds:
            outcome = job.result.outcome if job.result is not None else verdict.outcome
            return TestResult(False, outcome, verdict.reason[:_MAX_REASON], cpu_s)
    return TestResult(bool(own), cpu_s=cpu_s)


def _direct_verdict(test: AnyTest, result: ExecResult | None) -> Verdict:
    """Of a test whose expectation is a plain output or value."""
    if isinstance(test, StdioTest):
        return _of_output(test, result)
    if not isinstance(test, CallTest):
        return Verdict(False, "it was not judged")
    unanswered = _unanswered(result)
    if unanswered is not None or result is None:
        return unanswered or Verdict(False)
    wanted = (test.expected, *test.alternatives)
    holds = any(same_value(result.value, each, tol=test.tol) for each in wanted)
    return _verdict(holds, result.value)


def _of_output(test: StdioTest, result: ExecResult | None) -> Verdict:
    if result is None or not result.ok:
        return _unanswered(result) or Verdict(False)
    if result.stdout_cut:
        return Verdict(False, "it printed more than is kept")
    holds = same_output(result.stdout, test.expected, mode=test.compare, tol=test.tol)
    return _verdict(holds, result.stdout)
