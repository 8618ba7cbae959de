"""Splits a condition into questions to the program and a judgement of its answers.

`assert sorted(f(3)) == [1, 2]` asks `sorted(f(3))` and judges `_v0 == [1, 2]`. The questions are
asked beside the program and hold nothing that is expected of it; the judgement is made elsewhere,
over plain data. What two objects of the program's own classes are to each other only the program
can tell: such a comparison is asked as a whole, and trusted.
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
        "vars",
    ]
)
"""Make plain data of an object, and are told nothing of what is expected."""
_OF_OBJECTS = frozenset(["abs", "bool", "hash"])
"""Likewise, where it is an object; of data they are part of the judgement."""
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
    trusting: bool = False
    """Whether the program says itself how two of its objects compare."""


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
    return checked(splitter.questions, judgement, scope)._replace(trusting=splitter.trusting)


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
        self.trusting = False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            if not self.scope.touches_program(node):
                return node
            if is_question(node, self.scope):
                return self._ask(node)
            if _is_among_objects(node, self.scope):
                self.trusting = True
                return self._ask(node)
            if isinstance(node, _OPAQUE):
                raise NotRewritable(f"a {type(node).__name__} uses the program")
        return self.generic_visit(node)

    def _ask(self, node: ast.expr) -> ast.expr:
        name = f"_v{len(self.questions)}"
        self.questions.append(node)
        return ast.Name(id=name, ctx=ast.Load())


def _is_among_objects(node: ast.expr, scope: Scope) -> bool:
    """Whether it says how objects of the program's own classes are to each other, and no more."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        all_own = all(is_question(side, scope) for side in sides)
        return all_own and any(_is_object(side, scope) for side in sides)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    is_check = node.func.id == "isinstance" and len(node.args) == 2 and not node.keywords
    return is_check and all(is_question(arg, scope) for arg in node.args)


def _is_object(node: ast.expr, scope: Scope) -> bool:
    """Whether it is an object of the program's own classes, by its looks."""
    if isinstance(node, ast.BinOp):
        return _is_object(node.left, scope) or _is_object(node.right, scope)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and _is_object(node.operand, scope)
    if isinstance(node, ast.Name):
        return scope.objects.get(node.id) is False
    made = node.func if isinstance(node, ast.Call) else None
    return isinstance(made, ast.Name) and made.id[:1].isupper() and scope.is_of_program(made.id)


def _is_reckoned(node: ast.expr, scope: Scope) -> bool:
    """Whether operators that the program's classes define make it of their objects."""
    if not _is_object(node, scope):
        return False
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    parts += [node.operand] if isinstance(node, ast.UnaryOp) else []
    return bool(parts) and all(isinstance(p, ast.Constant) or _is_inside(p, scope) for p in parts)


def is_question(node: ast.expr, scope: Scope) -> bool:
    """Whether the program answers it as a whole."""
    if isinstance(node, ast.Subscript):
        return _is_inside(node, scope) and not _is_data_like(node.value, scope)
    if _is_inside(node, scope):
        return not isinstance(node, ast.Subscript)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    if len(node.args) != 1 or node.keywords or node.func.id in scope.given:
        return False
    of_object = node.func.id in _OF_OBJECTS and _is_object(node.args[0], scope)
    makes_plain = of_object or node.func.id in _MATERIALISERS
    return makes_plain and is_question(node.args[0], scope)


def _is_inside(node: ast.expr, scope: Scope) -> bool:
    """A chain of calls, attributes and items that begins with a name of the program.

    Or with what operators make of its objects.
    """
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        return _is_reckoned(node, scope)
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
