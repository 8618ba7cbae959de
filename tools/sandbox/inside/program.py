"""Runs a program in a child: as a script, or loaded so that one of its functions can be called.

What the program is asked for leaves by one JSON text on a pipe of its own; the program can write
there too, which gives it nothing: it may return any value it likes.
"""

import atexit
import gc
import json
import linecache
import os
import sys
import threading
import traceback
from types import ModuleType
from typing import Any, NoReturn

from agentgym.tools.sandbox.inside import encode, wire
from agentgym.tools.sandbox.inside.child import RESULT

_OWN_FILES = "<agentgym sandbox>"
_FILE = "main.py"
_MAIN, _SOLUTION = "__main__", "solution"
_LONG = 64


def run_script(program: str) -> NoReturn:
    """Run it as `__main__`, as `python main.py` does, and end."""
    sys.argv = [_FILE]
    sys.path.insert(0, os.getcwd())
    end(_guarded(lambda: load(program, _MAIN)))


def run_call(program: str, name: str, args: Any, kwargs: Any, max_bytes: int) -> NoReturn:
    """Load it, call a function of it, report what that returns, and end."""
    sys.path.insert(0, os.getcwd())

    def call() -> None:
        module = load(program, _SOLUTION)
        report_value(_find(module, name)(*args, **kwargs), max_bytes)

    end(_guarded(call))


def run_expression(program: str, case: "dict[str, Any]", max_bytes: int) -> NoReturn:
    """Load it, evaluate an expression beside it, report the value, and end."""
    sys.path.insert(0, os.getcwd())

    def evaluate() -> None:
        names = load(program, _SOLUTION).__dict__
        exec(compile(case["setup"], "setup.py", "exec"), names)
        report_value(eval(compile(case["source"], "expression.py", "eval"), names), max_bytes)

    end(_guarded(evaluate))


def load(program: str, name: str) -> ModuleType:
    """A module made from the program's text."""
    program = program.removeprefix("\ufeff")
    module = ModuleType(name)
    module.__dict__["__file__"] = _FILE
    sys.modules[name] = module
    remember_source(program, _FILE)
    exec(compile(program, _FILE, "exec"), module.__dict__)
    return module


def remember_source(source: str, file: str) -> None:
    """So that tracebacks show its lines."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)


def report_value(value: Any, max_bytes: int) -> None:
    """Hand a value to the host."""
    wire.write_all(RESULT, f'{{"value": {encode.dumps(value, max_bytes)}}}\n'.encode())


def report_error(error: BaseException) -> None:
    """Hand the class of an exception to the host."""
    number = error.errno if isinstance(error, OSError) else None
    kinds = [kind.__name__ for kind in type(error).__mro__]
    text = json.dumps({"error": kinds, "errno": number})
    wire.write_all(RESULT, f"{text}\n".encode())


def print_error(error: BaseException) -> None:
    """Print a traceback of foreign frames only."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack[:] = [f for f in shown.stack if not f.filename.startswith(_OWN_FILES)]
    print("".join(shown.format()), end="", file=sys.stderr)


def exit_code_of(error: SystemExit) -> int:
    """What the process of a script that raised it would exit with."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF if error.code.bit_length() < _LONG else 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _guarded(body: Any) -> int:
    """The exit code of a body."""
    try:
        body()
    except SystemExit as error:
        return exit_code_of(error)
    except BaseException as error:
        print_error(error)
        report_error(error)
        return 1
    return 0


def end(code: int) -> NoReturn:
    """Leave as an interpreter does: threads waited for, exit functions run, streams flushed.

    Then the program's names go, and with them files that it has left open.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _flush()
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        if len(sys._current_frames()) == 1:
            _forget_names()
        _flush()
    except BaseException as error:
        print_error(error)
        code = code or 120
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _forget_names() -> None:
    """Those with an underscore first, as the interpreter does it."""
    for module in (_MAIN, _SOLUTION):
        names = sys.modules[module].__dict__ if module in sys.modules else {}
        for is_private in (True, False):
            for name in [name for name in names if isinstance(name, str)]:
                if name.startswith("_") == is_private and name != "__builtins__":
                    names[name] = None
    gc.collect()


def _find(module: ModuleType, name: str) -> Any:
    first, *rest = name.split(".")
    if first not in module.__dict__:
        raise NameError(f"the program does not define {first!r}")
    found = module.__dict__[first]
    for part in rest:
        owner = found() if isinstance(found, type) else found
        found = getattr(owner, part)
    return found
