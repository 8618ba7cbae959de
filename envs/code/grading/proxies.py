"""Runs test code that cannot be rewritten, in a sandbox that does not hold the program.

There the functions under test are stand-ins. The code runs until one of them is called with
arguments that nobody has answered yet; then it stops and names the call, the program answers it in
a sandbox of its own, and the code is run again from the start with one answer more. So the program
sees its inputs and nothing else. It is marked as partial: the code may do with an answer what it
likes, such as `eval`.
"""

import ast
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.envs.code.grading.collecting import Script, scripts_of, statements_of
from agentgym.envs.code.grading.compare import is_plain
from agentgym.envs.code.grading.folding import as_source
from agentgym.envs.code.grading.judging import Verdict, check_imports, last_line, of_code
from agentgym.envs.code.grading.names import BUILTINS, free_names
from agentgym.envs.code.grading.replay import HARNESS
from agentgym.envs.code.grading.shims import prelude_of
from agentgym.envs.code.grading.statements import complete
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import Call, ExecResult, Expression, Outcome, Sandbox
from agentgym.tools.sandbox.limits import Limits

MAX_CALLS = 256
"""Of the program, by one test."""
_OWN_MODULES = ("solution", "main", "submission", "program", "candidate")


class Proxied(NamedTuple):
    """A script of a test, made ready to run without the program."""

    program: str
    run: str
    """The function of it that takes the answers so far and plays on."""
    imports: str
    """Statements that bring the functions' names to the program's side."""


class Session(NamedTuple):
    """Where a test is played."""

    solution: Sandbox
    program: str
    judge: Sandbox
    limits: Limits | None


def prepare(test: AssertTest, *, modules: Sequence[str] = ()) -> list[Proxied]:
    """The scripts of a test.

    Raises:
        ConfigError: it uses the program in a way that stand-ins cannot serve.
    """
    scripts = scripts_of(statements_of(test), test.functions)
    return [_proxied(script, test.functions, modules) for script in scripts]


def _proxied(script: Script, functions: Sequence[str], modules: Sequence[str]) -> Proxied:
    script = complete(script, functions)
    imports = [found for found in script if _module_of(found) in {*_OWN_MODULES, *modules}]
    module = ast.Module([statement for statement in script if statement not in imports], [])
    imported = {a.asname or a.name for found in imports for a in _aliases(found)}
    free = free_names(module) - BUILTINS
    free &= {"self"} if functions else free
    names = sorted(free | set(functions) | imported)
    _check_uses(module, names)
    counted = ast.unparse(ast.fix_missing_locations(_Counter().visit(module)))
    token = f"_{secrets.token_hex(8)}"
    program = HARNESS.replace("_TOKEN", token)
    program += f"\n{token}_source = {counted!r}\n{token}_names = {names!r}\n"
    beside = "\n".join(_beside(found, modules) for found in imports)
    return Proxied(prelude_of(counted) + program, f"{token}_run", beside)


def _module_of(statement: ast.stmt) -> str:
    """The module that names are imported from; empty if it imports none."""
    return (statement.module or "").split(".")[0] if isinstance(statement, ast.ImportFrom) else ""


def _aliases(statement: ast.stmt) -> list[ast.alias]:
    found = statement.names if isinstance(statement, ast.ImportFrom) else []
    return [alias for alias in found if alias.name != "*"]


def _beside(statement: ast.stmt, modules: Sequence[str]) -> str:
    """An import as it is done where the program is."""
    if _module_of(statement) in modules:
        return ast.unparse(statement)
    pairs = [(alias.asname or alias.name, alias.name) for alias in _aliases(statement)]
    return "\n".join(f"{new} = {old}" for new, old in pairs if new != old)


def _check_uses(module: ast.Module, names: Sequence[str]) -> None:
    if not names:
        raise ConfigError("a test calls nothing of the program")
    made = _objects_of(module, names)
    for node in ast.walk(module):
        name = _used_as_object(node)
        if name in made or (name in names and name != "self"):
            raise ConfigError(
                f"a test uses an attribute of {name}, and has to be kept apart from the program "
                "because it cannot be rewritten; then only functions can be tested"
            )


def _objects_of(module: ast.Module, names: Sequence[str]) -> set[str]:
    """Variables that hold what a class of the program makes."""
    return {
        target.id
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in names
        and node.value.func.id[:1].isupper()
    }


def _used_as_object(node: ast.AST) -> str | None:
    """The name of which, or of whose instance, an attribute is used."""
    if not isinstance(node, ast.Attribute):
        return None
    base = node.value
    if isinstance(base, ast.Call) and isinstance(base.func, ast.Name):
        return base.func.id if base.func.id[:1].isupper() else None
    return base.id if isinstance(base, ast.Name) else None


