"""Calls in the words of the runner."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import Call, Case, Expression, Script
from agentgym.tools.sandbox.inside.encode import EncodingError, encode
from agentgym.tools.sandbox.limits import Limits

Request = Mapping[str, Any]


def limits_of(limits: Limits) -> dict[str, Any]:
    """As `inside.config.LimitConfig`."""
    derived = {"tree_cpu_s": limits.tree_cpu_limit_s, "wall_s": limits.wall_limit_s}
    return asdict(limits) | derived


def program(text: str) -> Request:
    return {"op": "program", "program": text}


def case(case: Case, limits: Limits) -> Request:
    """Try the program that was sent last.

    Raises:
        ConfigError: an argument is no plain data.
    """
    return {"op": "case", "case": _case(case), "limits": limits_of(limits)}


def cell(code: str, limits: Limits) -> Request:
    return {"op": "cell", "code": code, "limits": limits_of(limits)}


def shell(command: str, stdin: str, limits: Limits) -> Request:
    return {"op": "shell", "command": command, "stdin": stdin, "limits": limits_of(limits)}


def write(path: str, data: bytes, limits: Limits) -> Request:
    text = base64.b64encode(data).decode()
    common = {"path": path, "max_bytes": 0, "limits": limits_of(limits)}
    return {"op": "write", "data": text, **common}


def read(path: str, max_bytes: int, limits: Limits) -> Request:
    return {"op": "read", "path": path, "max_bytes": max_bytes, "limits": limits_of(limits)}


def _case(case: Case) -> dict[str, Any]:
    match case:
        case Script():
            return {"kind": "script", "stdin": case.stdin}
        case Expression():
            return {"kind": "expression", "source": case.source, "setup": case.setup}
        case Call():
            given = {"args": _plain(list(case.args)), "kwargs": _plain(dict(case.kwargs))}
            return {"kind": "call", "function": case.function, **given}


def _plain(values: Any) -> Any:
    try:
        data = encode(values)
    except EncodingError as error:
        raise ConfigError(f"an argument of a test cannot be sent: {error}") from error
    _refuse_objects(data)
    return data


def _refuse_objects(data: Any) -> None:
    if isinstance(data, dict) and data["$"] == "other":
        raise ConfigError(f"an argument of a test is no plain data: {data['v'][1]}")
    parts = data["v"] if isinstance(data, dict) else data
    if isinstance(parts, list):
        for part in parts:
            _refuse_objects(part)
