"""The command line: a word picks a command, its config class does the rest.

Nothing but the chosen command is imported, so that help and lists come at once.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from agentgym.commands import Command
from agentgym.config import load
from agentgym.deadlines import something_is_left_behind
from agentgym.errors import AgentGymError, UsageError
from agentgym.registry import Registry

COMMANDS: Registry[Command] = Registry("command")
OVERVIEW = {
    "train": "Train a policy on an environment by reinforcement learning.",
    "rollout": "Play an environment without training, and look at the trajectories.",
    "check": "Check that an environment can be trusted; needs no model.",
    "envs": "List the registered environments.",
    "tools": "List the registered tools.",
    "new": "Begin a package with an environment or a tool of your own.",
    "serve": "Serve a model with vLLM, for training and for rollouts.",
    "serve-env": "Serve an environment over HTTP and WebSocket (OpenEnv protocol).",
    "doctor": "Say what this machine can run: engines, sandboxes, libraries, accelerators.",
}
"""What the config of each command says first, here because importing all of them takes a second."""
for _name in OVERVIEW:
    COMMANDS.register(_name, f"agentgym.commands.{_name.replace('-', '_')}:COMMAND")

USAGE_ERROR, FAILURE, INTERRUPTED = 2, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 2 for what the caller must change, 130 for Ctrl-C."""
    try:
        return _run_and_flush(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        return _complain(error, USAGE_ERROR)
    except AgentGymError as error:
        return _complain(error, FAILURE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE


def script() -> NoReturn:
    """The process of a command line: it ends, whatever foreign code is still running in it."""
    code = main()
    if something_is_left_behind() or _is_one_of_several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_one_of_several() -> bool:
    """Whether torchrun or accelerate started this process beside others.

    Threads of torch.distributed may abort an interpreter that ends, after all has gone well.
    """
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _run_and_flush(arguments: list[str]) -> int:
    """What is still to be printed is printed here, where a reader that is gone is no surprise."""
    try:
        return run(arguments)
    finally:
        sys.stdout.flush()


def run(arguments: list[str]) -> int:
    """Run a command; its exit code.

    Raises:
        AgentGymError: it could not be done.
    """
    match arguments:
        case [] | ["--help" | "-h" | "help", *_]:
            print(_overview())
        case ["--version" | "-V", *_]:
            print(f"agentgym {version('agentgym-rl')}")
        case [name, *rest]:
            command = COMMANDS.get(name)
            return command.run(load(command.config, rest, prog=f"agentgym {name}")) or 0
    return 0


def _overview() -> str:
    lines = ["usage: agentgym COMMAND [FILE.yaml ...] [--flag value ...]", "", "commands:"]
    lines += [f"  {name:<9} {summary}" for name, summary in OVERVIEW.items()]
    return "\n".join([*lines, "", "`agentgym COMMAND --help` lists the settings of a command."])


def _complain(error: AgentGymError, code: int) -> int:
    notes: list[str] = vars(error).get("__notes__", [])
    print("; ".join([f"agentgym: {error}", *notes]), file=sys.stderr)
    return code
