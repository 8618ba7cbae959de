"""Holds what the system did against what a case expects.

Rules by the form of the expectation: `any_of` one of several, `"<=3"` a bound, `X_in` one of a
list, `X_contains` text or texts, `X_starts_with` and `X_ends_with` a text, `X_mentions` one of
`a|b`, numbers within `tol`, dictionaries by their listed keys but a call's `arguments` whole,
`never` text that may appear nowhere.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
BOUND = re.compile(r"(<=|>=|<|>)\s*(-?[0-9.]+)")
UPPER_BOUNDS = {"max_seconds": "seconds", "max_result_tokens": "result_tokens"}
BOUND_SUFFIXES = {"_within_s": operator.le, "_at_least": operator.ge}
VERDICTS = {"error", "raises", "warns"}
ABSENT = object()


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """What does not hold, in words; empty if everything does."""
    tolerance = expected.get("tol", 0.0)
    found: list[str] = []
    for key, wanted in expected.items():
        if key == "any_of":
            tries = [differences({"tol": tolerance, **option}, actual) for option in wanted]
            if all(tries):
                found.append(f"none of any_of holds: {tries}")
        elif key == "never":
            found += _never(wanted, actual)
        elif key in UPPER_BOUNDS:
            if not actual[UPPER_BOUNDS[key]] <= wanted:
                found.append(f"{key}: took {actual[UPPER_BOUNDS[key]]}, at most {wanted} allowed")
        elif key != "tol" and not _holds(key, wanted, actual, tolerance):
            found.append(f"{key}: expected {wanted!r}, got {_shown(key, actual)}")
    return found


def _holds(key: str, wanted: Any, actual: Mapping[str, Any], tolerance: float) -> bool:
    if key in actual:
        value = actual[key]
        for suffix, holds in BOUND_SUFFIXES.items():
            if key.endswith(suffix):
                return bool(holds(value, wanted))
        if key == "raises" and value:
            return _raised(wanted, value)
        if key in VERDICTS and isinstance(wanted, bool):
            return bool(value) == wanted
        return same(wanted, value, tolerance)
    return _by_rule(key, wanted, actual, tolerance)


def _by_rule(key: str, wanted: Any, actual: Mapping[str, Any], tolerance: float) -> bool:
    """Whether what the key names is as the end of the key says."""
    start = actual.get(key.removesuffix("_starts_with"), ABSENT)
    if start is not ABSENT and key.endswith("_starts_with"):
        return same(wanted, start[: len(wanted)], tolerance)
    end = actual.get(key.removesuffix("_ends_with"), ABSENT)
    if end is not ABSENT and key.endswith("_ends_with"):
        return str(end).endswith(wanted)
    name, _, rule = key.rpartition("_")
    value = actual.get(name, ABSENT)
    if value is ABSENT:
        return wanted is False and key in VERDICTS
    if rule == "in":
        return any(same(option, value, tolerance) for option in wanted)
    texts = [wanted] if isinstance(wanted, str) else wanted
    if rule == "contains":
        return all(text in str(value) for text in texts)
    return rule == "mentions" and all(_mentions(text, value) for text in texts)


def _mentions(wanted: str, value: Any) -> bool:
    """One of the texts that bars divide, in any case."""
    return any(text.lower() in str(value).lower() for text in wanted.split("|"))


def same(wanted: Any, value: Any, tolerance: float = 0.0) -> bool:
    """Whether a value is the wanted one, or satisfies it."""
    if isinstance(wanted, Mapping):
        if "arguments" in wanted and isinstance(value, Mapping) and not _same_keys(wanted, value):
            return False
        if "any_of" in wanted:
            return any(same(option, value, tolerance) for option in wanted["any_of"])
        return isinstance(value, Mapping) and all(
            key in value and same(inner, value[key], tolerance) for key, inner in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(value, Sequence | np.ndarray)
            and not isinstance(value, str)
            and len(wanted) == len(value)
            and all(same(w, v, tolerance) for w, v in zip(wanted, value, strict=True))
        )
    if isinstance(wanted, bool):
        return isinstance(value, bool | np.bool_) and bool(value) == wanted
    if isinstance(wanted, int | float):
        return _same_number(wanted, value, tolerance)
    if (
        isinstance(wanted, str)
        and (bound := BOUND.fullmatch(wanted))
        and not isinstance(value, str)
    ):
        return BOUNDS[bound[1]](value, float(bound[2]))
    return bool(wanted == value)


def _same_keys(wanted: Mapping[str, Any], value: Any) -> bool:
    """Whether two calls name the same arguments: an invented one is as wrong as a lost one."""
    names, given = wanted["arguments"], value.get("arguments")
    if isinstance(names, Mapping) and isinstance(given, Mapping):
        return set(names) == set(given)
    return True


def _same_number(wanted: float, value: Any, tolerance: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    if isinstance(wanted, int) and isinstance(value, int) and not tolerance:
        return wanted == value
    if math.isnan(wanted) or math.isnan(value):
        return math.isnan(wanted) and math.isnan(value)
    return math.isclose(wanted, value, rel_tol=1e-9, abs_tol=tolerance)


def _raised(wanted: Any, value: Any) -> bool:
    """`True`, a class name with or without its module, or a list with one per exception."""
    if isinstance(wanted, bool):
        return wanted
    if isinstance(wanted, list):
        errors = value if isinstance(value, list) else [value]
        return len(wanted) == len(errors) and all(map(_raised, wanted, errors))
    if isinstance(value, list):
        return all(_raised(wanted, error) for error in value)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__}
    return wanted in names or wanted in {name.rpartition(".")[2] for name in names}


def _never(wanted: Any, actual: Mapping[str, Any]) -> list[str]:
    """Forbidden text stands in a text as it is; anything else is looked for in the JSON."""
    forbidden = wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)
    texts = [*_texts(actual), json.dumps(_without_texts(actual), default=str)]
    if not isinstance(wanted, str):
        texts = [json.dumps(actual, ensure_ascii=False, default=str)]
    return [f"never: {wanted!r} in {text}" for text in texts if forbidden in text][:1]


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _without_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_texts(item) for item in value]
    return "" if isinstance(value, str) else value


def _shown(key: str, actual: Mapping[str, Any]) -> str:
    related = {k: v for k, v in actual.items() if k == key or key.startswith(f"{k}_")}
    return repr(related.get(key, related)) if related else f"nothing; all that is known: {actual!r}"
