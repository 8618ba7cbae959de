"""Number guessing: what is heard, and what guesses are worth."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs import Task
from agentgym.envs.number_guessing import NumberGuessingEnv
from agentgym.envs.number_guessing.scoring import speed
from agentgym.envs.number_guessing.tasks import LEVELS, draw
from agentgym.messages import assistant

TASK = Task(id="t", data={"low": 1, "high": 20, "secret": 13, "par": 5, "tries": 7})


def play(*said: str) -> tuple[list[str], float, dict[str, float]]:
    """What is heard, the reward of the last step, and the rewards by name."""
    env = NumberGuessingEnv()
    env.reset(options={"task": TASK})
    steps = [env.step(text) for text in said]
    env.close()
    _, reward, *_, info = steps[-1]
    return [step[0][0].content for step in steps], reward, info.get("rewards", {})


def test_a_whole_game():
    heard, reward, rewards = play("Answer: 10", "15", "Let me see. Answer: 13")

    assert heard == ["Higher. 6 left.", "Lower. 5 left.", "Right. 4 left."]
    assert rewards == {"found": 1.0, "speed": 1.0, "sensible": 1.0}
    assert reward == pytest.approx(1.0)


def test_tries_that_cannot_be_right_cost_speed_and_sense():
    """Repeats, numbers that were ruled out, and messages without a guess."""
    said = ["Answer: 10", "Answer: 10", "Answer: 3", "What?", "Answer: 21", "Answer: 13"]
    heard, _, rewards = play(*said)

    assert heard[3:5] == ["No number from 1 to 20. 3 left.", "No number from 1 to 20. 2 left."]
    assert rewards == {"found": 1.0, "speed": pytest.approx(2 / 3), "sensible": 2 / 6}


def test_tries_run_out():
    heard, _, rewards = play(*["Answer: 12"] * 7)

    assert heard[-1] == "Higher. 0 left."
    assert rewards == {"found": 0.0, "speed": 0.0, "sensible": 1 / 7}


def test_what_was_cut_is_counted_against_all_tries():
    """Ending early after one good guess must not look like playing well."""
    env = NumberGuessingEnv()
    env.reset(options={"task": TASK})
    env.step("Answer: 10")

    assert env.score()["sensible"] == 1 / 7
    env.close()


@given(st.sampled_from(sorted(LEVELS)), st.builds(Random, st.integers(0, 2**32)))
def test_halving_always_makes_par(level: int, rng: Random):
    data = draw(level, rng).data

    assert 2 ** data["par"] > data["high"] - data["low"] + 1
    assert data["par"] <= data["tries"]
    assert data["low"] <= data["secret"] <= data["high"]


@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 14))
def test_speed_never_rises_with_the_number_of_guesses(par: int, spare: int, guesses: int):
    tries = par + spare
    guesses = min(guesses, tries)

    assert 0.0 < speed(guesses, par=par, tries=tries) <= 1.0
    assert speed(par, par=par, tries=tries) == 1.0
    assert speed(guesses + 1, par=par, tries=tries) <= speed(guesses, par=par, tries=tries)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_nothing_that_is_heard_names_the_number(index: int):
    """Until it is guessed, only the bounds and the tries are told."""
    env = NumberGuessingEnv()
    task = env.tasks()[index]
    observation, _ = env.reset(options={"task": task})
    messages = list(observation)
    over = False
    while not over:
        spoken = " ".join(message.content for message in messages if message.role == "user")
        allowed = {task["low"], task["high"], *range(task["tries"] + 1)}
        assert set(map(int, re.findall(r"\d+", spoken))) <= allowed
        messages.append(assistant(env.oracle(task, messages).content))
        observation, _, over, *_ = env.step(messages[-1])
        messages += observation
    env.close()
