"""Formats whose tests are inputs and outputs, of a program or of a function."""

import ast
import builtins
from collections.abc import Sequence
from typing import Any

from agentgym.envs.code.answers import program_of
from agentgym.envs.code.formats.problem import CodeProblem
from agentgym.envs.code.formats.values import decoded, first_of, text_of, unpacked, unwrapped
from agentgym.envs.code.grading.tests import AssertTest, CallTest, StdioTest, read_tests
from agentgym.errors import ConfigError

Row = dict[str, Any]
Tests = tuple[StdioTest | CallTest | AssertTest, ...]
_SOURCES = ("assert", "source", "test", "code")
_NAMES = """\
from typing import *
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import inf, gcd, comb, ceil, floor, sqrt
from string import *
"""
"""What problems of the form `class Solution` take for granted: their head names `List`."""
_CALLS = ("functional", "function_call")
STATEMENTS = ("statement", "question", "problem", "prompt", "description", "text")
"""Keys of what is asked, the first that is filled."""


def _statement(row: Row) -> str:
    found = first_of(row, *STATEMENTS)
    if isinstance(found, list):  # a chat
        found = next((m["content"] for m in reversed(found) if m.get("role") == "user"), None)
    if not isinstance(found, str):
        raise ConfigError(f"a row has no statement: one of {', '.join(STATEMENTS)}")
    return found


def _id(row: Row, index: int) -> str:
    keys = ("id", "problem_id", "question_id", "task_id", "name")
    return str(next((row[key] for key in keys if row.get(key) is not None), index))


def _solution(row: Row) -> str:
    found = first_of(row, "solution", "canonical_solution", "code", "gold_standard_solution")
    if isinstance(found, str):  # some come as answers, in a fence
        return program_of(found) or found if found.lstrip().startswith("```") else found
    several = first_of(row, "solutions")
    several = decoded(several, "solutions") if isinstance(several, str) else several
    is_list = isinstance(several, list) and several and isinstance(several[0], str)
    return several[0] if is_list else ""


def from_apps(row: Row, index: int) -> CodeProblem:
    """APPS and TACO: `input_output` with `inputs`, `outputs` and perhaps `fn_name`."""
    given = unwrapped(row.get("input_output", row), "input_output")
    starter = row.get("starter_code") or ""
    in_class = "class Solution" in (starter + _solution(row))
    return CodeProblem(
        id=_id(row, index),
        statement=_statement(row),
        hidden_tests=_from_columns(given, in_class=in_class),
        starter=starter,
        preamble=_NAMES if in_class else "",
        solution=_solution(row),
    )


def _from_columns(given: Any, *, in_class: bool = False) -> Tests:
    if not isinstance(given, dict) or not {"inputs", "outputs"} <= given.keys():
        raise ConfigError("input_output needs inputs and outputs")
    inputs, outputs, name = given["inputs"], given["outputs"], given.get("fn_name")
    if len(inputs) != len(outputs):
        raise ConfigError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    pairs = list(zip(inputs, outputs, strict=True))
    if not name:
        return tuple(StdioTest(stdin=text_of(i), expected=text_of(o)) for i, o in pairs)
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    function = f"Solution.{name}" if in_class else str(name)
    return tuple(_call(function, args, output, wrapped) for args, output in pairs)


def _call(function: str, args: Any, expected: Any, wrapped: bool) -> CallTest:
    """Where every output is a list of one, data sets mean either it or what is in it."""
    if not isinstance(args, list):
        raise ConfigError(f"arguments of {function} are no list: {str(args)[:60]}")
    if not wrapped:
        return CallTest(function=function, args=tuple(args), expected=expected)
    inner = expected[0]
    return CallTest(function=function, args=tuple(args), expected=inner, alternatives=(expected,))


