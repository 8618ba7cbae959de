"""Whether what a check says holds of the answers the program gave.

Answers are plain data by now. Simple conditions are decided here; all others are evaluated in a
sandbox of their own, into which the program never comes: there Python's own operators decide.
"""

import ast
import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentgym.envs.code.grading.compare import is_plain
from agentgym.envs.code.grading.folding import NotConstant, as_source, fold, is_small
from agentgym.envs.code.grading.questions import Check
from agentgym.envs.code.grading.raising import RAISED
from agentgym.envs.code.grading.shims import prelude_of
from agentgym.errors import ConfigError, SandboxError
from agentgym.tools.sandbox.base import ExecResult, Expression, Outcome

_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, box: item in box,
    ast.NotIn: lambda item, box: item not in box,
}
_MAX_KINDS = 2
_JUDGED = """
def _judged(condition, *answers):
    try:
        return bool(condition(*answers))
    except Exception:
        return False
"""
_RAISED = f"""
def {RAISED}(answer, names, pattern=None):
    import re
    found = any(name in answer[0] for name in names)
    return found and (pattern is None or re.search(pattern, answer[1]) is not None)
"""


class Verdict(NamedTuple):
    """Whether a check holds, and why not."""

    holds: bool
    reason: str = ""
    outcome: Outcome = Outcome.OK
    """How the program ended."""


def answers_of(check: Check, value: Any) -> tuple[Any, ...] | None:
    """What the program answered, by question; `None` if it is no plain data.

    Args:
        check: what was asked.
        value: of `question_of(check)`.
    """
    if not is_plain(value, depth=80) or (check.raises and not _is_exception(value)):
        return None
    if len(check.questions) == 1:
        return (value,)
    fits = type(value) is tuple and len(value) == len(check.questions)
    return value if fits else None


def _is_exception(value: Any) -> bool:
    """Whether it tells of an exception that can be: not of one that is of every kind at once."""
    if type(value) is not list or len(value) != 2 or type(value[1]) is not str:
        return False
    names = value[0]
    if type(names) is not list or any(type(name) is not str for name in names):
        return False
    kinds = {kind for name in names if (kind := exception_class(name)) is not None}
    leaves = [kind for kind in kinds if not any(kind in other.__mro__[1:] for other in kinds)]
    return len(leaves) <= _MAX_KINDS


def exception_class(name: str) -> type[BaseException] | None:
    """The builtin exception of a name."""
    kind = vars(builtins).get(name)
    is_exception = isinstance(kind, type) and issubclass(kind, BaseException)
    return kind if is_exception else None


def judge_here(check: Check, answers: Sequence[Any]) -> bool | None:
    """Whether the check holds; `None` if that takes more than is done on this side."""
    names = {f"_v{index}": answer for index, answer in enumerate(answers)}
    condition = ast.parse(check.judgement, mode="eval").body
    try:
        return _decide(condition, names, check.judge_setup)
    except NotConstant:
        return None
    except (TypeError, ValueError, RecursionError):
        return False


def _decide(node: ast.expr, names: Mapping[str, Any], setup: str) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _decide(node.operand, names, setup)
    if isinstance(node, ast.Name) and node.id in names:
        return bool(names[node.id])
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compare(node, names, setup)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == RAISED:
        return _was_raised(node, names)
    raise NotConstant("a condition of another form")


def _compare(node: ast.Compare, names: Mapping[str, Any], setup: str) -> bool:
    left, right = (_operand(side, names, setup) for side in (node.left, node.comparators[0]))
    op = type(node.ops[0])
    if op in (ast.Is, ast.IsNot):
        if right is not None and not isinstance(right, bool):
            raise NotConstant("identity of data")
        return (left is right) is (op is ast.Is)
    return bool(_OPERATORS[op](left, right))


def _operand(node: ast.expr, names: Mapping[str, Any], setup: str) -> Any:
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if setup:
        raise NotConstant("the tests may give names a meaning of their own")
    if not all(is_small(answer) for answer in names.values()):
        raise NotConstant("large answers are for a process that has limits")
    return fold(node, names)


def _was_raised(node: ast.Call, names: Mapping[str, Any]) -> bool:
    if len(node.args) != 2:
        raise NotConstant("the message is looked at")
    raised = names["_v0"]
    return any(name in raised[0] for name in ast.literal_eval(node.args[1]))


def judge_bundle(asked: Sequence[tuple[Check, Sequence[Any]]]) -> Expression:
    """Decides checks that share their set-up in one process: a list of True and False."""
    setup = asked[0][0].judge_setup
    judgements = "".join(check.judgement for check, _ in asked)
    parts = [prelude_of(setup + judgements), _RAISED, _JUDGED, setup]
    return Expression(source=f"[{', '.join(map(_bundled, asked))}]", setup="\n".join(parts))


def _bundled(asked: tuple[Check, Sequence[Any]]) -> str:
    check, answers = asked
    names = ", ".join(f"_v{index}" for index in range(len(answers)))
    values = "".join(f", {as_source(answer)}" for answer in answers)
    return f"_judged(lambda {names}: ({check.judgement}){values})"


def verdicts_of(result: ExecResult, count: int) -> list[Verdict] | None:
    """What a bundle said; `None` if it did not come to its end, and each must be asked alone."""
    said = result.value if result.ok and result.has_value else None
    if type(said) is not list or len(said) != count or any(type(each) is not bool for each in said):
        return None
    return [Verdict(each, "" if each else "not what was expected") for each in said]


def verdict_of(result: ExecResult) -> Verdict:
    """What a judge of one check said.

    Raises:
        ConfigError: the tests need something that is not there.
    """
    verdicts = verdicts_of(result, 1)
    if verdicts is not None:
        return verdicts[0]
    check_imports(result)
    return Verdict(False, f"could not be judged: {result.outcome}: {last_line(result)}")


def of_code(result: ExecResult) -> ExecResult:
    """The result, if the code is what it tells of.

    Raises:
        SandboxError: the infrastructure failed.
    """
    if result.blame == "infra":
        raise SandboxError(f"a program could not be graded: {result.outcome}: {result.evidence}")
    return result


def check_imports(result: ExecResult) -> None:
    """Tell a test that cannot run here from an answer that is wrong.

    Raises:
        ConfigError: the tests import what the sandbox lacks.
    """
    line = last_line(result)
    if result.outcome is Outcome.ERROR and line.startswith(("ModuleNotFoundError", "ImportError")):
        raise ConfigError(f"tests cannot run in the sandbox: {line}; add it to `packages`")


def last_line(result: ExecResult) -> str:
    """Of what was written to stderr, cut."""
    lines = result.stderr.strip().splitlines()
    return lines[-1][:200] if lines else result.evidence[:200]
