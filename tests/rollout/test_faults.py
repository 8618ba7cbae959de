"""Hooks, scores and histories that are wrong in ways of their own cost their trajectory only."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from agentgym.engines.scripted import ScriptedEngine
from agentgym.envs import Env
from agentgym.messages import user
from agentgym.rendering import Renderer
from agentgym.rollout import GymScheduler, NextTurn, Player, Trajectory, collect, run_trajectory
from agentgym.rollout.schedulers import MathTipsScheduler
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason, Task, Turn

MakePlayer = Callable[..., Player]
MakeRequest = Callable[..., RolloutRequest]


def playing(renderer: Renderer, scheduler: GymScheduler, *turns: str, **options: Any) -> Player:
    engine = ScriptedEngine(list(turns), encode=renderer.encode, decode=renderer.decode)
    return Player(engine=engine, renderer=renderer, scheduler=scheduler, **options)


class RaisesAtTheEnd(GymScheduler):
    """The hook is no coroutine at all, and raises when it is called."""

    def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> Any:  # type: ignore[override]
        if trajectory.request.request_id == "1-0":
            raise KeyError("boom")
        return super().on_trajectory_end(trajectory, reason)


async def test_a_hook_that_raises_when_called_fails_its_own_trajectory(
    renderer: Renderer, request_for: MakeRequest, add_env: Any
):
    """And the batch goes on."""
    made = []

    def make() -> Env:
        made.append(add_env())
        return made[-1]

    player = playing(renderer, RaisesAtTheEnd(make), "3", max_failed_fraction=1.0)
    outputs = await collect([request_for(1), request_for(2)], player)
    for env in made:
        await env.aclose()

    assert [o.stop_reason for o in outputs] == [StopReason.ENV_ERROR, StopReason.FINAL_ANSWER]
    assert "boom" in (outputs[0].error or "")


async def test_an_env_that_comes_too_late_is_closed_when_it_comes(
    renderer: Renderer, request_for: MakeRequest, add_env: Any
):
    """Nobody waits for it any more, and it would stay open for ever."""

    def slow() -> Env:
        time.sleep(0.4)
        env: Env = add_env()
        return env

    player = playing(renderer, GymScheduler(slow), "3", env_timeout_s=0.1, max_attempts=1)
    output = await run_trajectory(request_for(1), player)
    await asyncio.sleep(0.6)

    assert output.stop_reason == StopReason.TIMEOUT_ENV
    assert add_env.num_open == 0


async def test_a_score_that_hangs_or_is_none_is_a_reward_error(
    make_player: MakePlayer, request_for: MakeRequest
):
    """The trajectory was played; what it is worth is not known."""

    async def hangs(output: RolloutOutput, _: Task) -> RolloutOutput:
        await asyncio.sleep(60)
        return output

    async def forgets(output: RolloutOutput, _: Task) -> RolloutOutput:
        return None  # type: ignore[return-value]

    for score in (hangs, forgets):
        player = make_player(["3"], score=score, score_timeout_s=0.1)
        output = await run_trajectory(request_for(1), player)

        assert output.stop_reason == StopReason.REWARD_ERROR
        assert output.reward is None


class Hinting(MathTipsScheduler):
    def is_right(self, trajectory: Trajectory, turn: Turn) -> bool | None:
        return False


async def test_an_answer_on_the_last_turn_is_an_answer(
    renderer: Renderer, request_for: MakeRequest, add_env: Any
):
    """A hint that nobody could use would only turn it into a truncation."""
    player = playing(renderer, Hinting(add_env), "3", budget=Budget(max_turns=1))
    output = await run_trajectory(request_for(1), player)

    assert output.stop_reason == StopReason.FINAL_ANSWER
    assert output.reward == 1.0


def test_the_answer_is_looked_for_behind_the_reasoning(add_env: Any):
    """A cut inside the thought would keep half of it open."""
    text = "<think>The answer might be 7</think>\nSo\nI say 7"

    assert text[Hinting(add_env).answer_start(text) :] == "I say 7"


class Overflows(GymScheduler):
    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        return NextTurn(history=(user("y" * 5000),))


async def test_a_history_that_does_not_fit_leaves_the_record_as_it_was(
    renderer: Renderer, request_for: MakeRequest, add_env: Any, call: str
):
    """Messages and ids tell the same story."""
    budget = Budget(max_total_tokens=2000)
    player = playing(renderer, Overflows(add_env), call, "3", budget=budget)
    output = await run_trajectory(request_for(1), player)

    assert output.stop_reason == StopReason.CONTEXT_OVERFLOW
    assert [message.role for message in output.messages] == ["user", "assistant"]
