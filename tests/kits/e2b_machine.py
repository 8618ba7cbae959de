"""Runs behind a wall of this machine in place of one of E2B's: interpreters that stream events.

Standard library only, sent as the text of `python -c`. One process per context, as there; they and
whatever they leave running live as long as this process does. Control comes over one socket, a JSON
text per line, and so do the events.
"""

import ast
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

POWER_OFF = "/tmp/agentgym-stand-in-power-off"
"""A file that code makes to switch its machine off, as root could over there."""


def main(control):
    machine = Machine(socket.socket(fileno=control))
    os.environ.setdefault("TMPDIR", "/tmp")
    machine.serve()


class Machine:
    def __init__(self, control):
        self.control = control
        self.contexts = {}

    def serve(self):
        lines = Lines(self.control.fileno())
        while True:
            readers = {c.events: c for c in self.contexts.values()}
            ready = select.select([self.control.fileno(), *readers], [], [], 0.1)[0]
            if os.path.exists(POWER_OFF):
                return
            for fd in ready:
                if fd != self.control.fileno():
                    self.relay(readers[fd])
                    continue
                for line in lines.read():
                    self.do(json.loads(line))
                if lines.over:
                    return

    def do(self, request):
        name = request["context"]
        if name not in self.contexts:
            self.contexts[name] = Context(name, [c.events for c in self.contexts.values()])
        context = self.contexts[name]
        if request["op"] == "execute":
            os.write(context.requests, (json.dumps(request) + "\n").encode())
        if request["op"] == "kill":
            os.kill(context.pid, signal.SIGKILL)
        if request["op"] == "interrupt":
            os.kill(context.pid, signal.SIGINT)

    def relay(self, context):
        data = os.read(context.events, 65536)
        if data:
            return self.control.sendall(data)
        del self.contexts[context.name]
        os.waitpid(context.pid, 0)
        died = {"died": context.name}
        return self.control.sendall((json.dumps(died) + "\n").encode())


class Context:
    """An interpreter of its own."""

    def __init__(self, name, others):
        self.name = name
        theirs_in, self.requests = os.pipe()
        self.events, theirs_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.closerange(3, min(theirs_in, theirs_out))
            interpret(theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)


class Lines:
    def __init__(self, fd):
        self.fd, self.rest, self.over = fd, b"", False

    def read(self):
        try:
            data = os.read(self.fd, 2**20)
        except ConnectionResetError:
            data = b""
        self.over = not data
        *whole, self.rest = (self.rest + data).split(b"\n")
        return whole


class Stream:
    """A stdout whose text becomes events."""

    def __init__(self, kind, emit):
        self.kind, self.emit = kind, emit

    def write(self, text):
        if text:
            self.emit(type=self.kind, text=text, timestamp=time.time_ns())
        return len(text)

    def flush(self):
        pass


def interpret(requests, events):
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    number, lines, waiting = 0, Lines(requests), []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        while not waiting:
            waiting = lines.read()
            if lines.over:
                os._exit(0)
        request, number = json.loads(waiting.pop(0)), number + 1

        def emit(n=request["n"], **event):
            line = json.dumps({"n": n, "event": event or None}) + "\n"
            view = memoryview(line.encode())
            while view:
                view = view[os.write(events, view) :]

        run(request["code"], names, emit)
        emit(type="number_of_executions", execution_count=number)
        emit()


def run(code, names, emit):
    sys.stdout, sys.stderr = Stream("stdout", emit), Stream("stderr", emit)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            if value is not None:
                emit(type="result", text=repr(value), is_main_result=True)
    except BaseException as error:  # noqa: BLE001 - it is the interpreter
        text = traceback.format_exc()
        emit(type="error", name=type(error).__name__, value=str(error), traceback=text)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
