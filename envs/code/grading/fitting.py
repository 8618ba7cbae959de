"""What a program is told to be, made to fit what it is: a function, or a method of `Solution`.

Data sets ask for either and accept both; the program's text alone decides, before it is run.
"""

import re

from agentgym.envs.code.grading.tests import AssertTest, CallTest, StdioTest

Test = StdioTest | CallTest | AssertTest
_CLASS = "Solution"
_BYTE_ORDER_MARK = "\ufeff"


def as_source_text(program: str) -> str:
    """A program as Python reads it from a file: without the mark that some editors begin with."""
    return program.removeprefix(_BYTE_ORDER_MARK)


def fitted(test: Test, program: str) -> Test:
    """A test that calls what the program defines.

    `f` stands for `Solution.f` where only that is defined, and the other way round.
    """
    if not isinstance(test, CallTest):
        return test
    owner, dot, name = test.function.rpartition(".")
    if dot and owner != _CLASS:
        return test
    has_class, has_function = _defines(program, _CLASS), _defines(program, name)
    if dot and has_function and not has_class:
        return test.model_copy(update={"function": name})
    if not dot and has_class and not has_function and _has_method(program, name):
        return test.model_copy(update={"function": f"{_CLASS}.{name}"})
    return test


def _defines(program: str, name: str) -> bool:
    """Whether a line at the left edge defines, assigns or imports the name."""
    name = re.escape(name)
    imported = rf"(?:from|import)[ ][^\n]*\b{name}\b"
    pattern = rf"^(?:(?:async[ ]+)?(?:def|class)[ ]+{name}\b|{name}[ ]*[:=,]|{imported})"
    return re.search(pattern, program, re.MULTILINE) is not None


def _has_method(program: str, name: str) -> bool:
    pattern = rf"^[ \t]+(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b"
    return re.search(pattern, program, re.MULTILINE) is not None
