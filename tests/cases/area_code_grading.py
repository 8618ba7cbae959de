"""The code grader in a real sandbox: programs, functions, asserts, workspaces, answers, forms."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.code.answers import program_of
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
from agentgym.rewards.formats import react_action, think_answer
from agentgym.rewards.math import grade as same_answer
from agentgym.tools.sandbox.base import Outcome, SandboxSpec
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.sandbox.shared import shared_provider

Case = Mapping[str, Any]
_LIMITS = {
    "cpu_s": "cpu_s",
    "memory_limit_mb": "memory_mb",
    "memory_mb": "memory_mb",
    "time_limit_s": "cpu_s",
    "timeout": "cpu_s",
    "timeout_s": "cpu_s",
    "wall_s": "wall_s",
}


def _holds_code(text: str) -> bool:
    parts = think_answer(text)
    return parts is not None and program_of(parts[1]) is not None


def run(case: Case) -> Mapping[str, Any]:
    """Reward and verdict of whatever the case grades."""
    mode = case["mode"]
    if mode not in _MODES:
        pytest.fail(f"unknown mode {mode!r}")
    try:
        return _MODES[mode](case)
    except ConfigError as error:
        told = {"raises": error, "message": str(error), "error": str(error)}
        return told | {"exception": True, "passed": False, "reward": 0.0}


def _program(case: Case) -> Mapping[str, Any]:
    code = _text(case, "code")
    for key in ("message", "completion", "response"):
        if key in case:
            code = extract_program(case[key], language=case.get("language") or "python")
    entry = case.get("entry") or case.get("function") or case.get("method")
    if "class" in case:
        entry = f"{case['class']}.{entry}"
    tests = [_test(test, case, entry) for test in case["tests"]]

    async def graded() -> Graded:
        provider = await shared_provider()
        return await grade(provider, code, tests, spec=_spec(case))

    return _said(asyncio.run(graded()))


def _workspace(case: Case) -> Mapping[str, Any]:
    written = dict(case.get("agent_writes") or {})
    inside = {path: text for path, text in written.items() if not path.startswith(("/", ".."))}
    files = dict(case.get("code_files") or {}) | inside

    async def graded() -> Graded:
        provider = await shared_provider()
        tests = dict(case["true_tests"])
        return await grade_workspace(provider, files, tests, limits=_spec(case).limits)

    return _said(asyncio.run(graded()))


def _answer(case: Case) -> Mapping[str, Any]:
    correct = same_answer(case["gold"], case["prediction"])
    return {"reward": float(correct), "passed": correct, "correct": correct}


def _form(case: Case) -> Mapping[str, Any]:
    if case["pattern"] not in _FORMS:
        pytest.fail(f"unknown form {case['pattern']!r}")
    fits = _FORMS[case["pattern"]](case["prediction"])
    return {"format_reward": float(fits), "reward": float(fits), "passed": fits}


_FORMS: dict[str, Callable[[str], bool]] = {
    "one <think> block then one <answer> block": lambda text: think_answer(text) is not None,
    "one <think> block then one <answer> block with fenced code": _holds_code,
    "one Action and one Action Input after <think>": lambda text: react_action(text) is not None,
}
_STATUSES = {
    Outcome.CPU_LIMIT: "timeout",
    Outcome.WALL_TIMEOUT: "timeout",
    Outcome.MEMORY_LIMIT: "memory_limit",
    Outcome.OUTPUT_LIMIT: "output_limit",
}
_MODES = {
    "answer": _answer,
    "assert": _program,
    "asserts": _program,
    "call": _program,
    "class": _program,
    "format": _form,
    "function": _program,
    "method": _program,
    "pytest": lambda case: _workspace(case) if "true_tests" in case else _program(case),
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
        changed = {"tol": 1e-6 if tol is None and compare == "float" else tol}
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


def _status(graded: Graded) -> str:
    """Of the first run that did not end well, in the words of the contract."""
    ends = [result.outcome for result in graded.results if result.outcome is not Outcome.OK]
    return _STATUSES.get(ends[0], "error") if ends else "ok"


def _said(graded: Graded) -> Mapping[str, Any]:
    return {
        "passed": graded.all_passed,
        "reward": graded.fraction,
        "fraction": graded.fraction,
        "num_passed": sum(graded.passed),
        "num_tests": len(graded.passed),
        "status": _status(graded),
        "results": list(graded.passed),
        "outcomes": [result.outcome.value for result in graded.results],
        "reasons": [result.reason for result in graded.results],
        "tamper_resistance": graded.tamper_resistance,
        "raises": False,
    }
