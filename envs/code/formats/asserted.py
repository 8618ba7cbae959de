"""Formats whose tests are code: MBPP and HumanEval, their sanitised and extended forms."""

import ast
from collections.abc import Iterable
from typing import Any

from agentgym.envs.code.formats.problem import CodeProblem
from agentgym.envs.code.formats.values import first_of
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError

Row = dict[str, Any]


def from_mbpp(row: Row, index: int) -> CodeProblem:
    """`test_list` of asserts, `test_setup_code` or `test_imports`, `challenge_test_list`."""
    public, challenge = list(row["test_list"]), list(row.get("challenge_test_list") or [])
    imports = row.get("test_imports") or []
    setup = "\n".join([*imports, row.get("test_setup_code") or ""]).replace("\r", "").strip()
    code = row.get("code") or ""
    functions = _tested(code, [*public, *challenge])
    statement = first_of(row, "text", "prompt", "question")
    if not isinstance(statement, str):
        raise ConfigError("a row of MBPP has no text or prompt")
    tests = tuple(AssertTest(source=s, setup=setup, functions=functions) for s in public)
    more = tuple(AssertTest(source=s, setup=setup, functions=functions) for s in challenge)
    return CodeProblem(
        id=str(row.get("task_id", index)),
        statement=statement,
        public_tests=tests,
        hidden_tests=tests + more,
        solution=code.replace("\r", ""),
    )


def _tested(code: str, tests: Iterable[str]) -> tuple[str, ...]:
    """What the reference defines and the tests name; nothing if either is no Python."""
    try:
        defined = [
            statement.name
            for statement in ast.parse(code).body
            if isinstance(statement, ast.FunctionDef | ast.ClassDef)
        ]
        used = {
            node.id
            for test in tests
            for node in ast.walk(ast.parse(test))
            if isinstance(node, ast.Name)
        }
    except (SyntaxError, ValueError):
        return ()
    return tuple(name for name in dict.fromkeys(defined) if name in used)


def from_humaneval(row: Row, index: int) -> CodeProblem:
    """`prompt` to be completed, `test` with `check(candidate)`, `entry_point`."""
    prompt, entry = row["prompt"], row["entry_point"]
    test = AssertTest(source=row["test"], setup=_head(prompt), functions=(entry,))
    return CodeProblem(
        id=str(row.get("task_id", index)),
        statement=prompt,
        hidden_tests=(test,),
        starter=prompt,
        preamble=prompt,
        entry=entry,
        solution=row.get("canonical_solution") or "",
    )


def _head(prompt: str) -> str:
    """The prompt as code of its own: it may end in a function without a body."""
    for ending in ("", "    pass\n"):
        try:
            ast.parse(prompt + ending)
        except SyntaxError:
            continue
        return prompt + ending
    return ""
