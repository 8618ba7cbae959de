"""Test code in its usual dresses, as plain scripts of statements.

`check(candidate)`, functions of pytest and methods of `unittest.TestCase` become what they would
do: every test a script of its own, calls of `self.assertEqual` and its kin asserts.
"""

import ast
import copy
from collections.abc import Iterator, Sequence

from agentgym.envs.code.grading.fixtures import (
    Fixtures,
    fixtures_of,
    is_fixture,
    is_skipped,
    set_up,
)
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Script = list[ast.stmt]
_BINARY = {
    "assertEqual": "({0}) == ({1})",
    "assertEquals": "({0}) == ({1})",
    "assertListEqual": "({0}) == ({1})",
    "assertTupleEqual": "({0}) == ({1})",
    "assertDictEqual": "({0}) == ({1})",
    "assertSetEqual": "({0}) == ({1})",
    "assertSequenceEqual": "list({0}) == list({1})",
    "assertMultiLineEqual": "({0}) == ({1})",
    "assertNotEqual": "({0}) != ({1})",
    "assertIs": "({0}) is ({1})",
    "assertIsNot": "({0}) is not ({1})",
    "assertIn": "({0}) in ({1})",
    "assertNotIn": "({0}) not in ({1})",
    "assertGreater": "({0}) > ({1})",
    "assertGreaterEqual": "({0}) >= ({1})",
    "assertLess": "({0}) < ({1})",
    "assertLessEqual": "({0}) <= ({1})",
    "assertIsInstance": "isinstance({0}, {1})",
    "assertNotIsInstance": "not isinstance({0}, {1})",
    "assertCountEqual": "sorted({0}, key=repr) == sorted({1}, key=repr)",
}
_UNARY = {
    "assertTrue": "({0})",
    "assertFalse": "not ({0})",
    "assertIsNone": "({0}) is None",
    "assertIsNotNone": "({0}) is not None",
}


def parse(source: str, what: str = "test code") -> list[ast.stmt]:
    """Statements of a source.

    Raises:
        ConfigError: it is no Python.
    """
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the {what} is no Python: {error}; begins {source[:60]!r}") from error


def statements_of(test: AssertTest) -> list[ast.stmt]:
    """Set-up and tests, without what they say of the program's own functions.

    Raises:
        ConfigError: it is no Python, or an assert of it holds whatever the program does.
    """
    body = [*parse(test.setup, "set-up of a test"), *parse(test.source)]
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            raise ConfigError(f"an assert on a tuple always holds: {ast.unparse(node)[:80]!r}")
    return [
        statement
        for statement in body
        if not (isinstance(statement, _DEFINITIONS) and statement.name in test.functions)
    ]


def scripts_of(body: Sequence[ast.stmt], functions: Sequence[str]) -> list[Script]:
    """One script per test; everything that is no test comes before each.

    Args:
        body: statements of set-up and tests.
        functions: names the program defines; `check` is called with the first.
    """
    called = {name for stmt in body for name in _called(stmt)}
    fixtures = fixtures_of(body)
    found = [stmt for stmt in body if _is_test(stmt, called)]
    common = [
        stmt
        for stmt in body
        if stmt not in found and not is_fixture(stmt) and not _starts_tests(stmt)
    ]
    tests = [script for stmt in found for script in _scripts(stmt, fixtures)]
    if tests:
        return [[*common, *script] for script in tests]
    if "check" not in called and _defines(body, "check") and functions:
        common = [*common, *parse(f"check({functions[0]})")]
    return [common]


def _called(stmt: ast.stmt) -> Iterator[str]:
    """Functions that a statement at the top calls."""
    if isinstance(stmt, _DEFINITIONS):
        return
    for node in ast.walk(stmt):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _defines(body: Sequence[ast.stmt], name: str) -> bool:
    return any(isinstance(stmt, ast.FunctionDef) and stmt.name == name for stmt in body)


def _is_test(stmt: ast.stmt, called: set[str]) -> bool:
    if isinstance(stmt, ast.FunctionDef):
        return stmt.name.startswith("test") and stmt.name not in called
    return isinstance(stmt, ast.ClassDef) and bool(_test_methods(stmt))


def _test_methods(stmt: ast.ClassDef) -> list[ast.FunctionDef]:
    is_test_case = stmt.name.startswith("Test") or any(
        ast.unparse(base).endswith("TestCase") for base in stmt.bases
    )
    methods = [item for item in stmt.body if isinstance(item, ast.FunctionDef)]
    return [item for item in methods if is_test_case and item.name.startswith("test")]


