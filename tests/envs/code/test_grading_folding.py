"""Constants of test code are evaluated here; everything else is left alone."""

import ast
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.code.grading.folding import NotConstant, as_source, fold

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
hashable = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers())
plain = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.sets(hashable, max_size=4)
        | st.frozensets(hashable, max_size=4)
    ),
    max_leaves=15,
)


def folded(source: str, **names: Any) -> Any:
    return fold(ast.parse(source, mode="eval").body, names)


@given(plain)
def test_a_value_as_source_is_that_value(value: Any):
    """Answers of programs go into judgements this way; none can break out of it."""
    source = as_source(value)
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}

    assert repr(eval(source)) == repr(value) or eval(source) == value
    assert names <= {"float", "set", "frozenset", "complex"}


def test_a_number_that_is_none_stays_one():
    """It is equal to nothing, itself included."""
    assert repr(eval(as_source([math.nan]))) == "[nan]"


def test_a_number_of_too_many_digits_has_a_source():
    """Python refuses to write it in decimal."""
    assert eval(as_source(-(10**10_000))) == -(10**10_000)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, (2, 'a'), {'b': {3}}]", [1, (2, "a"), {"b": {3}}]),
        ("-x + 2 * 3", 5),
        ("10 ** 9 + 7", 10**9 + 7),
        ("'ab' * 3", "ababab"),
        ("set([1, 1])", {1}),
        ("float('inf')", math.inf),
        ("math.pi", math.pi),
        ("sorted(range(3))", [0, 1, 2]),
        ("list(zip([1], [2]))", [(1, 2)]),
        ("list(enumerate('ab'))", [(0, "a"), (1, "b")]),
        ("sorted([2, 1])[0]", 1),
        ("[*[1], 2][1:]", [2]),
        ("not []", True),
        ("y[0]['k']", 7),
    ],
)
def test_constants_have_a_value(source: str, value: Any):
    """Literals, a little arithmetic, constructors, and names whose value is known."""
    assert folded(source, x=1, y=[{"k": 7}]) == value


@pytest.mark.parametrize(
    "source",
    [
        "open('/etc/passwd')",
        "__import__('os')",
        "''.__class__",
        "unknown",
        "[x for x in [1]]",
        "(lambda: 1)()",
        "10 ** 10 ** 10",
        "9 ** 9 ** 9 ** 9",
        "'a' * 10 ** 9",
        "[0] * 10 ** 9",
        "range(10 ** 9)",
        "range(3)",
        "zip([1])",
        "list(range(10 ** 7))",
        "1 << 10 ** 9",
        "1 / 0",
        "[1][5]",
        "'%1000000000d' % 1",
        "eval('1')",
        "int('x')",
        "...",
        "f'{1}'",
        "getattr(1, 'real')",
    ],
)
def test_everything_else_has_none(source: str):
    """It is neither run nor allowed to take long here."""
    with pytest.raises(NotConstant):
        folded(source)


def test_a_name_that_is_bound_is_no_constructor():
    """Tests may call a variable `list`."""
    with pytest.raises(NotConstant):
        folded("list([1])", list=3)