def from_livecodebench(row: Row, index: int) -> CodeProblem:
    """LiveCodeBench: `public_test_cases`, `private_test_cases`, `metadata.func_name`."""
    metadata = unwrapped(row.get("metadata") or "{}", "metadata")
    name = metadata.get("func_name")
    public = unwrapped(row["public_test_cases"], "public_test_cases")
    private = row.get("private_test_cases") or []
    private = unpacked(private) if isinstance(private, str) else private
    title, statement = row.get("question_title") or "", row["question_content"]
    return CodeProblem(
        id=_id(row, index),
        statement=f"{title}\n\n{statement}".strip(),
        public_tests=_lcb_tests(public, name),
        hidden_tests=_lcb_tests([*public, *private], name),
        starter=row.get("starter_code") or "",
        preamble=_NAMES if name else "",
    )


def _lcb_tests(cases: Sequence[Row], name: str | None) -> Tests:
    return tuple(_lcb_test(case, name) for case in cases)


def _lcb_test(case: Row, name: str | None) -> StdioTest | CallTest:
    if case.get("testtype", "stdin") != "functional":
        return StdioTest(stdin=text_of(case["input"]), expected=text_of(case["output"]))
    if not name:
        raise ConfigError("a functional test needs metadata.func_name")
    lines = [line for line in case["input"].split("\n") if line.strip()]
    args = tuple(decoded(line, "an argument") for line in lines)
    expected = decoded(case["output"], "an output")
    return CallTest(function=f"Solution.{name}", args=args, expected=expected)


def from_verifiable(row: Row, index: int) -> CodeProblem:
    """open-r1 and PrimeIntellect: `verification_info` with `test_cases`."""
    given = unwrapped(row["verification_info"], "verification_info")
    cases = unwrapped(given.get("test_cases"), "test_cases") if isinstance(given, dict) else None
    if not isinstance(cases, list):
        raise ConfigError("verification_info needs test_cases")
    _check_language(given.get("language"))
    return CodeProblem(
        id=_id(row, index),
        statement=_statement(row),
        hidden_tests=tuple(_verifiable_test(case, given) for case in cases),
        solution=_solution(row),
    )


def _check_language(language: Any) -> None:
    if str(language or "python").lower() not in ("python", "python3", "py"):
        raise ConfigError(f"language {language!r} cannot be run; known: python")


def _verifiable_test(case: Row, given: Row) -> StdioTest | CallTest:
    name = case.get("fn_name") or (
        given.get("fn_name") if case.get("type") == "function_call" else None
    )
    if not name:
        return StdioTest(stdin=text_of(case["input"]), expected=text_of(case["output"]))
    args, expected = decoded(case["input"], "an input"), decoded(case["output"], "an output")
    args = args if isinstance(args, list) else [args]
    return _call(name, args, expected, isinstance(expected, list) and len(expected) == 1)


def from_contests(row: Row, index: int) -> CodeProblem:
    """CodeContests: `public_tests`, `private_tests` and `generated_tests` as columns."""
    groups = [row.get(f"{name}_tests") for name in ("public", "private", "generated")]
    tests = [_contest_tests(decoded(group, "tests")) for group in groups if group]
    solutions = row.get("solutions") or []
    if isinstance(solutions, dict):  # by language, of which 3 is Python
        pairs = zip(solutions["language"], solutions["solution"], strict=True)
        solutions = [text for language, text in pairs if language in (3, "PYTHON3")]
    return CodeProblem(
        id=_id(row, index),
        statement=_statement(row),
        public_tests=tests[0],
        hidden_tests=tuple(test for group in tests for test in group),
        solution=_solution({"solutions": solutions}),
    )


def _contest_tests(group: Row) -> Tests:
    return _from_columns({"inputs": group["input"], "outputs": group["output"]})


