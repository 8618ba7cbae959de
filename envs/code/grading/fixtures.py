"""Fixtures of pytest as what they do: statements before the test that asks for them.

Only those that the tests define themselves. A test that asks for another one is refused, since no
program could pass it here.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentgym.errors import ConfigError

Fixtures = Mapping[str, ast.FunctionDef]
_ENDS = (ast.Return, ast.Yield, ast.YieldFrom)
_SKIPS = ("skip", "xfail", "expectedFailure")


def fixtures_of(statements: Iterable[ast.stmt]) -> dict[str, ast.FunctionDef]:
    """The fixtures among statements, by name."""
    functions = (each for each in statements if isinstance(each, ast.FunctionDef))
    return {each.name: each for each in functions if is_fixture(each)}


def is_fixture(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    return any(_name_of(each).endswith("fixture") for each in statement.decorator_list)


def is_skipped(function: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether nothing is claimed of what it tests."""
    return any(_name_of(each).endswith(_SKIPS) for each in function.decorator_list)


def _name_of(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def set_up(function: ast.FunctionDef, fixtures: Fixtures, given: Sequence[str]) -> list[ast.stmt]:
    """What the fixtures do that a test asks for, in order.

    Args:
        function: the test.
        fixtures: of its file and class, by name.
        given: names of its parameters that come from elsewhere.

    Raises:
        ConfigError: one is not there, or does more than to make a value.
    """
    done: list[str] = []
    known = {*given, "self", "cls"}
    before = [
        each
        for fixture in fixtures.values()
        if _is_for_all(fixture)
        for each in _with(fixture.name, fixtures, known, done)
    ]
    return [*before, *_set_up(function, fixtures, known, done)]


def _is_for_all(fixture: ast.FunctionDef) -> bool:
    return any("autouse=True" in ast.unparse(each) for each in fixture.decorator_list)


def _with(name: str, fixtures: Fixtures, given: set[str], done: list[str]) -> Iterator[ast.stmt]:
    """A fixture, after those that it asks for itself; nothing if it is there already."""
    if name in given or name in done:
        return
    if name not in fixtures:
        raise ConfigError(f"a test asks for {name!r}, a fixture that the tests do not define")
    done.append(name)
    yield from _set_up(fixtures[name], fixtures, given, done)
    yield from _made(fixtures[name])


def _set_up(
    function: ast.FunctionDef, fixtures: Fixtures, given: set[str], done: list[str]
) -> Iterator[ast.stmt]:
    required = function.args.args[: len(function.args.args) - len(function.args.defaults)]
    for argument in required:
        yield from _with(argument.arg, fixtures, given, done)


def _made(fixture: ast.FunctionDef) -> list[ast.stmt]:
    """Its body, that binds its name to what it returns."""
    body = [copy.deepcopy(statement) for statement in fixture.body]
    ends = [index for index, each in enumerate(body) if _value_of(each) is not None]
    index = ends[0] if ends else len(body)
    if any(isinstance(n, _ENDS) for each in body[:index] for n in ast.walk(each)):
        raise ConfigError(f"fixture {fixture.name!r} does more than to make a value")
    value = _value_of(body[index]) if ends else None
    value = value or ast.Constant(None)
    target = ast.Name(fixture.name, ast.Store())
    body[index:] = [ast.Assign(targets=[target], value=value, lineno=fixture.lineno)]
    stored = {
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    names = {name: f"_{fixture.name}_{name}" for name in stored - {fixture.name}}
    if isinstance(value, ast.Name) and value.id in names:
        names[value.id] = fixture.name
        body.pop()
    return [ast.fix_missing_locations(_Renamer(names).visit(statement)) for statement in body]


def _value_of(statement: ast.stmt) -> ast.expr | None:
    """What a statement hands to the test; `None` if it hands out nothing."""
    if isinstance(statement, ast.Return):
        return statement.value or ast.Constant(None)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
        return statement.value.value or ast.Constant(None)
    return None


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node
