"""What each test asks the program, and how its answer is judged; made before anything is run."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from agentgym.envs.code.grading.asserts import rewrite
from agentgym.envs.code.grading.names import NotRewritable
from agentgym.envs.code.grading.proxies import Proxied, prepare
from agentgym.envs.code.grading.questions import Check
from agentgym.envs.code.grading.tests import AssertTest, CallTest, StdioTest
from agentgym.errors import ConfigError
from agentgym.threads import in_thread
from agentgym.tools.sandbox.base import Call, Case, Expression, SandboxSpec, Script
from agentgym.tools.sandbox.limits import Limits

_SLOW_IMPORTS = frozenset({"numpy"})
AnyTest = StdioTest | CallTest | AssertTest


class Plan(NamedTuple):
    """How one test is done."""

    test: AnyTest
    checks: tuple[Check, ...] = ()
    """Of a rewritten test."""
    proxied: tuple[Proxied, ...] = ()
    """Of a test that could not be rewritten."""

    @property
    def is_partial(self) -> bool:
        """Whether more than plain data of the program has a say."""
        return bool(self.proxied) or any(check.trusting for check in self.checks)

    @property
    def cases(self) -> list[Case]:
        """What is run with the program."""
        if isinstance(self.test, StdioTest):
            return [Script(stdin=self.test.stdin.replace("\r\n", "\n"))]
        if isinstance(self.test, CallTest):
            test = self.test
            return [Call(function=test.function, args=list(test.args), kwargs=dict(test.kwargs))]
        return [question_of(check) for check in self.checks]


async def planned(tests: Sequence[AnyTest], *, modules: Sequence[str] = ()) -> list[Plan]:
    """`plan`, in a thread: code of many tests takes seconds to be rewritten."""
    return await in_thread(lambda: plan(tests, modules=modules))


def plan(tests: Sequence[AnyTest], *, modules: Sequence[str] = ()) -> list[Plan]:
    """A plan per test.

    Args:
        tests: of one problem.
        modules: of a workspace, which tests import.

    Raises:
        ConfigError: there is no test, or one that cannot tell a right program from an empty one.
    """
    if not tests:
        raise ConfigError("a problem without tests cannot be graded: give it at least one")
    if all(isinstance(test, StdioTest) and not test.expected.strip() for test in tests):
        raise ConfigError("every test expects no output at all, which an empty program prints")
    return [_plan_one(test, modules) for test in tests]


def _plan_one(test: AnyTest, modules: Sequence[str]) -> Plan:
    return _plan_code(test, tuple(modules)) if isinstance(test, AssertTest) else Plan(test)


@lru_cache(maxsize=512)
def _plan_code(test: AssertTest, modules: tuple[str, ...]) -> Plan:
    """Rewritten once for all programs that are graded by it."""
    try:
        return Plan(test, checks=tuple(rewrite(test, modules=modules)))
    except NotRewritable as reason:
        try:
            return Plan(test, proxied=tuple(prepare(test, modules=modules)))
        except ConfigError as error:
            raise ConfigError(f"{error} ({reason}): {test.source[:80]!r}") from reason
    except RecursionError:
        raise ConfigError(f"test code is nested too deep: {test.source[:80]!r}") from None


def question_of(check: Check) -> Expression:
    """What a check asks, as one expression: a tuple if there are several questions."""
    if not check.raises:
        source = ", ".join(f"({question})" for question in check.questions)
        several = len(check.questions) > 1
        return Expression(source=f"({source},)" if several else source, setup=check.setup)
    guard = f"_{secrets.token_hex(8)}"
    setup = f"{check.setup}\n{_GUARD.replace('_GUARD', guard)}"
    return Expression(source=f"{guard}(lambda: ({check.questions[0]}))", setup=setup)


_GUARD = """
def _GUARD(question):
    try:
        question()
    except Exception as error:
        return [[each.__name__ for each in type(error).__mro__], str(error)[:2000]]
    return [[], ""]
"""


def spec_for(spec: SandboxSpec) -> SandboxSpec:
    """What program and judges get; packages that take long to import are there beforehand."""
    return replace(spec, preload=tuple(name for name in spec.packages if name in _SLOW_IMPORTS))


def limits_for(tests: Sequence[AnyTest], limits: Limits | None) -> Limits | None:
    """Limits under which everything that is expected can be printed and returned."""
    base = limits or Limits()
    longest = max((_size(test) for test in tests), default=0)
    output, value = max(base.output_bytes, longest), max(base.value_bytes, longest)
    if (output, value) == (base.output_bytes, base.value_bytes):
        return limits
    return replace(base, output_bytes=output, value_bytes=value)


def _size(test: AnyTest) -> int:
    """Bytes to leave for an answer, twice what is expected and more."""
    if isinstance(test, AssertTest):
        return 4 * len(test.source) + 4096
    expected = test.expected if isinstance(test, StdioTest) else repr(test.expected)
    return 4 * len(expected.encode("utf-8", "replace")) + 4096
