"""Envs and tools as people check them from their own tests."""

import time
from dataclasses import replace

import pytest

from agentgym.checking.api import subject_of
from agentgym.checking.checklist import ENV_CHECKS
from agentgym.checking.runner import run_checks
from agentgym.envs import Episode, TaskSet, ToolEnv, register
from agentgym.envs.calculator import CalculatorEnv
from agentgym.errors import ConfigError, NotRegisteredError, ToolError
from agentgym.testing import check_env, check_tool
from agentgym.tools import TOOLS, tool
from agentgym.trajectory import Task


class Unsolved(ToolEnv):
    """Has no oracle, and nobody here can solve it."""

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def prompt(self, task: Task) -> str:
        return "What am I thinking of?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(episode.answer == "a purple elephant")}


@pytest.mark.slow
def test_a_bundled_env_passes_as_a_class() -> None:
    """Without its name, so only the name is not checked; another process finds the class."""
    report = check_env(CalculatorEnv, env_args={"levels": [1]}, num_tasks=4)

    assert report.passed, str(report)
    assert report.result("registration").status == "skipped"
    assert report.result("fresh_process").status == "passed"
    assert report.result("oracle").messages == ("mean return 1 of 1",)


@pytest.mark.slow
def test_a_wrapped_env_passes_by_name() -> None:
    """A turn limit given at registration is a wrapper around the env."""
    register("Limited-v0", CalculatorEnv, max_turns=6)

    report = check_env("limited", num_tasks=4)

    assert report.passed, str(report)
    assert "in this process only" in report.result("fresh_process").messages[0]


def test_without_an_oracle_the_rewards_are_held_against_what_is_declared() -> None:
    """Nothing failed, and the report says what it could not tell."""
    rewards = ("build", "tasks_exist", "episodes", "policies", "reward_range", "oracle", "floor")
    checks = [check for check in ENV_CHECKS if check.name in rewards]
    subject = subject_of(Unsolved, num_tasks=2)
    report = run_checks(subject, checks, on_result=lambda result: None)

    assert report.passed, str(report)
    assert report.warned == ("reward_range",)
    assert report.result("oracle").status == "skipped"
    assert "limit 0.5" in report.result("floor").messages[0]


def test_what_the_caller_must_change_is_raised() -> None:
    """It is no fault of the env."""
    with pytest.raises(NotRegisteredError, match="calculatr"):
        check_env("calculatr")
    with pytest.raises(ConfigError, match=r"\[9\]"):
        check_env("calculator", env_args={"levels": [9]})
    with pytest.raises(ConfigError, match="num_tasks"):
        check_env("calculator", num_tasks=1)


def test_a_slow_env_is_a_warning() -> None:
    """With the time it takes and what to do."""

    class Slow(Unsolved):
        def prompt(self, task: Task) -> str:
            time.sleep(0.02)
            return super().prompt(task)

    speed = next(check for check in ENV_CHECKS if check.name == "speed")
    subject = subject_of(Slow, num_tasks=2)
    subject.slow_s = 0.01
    report = run_checks(subject, [speed._replace(needs=())], on_result=lambda result: None)

    assert report.warned == ("speed",)
    assert report.result("speed").messages[0].startswith("a reset takes 0.0")


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: To be doubled.
    """
    return 2 * number


def test_a_tool_passes_by_itself_and_by_name() -> None:
    """The bundled calculator is one."""
    assert check_tool(double).passed
    assert check_tool("calculator").passed
    assert "calculator" in TOOLS.names()


def test_a_tool_whose_schema_is_wrong_fails() -> None:
    """And its calls are not tried."""
    report = check_tool(replace(double, parameters={"type": "object", "properties": []}))

    assert report.failed == ("schema",)
    assert report.result("answers").status == "skipped"


def test_a_tool_that_never_answers_fails() -> None:
    """The model would wait for its limit at each call."""

    @tool(timeout_s=0.05)
    def waits(number: int) -> int:
        """Wait.

        Args:
            number: Of nothing.
        """
        time.sleep(1)
        return number

    report = check_tool(waits)

    assert report.failed == ("answers",)
    assert "timeout after 0.05 s" in report.result("answers").messages[0]


def test_a_tool_without_words_is_a_warning() -> None:
    """Models call what they can read about."""

    @tool
    def silent(number: int) -> int:
        return number

    report = check_tool(silent)

    assert report.passed
    assert report.warned == ("schema",)
    assert "no description" in report.result("schema").messages[0]


def test_a_tool_that_fails_without_telling_what_to_do_is_a_warning() -> None:
    """`ToolError` is how a tool talks to the model."""

    @tool
    def fails(number: int) -> int:
        """Fail.

        Args:
            number: Of nothing.
        """
        raise KeyError(number)

    @tool
    def explains(number: int) -> int:
        """Fail well.

        Args:
            number: Of nothing.
        """
        raise ToolError("call double instead")

    assert check_tool(fails).warned == ("answers",)
    assert not check_tool(explains).warned
