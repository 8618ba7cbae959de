"""The one form in which every bundled game is answered."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.answers import read_answer

NUMBER = re.compile(r"\d+")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 42", "42"),
        ("answer:42", "42"),
        ("  Answer: 42\n", "42"),
        ("42", "42"),
        ("`42`.", "42"),
        ("**Answer:** 42", "42"),
        ("**Answer**: 42.", "42"),
        ("Half of 84 is 42.\nAnswer: 42", "42"),
        ("Answer: 41\nAnswer: 42", None),
        ("Answer: 42\nanswer: 42", None),
        ("Answer: 41 42", None),
        ("Answer: 42 or so", None),
        ("Answer: 42\nThat is all.", None),
        ("I say 42", None),
        ("Answer:", None),
        ("Answer: x", None),
        ("", None),
    ],
)
def test_one_answer_is_read_and_several_are_none(text: str, answer: str | None):
    assert read_answer(text, NUMBER) == answer


@given(st.text(), st.integers(0, 999))
def test_what_is_read_always_fits_the_pattern(text: str, number: int):
    """Whatever is said before, the answer is the last thing; whatever comes after spoils it."""
    before = text.lower().replace("answer", "")

    assert read_answer(f"{before}\nAnswer: {number}", NUMBER) == str(number)
    assert read_answer(f"Answer: {number} then {text}", NUMBER) is None


def test_reading_takes_linear_time():
    """A policy that repeats itself must not hold up the others."""
    for unit in ("Answer", "Answer:", "answer ", "*", "Answer****", "1"):
        read_answer(unit * 200_000, NUMBER)
