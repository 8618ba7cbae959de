"""Splits a condition into questions to the program and a judgement of its answers.

`assert sorted(f(3)) == [1, 2]` asks `sorted(f(3))` and judges `_v0 == [1, 2]`. The questions are
asked beside the program and hold nothing that is expected of it; the judgement is made elsewhere,
over plain data.
"""

import ast
from typing import NamedTuple

from agentgym.envs.code.grading.names import (
    BUILTINS,
    PLAIN_METHODS,
    NotRewritable,
    Scope,
    Statement,
    free_names,
    source_of,
)

_MATERIALISERS = frozenset(
    [
        "bytes",
        "dict",
        "float",
        "frozenset",
        "int",
        "len",
        "list",
        "max",
        "min",
        "next",
        "repr",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
    ]
)
"""Make plain data of an object, and are told nothing of what is expected."""
_OPAQUE = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
)


class Check(NamedTuple):
    """One assert, split."""

    questions: tuple[str, ...]
    """Expressions to evaluate beside the program."""
    setup: str
    """Statements before them, on the same side."""
    judgement: str
    """Condition over the answers `_v0`, `_v1`..."""
    judge_setup: str = ""
    raises: bool = False
    """Whether what is asked for is the exception of the one question, as [class names, message]."""


def split(condition: ast.expr, scope: Scope) -> Check:
    """The check of a condition that touches the program.

    Raises:
        NotRewritable: it cannot be taken apart.
    """
    splitter = _Splitter(scope)
    judgement = splitter.visit(scope.resolved(condition))
    assert isinstance(judgement, ast.expr)
    if not splitter.questions:
        raise NotRewritable("a condition does not ask the program")
    return checked(splitter.questions, judgement, scope)


def checked(
    questions: list[ast.expr], judgement: ast.expr, scope: Scope, *, raises: bool = False
) -> Check:
    """With the statements that both sides need.

    Raises:
        NotRewritable: they share an object, so that one side could tell of the other.
    """
    asked = {name for question in questions for name in free_names(question)}
    beside = scope.slice(asked, of_program=True)
    judged = scope.slice(free_names(judgement), of_program=False)
    if any(_is_data(statement) for statement in beside if statement in judged):
        raise NotRewritable("the input and what is expected come from one object")
    return Check(
        questions=tuple(ast.unparse(question) for question in questions),
        setup=source_of(beside),
        judgement=ast.unparse(judgement),
        judge_setup=source_of(judged),
        raises=raises,
    )


def _is_data(statement: Statement) -> bool:
    code = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return not isinstance(statement.node, code)


class _Splitter(ast.NodeTransformer):
    """Replaces what the program has to answer by names."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.questions: list[ast.expr] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            if not self.scope.touches_program(node):
                return node
            if is_question(node, self.scope):
                return self._ask(node)
            if isinstance(node, _OPAQUE):
                raise NotRewritable(f"a {type(node).__name__} uses the program")
        return self.generic_visit(node)

    def _ask(self, node: ast.expr) -> ast.expr:
        name = f"_v{len(self.questions)}"
        self.questions.append(node)
        return ast.Name(id=name, ctx=ast.Load())


def is_question(node: ast.expr, scope: Scope) -> bool:
    """Whether the program answers it as a whole."""
    if isinstance(node, ast.Subscript):
        return _is_inside(node, scope) and not _is_data_like(node.value, scope)
    if _is_inside(node, scope):
        return not isinstance(node, ast.Subscript)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    makes_plain = node.func.id in _MATERIALISERS and node.func.id not in scope.given
    alone = len(node.args) == 1 and not node.keywords
    return makes_plain and alone and is_question(node.args[0], scope)


def _is_inside(node: ast.expr, scope: Scope) -> bool:
    """A chain of calls, attributes and items that begins with a name of the program."""
    if isinstance(node, ast.Name):
        return scope.is_of_program(node.id)
    if isinstance(node, ast.Call):
        return _is_inside(node.func, scope)
    if isinstance(node, ast.Attribute):
        plain = node.attr in PLAIN_METHODS and _is_data_like(node.value, scope)
        return not plain and _is_inside(node.value, scope)
    return isinstance(node, ast.Subscript) and _is_inside(node.value, scope)


def _is_data_like(node: ast.expr, scope: Scope) -> bool:
    """Whether it is plain data rather than an object of the program's own classes, by its looks."""
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id[:1].isupper())
    if isinstance(node, ast.Subscript):
        return _is_data_like(node.value, scope)
    return isinstance(node, ast.Name) and scope.objects.get(node.id, False)


def looks_like_data(node: ast.expr, scope: Scope) -> bool:
    """What a name that is bound to it will be taken for."""
    return _is_data_like(node, scope) and not free_names(node) <= BUILTINS
