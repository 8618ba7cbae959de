"""Gymnasium's own envs in words."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentgym import envs
from agentgym.envs.adapters.gymnasium_text import GymnasiumTextEnv
from agentgym.errors import ConfigError, NotRegisteredError

SAFE_PATH = ["down", "down", "right", "right", "down", "right"]


class Echo(gymnasium.Env[str, str]):
    """Says what it heard, in capitals; pays for `done`."""

    action_space = spaces.Text(10, charset="abcdefghijklmnopqrstuvwxyz")
    observation_space = spaces.Text(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"say {self.np_random.integers(1000)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action.upper(), float(action == "done"), action == "done", False, {}


class Numbered(Echo):
    """Spaces of every kind that can be said."""

    action_space = spaces.Discrete(3, start=1)
    observation_space = spaces.Dict(
        {"cards": spaces.MultiDiscrete([5, 5]), "flags": spaces.Tuple([spaces.MultiBinary(2)])}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"cards": np.array([1, 4]), "flags": (np.array([0, 1], np.int8),)}, {}

    def step(self, action: Any) -> Any:
        raise RuntimeError(f"played {action}")


@pytest.fixture(autouse=True)
def registered() -> Any:
    gymnasium.register("Echo-v0", Echo, max_episode_steps=3)
    gymnasium.register("Numbered-v0", Numbered)
    yield
    del gymnasium.registry["Echo-v0"], gymnasium.registry["Numbered-v0"]


def test_a_lake_is_crossed_in_words() -> None:
    """The map shows where one stands; the reward is Gymnasium's own."""
    env = envs.make("gymnasium/FrozenLake-v1", options={"is_slippery": False})
    observation, info = env.reset(options={"task": env.tasks()[0]})
    assert "[S]FFF" in observation[0].content
    assert "left, down, right, up" in observation[0].content
    assert info == {"task_id": "train-0"}
    for move in SAFE_PATH[:-1]:
        observation, reward, terminated, truncated, _ = env.step(f"I go on.\nAction: {move}")
        assert (reward, terminated, truncated) == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step("right")
    env.close()

    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["rewards"] == {"return": 1.0}


@pytest.mark.parametrize("name", ["Taxi-v4", "Blackjack-v1", "CliffWalking-v1", "FrozenLake8x8-v1"])
def test_a_seed_is_an_episode(name: str) -> None:
    """Same task, same course, in one env and in two."""

    def course(env: envs.Env) -> list[str]:
        said = [env.reset(options={"task": env.tasks("eval")[5]})[0][0].content]
        actions = list(env._actions)  # type: ignore[attr-defined]
        for turn in range(8):
            observation, _, terminated, truncated, _ = env.step(actions[turn % len(actions)])
            said.append(observation[0].content)
            if terminated or truncated:
                break
        return said

    one, two = envs.make(f"gymnasium/{name}"), envs.make(f"gymnasium/{name}")

    assert course(one) == course(one) == course(two)


def test_what_names_no_action_or_two_is_refused() -> None:
    """It costs a turn, moves nothing, and the third in a row ends the episode."""
    env = envs.make("gymnasium/FrozenLake-v1")
    env.reset(seed=0)
    for text in ("left or right", "I wait"):
        observation, reward, _, truncated, _ = env.step(text)
        assert "exactly one action" in observation[0].content
        assert (reward, truncated) == (0.0, False)
    *_, truncated, info = env.step("hm")

    assert truncated
    assert info["stop_reason"] == "malformed"


def test_text_spaces_take_the_message_itself() -> None:
    """Gymnasium's own limit of steps holds."""
    env = envs.make("gymnasium/Echo-v0")
    env.reset(seed=0)
    assert "no action" in env.step("NOT IN THE ALPHABET")[0][0].content
    assert env.step("hello")[0][0].content == "HELLO"
    assert env.step("done")[1:3] == (1.0, True)
    env.reset(seed=0)
    assert [env.step("a")[3] for _ in range(3)] == [False, False, True]


def test_numbers_stand_for_actions_without_names() -> None:
    """As the space counts them."""
    env = GymnasiumTextEnv("Numbered-v0")
    observation, _ = env.reset(seed=0)

    assert "1, 2, 3" in observation[0].content
    assert "{'cards': [1, 4], 'flags': ([0, 1],)}" in observation[0].content
    with pytest.raises(Exception, match="step: RuntimeError: played 2"):
        env.step("2")


@pytest.mark.parametrize(
    ("name", "arguments", "error", "complaint"),
    [
        ("FrozenLak-v1", {}, NotRegisteredError, "Did you mean 'FrozenLake-v1'"),
        ("", {}, NotRegisteredError, "no env of Gymnasium"),
        ("CartPole-v1", {}, ConfigError, "cannot be said in words"),
        ("Pendulum-v1", {}, ConfigError, "cannot be said"),
        ("FrozenLake-v1", {"options": {"colour": 1}}, ConfigError, "cannot be built.*colour"),
        ("FrozenLake-v1", {"action_names": ["a", "b"]}, ConfigError, "must name 4 actions"),
    ],
)
def test_what_cannot_be_played_is_one_line(
    name: str, arguments: Any, error: type[Exception], complaint: str
) -> None:
    """Before anything is played."""
    with pytest.raises(error, match=complaint) as caught:
        GymnasiumTextEnv(name, **arguments)
    assert "\n" not in str(caught.value)


async def test_a_cut_episode_keeps_what_it_collected() -> None:
    """Falling off the cliff counts even if the budget ends there."""
    env = envs.make("gymnasium/CliffWalking-v1")
    await env.areset(seed=0)
    await env.astep("right")

    assert await env.acut() == {"return": -100.0}
    assert await env.acut() == {}
