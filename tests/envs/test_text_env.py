"""Envs that only talk."""

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.envs import Task, TextEnv, TextStep
from agentgym.errors import RewardError
from agentgym.messages import assistant, user


class Guess(TextEnv):
    """Guess a digit."""

    def start(self, task: Task) -> str:
        self.secret = str(self.np_random.integers(10))
        return f"Guess a digit ({task.id})."

    def respond(self, text: str) -> TextStep:
        if text == self.secret:
            return TextStep("Right.", reward=1.0, terminated=True)
        return TextStep("Wrong.")


async def test_a_whole_episode() -> None:
    """Both sides, from twenty lines."""
    env = Guess()
    observation, info = await env.areset(seed=1, options={"task": Task(id="t")})
    assert observation == [user("Guess a digit (t).")]
    assert info == {"task_id": "t"}
    assert await env.astep("x") == ([user("Wrong.")], 0.0, False, False, {})
    assert env.step(assistant(env.secret)) == ([user("Right.")], 1.0, True, False, {})
    await env.aclose()


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_gymnasiums_checker_accepts_it() -> None:
    """Seeds decide the secret."""
    env = Guess()
    check_env(env)
    env.close()


class Scored(Guess):
    """With rewards by name, and a turn limit."""

    reward_weights = {"right": 2.0}
    max_turns = 2

    def respond(self, text: str) -> TextStep:
        self.last = text
        return TextStep("Said.", reward=0.25, terminated=text == self.secret)

    def score(self) -> dict[str, float | None]:
        return {"right": float(self.last == self.secret), "style": None}


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_the_last_step_brings_the_scores(ending: str) -> None:
    """Their weighted sum is added to what the step pays, whichever way the episode ends."""
    env = Scored()
    env.reset(seed=1)
    assert env.step("no")[1:] == (0.25, False, False, {})
    right = ending == "terminated"
    _, reward, terminated, truncated, info = env.step(env.secret if right else "no")
    env.close()

    assert (reward, terminated, truncated) == (2.25 if right else 0.25, right, not right)
    assert info["rewards"] == {"right": float(right), "style": None}


async def test_a_cut_episode_is_scored_once() -> None:
    """As it stands, and not again after its end; an env without scores has none to give."""
    env = Scored()
    await env.areset(seed=1)
    await env.astep("no")

    assert await env.acut() == {"right": 0.0, "style": None}
    assert await env.acut() == {}
    await env.aclose()
    plain = Guess()
    await plain.areset(seed=1)
    assert await plain.acut() == {}
    await plain.aclose()


async def test_a_score_that_fails_is_the_rewards_error() -> None:
    env = Scored()
    await env.areset(seed=1)
    with pytest.raises(RewardError, match="AttributeError"):
        await env.acut()
    await env.aclose()
