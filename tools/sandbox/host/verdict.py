"""What the evidence of a call says: how it ended, and who is to blame.

Evidence is what the kernel and the runner have seen. The class of an exception is the program's own
word, and decides only between outcomes that are the code's fault either way.
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from agentgym.tools.sandbox.base import ExecResult, Outcome
from agentgym.tools.sandbox.inside import decode
from agentgym.tools.sandbox.limits import Limits

_SIGXCPU, _SIGKILL, _SIGXFSZ = 24, 9, 25
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_KILLED = {
    "cpu": Outcome.CPU_LIMIT,
    "wall": Outcome.WALL_TIMEOUT,
    "starved": Outcome.STARVED,
    "memory": Outcome.MEMORY_LIMIT,
    "processes": Outcome.PROCESS_LIMIT,
    "disk": Outcome.DISK_LIMIT,
    "flood": Outcome.OUTPUT_LIMIT,
}

_INFRA = (Outcome.STARVED, Outcome.UNAVAILABLE)


@with_config(ConfigDict(strict=True, extra="forbid"))
class Evidence(TypedDict):
    """What the runner reports of a call; see `inside.watch`."""

    exit: int | None
    signal: int | None
    killed: str | None
    cpu_s: float
    wall_s: float
    waited_s: float
    max_rss_mb: float
    stdout: list[str]
    stderr: list[str]
    result: str
    state_lost: bool
    host_fault: str


_EVIDENCE: TypeAdapter[Evidence] = TypeAdapter(Evidence)


def read_evidence(answer: Mapping[str, Any]) -> Evidence:
    """What the runner sent, if it is a report.

    Raises:
        ValueError: it is not.
    """
    return _EVIDENCE.validate_python(answer)


class Report(NamedTuple):
    """What the child said of itself, on the pipe for results."""

    content: Mapping[str, Any]
    fault: str = ""
    """Why it is not to be used."""


def judge(evidence: Evidence, limits: Limits, *, needs_value: bool, is_cell: bool) -> ExecResult:
    """The result of a call.

    Args:
        evidence: of the runner.
        limits: that held.
        needs_value: whether it is an error to end without reporting a value.
        is_cell: whether the interpreter goes on, so that its report stands for an exit code.
    """
    report = _read(evidence["result"])
    exit_code = evidence["exit"]
    if is_cell and not evidence["state_lost"]:
        exit_code = report.content.get("exit", 1)
    outcome, why = _outcome(evidence, report, exit_code, limits)
    value, has_value = None, False
    if outcome is Outcome.OK and "value" in report.content:
        value, has_value, fault = _value(report.content["value"])
        outcome, why = (Outcome.ERROR, fault) if fault else (outcome, why)
    if outcome is Outcome.OK and needs_value and not has_value:
        outcome, why = Outcome.ERROR, report.fault or "it ended without returning a value"
    if evidence["host_fault"] and outcome is not Outcome.OK:
        outcome, why = Outcome.UNAVAILABLE, evidence["host_fault"]
    return ExecResult(
        outcome=outcome,
        blame="infra" if outcome in _INFRA else "code",
        value=value,
        has_value=has_value,
        shown=_text(report.content.get("shown", "")) if has_value else "",
        stdout=_join(evidence["stdout"]),
        stderr=_join(evidence["stderr"]),
        stdout_cut=len(evidence["stdout"]) > 1,
        stderr_cut=len(evidence["stderr"]) > 1,
        exit_code=exit_code if isinstance(exit_code, int) else 1,
        signal=evidence["signal"],
        cpu_s=evidence["cpu_s"],
        wall_s=evidence["wall_s"],
        max_rss_mb=evidence["max_rss_mb"],
        state_lost=evidence["state_lost"],
        evidence=why,
    )


def _read(text: str) -> Report:
    if not text:
        return Report({})
    try:
        content = decode.parse(text)
    except ValueError as error:
        return Report({}, f"what it reported cannot be read: {error}")
    if not isinstance(content, dict):
        return Report({}, "what it reported is no report")
    return Report(content)


def _outcome(
    evidence: Evidence, report: Report, exit_code: Any, limits: Limits
) -> tuple[Outcome, str]:
    killed, signal = evidence["killed"], evidence["signal"]
    if killed is not None:
        why = f"limit of {killed}: {evidence['cpu_s']:.2f} s of processor, "
        return _KILLED[killed], why + f"{evidence['wall_s']:.2f} s, {evidence['max_rss_mb']:.0f} MB"
    if signal is not None:
        return _of_signal(signal, evidence["cpu_s"], limits)
    kinds, number = report.content.get("error", ()), report.content.get("errno")
    if isinstance(kinds, list) and "MemoryError" in kinds:
        return Outcome.MEMORY_LIMIT, "MemoryError"
    if number in _DISK and kinds:
        return Outcome.DISK_LIMIT, f"OSError: {errno.errorcode[number]}"
    if exit_code == 0:
        return Outcome.OK, ""
    return Outcome.ERROR, f"exit code {exit_code}"


def _of_signal(signal: int, cpu_s: float, limits: Limits) -> tuple[Outcome, str]:
    why = f"signal {signal}"
    if signal in (_SIGXCPU, _SIGKILL) and cpu_s >= limits.cpu_s:
        return Outcome.CPU_LIMIT, f"{why} after {cpu_s:.2f} s of processor"
    if signal == _SIGXFSZ:
        return Outcome.DISK_LIMIT, why
    return Outcome.SIGNAL, why


def _value(data: Any) -> tuple[Any, bool, str]:
    try:
        return decode.decode(data), True, ""
    except (ValueError, TypeError, RecursionError) as error:
        return None, False, f"the value cannot be read: {error}"


def _join(parts: Sequence[str]) -> str:
    return "\n[... cut ...]\n".join(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
