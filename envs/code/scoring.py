"""What a program earns: how it does on the tests that are shown, then on those that are not.

A program that runs out of time on the first public test is not tried on the others: it fails them.
"""

from dataclasses import dataclass
from typing import Any

from agentgym.envs.code.challenge import Challenge
from agentgym.envs.code.grading import TestResult, grade
from agentgym.tools.sandbox.base import Outcome, SandboxProvider, SandboxSpec

_MAX_REASON = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Results by test."""

    public: tuple[TestResult, ...] = ()
    hidden: tuple[TestResult, ...] = ()
    has_program: bool = True

    def rewards(self, *, partial: bool) -> dict[str, float | None]:
        """`passed`, `public` and `runs`; `public` is unscored for a program without such tests."""
        if not self.has_program:
            return {"passed": 0.0, "public": 0.0, "runs": 0.0}
        tried = self.public or self.hidden
        passed = _share(self.hidden)
        if not partial:
            passed = float(all(result.passed for result in self.public + self.hidden))
        return {
            "passed": passed,
            "public": _share(self.public) if self.public else None,
            "runs": float(all(result.outcome is Outcome.OK for result in tried)),
        }

    @property
    def report(self) -> dict[str, Any]:
        """JSON values for the record: numbers, and what was wrong first."""
        wrong = [result for result in self.public + self.hidden if not result.passed]
        counts = {
            name: f"{sum(result.passed for result in results)}/{len(results)}"
            for name, results in (("public", self.public), ("hidden", self.hidden))
        }
        if not self.has_program:
            return {"first_failure": "there is no program"}
        return counts | ({"first_failure": wrong[0].reason[:_MAX_REASON]} if wrong else {})


NOTHING = Verdict(has_program=False)
"""On an answer without a program."""


def _share(results: tuple[TestResult, ...]) -> float:
    return sum(result.passed for result in results) / len(results) if results else 0.0


async def verdict_on(
    program: str,
    challenge: Challenge,
    provider: SandboxProvider,
    spec: SandboxSpec,
    *,
    hidden: bool = True,
) -> Verdict:
    """Results of a program.

    Args:
        program: its source.
        challenge: what it is tested with.
        provider: of fresh sandboxes.
        spec: their limits and packages.
        hidden: whether to go on to the hidden tests.

    Raises:
        SandboxError: the infrastructure failed.
        ConfigError: the tests cannot be run.
    """

    shown = len(challenge.public)
    tests = (*challenge.public, *challenge.hidden) if hidden else challenge.public
    if not tests:
        return Verdict()
    whole = challenge.whole(program)
    graded = await grade(provider, whole, tests, spec=spec, gate=min(1, shown))
    return Verdict(public=graded.results[:shown], hidden=graded.results[shown:])
