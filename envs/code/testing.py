"""What the policy is told of the public tests."""

from collections.abc import Sequence

from agentgym.envs.code.challenge import Challenge, example_of
from agentgym.envs.code.grading import TestResult


def told(challenge: Challenge, results: Sequence[TestResult]) -> str:
    """A line per test: right, or what should be and why it is not."""
    if not results:
        return "The task has no examples."
    lines = []
    for test, result in zip(challenge.public, results, strict=True):
        shown = example_of(test)
        lines.append(f"right: {shown}" if result.passed else f"WRONG: {shown}\n  {result.reason}")
    num_right = sum(result.passed for result in results)
    return "\n".join([f"{num_right} of {len(results)} examples are right.", *lines])