def from_tests(row: Row, index: int) -> CodeProblem:
    """Plain rows: `tests`, or one `stdin` and `expected`; see `plain_test`."""
    given = first_of(row, "tests", "test_cases", "hidden_tests", "test")
    if given is None:
        given = [row] if "stdin" in row else []
    given = _listed(given)
    if isinstance(given, dict) and {"inputs", "outputs"} <= given.keys():
        return from_apps({**row, "input_output": given}, index)
    given = [given] if isinstance(given, dict) else given
    entry = first_of(row, "entry", "entry_point", "fn_name", "function")
    public = unwrapped(row.get("public_tests") or [], "public_tests")
    return CodeProblem(
        id=_id(row, index),
        statement=_statement(row),
        hidden_tests=tuple(plain_test(test, entry) for test in given),
        public_tests=tuple(plain_test(test, entry) for test in public),
        starter=row.get("starter_code") or row.get("starter") or "",
        preamble=row.get("preamble") or "",
        solution=_solution(row),
    )


def _listed(given: Any) -> Any:
    """The value of a cell of tests, which may be JSON in a text, or test code."""
    try:
        return unwrapped(given, "tests")
    except ConfigError:
        try:
            ast.parse(given)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"tests is no JSON, and no Python: {given[:60]!r}") from None
        return [given]


def plain_test(given: Any, entry: str | None = None) -> StdioTest | CallTest | AssertTest:
    """A test from `{"stdin", "expected"}`, `{"args", "expected"}`, an assert, or its own JSON form.

    Raises:
        ConfigError: it is none of these; names the keys.
    """
    if isinstance(given, dict) and set(given) <= {"setup", *_SOURCES}:
        source = next((given[key] for key in _SOURCES if key in given), None)
        test = plain_test(source, entry)
        return test.model_copy(update={"setup": text_of(given.get("setup") or "")})
    if isinstance(given, str):
        named = entry and ("check(" in given or entry in vars(builtins))
        return AssertTest(source=given, functions=(entry,) if entry and named else ())
    if not isinstance(given, dict):
        raise ConfigError(f"a test is a {type(given).__name__}, not a text or an object")
    if "kind" in given:
        return read_tests([given])[0]
    expected = next((k for k in ("expected", "output", "expected_output") if k in given), None)
    name = given.get("fn_name") or given.get("function") or entry
    if expected and "args" in given and name:
        args, kwargs = tuple(given["args"]), given.get("kwargs") or {}
        return CallTest(function=name, args=args, kwargs=kwargs, expected=given[expected])
    if "raises" in given and "args" in given and name:
        return _raising(name, given)
    source = next((key for key in ("stdin", "input") if key in given), None)
    if expected and source == "input" and _is_call(given, entry):
        return _call_of(given, given[expected], entry)
    if expected and source:
        return StdioTest(stdin=text_of(given[source]), expected=text_of(given[expected]))
    raise ConfigError(f"a test has the keys {', '.join(map(repr, given))}: no known form")


def _is_call(given: Row, entry: str | None) -> bool:
    kind = given.get("testtype") or given.get("type") or ""
    return kind in _CALLS or (bool(entry) and not kind and isinstance(given["input"], list))


def _call_of(given: Row, expected: Any, entry: str | None) -> CallTest:
    """A call whose arguments are a list, or JSON with a line for each."""
    metadata = unwrapped(given.get("metadata") or {}, "metadata")
    name = given.get("fn_name") or metadata.get("func_name") or entry
    if not name:
        raise ConfigError("a test that calls a function needs fn_name or metadata.func_name")
    args = given["input"]
    if isinstance(args, str):
        args = [decoded(line, "an argument") for line in args.split("\n") if line.strip()]
        expected = decoded(expected, "an output")
    return CallTest(function=str(name), args=tuple(args), expected=expected)


def _raising(name: str, given: Row) -> AssertTest:
    """A call that must raise an exception of this name."""
    named = [f"{key}={value!r}" for key, value in (given.get("kwargs") or {}).items()]
    call = f"{name}({', '.join([*map(repr, given['args']), *named])})"
    return AssertTest(source=f"import pytest\nwith pytest.raises({given['raises']}):\n    {call}")
