"""Outputs and values: what counts as the same, and that nothing in them can break a comparison."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.code.grading.compare import is_plain, same_output, same_value
from agentgym.tools.sandbox.base import Opaque

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
lines = st.lists(st.text("ab 1.", max_size=6), max_size=6)


@given(lines, st.sampled_from(["\n", "\r\n", "\r"]), st.text(" \t", max_size=3))
def test_line_ends_and_trailing_whitespace_do_not_matter(given: list[str], end: str, blank: str):
    """They differ between machines and habits of printing."""
    printed = "".join(f"{line}{blank}{end}" for line in given) + end

    assert same_output(printed, "\n".join(given))


@given(st.text(), st.text(), st.sampled_from(["exact", "tokens", "float"]))
def test_comparing_outputs_never_raises_and_has_no_sides(first: str, second: str, mode: Any):
    """Whatever a program prints is judged."""
    assert same_output(first, second, mode=mode) is same_output(second, first, mode=mode)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1", "1.0", True),
        ("0.30000000000000004", "0.3", True),
        ("1e-7", "0", True),
        ("3.00001", "3", False),
        ("1000001", "1000000", False),
        ("9" * 5000, "9" * 5000, True),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("9" * 400 + ".0", "9" * 400, False),
        ("1e999", "inf", False),
        ("inf", "Infinity", True),
        ("-inf", "inf", False),
        ("nan", "nan", False),
        ("NaN", "1", False),
        ("1 2", "1\n2", True),
        ("1", "1 2", False),
        ("", "0", False),
        ("yes 1", "yes 1.0", True),
        ("no 1", "yes 1", False),
        ("+7", "7", True),
        ("-0", "0", True),
        ("007", "7", True),
        ("٣", "3", False),
        ("0x10", "16", False),
    ],
)
def test_words_are_compared_as_numbers(actual: str, expected: str, same: bool):
    """Within a tolerance, but never so that one integer passes for another."""
    assert same_output(actual, expected, mode="float", tol=1e-6) is same


@given(st.integers(), st.integers())
def test_integers_are_the_same_only_if_they_are(first: int, second: int):
    """Whatever the tolerance, as words and as values."""
    same = first == second

    assert same_output(str(first), str(second), mode="float", tol=0.5) is same
    assert same_value(first, second, tol=0.5) is same


@given(plain)
def test_a_value_is_itself(value: Any):
    """In both modes, if it is data."""
    assert same_value(value, value)
    assert same_value(value, value, mode="python")


@pytest.mark.parametrize(
    ("actual", "expected", "as_json", "as_python"),
    [
        ((1, 2), [1, 2], True, False),
        ({1: 2}, {"1": 2}, True, False),
        ({True: 2}, {"true": 2}, True, False),
        ({None: 2}, {"null": 2}, True, False),
        ({1: 2, "1": 3}, {"1": 2}, False, False),
        (True, 1, False, True),
        (3.0, 3, True, True),
        ({1, 2}, {1, 2}, False, True),
        ({1, 2}, frozenset({1, 2}), False, True),
        ({1}, [1], False, False),
        (b"a", "a", False, False),
        (b"a", b"a", False, True),
        (1 + 0j, 1, False, True),
        (math.nan, math.nan, False, False),
        (math.inf, math.inf, True, True),
        ([None], [0], False, False),
        ("1", 1, False, False),
        ({"a": 1}, {"a": 1, "b": 2}, False, False),
        (Opaque("x.Y", "Y()"), Opaque("x.Y", "Y()"), False, False),
        (Opaque("x.Y", "Y()"), ("x.Y", "Y()"), False, False),
        ([Opaque("x.Y", "Y()")], [["x.Y", "Y()"]], False, False),
    ],
)
def test_values_are_compared_by_the_rules_of_the_mode(
    actual: Any, expected: Any, as_json: bool, as_python: bool
):
    """JSON for function calls, Python for asserts; booleans are numbers in the latter only."""
    assert same_value(actual, expected) is as_json
    assert same_value(expected, actual) is as_json
    assert same_value(actual, expected, mode="python") is as_python


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        ([{"a": 0.1 + 0.2}], [{"a": 0.3}], True),
        (1000000001.0, 1000000002, False),
        (2.9999999999, 3, True),
        (10**309, 1e308, False),
        (math.inf, 1e308, False),
        (math.nan, 1.0, False),
        (0.31, 0.3, False),
    ],
)
@pytest.mark.parametrize("mode", ["json", "python"])
def test_a_tolerance_is_for_floats(actual: Any, expected: Any, same: bool, mode: Any):
    """And for those within containers."""
    assert same_value(actual, expected, mode=mode, tol=1e-6) is same


def test_numbers_of_too_many_digits_are_compared():
    """Python refuses to write them, not to compare them."""
    large = 10**5000

    assert same_value(large, 10**5000)
    assert not same_value(large, large + 1, tol=0.1)
    assert not same_value({large: 1}, {"1": 1})
    assert same_value({large: 1}, {large: 1}, mode="python")


def test_foreign_objects_are_never_asked():
    """An `__eq__` of the program would say yes to everything."""

    class Same(int):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("it was asked")

        __hash__ = int.__hash__

    assert not same_value(Same(1), 1)
    assert not same_value([Same(1)], [1], mode="python")
    assert not is_plain({Same(1): 1})


def test_depth_is_bounded():
    """A value may be as deep as the sandbox lets it out."""
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]

    assert not is_plain(deep)
    assert not same_value(deep, deep)
