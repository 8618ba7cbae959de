"""What the model reads of a call in a sandbox: what a terminal would show, then how it ended.

Only what the program did is told. What the infrastructure did is an exception, never an
observation, so that no policy learns from it.
"""

import signal

from agentgym.tools.sandbox.base import ExecResult, Outcome
from agentgym.tools.sandbox.limits import Limits

HINT = "(no output: print what you want to see, or end with an expression)"
SILENT = "(no output)"


def tell(result: ExecResult, limits: Limits, *, silent: str = SILENT) -> str:
    """The text of a result.

    Args:
        result: of a cell or a shell command.
        limits: it ran under, for the words.
        silent: what to say if it ended well and there is nothing to show.
    """
    parts = [_stream("stdout", result.stdout, result.stdout_cut), result.shown]
    errors = _stream("stderr", result.stderr, result.stderr_cut)
    if errors:
        parts += ["[stderr]" if any(parts) else "", errors]
    parts.append(_ending(result, limits))
    return "\n".join(part for part in parts if part) or silent


def _stream(name: str, text: str, cut: bool) -> str:
    text = text.removesuffix("\n")
    return f"{text}\n[{name} was too long: its middle is cut]" if cut else text


def _ending(result: ExecResult, limits: Limits) -> str:
    words = _reason(result, limits)
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
            return f"exit code {result.exit_code}" if result.exit_code else ""


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
