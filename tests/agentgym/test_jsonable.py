"""What enters a record can be written and read back."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.jsonable import MAX_DEPTH, as_json, why_not_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@given(values)
def test_ordinary_values_are_left_alone(value: object):
    """Nothing is lost on what JSON can hold."""
    assert why_not_json(value) is None
    assert as_json(value) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": "\ud83d"}, "surrogate"),
        ([math.nan], "not finite"),
        ({"a": math.inf}, "not finite"),
        (nested(MAX_DEPTH + 1), "deep"),
        (nested(900), "deep"),
    ],
)
def test_what_cannot_be_written_says_why(value: object, words: str):
    """Each of these can be sampled as valid JSON text."""
    assert words in str(why_not_json(value))


def test_foreign_numbers_and_records_become_json():
    """Envs report what they have at hand."""
    numpy = pytest.importorskip("numpy")

    reported = as_json({"x": numpy.float32(1.5), "y": (1, 2), "z": math.nan})

    assert json.loads(json.dumps(reported)) == {"x": 1.5, "y": [1, 2], "z": None}
