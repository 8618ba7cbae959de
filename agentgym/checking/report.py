"""What a check found, for people and for programs.

A check ends in one of four states; only `failed` makes the whole fail. What could not be tried is
`skipped` and says why, so that a short report cannot be mistaken for a clean one.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"


SYMBOLS = {Status.PASSED: "✓", Status.FAILED: "✗", Status.WARNED: "!", Status.SKIPPED: "–"}  # noqa: RUF001
_MAX_SHOWN = 5


@dataclass(slots=True)
class Findings:
    """What one check has to say; without faults and warnings it passed."""

    faults: list[str] = field(default_factory=list)
    """Each names what is wrong, the value, and what to do."""
    warnings: list[str] = field(default_factory=list)
    note: str = ""
    """What was measured."""
    skipped: str = ""
    """Why it could not be tried."""

    @property
    def status(self) -> Status:
        if self.faults:
            return Status.FAILED
        if self.skipped:
            return Status.SKIPPED
        return Status.WARNED if self.warnings else Status.PASSED


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the checklist."""

    name: str
    title: str
    """What holds if it passed."""
    status: Status
    messages: tuple[str, ...]
    """Faults and warnings, or why it was skipped, or what was measured."""
    seconds: float

    @classmethod
    def of(cls, name: str, title: str, findings: Findings, seconds: float) -> "CheckResult":
        """The findings of a check as its line."""
        said = [*findings.faults, *findings.warnings] or [findings.skipped or findings.note]
        if len(said) > _MAX_SHOWN:
            said = [*said[:_MAX_SHOWN], f"and {len(said) - _MAX_SHOWN} more of this kind"]
        return cls(name, title, findings.status, tuple(filter(None, said)), round(seconds, 4))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The whole checklist."""

    subject: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """No check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return self._with(Status.FAILED)

    @property
    def warned(self) -> tuple[str, ...]:
        """Names of the checks that only warn."""
        return self._with(Status.WARNED)

    def result(self, name: str) -> CheckResult:
        """The line of a check.

        Raises:
            KeyError: there is no such check.
        """
        found = {result.name: result for result in self.results}
        return found[name]

    def to_json(self) -> str:
        """The report as one JSON object."""
        data = {
            "subject": self.subject,
            "passed": self.passed,
            "seconds": round(sum(result.seconds for result in self.results), 4),
            "checks": [asdict(result) for result in self.results],
        }
        return json.dumps(data, ensure_ascii=False, indent=2)

    def _with(self, status: Status) -> tuple[str, ...]:
        return tuple(result.name for result in self.results if result.status is status)

    def __str__(self) -> str:
        """The checklist as text."""
        lines = [line for result in self.results for line in lines_of(result)]
        return "\n".join([f"check {self.subject}", *lines, self.verdict])

    @property
    def verdict(self) -> str:
        """The last line: how many checks ended how, and how long it took."""
        counts = {status: len(self._with(status)) for status in Status}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        seconds = sum(result.seconds for result in self.results)
        return f"{'passed' if self.passed else 'FAILED'}: {said} in {seconds:.1f} s"


def lines_of(result: CheckResult) -> list[str]:
    """What people read of a check."""
    heading = f"{SYMBOLS[result.status]} {result.name:<16} {result.title}"
    if result.status is Status.PASSED:
        note = f": {result.messages[0]}" if result.messages else ""
        return [f"{heading}{note} ({result.seconds:.2f} s)"]
    if result.status is Status.SKIPPED:
        return [f"{heading}: {result.messages[0]}"]
    return [heading, *(f"    {message}" for message in result.messages)]
