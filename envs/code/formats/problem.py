"""One problem of a data set, whatever format it came in."""

import re
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

    A preamble that ends in the head of `entry` is completed by a program that begins with the body;
    one that defines the function itself replaces it.
    """
    if not preamble:
        return program
    defines = re.search(rf"^(async\s+def|def|class)\s+{re.escape(entry)}\b", program, re.MULTILINE)
    gap = "\n\n" if defines or not entry else ""
    return f"{preamble}{gap}{program}"
