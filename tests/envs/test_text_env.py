"""Envs that only talk."""

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.envs import Task, TextEnv, TextStep
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
