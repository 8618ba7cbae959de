"""Arithmetic as a tree, because its text, its value and the order of its steps must agree.

Values are exact fractions; only numbers whose decimal expansion ends are ever shown.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

Operator = Literal["+", "-", "*", "/"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
_PRECEDENCE: dict[Operator, int] = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True, slots=True)
class Operation:
    """Two operands and what is done with them."""

    operator: Operator
    left: "Expression"
    right: "Expression"


Expression = Fraction | Operation


def apply(operator: Operator, left: Fraction, right: Fraction) -> Fraction:
    """One step.

    Raises:
        ZeroDivisionError: division by zero.
    """
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right


def evaluate(expression: Expression) -> Fraction:
    """The exact value.

    Raises:
        ZeroDivisionError: a division by zero somewhere inside.
    """
    if isinstance(expression, Fraction):
        return expression
    return apply(expression.operator, evaluate(expression.left), evaluate(expression.right))


def has_finite_decimals(value: Fraction) -> bool:
    """True if the value can be written as a decimal number that ends."""
    rest = value.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    return rest == 1


def to_decimal(value: Fraction) -> str:
    """Shortest exact decimal text: `42`, `-0.25`.

    Raises:
        ValueError: the expansion does not end.
    """
    if value.denominator == 1:
        return str(value.numerator)
    if not has_finite_decimals(value):
        raise ValueError(f"{value} has no finite decimal expansion")
    digits = value.denominator.bit_length()
    scaled = value * 10**digits
    text = f"{'-' if value < 0 else ''}{abs(scaled.numerator):0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")


def to_text(expression: Expression) -> str:
    """The expression with the brackets its tree needs and no others."""
    if isinstance(expression, Fraction):
        return to_decimal(expression)
    own = _PRECEDENCE[expression.operator]
    left = _bracket(expression.left, below=own)
    right = _bracket(expression.right, below=own + 1)
    return f"{left} {expression.operator} {right}"


def _bracket(expression: Expression, *, below: int) -> str:
    text = to_text(expression)
    if isinstance(expression, Operation) and _PRECEDENCE[expression.operator] < below:
        return f"({text})"
    return text


def to_steps(expression: Expression) -> tuple[str, ...]:
    """One text per operation in an order that works; `#2` stands for the result of step 2."""
    steps: list[str] = []

    def visit(node: Expression) -> str:
        if isinstance(node, Fraction):
            return to_decimal(node)
        left, right = visit(node.left), visit(node.right)
        steps.append(f"{left}{node.operator}{right}")
        return f"#{len(steps)}"

    visit(expression)
    return tuple(steps)
