"""Countdown: which expressions count, and what their value is worth."""

from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs import Task
from agentgym.envs.countdown import CountdownEnv
from agentgym.envs.countdown.scoring import closeness, read_value
from agentgym.envs.countdown.tasks import LEVELS, draw
from agentgym.messages import assistant

NUMBERS = [7, 2, 3, 3]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Answer: (7-2)*3", 15),
        ("(7-2)*3", 15),
        ("Answer: `(7 \u2212 2) \u00d7 3`", 15),
        ("Seven less two, times three. Answer: (7-2)*3.", 15),
        ("Answer: 7/2*3", Fraction(21, 2)),
        ("Answer: 7/3*3+2", 9),
        ("Answer: 3*3", 9),
        ("Answer: ((7))-(2)", 5),
        ("Answer: 2-7", -5),
        ("Answer: 7", None),
        ("Answer: 7*7", None),
        ("Answer: 3*3*3", None),
        ("Answer: 7+5", None),
        ("Answer: 7**2", None),
        ("Answer: 7 * * 2", None),
        ("Answer: 7//2", None),
        ("Answer: -7+2", None),
        ("Answer: 7--2", None),
        ("Answer: 7*(-2)", None),
        ("Answer: 7%3", None),
        ("Answer: 72+3", None),
        ("Answer: 7 2+3", None),
        ("Answer: 7(2)+3", None),
        ("Answer: 7.0+2", None),
        ("Answer: 07+2", None),
        ("Answer: 7/(3-3)", None),
        ("Answer: (7-2", None),
        ("Answer: 7-2=5", None),
        ("Answer: 15", None),
        ("Answer: 7-2\nAnswer: 7+2", None),
        ("Answer: max(7,2)", None),
        ("Answer: __import__('os')", None),
        ("Answer: " + "(" * 150 + "7+2" + ")" * 150, None),
        ("", None),
        (None, None),
    ],
)
def test_which_expressions_count(answer: str | None, value: int | Fraction | None):
    assert read_value(answer, numbers=NUMBERS) == value


@given(st.text("0123456789+-*/() =\u00d7\u2212.\n", max_size=40))
def test_reading_never_fails_and_never_uses_what_was_not_given(text: str):
    value = read_value(f"Answer: {text}", numbers=NUMBERS)
    used = Counter("".join(c if c.isdigit() else " " for c in text).split())

    assert value is None or used <= Counter(map(str, NUMBERS))


@given(st.fractions(), st.integers(1, 999))
def test_nearness_is_a_share(value: Fraction, target: int):
    near = closeness(value, target)

    assert 0.0 <= near <= 1.0
    assert closeness(target, target) == 1.0
    assert (near > 0.0) == (abs(value - target) < 10) or abs(value - target) > Fraction(999, 100)


def test_nearness_falls_with_distance():
    assert [closeness(value, 50) for value in (50, 49, 55, 60, 1000)] == [1.0, 0.9, 0.5, 0.0, 0.0]
    assert closeness(None, 50) == 0.0


@given(st.sampled_from(sorted(LEVELS)), st.builds(Random, st.integers(0, 2**32)))
def test_every_game_has_a_solution_by_its_own_rules(level: int, rng: Random):
    data = draw(level, rng).data
    lowest, highest = LEVELS[level].targets

    assert len(data["numbers"]) == LEVELS[level].num_numbers
    assert lowest <= data["target"] <= highest
    assert data["target"] not in data["numbers"]
    assert read_value(data["solution"], numbers=data["numbers"]) == data["target"]


async def test_a_near_miss_earns_a_little():
    env = CountdownEnv()
    task = Task(id="t", data={"numbers": NUMBERS, "target": 16, "solution": "7*2+3-1"})
    await env.areset(options={"task": task})
    observation, *_ = await env.astep(assistant("", ("calculator", {"expression": "(7-2)*3"})))
    *_, info = await env.astep("Answer: (7-2)*3")
    await env.aclose()

    assert observation[0].content == "15"
    assert info["rewards"] == {"solved": 0.0, "close": 0.9}


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_prompt_does_not_give_the_solution(index: int):
    env = CountdownEnv()
    task = env.tasks()[index]
    observation, _ = env.reset(options={"task": task})
    env.close()

    assert not any(task["solution"] in message.content for message in observation)
