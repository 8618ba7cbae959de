"""The interpreter of the cells: keeps its names from one cell to the next."""

import ast
import builtins
import json
import os
import signal
import sys
from types import ModuleType
from typing import Any, NoReturn

from agentgym.tools.sandbox.inside import encode, program, wire
from agentgym.tools.sandbox.inside.child import REQUEST, RESULT


def serve() -> NoReturn:
    """Run cells until the runner is gone."""
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    sys.argv = [""]
    sys.path.insert(0, "")
    signal.signal(signal.SIGINT, _interrupt)
    number, own_pid = 0, os.getpid()
    while True:
        request = wire.receive(REQUEST)
        if request["op"] == "reap":
            _reap()
            wire.write_all(RESULT, b"{}\n")
            continue
        number += 1
        answer = _run(request, module.__dict__, f"cell {number}")
        _flush()
        if os.getpid() != own_pid:  # a fork that the cell has made ends where the cell does
            os._exit(0)
        wire.write_all(RESULT, (answer + "\n").encode())


def _run(request: "dict[str, Any]", names: "dict[str, Any]", file: str) -> str:
    """The answer to one cell, as JSON."""
    global _may_be_interrupted
    try:
        _may_be_interrupted = True
        body, last = _split(request["code"], file)
        exec(body, names)
        value = None if last is None else eval(last, names)
        _may_be_interrupted = False
        return _answer(value, last is not None, request["value_bytes"])
    except SystemExit as error:
        return f'{{"exit": {program.exit_code_of(error)}}}'
    except BaseException as error:
        _may_be_interrupted = False
        program.print_error(error)
        kinds = encode.dumps([kind.__name__ for kind in type(error).__mro__], 2**16)
        number = error.errno if isinstance(error, OSError) and error.errno else "null"
        return f'{{"exit": 1, "error": {kinds}, "errno": {number}}}'
    finally:
        _may_be_interrupted = False


def _answer(value: Any, has_value: bool, max_bytes: int) -> str:
    """A value that cannot leave is shown all the same."""
    if not has_value:
        return '{"exit": 0}'
    shown = "" if value is None else encode.show(value)
    try:
        text = encode.dumps(value, max_bytes)
    except (encode.EncodingError, RecursionError):
        text = json.dumps(encode.opaque(value))
    return f'{{"exit": 0, "value": {text}, "shown": {encode.dumps(shown, 2**20)}}}'


def _split(code: str, file: str) -> "tuple[Any, Any]":
    """The statements, and the expression at the end if there is one, compiled."""
    code = code.removeprefix("\ufeff")
    program.remember_source(code, file)
    tree = compile(code, file, "exec", ast.PyCF_ONLY_AST)  # ast.parse would be seen in tracebacks
    assert isinstance(tree, ast.Module)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = tree.body.pop()
        assert isinstance(expression, ast.Expr)
        last = compile(ast.Expression(expression.value), file, "eval")
    return compile(tree, file, "exec"), last


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue


_may_be_interrupted = False


def _interrupt(number: int, frame: Any) -> None:
    if _may_be_interrupted:
        raise KeyboardInterrupt("stopped: the cell has passed its limit of time")


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return
