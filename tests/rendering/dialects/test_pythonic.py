"""Python's call syntax is read as Python means it, without asking Python."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.rendering.dialects.pythonic import balanced_end, read_python_call

literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
string_pieces = st.sampled_from(
    ["a", " ", "\\n", "\\\\", "\\'", '\\"', "\\x41", "\\u00e9", "\\U0001F600", "\\101", "\\d", "é"]
)


@given(st.dictionaries(st.sampled_from(["a", "b_1", "from", "é"]), literals, max_size=3))
def test_what_python_writes_is_read(arguments: dict[str, object]) -> None:
    """`repr` of any value of JSON's types is a literal, also behind a name that is a keyword."""
    written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    text = f"look-up.it({written}) and more"

    call = read_python_call(text, 0)

    assert (call.name, call.arguments, call.reason) == ("look-up.it", arguments, "")
    assert text[call.end :] == "and more"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@given(st.lists(string_pieces, max_size=8).map("".join), st.sampled_from(["'", '"', '"""']))
@settings(max_examples=60)
def test_strings_mean_what_they_mean_to_python(inner: str, quote: str) -> None:
    """Escapes that Python does not know stay as they are."""
    written = f"{quote}{inner}{quote}"

    assert read_python_call(f"f(a={written})", 0).arguments == {"a": ast.literal_eval(written)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("1", "written as name=value"),
        ("a=b", "must be literals"),
        ("a=1 + 1", "expected ')'"),
        ("a=f'{x}'", "must be literals"),
        ("a=open('x')", "must be literals"),
        ("a={1: 2}", "must be strings"),
        ("a={'x'}", "expected ':'"),
        ("a=1, a=2", "given twice"),
        ("**[1]", "needs a dictionary"),
        ("a=1e999", "no number"),
        ("a=" + "[" * 500, "nested too deeply"),
        ("a='x", "must be literals"),
        ("a=1_0_", "no number"),
        ("a=" + "9" * 5000, "no number"),
    ],
)
def test_what_is_no_literal_is_refused_with_a_reason(arguments: str, reason: str) -> None:
    """Nothing is evaluated, guessed or dropped."""
    call = read_python_call(f"f({arguments})", 0)

    assert not call.arguments
    assert reason in call.reason


def test_the_end_of_a_call_is_found_behind_strings_and_brackets() -> None:
    """So that the call beside a broken one can be read."""
    assert balanced_end("f(a=[1, ')'], b=x) and", 0) == len("f(a=[1, ')'], b=x)")
    assert balanced_end("f(a=[1", 0) is None
    assert balanced_end("(" * 1000 + ")" * 1000, 0) is None
