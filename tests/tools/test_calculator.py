"""The calculator: exact values, bounded work, clear errors."""

import time
import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.errors import ToolError
from agentgym.tools import TOOLS
from agentgym.tools.calculator import MAX_LENGTH, calculator, evaluate
from agentgym.tools.numbers import format_number

OPERATORS = ("+", "-", "*", "/", "//", "%")


def _decimal(digits: int, places: int) -> str:
    text = f"{digits:0{places + 1}d}"
    return f"{text[:-places]}.{text[-places:]}" if places else text


LITERALS = st.builds(_decimal, st.integers(0, 10**6), st.integers(0, 4))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[str, Fraction | None]:
    """Text and its exact value by Python's own fractions; `None` if it divides by zero."""
    if depth == 0 or draw(st.booleans()):
        literal = draw(LITERALS)
        return literal, Fraction(literal)
    left_text, left = draw(expressions(depth - 1))
    if draw(st.integers(0, 4)) == 0:
        return f"-({left_text})", None if left is None else -left
    right_text, right = draw(expressions(depth - 1))
    operator = draw(st.sampled_from(OPERATORS))
    text = f"({left_text}) {operator} ({right_text})"
    if left is None or right is None or (right == 0 and operator in ("/", "//", "%")):
        return text, None
    return text, Fraction(eval(f"left {operator} right", {"left": left, "right": right}))


@given(expressions())
def test_values_are_those_of_exact_fractions(expression: tuple[str, Fraction | None]) -> None:
    """No rounding anywhere, for any expression."""
    text, value = expression
    if value is None:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 99)), max_size=30))
def test_precedence_is_pythons(links: list[tuple[str, int]]) -> None:
    """Without brackets, too."""
    text = "7" + "".join(f" {operator} {number}" for operator, number in links)

    assert evaluate(text) == eval(text)


@given(st.integers(-(10**30), 10**30), st.integers(0, 10))
def test_decimals_are_written_exactly_and_read_back(digits: int, places: int) -> None:
    """The model can use a result in its next call without losing anything."""
    value = Fraction(digits, 10**places)

    assert evaluate(format_number(evaluate(f"({value.numerator})/{value.denominator}"))) == value


@given(st.text(max_size=40) | st.text("0123456789+-*/%.() e_xj", max_size=60))
def test_any_text_has_a_value_or_an_error_for_the_model(text: str) -> None:
    """Nothing else may come out, whatever a policy writes."""
    try:
        said = format_number(evaluate(text))
    except ToolError as error:
        said = str(error)

    assert said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(3 + 4) * 2 - 10 / 4", "11.5"),
        ("0.1 + 0.2", "0.3"),
        ("2**64 + 1", "18446744073709551617"),
        ("4 / 2", "2"),
        ("1/3", "0.333333333333333"),
        ("2/3", "0.666666666666667"),
        ("1/3*3", "1"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2**3**2", "512"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("0**0", "1"),
        ("1**(10**100)", "1"),
        ("1e3 + 1_000", "2000"),
        ("10**30 / 3", "3.33333333333333e+29"),
        ("1/3**40", "8.22526333996996e-20"),
        ("1/8**5", "0.000030517578125"),
        ("sqrt(2)", "1.4142135623731"),
        ("sqrt(1/4)", "0.5"),
        ("8**(1/3)", "2"),
        ("sqrt(2)**2", "2"),
        ("factorial(20)", "2432902008176640000"),
        ("round(2.567, 2) + abs(-3)", "5.57"),
        ("max(1, 2.5, 2) - min(4, 3)", "-0.5"),
        ("floor(-1.5) + ceil(1.2)", "0"),
        ("3 × 4 ÷ 2 − 1", "5"),  # noqa: RUF001
        (" 1 +\n 2 ", "3"),
        ("+".join(["1"] * 2000), "2000"),
        ("+".join(f"{n}**2" for n in range(100)), "328350"),
    ],
)
def test_texts(expression: str, text: str) -> None:
    """What the model reads: exact where it can be, else 15 significant digits."""
    assert format_number(evaluate(expression)) == text