def _starts_tests(stmt: ast.stmt) -> bool:
    """`if __name__ == "__main__": unittest.main()`, with or without its condition."""
    text = ast.unparse(stmt)
    runs = any(call in text for call in ("unittest.main(", "pytest.main("))
    return runs and isinstance(stmt, ast.If | ast.Expr)


def _scripts(stmt: ast.stmt, fixtures: Fixtures) -> Iterator[Script]:
    assert isinstance(stmt, ast.FunctionDef | ast.ClassDef)
    if is_skipped(stmt):
        return
    if isinstance(stmt, ast.FunctionDef):
        yield _parametrized(stmt, fixtures)
        return
    fixtures = {**fixtures, **fixtures_of(stmt.body)}
    before = [
        inner
        for item in stmt.body
        for inner in (_in_setup(item) if isinstance(item, ast.FunctionDef) else [item])
    ]
    for method in _test_methods(stmt):
        if not is_skipped(method):
            yield [_unbound(item) for item in [*before, *_parametrized(method, fixtures)]]


def _in_setup(method: ast.FunctionDef) -> list[ast.stmt]:
    return method.body if method.name in ("setUp", "setUpClass", "setup_method") else []


def _parametrized(function: ast.FunctionDef, fixtures: Fixtures) -> Script:
    """Its fixtures and its body, within a loop for every `pytest.mark.parametrize`."""
    decorators = [
        each
        for each in reversed(function.decorator_list)
        if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("parametrize")
    ]
    given = [name for each in decorators for name in _parameters(each)]
    body: Script = [*set_up(function, fixtures, given), *function.body]
    for decorator in decorators:
        body = [_loop(decorator, body)]
    return body


def _parameters(decorator: ast.Call) -> list[str]:
    names = ast.literal_eval(decorator.args[0])
    return [n.strip() for n in names.split(",") if n.strip()] if isinstance(names, str) else names


def _loop(decorator: ast.Call, body: Script) -> ast.stmt:
    loop = parse(f"for {', '.join(_parameters(decorator))} in _:\n    pass")[0]
    assert isinstance(loop, ast.For)
    loop.iter, loop.body = decorator.args[1], body
    if isinstance(loop.iter, ast.List | ast.Tuple):
        rows = [_row(each) for each in loop.iter.elts]
        loop.iter = ast.List([row for row in rows if row is not None], ast.Load())
    return loop


def _row(value: ast.expr) -> ast.expr | None:
    """One round of a parametrised test; `None` if nothing is claimed of it."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith("param")):
        return value
    if any(mark in ast.unparse(each) for each in value.keywords for mark in ("skip", "xfail")):
        return None
    return value.args[0] if len(value.args) == 1 else ast.Tuple(value.args, ast.Load())


def _unbound(stmt: ast.stmt) -> ast.stmt:
    """A statement of a method as one of a script."""
    changed = ast.fix_missing_locations(_Unbinder().visit(copy.deepcopy(stmt)))
    assert isinstance(changed, ast.stmt)
    return changed


class _Unbinder(ast.NodeTransformer):
    """Makes asserts of assertions, and names of attributes of `self`."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and _is_of_self(call.func):
            text = _assertion(call)
            if text is not None:
                return self.visit(parse(f"assert {text}")[0])  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if _is_of_self(node) and not node.attr.startswith("assert"):
            return ast.Name(id=f"self_{node.attr}", ctx=node.ctx)
        return self.generic_visit(node)


def _is_of_self(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def _assertion(call: ast.Call) -> str | None:
    """The condition of an assertion of unittest; `None` if it is another one."""
    assert isinstance(call.func, ast.Attribute)
    name, args = call.func.attr, [ast.unparse(arg) for arg in call.args]
    if name in _BINARY and len(args) >= 2:
        return _BINARY[name].format(*args)
    if name in _UNARY and args:
        return _UNARY[name].format(*args)
    if name in ("assertAlmostEqual", "assertAlmostEquals") and len(args) >= 2:
        return _almost_equal(call, args)
    return "False" if name == "fail" else None


def _almost_equal(call: ast.Call, args: list[str]) -> str:
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if "delta" in options:
        return f"abs(({args[0]}) - ({args[1]})) <= {options['delta']}"
    places = args[2] if len(args) > 2 else options.get("places", "7")
    return f"round(abs(({args[0]}) - ({args[1]})), {places}) == 0"
