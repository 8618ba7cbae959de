"""The words after `python -c` with which a sandbox begins: read code from the host, and run it."""

import inspect


def command(python: str, control: int, *, cache_tag: str) -> list[str]:
    """The command line of the runner.

    Args:
        python: path of the interpreter in the sandbox.
        control: descriptor of the control socket, inherited.
        cache_tag: of the interpreter that has compiled the code.
    """
    source = inspect.getsource(_boot)
    return [python, "-P", "-s", "-S", "-c", f"{source}\n_boot({control}, {cache_tag!r})"]


def _boot(control: int, cache_tag: str) -> None:
    import marshal
    import os
    import sys

    def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = os.read(control, size - len(data))
            if not part:
                sys.exit(0)
            data += part
        return data

    size = int.from_bytes(read(8), "big")
    data = read(size)
    if sys.implementation.cache_tag != cache_tag:
        sys.exit(f"the sandbox runs {sys.implementation.cache_tag}, the host {cache_tag}")
    for name, code in marshal.loads(data):
        module = type(sys)(name)
        module.__path__ = []
        sys.modules[name] = module
        if code is not None:
            exec(code, module.__dict__)
    sys.modules["agentgym.tools.sandbox.inside.runner"].main(control)
