"""What the model reads of a call in a sandbox: what a terminal would show, then how it ended.

Only what the program did is told. What the infrastructure did is an exception, never an
observation, so that no policy learns from it.
"""

import signal

from agentgym.tools.sandbox.base import ExecResult, Outcome
from agentgym.tools.sandbox.limits import Limits

HINT = "(no output: print what you want to see, or end with an expression)"
SILENT = "(no output)"


def tell(result: ExecResult, limits: Limits, *, is_cell: bool = False) -> str:
    """The text of a result.

    Args:
        result: of a cell or a shell command.
        limits: it ran under, for the words.
        is_cell: whether a traceback says already that it failed, and a hint may help.
    """
    shown = [result.stdout.removesuffix("\n"), result.shown]
    errors = result.stderr.removesuffix("\n")
    if errors:
        shown += ["[stderr]" if any(shown) else "", errors]
    told = is_cell and bool(errors) and result.exit_code == 1
    shown.append(_ending(result, limits, "" if told else _exit_code(result)))
    return "\n".join(part for part in shown if part) or (HINT if is_cell else SILENT)


def _ending(result: ExecResult, limits: Limits, exit_code: str) -> str:
    words = _reason(result, limits) or exit_code
    if not result.state_lost:
        return words and f"[{words}]"
    lost = "the interpreter was restarted and its names are lost"
    return f"[{words}; {lost}]" if words else f"[{lost}]"


def _reason(result: ExecResult, limits: Limits) -> str:
    match result.outcome:
        case Outcome.CPU_LIMIT:
            return f"stopped after {limits.cpu_s:g} s of processor time"
        case Outcome.WALL_TIMEOUT | Outcome.STARVED:
            return f"stopped after {limits.wall_limit_s:g} s: it slept or waited for too long"
        case Outcome.MEMORY_LIMIT:
            return f"out of memory: at most {limits.memory_mb} MB"
        case Outcome.OUTPUT_LIMIT:
            return f"stopped: it printed more than {limits.flood_mb} MB"
        case Outcome.DISK_LIMIT:
            return f"disk full: at most {limits.disk_mb} MB, {limits.file_mb} MB in one file"
        case Outcome.PROCESS_LIMIT:
            return f"too many processes and threads: at most {limits.processes}"
        case Outcome.SIGNAL:
            return f"killed by {_signal_name(result.signal)}"
        case Outcome.LOST:
            return "it broke the sandbox"
        case _:
            return ""


def _exit_code(result: ExecResult) -> str:
    return f"exit code {result.exit_code}" if result.exit_code else ""


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
