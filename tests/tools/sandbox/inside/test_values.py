"""Plain data goes through a sandbox unchanged; nothing else passes for it."""

import json
import math
from collections import Counter, OrderedDict, namedtuple
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.tools.sandbox.base import Opaque
from agentgym.tools.sandbox.inside.decode import loads
from agentgym.tools.sandbox.inside.encode import EncodingError, dumps

keys = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
scalars = keys | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
plain: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    """With its types: a tuple is no list, True is not 1."""
    back = loads(dumps(value, 10**7))

    assert repr(_sorted(back)) == repr(_sorted(value))


def _sorted(value: Any) -> Any:
    """Sets in an order that does not depend on how they were made."""
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(map(repr, value))
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_sorted, value))
    return value


@given(st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=9) | st.binary())
def test_any_text_is_read_or_refused(data: Any) -> None:
    """What comes out of a sandbox may be anything."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else json.dumps(data)
    try:
        loads(text)
    except ValueError:
        return


class _Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "sly"


Point = namedtuple("Point", "x y")
Colour = IntEnum("Colour", "RED GREEN")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_Sly(7), 7),
        (Point(1, 2), (1, 2)),
        (Colour.GREEN, 2),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (bytearray(b"x"), b"x"),
        (2**70, 2**70),
        (-0.0, -0.0),
    ],
)
def test_subclasses_are_what_they_are_derived_from(value: object, expected: object) -> None:
    """Their own methods have no say."""
    back = loads(dumps(value, 1000))

    assert type(back) is type(expected)
    assert repr(back) == repr(expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_told_apart(value: float) -> None:
    """JSON has no words for them."""
    assert repr(loads(dumps([value], 100))) == repr([value])


class _Loud:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [object(), print, int, _Loud(), iter([])])
def test_what_is_no_data_becomes_its_looks(value: object) -> None:
    """And equals nothing that a grader expects."""
    assert isinstance(loads(dumps(value, 10_000)), Opaque)


def test_values_without_end_are_refused() -> None:
    """A list that contains itself; a large one."""
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(EncodingError, match="deeper"):
        dumps(endless, 1000)
    with pytest.raises(EncodingError, match="bytes"):
        dumps("x" * 1000, 100)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NaN",
        "[Infinity]",
        '{"a": 1}',
        '{"$": "int"}',
        '{"$": "int", "v": 5}',
        '{"$": "int", "v": "zz"}',
        '{"$": "eval", "v": "1"}',
        '{"$": "dict", "v": [[[], 1]]}',
        '{"$": "dict", "v": [[1, 2, 3]]}',
        '{"$": "set", "v": [[]]}',
        '{"$": "other", "v": ["x"]}',
        '{"$": "complex", "v": [1]}',
        '{"$": [], "v": 1}',
        "[" * 5000,
        '{"$": "tuple", "v": [' * 300 + "]}" * 300,
        "1 2",
    ],
)
def test_forged_values_are_refused(text: str) -> None:
    """With `ValueError` and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        loads(text)
