"""What the names in test code stand for: something of the tests, or something of the program."""

import ast
import builtins
import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.envs.code.grading.folding import NotConstant, as_source, fold

PLAIN_METHODS = frozenset(
    name for kind in (str, bytes, list, tuple, dict, set, int, float) for name in dir(kind)
)
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler
_BOUND = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__"}


class NotRewritable(ValueError):
    """The test cannot be split into questions to the program and a judgement of the answers."""


class Statement(NamedTuple):
    """A statement before an assert."""

    node: ast.stmt
    defines: frozenset[str]
    """Names it binds, or whose objects it may change."""
    uses: frozenset[str]
    """With those that it changes rather than binds."""
    of_program: bool
    """Whether it has to run beside the program."""
    always: bool = False
    """Whether what comes later may depend on it even if no name says so."""


@dataclass(slots=True)
class Scope:
    """Names as they stand at one point of a script."""

    functions: frozenset[str]
    """Of the program, whatever else has that name."""
    constants: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    """Bound by the tests without the program."""
    blocked: set[str] = field(default_factory=set)
    """Functions and classes of the tests that use the program themselves."""
    objects: dict[str, bool] = field(default_factory=dict)
    """Made by the program; whether it is plain data, as far as one can tell."""
    shorthands: dict[str, ast.expr] = field(default_factory=dict)
    """Names of expressions over answers of the program."""
    statements: list[Statement] = field(default_factory=list)

    def copy(self) -> "Scope":
        """One that can go another way."""
        return Scope(
            functions=self.functions,
            constants=dict(self.constants),
            given=set(self.given),
            blocked=set(self.blocked),
            objects=dict(self.objects),
            shorthands=dict(self.shorthands),
            statements=list(self.statements),
        )

    def forget(self, names: Iterable[str]) -> None:
        """They are about to be bound anew.

        Raises:
            NotRewritable: a shorthand is about what one of them has been so far.
        """
        names = set(names)
        for name, expression in self.shorthands.items():
            if name not in names and not names.isdisjoint(free_names(expression)):
                raise NotRewritable(f"{name} is made of something that is bound anew")
        for name in names:
            for table in (self.constants, self.objects, self.shorthands):
                table.pop(name, None)
            self.given.discard(name)
            self.blocked.discard(name)

    def is_of_program(self, name: str) -> bool:
        if name in self.functions or name in self.objects or name in self.shorthands:
            return True
        return name not in self.given and name not in BUILTINS

    def touches_program(self, node: ast.AST) -> bool:
        """Whether anything in it is the program's."""
        return any(self.is_of_program(name) or name in self.blocked for name in free_names(node))

    def resolved(self, node: ast.expr) -> ast.expr:
        """With shorthands written out and constants as literals.

        Raises:
            NotRewritable: a function of the tests that uses the program takes part.
        """
        if any(name in self.blocked for name in free_names(node)):
            raise NotRewritable("a function of the tests calls the program")
        resolved = _Resolver(self).visit(copy.deepcopy(node))
        assert isinstance(resolved, ast.expr)
        return ast.fix_missing_locations(resolved)

    def folded(self, node: ast.expr, *, items: bool = False) -> Any:
        """The value of an expression; `items` as in `fold`.

        Raises:
            NotConstant: it has none on this side.
        """
        names = free_names(node)
        if any(self.is_of_program(name) or self._is_code(name) for name in names):
            raise NotConstant("it is not known here")
        return fold(node, self.constants, items=items)

    def _is_code(self, name: str) -> bool:
        """Bound by the tests to something that is not known here; `math` is known by name."""
        return name in self.given and name not in self.constants and name != "math"

    def slice(self, names: Iterable[str], *, of_program: bool) -> list[Statement]:
        """Statements that these names depend on, in order.

        Args:
            names: that are used.
            of_program: whether statements of the program may be among them, and those that always
                matter are.
        """
        needed, found = set(names), []
        for statement in reversed(self.statements):
            wanted = bool(statement.defines & needed) or (of_program and statement.always)
            if wanted and (of_program or not statement.of_program):
                found.append(statement)
                needed = (needed - statement.defines) | statement.uses
        return found[::-1]


class _Resolver(ast.NodeTransformer):
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.expr):
            return self.generic_visit(node)
        if isinstance(node, ast.Name) and node.id in self.scope.shorthands:
            return copy.deepcopy(self.scope.shorthands[node.id])
        if self._has_constants(node):
            try:
                value = self.scope.folded(node)
            except NotConstant:
                pass
            else:
                return ast.parse(as_source(value), mode="eval").body
        return node if isinstance(node, _BOUND) else self.generic_visit(node)

    def _has_constants(self, node: ast.AST) -> bool:
        return not self.scope.constants.keys().isdisjoint(free_names(node))


def free_names(node: ast.AST) -> set[str]:
    """Names an expression or a definition takes from around it."""
    loaded, bound = set[str](), set[str]()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            (loaded if isinstance(inner.ctx, ast.Load) else bound).add(inner.id)
        elif isinstance(inner, ast.arg):
            bound.add(inner.arg)
        elif isinstance(inner, _NAMED):
            bound.add(inner.name or "")
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in inner.names}
    return loaded - bound


def source_of(statements: Iterable[Statement]) -> str:
    """Their text."""
    return "\n".join(ast.unparse(statement.node) for statement in statements)
