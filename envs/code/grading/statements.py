"""What single statements of test code are, and how they are written anew."""

import ast
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from agentgym.envs.code.grading.collecting import Script, parse
from agentgym.envs.code.grading.names import BUILTINS, PLAIN_METHODS, Scope, free_names
from agentgym.envs.code.grading.questions import is_question
from agentgym.errors import ConfigError

_WELL_KNOWN = {"np": "numpy", "pd": "pandas"}
_HELPERS = {
    "Counter": "collections",
    "Decimal": "decimal",
    "Fraction": "fractions",
    "OrderedDict": "collections",
    "approx": "pytest",
    "deepcopy": "copy",
    "defaultdict": "collections",
    "deque": "collections",
    "isclose": "math",
    "sqrt": "math",
}
"""Functions that tests use without importing them; a program must not be asked for them."""
_AS_MODULE = (
    "type('module', (), {name: staticmethod(value) if callable(value) and not "
    "isinstance(value, type) else value for name, value in globals().items()})"
)


def unpacked(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    """Names of a target with what each is bound to."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise TypeError("not a name")
    for part, item in zip(target.elts, value, strict=True):
        yield from unpacked(part, item)


def pairs_of(targets: Sequence[ast.expr], value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Names and values of `a, b = f(1), f(2)`; nothing if it is no such assignment."""
    target = targets[0]
    if len(targets) > 1 or not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return []
    names = [each.id for each in target.elts if isinstance(each, ast.Name)]
    is_plain = len(names) == len(target.elts) == len(value.elts)
    is_apart = free_names(value).isdisjoint(names)
    return list(zip(names, value.elts, strict=True)) if is_plain and is_apart else []


def names_of_objects(script: Script) -> set[str]:
    """Names of which attributes are used that plain data lacks."""
    return {
        node.value.id
        for node in ast.walk(ast.Module(list(script), []))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr not in PLAIN_METHODS
    }


def outermost(condition: ast.expr, scope: Scope) -> list[ast.expr]:
    """Questions in a condition."""
    if is_question(condition, scope):
        return [condition]
    parts = [part for part in ast.iter_child_nodes(condition) if isinstance(part, ast.expr)]
    return [found for part in parts for found in outermost(part, scope)]


def assignment(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value, lineno=0)


def is_print(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "print"
    )


def is_import_call(value: ast.expr, scope: Scope) -> bool:
    """A call of something imported, such as `random.seed(1)`, on nothing that the tests made."""
    if not isinstance(value, ast.Call):
        return False
    return not any(name in scope.constants for name in free_names(value))


def missing_imports(script: Script, functions: frozenset[str]) -> list[ast.stmt]:
    """Of modules that the script uses by attribute and nobody imports."""
    module = ast.Module(list(script), [])
    free, called = free_names(module) - functions, set()
    bases = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bases.add(node.value.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    names = sorted((free & bases) - called)
    known = [name for name in names if name in sys.stdlib_module_names or name in _WELL_KNOWN]
    lines = [f"import {_WELL_KNOWN.get(name, name)} as {name}" for name in known]
    lines += [f"from {_HELPERS[name]} import {name}" for name in sorted(free & _HELPERS.keys())]
    return parse("\n".join(lines))


def complete(script: Script, functions: Collection[str]) -> Script:
    """The script with the imports it lacks.

    Raises:
        ConfigError: what the program defines is listed, and the script uses something else.
    """
    whole = [*missing_imports(script, frozenset(functions)), *script]
    unknown = free_names(ast.Module(whole, [])) - BUILTINS - set(functions) - {"self"}
    if functions and unknown and not any(map(_imports_all, whole)):
        raise ConfigError(
            f"a test uses {', '.join(sorted(unknown))}, which neither it nor its set-up defines, "
            f"and which is none of the program's {', '.join(functions)}"
        )
    return whole


def _imports_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def stand_in_for(node: ast.Import | ast.ImportFrom) -> ast.stmt:
    """What an import of the program comes down to where the program is."""
    pairs = [(alias.asname or alias.name, alias.name) for alias in node.names]
    if isinstance(node, ast.Import):
        pairs = [(new, _AS_MODULE) for new, _ in pairs]
    renamed = [f"{new} = {old}" for new, old in pairs if old not in (new, "*")]
    return ast.Module(parse("\n".join(renamed)), [])  # type: ignore[return-value]


def can_fail(function: ast.FunctionDef) -> bool:
    """Whether it asserts something or raises."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    asserts = any("assert" in ast.unparse(call.func) for call in calls)
    return asserts or any(isinstance(n, ast.Assert | ast.Raise) for n in ast.walk(function))
