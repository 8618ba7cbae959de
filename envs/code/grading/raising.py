"""The forms in which test code says that something must raise."""

import ast
from typing import NamedTuple

from agentgym.envs.code.grading.names import NotRewritable

ANSWER = "_v0"
"""Stands for [names of the exception's classes, its message]; the names are empty if none came."""

RAISED = "_raised"
"""Function of the judges: whether an exception came, by the names of its classes."""


class Raising(NamedTuple):
    """Something that must raise."""

    before: list[ast.stmt]
    question: ast.expr
    judgement: ast.expr


def raising_of(statement: ast.stmt) -> Raising | None:
    """What a statement says must raise; `None` if it says nothing of the kind.

    Raises:
        NotRewritable: it says so in a way that is not followed.
    """
    if isinstance(statement, ast.With):
        return _of_with(statement)
    if isinstance(statement, ast.Try):
        return _of_try(statement)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _of_call(statement.value)
    return None


def _of_call(call: ast.Call) -> Raising | None:
    """`self.assertRaises(ValueError, f, 3)` and the same with `pytest.raises`."""
    if not _asks_for_exception(call) or len(call.args) < 2:
        return None
    kind, function, *args = call.args
    question = ast.Call(func=function, args=args, keywords=call.keywords)
    return Raising([], question, _judgement(kind, None))


def _of_with(statement: ast.With) -> Raising:
    context = statement.items[0].context_expr
    if len(statement.items) > 1 or not _asks_for_exception(context):
        raise NotRewritable("a with statement is not followed")
    assert isinstance(context, ast.Call)
    options = {keyword.arg: keyword.value for keyword in context.keywords}
    match = options.get("match")
    args = list(context.args)
    if "Regex" in ast.unparse(context.func) and len(args) > 1:
        match = args[1]
    kind = args[0] if args else options.get("expected_exception")
    if kind is None or statement.items[0].optional_vars is not None:
        raise NotRewritable("what was raised is looked at")
    *before, last = statement.body
    return Raising(before, _question(last), _judgement(kind, match))


def _asks_for_exception(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    return name in ("pytest.raises", "raises", "self.assertRaises", "self.assertRaisesRegex")


def _of_try(statement: ast.Try) -> Raising:
    """`try: f(3)` with a failure after it, and a handler that is content."""
    if len(statement.handlers) != 1 or statement.finalbody:
        raise NotRewritable("a try statement is not followed")
    handler = statement.handlers[0]
    body = list(statement.body)
    if not _fails(statement.orelse[0] if statement.orelse else body.pop()) or not body:
        raise NotRewritable("a try statement does not fail if nothing is raised")
    if not all(map(_is_content, handler.body)):
        raise NotRewritable("what was raised is looked at")
    kind = handler.type or ast.Name(id="Exception", ctx=ast.Load())
    if ast.unparse(kind) in ("AssertionError", "BaseException"):
        raise NotRewritable("the failure itself is caught")
    *before, last = body
    return Raising(before, _question(last), _judgement(kind, None))


def _fails(statement: ast.stmt) -> bool:
    text = ast.unparse(statement)
    return text.startswith(("assert False", "raise", "assert 0", "self.fail(", "pytest.fail("))


def _is_content(statement: ast.stmt) -> bool:
    text = ast.unparse(statement)
    return text.startswith(("pass", "assert True", "assert 1", "print("))


def _question(statement: ast.stmt) -> ast.expr:
    if isinstance(statement, ast.Expr | ast.Assign):
        return statement.value
    raise NotRewritable("what should raise is no call")


def _judgement(kind: ast.expr, match: ast.expr | None) -> ast.expr:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    names = [ast.unparse(one).rpartition(".")[2] for one in kinds]
    options = f", {ast.unparse(match)}" if match is not None else ""
    return ast.parse(f"{RAISED}({ANSWER}, {names!r}{options})", mode="eval").body
