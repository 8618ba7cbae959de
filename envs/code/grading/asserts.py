"""Rewrites test code into checks: what to ask the program, and what is to hold of its answers.

What is expected never gets near the program: a solution that reads every frame, file and byte of
its process finds its inputs there and nothing else. Statements are followed in order, loops over
constants unrolled, `check(candidate)` inlined. Whatever this cannot follow raises `NotRewritable`,
and is left to `proxies`.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.envs.code.grading.collecting import (
    Script,
    scripts_of,
    statements_of,
)
from agentgym.envs.code.grading.folding import NotConstant, as_source
from agentgym.envs.code.grading.inlining import bound_call
from agentgym.envs.code.grading.names import (
    BUILTINS,
    NotRewritable,
    Scope,
    Statement,
    free_names,
)
from agentgym.envs.code.grading.questions import (
    Check,
    checked,
    is_question,
    looks_like_data,
    split,
)
from agentgym.envs.code.grading.raising import Raising, raising_of
from agentgym.envs.code.grading.statements import (
    assignment,
    can_fail,
    complete,
    is_import_call,
    is_print,
    names_of_objects,
    outermost,
    pairs_of,
    stand_in_for,
    unpacked,
)
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError

MAX_CHECKS = 2000
_MAX_INLINED = 8
_RESERVED = re.compile(r"\b_v[0-9]")
_OWN_MODULES = frozenset(
    {"solution", "main", "submission", "program", "candidate", "your_module", "answer"}
)


def rewrite(test: AssertTest, *, modules: Sequence[str] = ()) -> list[Check]:
    """The checks of a test, at least one.

    Args:
        test: test code.
        modules: importable modules that are the program's, beside `solution` and the like.

    Raises:
        NotRewritable: it does something that cannot be followed.
        ConfigError: it is no Python, or checks nothing.
    """
    body = statements_of(test)
    if _RESERVED.search(test.setup + test.source):
        raise NotRewritable("the tests use names that stand for answers")
    checks = [
        check
        for script in scripts_of(body, test.functions)
        for check in _Walk(test.functions, modules).checks(script)
    ]
    if not checks:
        raise ConfigError(f"a test checks nothing of the program: {test.source[:80]!r}")
    return checks


class _Walk:
    """Follows one script."""

    def __init__(self, functions: Sequence[str], modules: Sequence[str]) -> None:
        self.scope = Scope(frozenset(functions))
        self._modules = _OWN_MODULES.union(modules)
        self._given_modules = frozenset(modules)
        self._checks: list[Check] = []
        self._functions: dict[str, ast.FunctionDef] = {}
        self._depth = 0
        self._asked: dict[tuple[str, ...], tuple[str, ast.expr]] = {}
        self._object_names: set[str] = set()

    def checks(self, script: Script) -> list[Check]:
        """Those of the script, in order."""
        self._object_names = names_of_objects(script)
        self._run(complete(script, self.scope.functions))
        return self._checks

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            raising = raising_of(statement)
            if raising is not None:
                self._raises(raising)
                continue
            handler = _HANDLERS.get(type(statement))
            if handler is None:
                raise NotRewritable(f"a {type(statement).__name__} is not followed")
            handler(self, statement)

    def _add(self, check: Check) -> None:
        self._checks.append(check)
        if len(self._checks) > MAX_CHECKS:
            raise NotRewritable(f"more than {MAX_CHECKS} checks")

    def _assert(self, node: ast.Assert) -> None:
        scope = self.scope
        resolved = scope.resolved(node.test)
        if not scope.touches_program(resolved):
            self._assert_constant(resolved)
            return
        check = split(node.test, scope)
        if scope.objects.keys().isdisjoint(free_names(resolved)):
            before = self._asked.setdefault(check.questions, (check.judgement, resolved))
            if before[0] != check.judgement:
                self._keep_order()
                check = split(node.test, scope)
        self._add(check)
        self._note_use(resolved)

    def _keep_order(self) -> None:
        """Something was asked before and is now to be answered otherwise: the program counts."""
        for _, condition in self._asked.values():
            for call in outermost(condition, self.scope):
                uses = frozenset(free_names(call))
                noted = Statement(ast.Expr(call), frozenset(), uses, of_program=True, always=True)
                self.scope.statements.append(noted)

    def _assert_constant(self, test: ast.expr) -> None:
        try:
            holds = bool(self.scope.folded(test))
        except NotConstant:
            raise NotRewritable("an assert is about the tests' own objects") from None
        if not holds:
            raise NotRewritable("an assert is never true")

    def _note_use(self, condition: ast.expr) -> None:
        """Later asserts on the same object come after what this one did to it."""
        used = frozenset(name for name in free_names(condition) if name in self.scope.objects)
        if used and any(isinstance(node, ast.Call) for node in ast.walk(condition)):
            for call in outermost(condition, self.scope):
                uses = frozenset(free_names(call))
                statement = ast.Expr(call)
                self.scope.statements.append(Statement(statement, used, uses, of_program=True))

    def _raises(self, raising: Raising) -> None:
        scope = self.scope
        self._run(raising.before)
        question = scope.resolved(raising.question)
        if not (scope.touches_program(question) and is_question(question, scope)):
            raise NotRewritable("what should raise is no call of the program")
        self._add(checked([question], scope.resolved(raising.judgement), scope, raises=True))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [(alias.asname or alias.name.split(".")[0]) for alias in node.names]
        if (
            isinstance(node, ast.ImportFrom)
            and "*" in names
            and (node.module or "").split(".")[0] not in self._modules
        ):
            raise NotRewritable("everything of a module is imported")
        self.scope.forget(names)
        first = {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            first = {(node.module or "").split(".")[0]}
        if not first & self._modules:
            if "*" in names:
                raise NotRewritable("everything of a module is imported")
            if first != {"__future__"}:
                self.scope.given |= set(names)
                self._note(node, names, of_program=False)
            return
        self._import_program(node, first <= self._given_modules)

    def _import_program(self, node: ast.Import | ast.ImportFrom, is_file: bool) -> None:
        """A module of the workspace is imported; a name for the program itself stands for it."""
        statement: ast.stmt = node
        names = [alias.asname or alias.name for alias in node.names]
        if not is_file:
            statement = stand_in_for(node)
        for name in names:
            self.scope.objects[name] = False
        self._note(statement, names, of_program=True)

    def _definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.scope.forget([node.name])
        if isinstance(node, ast.FunctionDef):
            self._functions[node.name] = node
        uses = free_names(node) - {node.name}
        self.scope.given.add(node.name)
        if any(self.scope.is_of_program(n) or n in self.scope.blocked for n in uses):
            self.scope.blocked.add(node.name)
            return
        self._note(node, [node.name], of_program=False)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = self.scope.resolved(node.value)
        pairs = pairs_of(targets, value)
        if not pairs and not all(isinstance(target, ast.Name) for target in targets):
            self._assign_parts(targets, value)
            return
        names = [(target.id, value) for target in targets if isinstance(target, ast.Name)]
        for name, part in pairs or names:
            self._bind(name, part)

    def _assign_parts(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """Unpacked values, items and attributes."""
        touches = any(map(self.scope.touches_program, [value, *targets]))
        if touches:
            self._assign_beside(targets, value)
            return
        try:
            bound = [pair for t in targets for pair in unpacked(t, self.scope.folded(value))]
        except (NotConstant, TypeError, ValueError):
            raise NotRewritable("part of an object is assigned") from None
        for name, item in bound:
            self._bind_constant(name, item)

    def _assign_beside(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """On the program's side, where only its own answers may be bound."""
        if self.scope.touches_program(value) and not is_question(value, self.scope):
            raise NotRewritable("part of what the program gives is assigned")
        stored = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        fresh = {n for n in stored if not self.scope.is_of_program(n) or n not in BUILTINS}
        uses = free_names(value) | {n for t in targets for n in free_names(t)}
        for target in targets:
            if isinstance(target, ast.Tuple | ast.List):
                self.scope.forget(fresh)
                self.scope.objects.update(dict.fromkeys(fresh, True))
        node = ast.Assign(targets=list(targets), value=value, lineno=0)
        statement = Statement(node, frozenset(stored), frozenset(uses), of_program=True)
        self.scope.statements.append(statement)

    def _bind(self, name: str, value: ast.expr) -> None:
        scope = self.scope
        if not scope.touches_program(value):
            self._bind_given(name, value)
            return
        if not is_question(value, scope):
            if name in free_names(value):
                raise NotRewritable(f"{name} is made from itself and an answer of the program")
            scope.forget([name])
            scope.shorthands[name] = value
            return
        is_data = looks_like_data(value, scope) and name not in self._object_names
        uses = free_names(value)
        scope.forget([name])
        scope.objects[name] = is_data
        self._note(assignment(name, value), [name], of_program=True, uses=uses)

    def _bind_given(self, name: str, value: ast.expr) -> None:
        try:
            constant = self.scope.folded(value)
        except NotConstant:
            uses = free_names(value)
            self.scope.forget([name])
            self.scope.given.add(name)
            self._note(assignment(name, value), [name], of_program=False, uses=uses)
        else:
            self._bind_constant(name, constant)

    def _bind_constant(self, name: str, value: Any) -> None:
        self.scope.forget([name])
        self.scope.given.add(name)
        self.scope.constants[name] = value
        literal = ast.parse(as_source(value), mode="eval").body
        self._note(assignment(name, literal), [name], of_program=False)

    def _note(
        self,
        node: ast.stmt,
        names: Sequence[str],
        *,
        of_program: bool,
        uses: set[str] | None = None,
        always: bool = False,
    ) -> None:
        used = frozenset(free_names(node) if uses is None else uses)
        statement = Statement(node, frozenset(names), used, of_program, always)
        self.scope.statements.append(statement)

    def _expression(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant) or is_print(value):
            return
        if self._inline(value):
            return
        resolved_names = free_names(value)
        if any(name in self.scope.blocked for name in resolved_names):
            raise NotRewritable("a function of the tests calls the program")
        beside = self.scope.touches_program(value)
        changed = [name for name in resolved_names if name not in BUILTINS]
        if not beside and not is_import_call(value, self.scope):
            raise NotRewritable("the tests change an object of their own")
        if not beside:
            self._note(node, changed, of_program=False)
            return
        self._call_beside(node, changed)

    def _call_beside(self, node: ast.Expr, changed: Sequence[str]) -> None:
        """A call for its effect: whatever it is given may be another thing afterwards."""
        if not is_question(node.value, self.scope):
            raise NotRewritable("an answer of the program is used up")
        touched = [name for name in changed if name in self.scope.constants]
        mutable = [n for n in touched if isinstance(self.scope.constants[n], list | dict | set)]
        for name in mutable:
            value = self.scope.constants[name]
            self.scope.forget([name])
            self.scope.objects[name] = True
            literal = ast.parse(as_source(value), mode="eval").body
            self._note(assignment(name, literal), [name], of_program=True)
        self._note(node, changed, of_program=True, always=True)

    def _inline(self, value: ast.expr) -> bool:
        """Run a function of the tests here, if that is what is called."""
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
            return False
        function = self._functions.get(value.func.id)
        if function is None or value.func.id not in self.scope.given:
            return False
        if self._depth >= _MAX_INLINED:
            raise NotRewritable("functions of the tests call each other too deep")
        scope, num_checks = self.scope.copy(), len(self._checks)
        self._depth += 1
        try:
            self._run(bound_call(function, value))
        except NotRewritable:
            self.scope = scope
            del self._checks[num_checks:]
            self._judge_by(function, value)
        finally:
            self._depth -= 1
        return True

    def _judge_by(self, function: ast.FunctionDef, call: ast.Call) -> None:
        """A function of the tests that is given answers and fails if they are wrong."""
        if function.name in self.scope.blocked or not can_fail(function):
            raise NotRewritable("a function of the tests is not followed")
        if any(isinstance(a, ast.Name) and self.scope.is_of_program(a.id) for a in call.args):
            raise NotRewritable("a function of the tests calls the program")
        passed = ast.Tuple([call, ast.Constant(True)], ast.Load())
        held = ast.Subscript(passed, ast.UnaryOp(ast.USub(), ast.Constant(1)), ast.Load())
        self._add(split(held, self.scope))

    def _loop(self, node: ast.For) -> None:
        if node.orelse or self.scope.touches_program(node.iter):
            raise NotRewritable("a loop depends on the program")
        try:
            values = self.scope.folded(node.iter, items=True)
            rounds = [list(unpacked(node.target, value)) for value in values]
        except (NotConstant, TypeError, ValueError):
            raise NotRewritable("a loop over something that is no constant") from None
        for bound in rounds:
            for name, value in bound:
                self._bind_constant(name, value)
            self._run(node.body)

    def _branch(self, node: ast.If) -> None:
        test = node.test
        if "__name__" in free_names(test):
            self._run(node.body)
            return
        try:
            holds = self.scope.folded(self.scope.resolved(test))
        except NotConstant:
            raise NotRewritable("a branch depends on something that is no constant") from None
        self._run(node.body if holds else node.orelse)


_HANDLERS: dict[type[ast.stmt], Callable[[_Walk, Any], None]] = {
    ast.AnnAssign: _Walk._assign,
    ast.Assert: _Walk._assert,
    ast.Assign: _Walk._assign,
    ast.ClassDef: _Walk._definition,
    ast.Expr: _Walk._expression,
    ast.For: _Walk._loop,
    ast.FunctionDef: _Walk._definition,
    ast.If: _Walk._branch,
    ast.Import: _Walk._import,
    ast.ImportFrom: _Walk._import,
    ast.Pass: lambda _walk, _node: None,
}
