"""The grader against what a careful human would say, over the kinds that graders get wrong."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.rewards.math import answer_of, grade


def pairs(name: str) -> list[tuple[str, str]]:
    """Gold answers and predictions from a file of this folder, one pair a line."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [(gold, prediction) for gold, prediction in map(json.loads, lines)]


SAME = pairs("same_answers.jsonl")
DIFFERENT = pairs("other_answers.jsonl")

answers = st.one_of(
    st.integers(-999, 999).map(str),
    st.fractions(max_denominator=20).map(str),
    st.decimals(-99, 99, places=2).map(str),
    st.integers(0, 99).map("{}%".format),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(str),
    st.sets(st.integers(0, 5), min_size=1).map(lambda s: r"\{" + ",".join(map(str, s)) + r"\}"),
    st.sampled_from([pair[0] for pair in SAME]),
    st.sampled_from([pair[1] for pair in DIFFERENT]),
)
_WORDS = ["1", "23", "4.5", "x", " ", "\n", "answer is", "<answer>", "</answer>", "\u00bd"]
_MACROS = [r"\frac", r"\sqrt", r"\boxed{", r"\text{", r"\left(", r"\{", r"\cup", "\\"]
pieces = st.sampled_from([*r"()[]{}^_%$&|=<>,;:.!*/+-", *_WORDS, *_MACROS])


@pytest.mark.parametrize(("gold", "prediction"), SAME)
def test_the_same_answer_written_otherwise(gold: str, prediction: str) -> None:
    """A false no teaches the policy that a right answer was wrong; the order never matters."""
    assert grade(gold, prediction)
    assert grade(prediction, gold)


@pytest.mark.parametrize(("gold", "prediction"), DIFFERENT)
def test_another_answer_is_another(gold: str, prediction: str) -> None:
    """A false yes pays for a wrong answer."""
    assert not grade(gold, prediction)
    assert not grade(prediction, gold)


@given(answers, answers)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_two_never_matters(a: str, b: str) -> None:
    """Libraries that grade by who comes first disagree with themselves."""
    assert grade(a, b) is grade(b, a)


@given(answers.filter(lambda text: bool(answer_of(text))))
@settings(max_examples=40, deadline=None)
def test_an_answer_equals_itself(answer: str) -> None:
    """Whether or not anything can read it."""
    assert grade(answer, answer)
    assert grade(answer, f"So the answer is \\boxed{{{answer_of(answer)}}}.")


@given(st.one_of(st.text(max_size=40), st.lists(pieces, max_size=14).map("".join)), answers)
@settings(max_examples=150, deadline=None)
def test_no_text_raises(text: str, answer: str) -> None:
    """A policy says anything."""
    assert isinstance(grade(answer, text, seconds=0.3), bool)
    assert isinstance(grade(text, f"\\boxed{{{text}}}", seconds=0.3), bool)


@pytest.mark.parametrize(
    "text", ["2^{9^{5}}", "2^{10^{5000}}", "(10^{5000})!", r"\binom{10^{5000}}{2}", "1e99999"]
)
def test_numbers_with_too_many_digits_are_only_themselves(text: str) -> None:
    """Python refuses to write out what is longer than 4300 digits, error messages included."""
    assert grade(text, f"\\boxed{{{text}}}")
    assert not grade(text, "5")
    assert not grade(f"{text}+1", text)


@pytest.mark.parametrize("unit", ["(", "{", "\\frac{", "1+", "-", "$", r"\(", "9", "1 ", "a b "])
@pytest.mark.parametrize("frame", ["{}", "\\boxed{{{}}}", "The answer is {}"])
def test_long_and_deep_texts_are_graded_in_time(unit: str, frame: str) -> None:
    """No pattern takes quadratic time, and no recursion is unbounded."""
    start = time.perf_counter()
    for count in (300, 50_000):
        grade("5", frame.format(unit * count))

    assert time.perf_counter() - start < 4
