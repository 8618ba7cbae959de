"""The code grader in a real sandbox: programs, functions, asserts, workspaces, answers, forms."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.code.formats.pairs import plain_test
from agentgym.envs.code.grading import (
    AssertTest,
    CallTest,
    Graded,
    StdioTest,
    extract_program,
    grade,
    grade_workspace,
    read_tests,
)
from agentgym.errors import ConfigError
from agentgym.rewards.formats import think_answer
from agentgym.rewards.math import grade as same_answer
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.sandbox.shared import shared_provider

Case = Mapping[str, Any]
_LIMITS = {"timeout_s": "cpu_s", "memory_limit_mb": "memory_mb"}


def run(case: Case) -> Mapping[str, Any]:
    """Reward and verdict of whatever the case grades."""
    mode = case["mode"]
    if mode not in _MODES:
        pytest.fail(f"unknown mode {mode!r}")
    try:
        return _MODES[mode](case)
    except ConfigError as error:
        told = {"raises": error, "message": str(error), "error": str(error)}
        return told | {"exception": True, "passed": False}


def _program(case: Case) -> Mapping[str, Any]:
    code = _text(case, "code")
    if "message" in case:
        code = extract_program(case["message"], language=case.get("language") or "python")
    entry = case.get("entry")
    tests = [_test(test, case, entry) for test in case["tests"]]

    async def graded() -> Graded:
        provider = await shared_provider()
        return await grade(provider, code, tests, spec=_spec(case))

    return _said(asyncio.run(graded()))


def _workspace(case: Case) -> Mapping[str, Any]:
    files = dict(case.get("code_files") or {}) | dict(case.get("agent_writes") or {})

    async def graded() -> Graded:
        provider = await shared_provider()
        tests = dict(case["true_tests"])
        return await grade_workspace(provider, files, tests, limits=_spec(case).limits)

    return _said(asyncio.run(graded()))


def _answer(case: Case) -> Mapping[str, Any]:
    correct = same_answer(case["gold"], case["prediction"])
    return {"reward": float(correct), "passed": correct, "correct": correct}


def _form(case: Case) -> Mapping[str, Any]:
    if case["pattern"] != "one <think> block then one <answer> block":
        pytest.fail(f"unknown form {case['pattern']!r}")
    fits = think_answer(case["prediction"]) is not None
    return {"format_reward": float(fits), "reward": float(fits), "passed": fits}


_MODES = {
    "answer": _answer,
    "assert": _program,
    "asserts": _program,
    "call": _program,
    "format": _form,
    "function": _program,
    "stdin": _program,
    "stdio": _program,
    "stdout": _program,
    "workspace": _workspace,
}


def _test(given: Any, case: Case, entry: str | None) -> StdioTest | CallTest | AssertTest:
    """A test of a case, with what the case says for all of them."""
    given = _plain(given)
    if isinstance(given, dict) and "stdin_gen" in given:
        given["stdin"] = _made(given.pop("stdin_gen"))
    if isinstance(given, dict) and "expected_gen" in given:
        given["expected"] = _made(given.pop("expected_gen"))
    test = plain_test(given, entry)
    tol, compare = case.get("tol"), case.get("compare")
    if isinstance(test, StdioTest):
        changed = {"compare": compare or "exact"} | ({"tol": tol} if tol is not None else {})
    elif isinstance(test, CallTest):
        changed = {"tol": tol}
    else:
        changed = {"setup": case.get("setup") or test.setup}
    return read_tests([{**test.model_dump(), **changed}])[0]


def _plain(value: Any) -> Any:
    """A value of a case, all of it read."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _spec(case: Case) -> SandboxSpec:
    given = {field: case[key] for key, field in _LIMITS.items() if key in case}
    limits = replace(Limits(cpu_s=2.0), **given)
    return SandboxSpec(limits=limits, packages=tuple(case.get("packages") or ()))


def _text(case: Case, key: str) -> Any:
    return _made(case[f"{key}_gen"]) if f"{key}_gen" in case else case.get(key)


def _made(parts: Case) -> str:
    text: str = parts["unit"] * parts["count"]
    return f"{parts.get('prefix') or ''}{text}{parts.get('suffix') or ''}"


def _said(graded: Graded) -> Mapping[str, Any]:
    return {
        "passed": graded.all_passed,
        "reward": graded.fraction,
        "fraction": graded.fraction,
        "num_passed": sum(graded.passed),
        "results": list(graded.passed),
        "outcomes": [result.outcome.value for result in graded.results],
        "reasons": [result.reason for result in graded.results],
        "tamper_resistance": graded.tamper_resistance,
        "raises": False,
    }
