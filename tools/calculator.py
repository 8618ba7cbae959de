"""Exact arithmetic on an expression that nobody vouches for.

The syntax tree is walked here, node by node, and nothing is ever evaluated by Python itself. Before
parsing, length and nesting are bounded; during evaluation, the size of every number is: whatever
the expression, the answer takes milliseconds.
"""

import ast
import re

from agentgym.tools.base import tool
from agentgym.tools.numbers import (
    BINARY,
    FUNCTIONS,
    CalculatorError,
    Number,
    as_exact,
    format_number,
    simplify,
)

MAX_LENGTH = 4096
"""Characters of an expression."""
MAX_NESTING = 64
"""Brackets, signs and powers inside each other."""

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "\t": " ", "\n": " ", "\r": " "})  # noqa: RUF001
_ALPHABET = re.compile(r"[0-9A-Za-z_ .,+\-*/%()]*")
_WORD = re.compile(r"(?<![0-9A-Za-z_.])[A-Za-z_][0-9A-Za-z_]*")
_TOKEN = re.compile(r"\*\*|//|[+\-*/%(),]|[^+\-*/%(), ]+")
_WEAK_OPERATORS = {"+", "-", "*", "/", "//", "%", ","}
_NO_OPERANDS = {*_WEAK_OPERATORS, "**", "("}


@tool
def calculator(expression: str) -> str:
    """Compute an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / // % ** and parentheses, such as "(3 + 4) * 2 - 10 / 4".
    """
    return format_number(evaluate(expression))


def evaluate(expression: str) -> Number:
    """The value of an expression: an int, or a fraction if it is not whole.

    Decimals are exact; only roots and other fractional powers are rounded, to 50 digits.

    Raises:
        CalculatorError: it is no arithmetic, or too long, too deep or too large.
    """
    text = _check_text(expression)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise CalculatorError(f"this is no arithmetic expression: {reason}") from error
    return _value(tree.body, text)


def _check_text(expression: str) -> str:
    """Its text in ASCII, if it is short, flat and made of arithmetic only."""
    if len(expression) > MAX_LENGTH:
        raise CalculatorError(
            f"the expression has {len(expression)} characters, at most {MAX_LENGTH} are read"
        )
    text = expression.translate(_SIGNS).strip()
    if not text:
        raise CalculatorError("the expression is empty")
    if not _ALPHABET.fullmatch(text):
        found = sorted({character for character in text if not _ALPHABET.fullmatch(character)})
        hint = "; powers are written **" if "^" in found else ""
        raise CalculatorError(f"unexpected character {found[0]!r}{hint}")
    for word in _WORD.findall(text):
        if word not in FUNCTIONS:
            raise CalculatorError(f"unknown name {word[:40]!r}; known: {', '.join(FUNCTIONS)}")
    _check_nesting(text)
    return text


def _check_nesting(text: str) -> None:
    """Refuse a text whose tree would branch too deep to the right.

    Brackets nest, and within each one so do signs and powers until an operator that binds less.
    """
    pending = [0]
    after_operand = False
    for token in _TOKEN.findall(text):
        if token == "(":
            pending.append(0)
        elif token == ")":
            pending = pending[:-1] or [0]
        elif token == "**" or (token in "+-" and not after_operand):
            pending[-1] += 1
        elif token in _WEAK_OPERATORS:
            pending[-1] = 0
        after_operand = token not in _NO_OPERANDS
        if len(pending) + sum(pending) > MAX_NESTING:
            raise CalculatorError(
                f"more than {MAX_NESTING} brackets, signs or powers inside each other"
            )


def _value(node: ast.expr, text: str) -> Number:
    match node:
        case ast.Constant():
            return _constant(node, text)
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(node.operand, text)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, text)
        case ast.BinOp():
            return _chain(node, text)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _call(name, [_value(argument, text) for argument in node.args])
        case ast.Tuple():
            raise CalculatorError("a comma only separates arguments; write 1000, not 1,000")
    raise CalculatorError("only numbers, + - * / // % **, parentheses and functions are understood")


def _constant(node: ast.Constant, text: str) -> Number:
    """A number as it is written: a float would have lost decimals."""
    return as_exact(text[node.col_offset : node.end_col_offset], node.value)


def _chain(node: ast.BinOp, text: str) -> Number:
    """`a + b + c + ...` leans left as deep as it is long, so it is walked in a loop."""
    links: list[ast.BinOp] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp):
        links.append(first)
        first = first.left
    value = _value(first, text)
    for link in reversed(links):
        operation = BINARY.get(type(link.op))
        if operation is None:
            raise CalculatorError("only the operators + - * / // % ** are understood")
        value = simplify(operation(value, _value(link.right, text)))
    return value


def _call(name: str, arguments: list[Number]) -> Number:
    function = FUNCTIONS[name]
    if not function.fewest <= len(arguments) <= function.most:
        raise CalculatorError(f"{name} does not take {len(arguments)} arguments")
    return simplify(function.compute(*arguments))
