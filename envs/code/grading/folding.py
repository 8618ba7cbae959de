"""Evaluates the constant parts of test code on the host, and nothing else.

Test code comes with the data set and is not run here: this knows literals, names bound to plain
values, a little arithmetic and the constructors of plain data, all of bounded size. Whatever it
does not know is left to a sandbox.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from agentgym.envs.code.grading.compare import is_plain

MAX_ITEMS = 100_000
_MAX_BITS = 4096
_SMALL = 1000
"""Items, and thousands of characters."""
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "dict": dict,
    "enumerate": lambda *args: _Iterated(enumerate(*args)),
    "float": float,
    "frozenset": frozenset,
    "int": int,
    "len": len,
    "list": list,
    "range": lambda *args: _Iterated(_bounded_range(*args)),
    "reversed": lambda items: _Iterated(reversed(items)),
    "set": set,
    "sorted": sorted,
    "str": str,
    "tuple": tuple,
    "zip": lambda *args: _Iterated(zip(*args, strict=False)),
}
_ERRORS = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class _Iterated(list[Any]):
    """Items of what Python goes through without making it a list."""


class NotConstant(ValueError):
    """The expression is not of the kind that is evaluated here."""


def fold(node: ast.expr, names: Mapping[str, Any], *, items: bool = False) -> Any:
    """The plain value of an expression.

    Args:
        node: what to evaluate.
        names: plain values by name; names that are not in it are not known, but for constructors.
        items: whether only its items matter, so that `range(3)` may be a list.

    Raises:
        NotConstant: it is no constant, or too large.
    """
    try:
        value = _fold(node, names)
    except _ERRORS as error:
        raise NotConstant(str(error)) from error
    if items and isinstance(value, _Iterated):
        value = list(value)
    if not is_plain(value) or _size(value) > MAX_ITEMS:
        raise NotConstant("too large or nested too deep")
    return value


def is_small(value: Any) -> bool:
    """Whether a plain value is so small that nothing done with it here takes long."""
    return _size(value) <= _SMALL and _longest(value) <= _MAX_BITS


def _longest(value: Any) -> int:
    """Bits of the largest integer in it."""
    if isinstance(value, int):
        return value.bit_length()
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return max(map(_longest, value), default=0)
    return 0


def as_source(value: Any) -> str:
    """An expression for a plain value, which no string or number in it can break out of."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return f"float('{value!r}')"
    if kind is complex:
        return f"complex({as_source(value.real)}, {as_source(value.imag)})"
    if kind is int:
        return hex(value) if value.bit_length() > _MAX_BITS else repr(value)
    if kind is dict:
        pairs = (f"{as_source(key)}: {as_source(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if kind in (list, tuple, set, frozenset):
        return _box_source(kind.__name__, [as_source(item) for item in value])
    if not is_plain(value):
        raise TypeError(f"{kind.__name__} is no plain data")
    return repr(value)


def _box_source(kind: str, items: list[str]) -> str:
    inner = ", ".join(items)
    if kind == "list":
        return f"[{inner}]"
    if kind == "tuple":
        return f"({inner},)" if items else "()"
    return f"{kind}([{inner}])"


def _fold(node: ast.expr, names: Mapping[str, Any]) -> Any:
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise NotConstant(f"{type(node).__name__} is no constant")
    return handler(node, names)


def _constant(node: ast.Constant) -> Any:
    if node.value is Ellipsis:
        raise NotConstant("an ellipsis is no data")
    return node.value


def _name(node: ast.Name, names: Mapping[str, Any]) -> Any:
    if node.id not in names:
        raise NotConstant(f"{node.id} is not known")
    return names[node.id]


def _items(nodes: list[ast.expr], names: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found.extend(_fold(node.value, names))
        else:
            found.append(_fold(node, names))
    return found


def _dict(node: ast.Dict, names: Mapping[str, Any]) -> Any:
    if None in node.keys:
        raise NotConstant("a mapping is unpacked")
    keys = _items([key for key in node.keys if key is not None], names)
    return dict(zip(keys, _items(node.values, names), strict=True))


def _binary(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = _fold(node.left, names), _fold(node.right, names)
    if isinstance(node.op, ast.Pow):
        return _power(left, right)
    if type(node.op) not in _BINARY:
        raise NotConstant(f"{type(node.op).__name__} is not evaluated here")
    if isinstance(node.op, ast.Mult):
        _check_product(left, right)
    if isinstance(node.op, ast.Mod) and isinstance(left, str | bytes):
        raise NotConstant("a text is formatted")
    return _BINARY[type(node.op)](left, right)


def _check_product(left: Any, right: Any) -> None:
    for items, times in ((left, right), (right, left)):
        sized = isinstance(items, str | bytes | list | tuple)
        if sized and isinstance(times, int) and len(items) * times > MAX_ITEMS:
            raise NotConstant("too large")
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(base.bit_length() * max(exponent, 0))
    return base**exponent


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise NotConstant("too large")


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    function = node.func
    if not isinstance(function, ast.Name) or function.id in names or node.keywords:
        raise NotConstant("a call")
    if function.id not in _CALLS:
        raise NotConstant(f"{function.id} is not evaluated here")
    args = _items(node.args, names)
    if function.id == "str" and not isinstance(args[0] if args else "", str | bool | int | float):
        raise NotConstant("a text made of data")
    return _CALLS[function.id](*args)


def _bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_ITEMS:
        raise NotConstant("too large")
    return numbers


def _subscript(node: ast.Subscript, names: Mapping[str, Any]) -> Any:
    value = _fold(node.value, names)
    if isinstance(node.slice, ast.Slice):
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        return value[slice(*(part and _fold(part, names) for part in parts))]
    return value[_fold(node.slice, names)]


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_size(key) + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return 1 + sum(map(_size, value))
    return 1 + len(value) // 1000 if isinstance(value, str | bytes) else 1


def _attribute(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    """`math.pi` and its like."""
    constants = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "tau": math.tau}
    known = isinstance(node.value, ast.Name) and node.value.id == "math" and "math" not in names
    if not known or node.attr not in constants:
        raise NotConstant("an attribute")
    return constants[node.attr]


_HANDLERS: dict[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda node, _names: _constant(node),
    ast.Name: _name,
    ast.List: lambda node, names: _items(node.elts, names),
    ast.Tuple: lambda node, names: tuple(_items(node.elts, names)),
    ast.Set: lambda node, names: set(_items(node.elts, names)),
    ast.Dict: _dict,
    ast.UnaryOp: lambda node, names: _UNARY[type(node.op)](_fold(node.operand, names)),
    ast.BinOp: _binary,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Attribute: _attribute,
}
