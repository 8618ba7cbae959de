"""Wrappers, ours and Gymnasium's, around the same env."""

from typing import Any

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from agentgym.envs import Env, Episode, SystemPrompt, Task, ToolEnv, TurnLimit, Wrapper
from agentgym.errors import ConfigError, EpisodeOverError
from agentgym.messages import assistant, system, user
from agentgym.tools.calculator import calculator

CALL = assistant("", ("calculator", {"expression": "1+1"}))


class Ask(ToolEnv):
    tools = (calculator,)
    reward_weights = {"tried": 0.5}

    def prompt(self, task: Task) -> str:
        return f"{task.id}?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"answered": float(episode.answer is not None), "tried": float(episode.turns > 1)}


@pytest.mark.parametrize(
    "wrapper", [OrderEnforcing, PassiveEnvChecker, lambda env: TimeLimit(env, 5)]
)
def test_gymnasiums_wrappers_reach_the_env(wrapper: Any) -> None:
    """Attributes are read and set through any stack."""
    env = wrapper(Wrapper(TurnLimit(Ask(), 7)))

    assert env.get_wrapper_attr("tools") is env.unwrapped.tools
    assert env.set_wrapper_attr("max_turns", 3)
    assert env.unwrapped.max_turns == 3
    env.reset(seed=0)
    env.step(CALL)
    env.step(CALL)
    assert env.step(CALL)[3] is True
    env.close()


def test_gymnasiums_time_limit_truncates() -> None:
    """The sync side is all it needs."""
    env = TimeLimit(Ask(), 2)
    env.reset(seed=0)

    assert [env.step(CALL)[2:4] for _ in range(2)] == [(False, False), (False, True)]


async def test_the_async_side_passes_through() -> None:
    """The loop plays a wrapped env like a bare one."""
    inner = Ask()
    env = Wrapper(inner)
    task = Task(id="t")

    assert isinstance(env, Env)
    assert env.unwrapped is inner
    assert (await env.areset(seed=3, options={"task": task}))[0] == [user("t?")]
    assert env.np_random is inner.np_random
    assert (await env.astep(CALL))[0][0].content == "2"
    assert (await env.astep("2"))[1] == 1.5
    assert env.tasks("eval")[0] == inner.tasks("eval")[0]
    assert env.reward_weights is inner.reward_weights
    env.tools = ()
    env.reward_weights = {}
    assert (inner.tools, inner.reward_weights) == ((), {})
    await env.aclose()


async def test_a_turn_limit_truncates_and_scores() -> None:
    """The env inside says what the episode was worth so far."""
    env = TurnLimit(Ask(), 2)
    await env.areset(seed=0)
    assert (await env.astep(CALL))[2:4] == (False, False)
    observation, reward, terminated, truncated, info = await env.astep(CALL)

    assert observation[0].content == "2"
    assert (reward, terminated, truncated) == (0.5, False, True)
    assert info["rewards"] == {"answered": 0.0, "tried": 1.0}
    assert info["stop_reason"] == "max_turns"
    assert len(info["tool_results"]) == 1
    with pytest.raises(EpisodeOverError):
        await env.astep(CALL)
    await env.areset(seed=0)
    await env.astep(CALL)
    assert (await env.astep("2"))[2:4] == (True, False)


async def test_the_loops_cut_reaches_the_env_inside() -> None:
    """A wrapped env is scored like a bare one."""
    env = TurnLimit(Ask(), 5)
    await env.areset(seed=0)
    await env.astep(CALL)

    assert await env.acut() == {"answered": 0.0, "tried": 0.0}
    assert await env.acut() == {}
    with pytest.raises(EpisodeOverError):
        await env.astep(CALL)


async def test_a_system_prompt_comes_first() -> None:
    """In place of the env's own."""

    class Prompted(Ask):
        system_prompt = "Old."

    for inner in (Ask(), Prompted()):
        observation, _ = await SystemPrompt(inner, "New.").areset(seed=0)
        assert [message.role for message in observation] == ["system", "user"]
        assert observation[0] == system("New.")


def test_wrappers_of_ours_go_inside() -> None:
    """Gymnasium's have no async side for the loop to call."""
    with pytest.raises(ConfigError, match="put Gymnasium's own wrappers outside"):
        TurnLimit(TimeLimit(Ask(), 5), 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        TurnLimit(Ask(), 0)


def test_vector_envs_reset_on_the_step_after_the_end() -> None:
    """Gymnasium's rule: that step's action is not played and pays nothing."""
    envs: Any = SyncVectorEnv([Ask] * 2)
    envs.reset(seed=0)
    end = assistant("2")
    _, rewards, terminated, *_ = envs.step([end, CALL])
    assert rewards.tolist() == [1.0, 0.0]
    assert terminated.tolist() == [True, False]
    observations, rewards, terminated, *_ = envs.step([end, CALL])

    assert rewards[0] == 0.0
    assert not terminated[0]
    assert observations[0][0].role == "user"
    assert envs.envs[0].episode.turns == 0
    envs.close()
    assert isinstance(envs, gymnasium.vector.VectorEnv)
