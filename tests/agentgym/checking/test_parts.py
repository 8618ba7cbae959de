"""The parts of the checker: arguments that fit, transcripts that part, reports that can be read."""

import asyncio
import json
from random import Random
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentgym.checking.api import subject_of
from agentgym.checking.arguments import random_arguments
from agentgym.checking.policies import named_golds
from agentgym.checking.report import CheckReport, CheckResult, Findings, Status
from agentgym.checking.runner import Check, run_checks
from agentgym.checking.session import difference, digest
from agentgym.checking.subject import Subject
from agentgym.envs.calculator import CalculatorEnv
from agentgym.tools import tool
from agentgym.trajectory import Task


class Point(BaseModel):
    """Somewhere."""

    x: int
    y: float | None = None


@tool
def anything(
    name: str,
    color: Literal["red", "blue"],
    point: Point,
    numbers: list[int],
    flag: bool = False,
    maybe: int | str | None = None,
    table: dict[str, int] | None = None,
) -> str:
    """Take everything."""
    return name


@given(st.integers(0, 10**6), st.text(max_size=40))
@settings(max_examples=50)
def test_random_arguments_fit_the_schema(seed: int, text: str) -> None:
    """Else the policy of random calls would only ever see refusals."""
    arguments = random_arguments(anything.parameters, text, Random(seed))

    anything.signature.validate(arguments)


def test_random_arguments_take_words_and_numbers_of_the_conversation() -> None:
    """So that some of them hit."""
    drawn = [random_arguments(anything.parameters, "box 77", Random(i)) for i in range(30)]

    assert {arguments["name"] for arguments in drawn} == {"box", "77"}
    assert any(77 in arguments["numbers"] for arguments in drawn)


entries = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), max_size=4)


@given(entries, entries)
def test_transcripts_differ_exactly_if_their_digests_do(one: list, other: list) -> None:  # type: ignore[type-arg]
    """And the difference names the turn."""
    first, second = (
        [{"turn": f"step {i}", **dict.fromkeys("abc", 0), **entry} for i, entry in enumerate(some)]
        for some in (one, other)
    )
    parts = difference(first, second)

    assert (parts is None) == (digest(first) == digest(second))
    assert parts is None or parts.split(":")[0].startswith(("step", f"{len(first) - 1} steps"))


def test_a_report_counts_and_can_be_read_by_a_program() -> None:
    """Only what failed makes it fail."""
    given = {
        "fine": Findings(note="3 of 3"),
        "odd": Findings(warnings=["hm"]),
        "bad": Findings([f"fault {i}" for i in range(9)]),
        "open": Findings(skipped="needs 'bad'"),
    }
    lines = [CheckResult.of(name, "holds", findings, 0.5) for name, findings in given.items()]
    report = CheckReport("thing", tuple(lines))

    read = json.loads(report.to_json())
    assert [check["status"] for check in read["checks"]] == [
        "passed",
        "warned",
        "failed",
        "skipped",
    ]
    assert (read["passed"], report.failed, report.warned) == (False, ("bad",), ("odd",))
    assert report.result("bad").messages[-1] == "and 4 more of this kind"
    assert str(report).splitlines()[-1] == (
        "FAILED: 1 passed, 1 failed, 1 warned, 1 skipped in 2.0 s"
    )
    assert CheckReport("thing", tuple(lines[:2])).passed


def test_a_check_that_needs_one_that_failed_is_skipped_and_so_on() -> None:
    """Consequences are no faults of their own; the rest is still looked at."""

    async def fails(subject: Subject) -> Findings:
        raise KeyError("lost")

    async def passes(subject: Subject) -> Findings:
        return Findings()

    checks = [
        Check("one", "", fails),
        Check("two", "", passes, ("one",)),
        Check("three", "", passes, ("two",)),
        Check("four", "", passes),
    ]
    report = run_checks(subject_of(CalculatorEnv), checks, on_result=lambda result: None)

    statuses = {result.name: result.status for result in report.results}
    assert statuses == {
        "one": Status.FAILED,
        "two": Status.SKIPPED,
        "three": Status.SKIPPED,
        "four": Status.PASSED,
    }
    assert report.result("one").messages == ("one: KeyError: 'lost'",)


def test_a_slow_check_is_told_from_one_that_hangs() -> None:
    """The env answers all the time, only too slowly for the deadline."""

    async def slow(subject: Subject) -> Findings:
        while True:
            with subject.asking("step 1"):
                await asyncio.sleep(0.01)

    subject = subject_of(CalculatorEnv, timeout_s=0.2)
    report = run_checks(subject, [Check("slow", "", slow)], on_result=lambda result: None)

    assert "too slow for this check" in report.result("slow").messages[0]


def test_answers_are_found_in_the_data_of_a_task() -> None:
    """One or several, under the usual names; structures are none."""
    task = Task(
        id="0", data={"Answer": 42, "answers": ["a", "b"], "gold": {"x": 1}, "question": "why"}
    )

    assert named_golds(task) == [("Answer", "42"), ("answers", "a"), ("answers", "b")]
