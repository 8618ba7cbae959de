"""One problem of a data set, whatever format it came in."""

import ast
import re
import textwrap
from typing import Any

from pydantic import BaseModel, ConfigDict

from agentgym.envs.code.grading.tests import AssertTest, CallTest, StdioTest


class CodeProblem(BaseModel):
    """What is asked, and the tests of it; survives JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    statement: str
    hidden_tests: tuple[StdioTest | CallTest | AssertTest, ...]
    """What a program is graded by; at least one."""
    public_tests: tuple[StdioTest | CallTest | AssertTest, ...] = ()
    """May be shown to the policy."""
    starter: str = ""
    """Code the policy is to begin from."""
    preamble: str = ""
    """Code that stands before every program; see `assembled`."""
    entry: str = ""
    """The function that `preamble` ends in, to be completed; empty if it ends in none."""
    solution: str = ""
    """A right program, where the data set has one."""

    def task_data(self) -> dict[str, Any]:
        """Data of a task, as the env of bundled problems has them."""
        return self.model_dump(mode="json", exclude={"id"}) | {"problem": self.id}


def assembled(program: str, *, preamble: str = "", entry: str = "") -> str:
    """The program with what stands before it.

    A preamble that ends in the head of `entry` is completed by a program that is the body, even
    one that lost its indentation; a program that defines the function itself replaces it.
    """
    if not preamble:
        return program
    if entry and not _defines(program, re.escape(entry)):
        return preamble + _as_body(program)
    futures = "".join(_FUTURE.findall(program))
    return f"{futures}{preamble}\n\n{_FUTURE.sub('', program)}"


def _defines(program: str, name: str) -> bool:
    head = rf"(?:async[ \t]+def|def|class)[ \t]+{name}\b"
    return re.search(rf"^(?:{head}|{name}[ \t]*[:=])", program, re.MULTILINE) is not None


_FUTURE = re.compile(r"^from __future__ import [^(\n]*\n", re.MULTILINE)
_INDENT = "    "
_MAX_BODY = 100_000


def _as_body(program: str) -> str:
    """A function's body, indented again if it was cut out, or if blanks before it were."""
    if program.lstrip("\r\n")[:1] in (" ", "\t"):
        return program
    whole = textwrap.indent(program, _INDENT)
    return next(filter(_is_body, (_INDENT + program.lstrip(), whole)), program)


def _is_body(text: str) -> bool:
    if len(text) > _MAX_BODY:
        return False
    try:
        return len(ast.parse(f"def f():\n{text}").body) == 1
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
