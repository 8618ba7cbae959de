"""Programs as a reward: any env whose tasks carry tests can pay for them."""

import pytest
from local_kit import launchers, provider
from processes_kit import bwrap_provider

from agentgym.envs import Task
from agentgym.envs.code.answers import fenced
from agentgym.errors import ConfigError, SandboxError
from agentgym.messages import Message, assistant, user
from agentgym.registry import REWARDS
from agentgym.rewards import Rubric
from agentgym.rewards.code import CodeReward
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.trajectory import RolloutOutput, StopReason

VERIFIABLE = Task(
    id="v",
    data={
        "prompt": "Print the sum of the numbers.",
        "verification_info": {
            "language": "python",
            "test_cases": [
                {"input": "1 2\n", "output": "3\n", "type": "stdin_stdout"},
                {"input": "5\n", "output": "5\n", "type": "stdin_stdout"},
            ],
        },
    },
)
RIGHT = fenced("print(sum(map(int, input().split())))")


def played(*said: str | Message) -> RolloutOutput:
    messages = [m if isinstance(m, Message) else assistant(m) for m in said]
    return RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="v",
        env="e",
        seed=0,
        messages=(user("?"), *messages),
        segments=(),
        stop_reason=StopReason.FINAL_ANSWER,
    )


async def score(*said: str | Message, task: Task = VERIFIABLE, **settings: object) -> float | None:
    judge = CodeReward(provider=provider(), **settings)  # type: ignore[arg-type]
    return await judge(played(*said), task)


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        (RIGHT, 1.0),
        (f"<think>Easy.</think>\n<answer>\n{RIGHT}\n</answer>", 1.0),
        (fenced("print(3)"), 0.5),
        (fenced("print(input().split()[0])"), 0.5),
        (fenced("raise SystemExit(0)"), 0.0),
        (fenced("print(3", "javascript"), 0.0),
        ("It is 3.", 0.0),
        ("", 0.0),
    ],
)
async def test_the_share_of_tests_passed_is_the_reward(said: str, passed: float):
    assert await score(said) == passed


async def test_only_the_last_message_counts():
    thought = Message(role="assistant", content="Hm.", reasoning=RIGHT)

    assert await score(RIGHT, "Never mind.") == 0.0
    assert await score("Hm.", RIGHT) == 1.0
    assert await score(thought) == 0.0


async def test_it_can_be_all_or_nothing():
    assert await score(fenced("print(3)"), partial=False) == 0.0
    assert await score(RIGHT, partial=False) == 1.0


async def test_a_sandbox_that_fails_fails_the_trajectory():
    """Not 0, nor a sum of the other columns: the program is not to blame."""
    closed = LocalProvider(next(iter(launchers().values())), warm=0)
    await closed.aclose()
    rubric = Rubric({"code": CodeReward(provider=closed)})

    with pytest.raises(SandboxError, match="closed"):
        await rubric.score_one(played(RIGHT), VERIFIABLE)


async def test_tasks_without_tests_are_the_callers_fault():
    """Said with the reward and the task: an env that names no tests was asked for `code`."""
    with pytest.raises(ConfigError, match=r"reward 'code': task 't': .*format"):
        await score(RIGHT, task=Task(id="t", data={"question": "?"}))


async def test_tests_are_enough():
    """An env words its questions itself; its tasks need no statement."""
    task = Task(id="t", data={"tests": [{"stdin": "1 2\n", "expected": "3\n"}]})

    assert await score(RIGHT, task=task) == 1.0


async def test_it_is_registered():
    assert isinstance(REWARDS.get("code"), CodeReward)


def test_a_run_knows_beforehand_that_programs_will_be_run() -> None:
    """So that it can be refused before the model is loaded."""
    shared = Rubric({"code": CodeReward(), "other": lambda output: 0.0})
    own = Rubric({"code": CodeReward(provider=bwrap_provider())})

    assert [spec.limits.cpu_s for spec in shared.sandbox_specs()] == [1.0]
    assert own.sandbox_specs() == ()