HOSTILE = [
    ("9**9**9", "too large"),
    ("9**(9**9)", "too large"),
    ("factorial(10**7)", "too large"),
    ("factorial(10**400)", "too large"),
    ("2**10**10", "too large"),
    ("(1/3)**(10**9)", "too large"),
    ("10**-(10**9)", "too large"),
    ("2**1000000.5", "too large"),
    ("1e999999999", "too large"),
    ("1e-999999999", "too large"),
    ("(10**3000)*(10**3000)", "too large"),
    ("round(1.5, 10**9)", "round to"),
    ("'a'*10**10", "unexpected character"),
    ("[0]*10**10", "unexpected character"),
    ("(" * 20_000 + "1", "characters"),
    ("-" * 50_000 + "1", "characters"),
    ("(" * 2_000 + "1" + ")" * 2_000, "inside each other"),
    ("-" * 4_000 + "1", "inside each other"),
    ("- +" * 1_300 + "1", "inside each other"),
    ("2**" * 1_300 + "1", "inside each other"),
    ("abs(" * 800 + "1" + ")" * 800, "inside each other"),
    ("1" + "(1)" * 1_300, "only numbers"),
    ("1" * 5_000, "characters"),
    ("x" * 10**8, "characters"),
]


@pytest.mark.parametrize(("expression", "complaint"), HOSTILE, ids=range(len(HOSTILE)))
def test_work_is_bounded(expression: str, complaint: str) -> None:
    """Milliseconds and no memory to speak of, whatever the expression."""
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(ToolError, match=complaint):
        evaluate(expression)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert seconds < 1
    assert peak < 16 * 2**20


COSTLY = ["1/3**8000", "3**8000%7**4700", "factorial(1400)", "3**.123", "1/7**4000*7**3999"]


@pytest.mark.parametrize("term", COSTLY)
def test_the_longest_expression_of_costly_terms_is_quick(term: str) -> None:
    """Every bound holds for one term; their sum is bounded by the length."""
    expression = "+".join([term] * (MAX_LENGTH // (len(term) + 1)))
    start = time.perf_counter()
    evaluate(expression)

    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "empty"),
        ("1/0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1 // (2 - 2)", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("0 ** -0.5", "division by zero"),
        ("2 ^ 3", r"'\^'; powers are written \*\*"),
        ("1,000 + 1", "write 1000, not 1,000"),
        ("cos(1)", "unknown name 'cos'; known: abs"),
        ("True + 1", "unknown name 'True'"),
        ("1 if 1 else 2", "unknown name 'if'"),
        ("().__class__.__bases__", "only numbers"),
        ("abs.__call__(1)", "only numbers"),
        ("__import__('os')", "unexpected character"),
        ("1j", "not a number"),
        ("1 +", "no arithmetic expression"),
        ("(1", "no arithmetic expression"),
        ("sqrt(-1)", "negative number"),
        ("(-8) ** (1/3)", "negative number"),
        ("factorial(-1)", "negative number"),
        ("factorial(1.5)", "whole number"),
        ("sqrt()", "does not take 0 arguments"),
        ("sqrt(1, 2)", "does not take 2 arguments"),
        ("abs", "only numbers"),
        ("max(*1)", "only numbers"),
    ],
)
def test_errors_say_what_is_wrong(expression: str, complaint: str) -> None:
    """The model can mend it."""
    with pytest.raises(ToolError, match=complaint):
        evaluate(expression)


async def test_the_tool_answers_the_model() -> None:
    """Found by name; value and error both arrive as text."""
    assert TOOLS.get("calculator") is calculator
    assert (await calculator.call({"expression": "6*7"})).content == "42"
    failed = await calculator.call({"expression": "1/0"})
    assert (failed.content, failed.error) == ("division by zero", "tool_error")
