"""Sandboxes in the loop: in the record, retried when they fail, closed whatever happens."""

import asyncio
from collections.abc import Callable

import pytest
from counting_kit import Counting

from agentgym.envs import Episode, ToolEnv
from agentgym.errors import SandboxError
from agentgym.rewards import Rubric
from agentgym.rollout import Player, collect
from agentgym.tools.python import python
from agentgym.trajectory import RolloutOutput, RolloutRequest, StopReason

MakePlayer = Callable[..., Player]
MakeRequest = Callable[..., RolloutRequest]
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "6 * 7"}}\n</tool_call>'


def _make_env(counting: Counting) -> Callable[[], ToolEnv]:
    class Computing(ToolEnv):
        tools = (python,)
        sandbox_provider = counting

        def prompt(self, task: object) -> str:
            return "6 * 7?"

        def score(self, episode: Episode) -> dict[str, float | None]:
            return {"correct": float(episode.answer == "42")}

    return Computing


async def test_level_and_back_end_are_in_the_record(
    make_player: MakePlayer, request_for: MakeRequest
) -> None:
    """A reward is worth what the isolation was worth."""
    counting = Counting()
    outputs = await collect(
        [request_for(i) for i in range(4)], make_player([CALL, "42"], _make_env(counting))
    )

    assert [output.reward for output in outputs] == [1.0] * 4
    for output in outputs:
        assert output.rollout_infos["sandbox"] == {
            "backend": counting.backend,
            "level": counting.level,
        }
        assert "42" in [message.content for message in output.messages]
    assert len(counting.opened) == 4
    assert counting.num_open == 0


async def test_a_failure_of_the_infrastructure_is_tried_again_and_never_rewarded(
    make_player: MakePlayer, request_for: MakeRequest
) -> None:
    """One that passes leaves no trace in the reward, one that stays leaves no reward."""
    counting = Counting(fails=1)
    [output] = await collect([request_for()], make_player([CALL, "42"], _make_env(counting)))
    assert output.reward == 1.0

    counting = Counting(fails=1000)
    player = make_player([CALL, "42"], _make_env(counting), max_failed_fraction=1.0)
    [output] = await collect([request_for()], player)
    assert output.stop_reason == StopReason.INFRA_ERROR
    assert output.reward is None
    assert counting.num_open == 0


async def test_a_reward_whose_sandbox_fails_is_infrastructure_too(
    make_player: MakePlayer, request_for: MakeRequest
) -> None:
    """Not a crash of the run, and no reward made of the other columns."""
    tries = 0

    async def runs_code(output: RolloutOutput) -> float:
        nonlocal tries
        tries += 1
        if tries != 2:
            raise SandboxError("there are no sandboxes today")
        return 0.5

    rubric = Rubric({"runs_code": runs_code, "other": lambda _: 1.0})
    player = make_player(["42"], _make_env(Counting()), score=rubric.score_one)
    [output] = await collect([request_for()], player)
    assert output.rewards["runs_code"] == 0.5

    player = make_player(
        ["42"], _make_env(Counting()), score=rubric.score_one, max_failed_fraction=1.0
    )
    [output] = await collect([request_for()], player)
    assert output.stop_reason == StopReason.INFRA_ERROR
    assert output.reward is None
    assert output.error == "there are no sandboxes today"


async def test_code_cannot_look_like_an_env_that_hangs(
    make_player: MakePlayer, request_for: MakeRequest
) -> None:
    """Else a policy that expects a bad reward would sleep until it is left out."""
    sleep = CALL.replace("6 * 7", "import time; time.sleep(2)")
    player = make_player([sleep, "no idea"], _make_env(Counting()), env_timeout_s=1.5)
    [output] = await collect([request_for()], player)

    assert output.stop_reason == StopReason.FINAL_ANSWER
    assert output.reward == 0.0


async def test_a_cancelled_run_leaves_none_open(
    make_player: MakePlayer, request_for: MakeRequest
) -> None:
    """Invariant 7, at whatever moment it comes."""
    counting = Counting(delay_s=0.01)
    player = make_player([CALL] * 50, _make_env(counting))
    for wait in (asyncio.sleep(0), asyncio.sleep(0.05), counting.has_opened.wait()):
        run = asyncio.create_task(collect([request_for(i) for i in range(6)], player))
        await wait
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert counting.num_open == 0