class _Counter(ast.NodeTransformer):
    """Counts asserts that are reached, so that a test which checks nothing never passes."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if isinstance(node.test, ast.Constant):
            return node
        node.test = ast.Call(ast.Name("_counted_", ast.Load()), [node.test], [])
        return node


async def play(proxied: Proxied, session: Session) -> Verdict:
    """Whether the test passes.

    Raises:
        ConfigError: the test cannot be served, whatever the program does.
        SandboxError: the infrastructure failed.
    """
    game = _Game(proxied, session)
    while True:
        case = Call(function=proxied.run, args=[game.asked, game.answers])
        results = await session.judge.run_tests(proxied.program, [case], limits=session.limits)
        ended = _ending(of_code(results[0]), len(game.answers)) if results else _NO_RESULT
        verdict = ended if isinstance(ended, Verdict) else await game.ask(ended)
        if verdict is not None:
            return verdict


_NO_RESULT = Verdict(False, "there is no result", Outcome.ERROR)


def _ending(result: ExecResult, num_answers: int) -> Verdict | list[Any]:
    """How the code ended, or the call that it needs answered."""
    said = result.value if result.ok and result.has_value and is_plain(result.value) else None
    if type(said) is not list or not said:
        if num_answers == 0:
            check_imports(result)
        return Verdict(False, f"the test ended with {result.outcome}: {last_line(result)}")
    match said:
        case ["call", str(), list(), dict()]:
            return said[1:]
        case ["foreign", str(name)] if num_answers == 0:
            raise ConfigError(f"a test calls {name} with an argument that is no plain data")
        case ["other"]:
            raise ConfigError("a test does not call the program the same way when it is run again")
        case ["missing", str(name)] if num_answers == 0:
            raise ConfigError(f"tests cannot run in the sandbox: {name}; add it to `packages`")
        case ["passed", int(count)]:
            return _passed(count, num_answers)
    return Verdict(False, f"the test failed: {' '.join(map(str, said[1:]))[:200]}")


def _passed(count: int, num_answers: int) -> Verdict:
    if num_answers == 0:
        raise ConfigError("a test passes without calling the program")
    return Verdict(count > 0, "" if count else "the test reached no assert")


@dataclass(slots=True)
class _Game:
    """One play: the calls so far, and what the program has used up in them.

    Whatever ends it here is a verdict, since a program chooses its answers and by them how the test
    goes on.
    """

    proxied: Proxied
    session: Session
    asked: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    async def ask(self, call: list[Any]) -> Verdict | None:
        """Have the program answer a call; `None` if it did.

        An answer is [kind, value or class names, message, arguments afterwards].
        """
        name, args, kwargs = call
        if len(self.answers) >= MAX_CALLS:
            return Verdict(False, f"the test calls the program more than {MAX_CALLS} times")
        result = await self._run(name, args, kwargs)
        if result is None:
            return _NO_RESULT
        if not (result.ok and result.has_value):
            reason = f"{name} ended with {result.outcome}: {last_line(result)}"
            return Verdict(False, reason, result.outcome)
        value = result.value
        if not (is_plain(value, depth=80) and type(value) is list and len(value) == 5):
            return Verdict(False, f"{name} gave something that is no plain data")
        self.asked.append(call)
        self.answers.append(value)
        return self._out_of_time(result)

    async def _run(self, name: str, args: Any, kwargs: Any) -> ExecResult | None:
        guard, session = f"_{secrets.token_hex(8)}", self.session
        source = f"{guard}({name}, {as_source(args)}, {as_source(kwargs)})"
        setup = f"{self.proxied.imports}\n{_GUARD.replace('_GUARD', guard)}"
        case = Expression(source=source, setup=setup)
        results = await session.solution.run_tests(session.program, [case], limits=session.limits)
        return of_code(results[0]) if results else None

    def _out_of_time(self, result: ExecResult) -> Verdict | None:
        """All calls of a test together have the time of one run."""
        limits = self.session.limits or Limits()
        self.cpu_s += result.cpu_s
        self.wall_s += result.wall_s
        if self.cpu_s <= limits.tree_cpu_limit_s and self.wall_s <= limits.wall_limit_s:
            return None
        return Verdict(False, "the calls of a test ran out of time", Outcome.CPU_LIMIT)


_GUARD = """
def _GUARD(function, args, kwargs):
    try:
        value = function(*args, **kwargs)
        kind = "value"
        if hasattr(type(value), "__next__"):
            import itertools
            value, kind = list(itertools.islice(value, 100000)), "iterator"
    except Exception as error:
        names = [each.__name__ for each in type(error).__mro__]
        return ["raised", names, str(error)[:2000], list(args), kwargs]
    return [kind, value, "", list(args), kwargs]
"""
