"""What a training run shows: a live panel in a terminal, a line per step everywhere else."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one optimizer step tells."""

    step: int
    """From 1."""
    num_steps: int
    reward: float | None
    """Mean over the scored trajectories."""
    length: float | None = None
    """Mean sampled tokens per trajectory."""
    turns: float | None = None
    """Mean turns per trajectory."""
    seconds: float
    """Wall clock of the step."""
    split: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""


class Progress(Protocol):
    """Follows one run; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def phase(self, text: str) -> None:
        """What is being done now, outside the steps."""
        ...

    def trajectory(self) -> None:
        """One has ended; may come from another thread."""
        ...

    def step(self, report: StepReport) -> None:
        """An optimizer step was made."""
        ...


def progress_for(console: Console, title: str) -> Progress:
    """Live in a terminal that can show it, else lines."""
    can_redraw = console.is_terminal and not console.is_dumb_terminal
    if can_redraw and console.encoding.lower().startswith("utf"):
        return LiveProgress(console, title)
    return LineProgress(console, title)


class Pace:
    """Seconds that are left, from the last steps' time."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=10)

    def eta(self, report: StepReport) -> float:
        """Seconds until the last step."""
        self._seconds.append(report.seconds)
        return fmean(self._seconds) * (report.num_steps - report.step)


class LineProgress:
    """One line per step, for files and pipes."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._pace = Pace()

    def __enter__(self) -> Self:
        self._print(self._title)
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def phase(self, text: str) -> None:
        """Print it."""
        self._print(f"{text} ...")

    def trajectory(self) -> None:
        """Too many for lines."""

    def step(self, report: StepReport) -> None:
        """Print a line."""
        eta = duration(self._pace.eta(report))
        counter = f"step {report.step}/{report.num_steps}"
        self._print("  ".join([counter, *_facts(report), _time(report), f"ETA {eta}"]))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """A panel that is redrawn in place."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._phase = ""
        self._played = 0
        self._report: StepReport | None = None
        self._rewards: list[float] = []
        self._pace = Pace()
        self._eta = 0.0
        self._live = Live(self._panel(), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._phase = ""
        self._live.update(self._panel())
        self._live.stop()

    def phase(self, text: str) -> None:
        """Show it beside the title."""
        self._phase = text
        self._played = 0
        self._live.update(self._panel())

    def trajectory(self) -> None:
        """Count it."""
        self._played += 1
        self._live.update(self._panel())

    def step(self, report: StepReport) -> None:
        """Redraw."""
        self._phase = "training"
        self._played = 0
        self._report = report
        self._eta = self._pace.eta(report)
        if report.reward is not None:
            self._rewards.append(report.reward)
        self._live.update(self._panel())

    def _panel(self) -> Group:
        title = Text(self._title, "bold")
        if self._phase:
            played = f" {self._played} trajectories" if self._played else ""
            title.append(f"  {self._phase} ...{played}", "cyan")
        if self._report is None:
            return Group(title)
        return Group(title, self._bar(self._report), self._numbers(self._report))

    def _bar(self, report: StepReport) -> Table:
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=report.num_steps, completed=report.step, width=30)
        grid.add_row(f"step {report.step}/{report.num_steps}", bar, f"ETA {duration(self._eta)}")
        return grid

    def _numbers(self, report: StepReport) -> Table:
        grid = Table.grid(padding=(0, 2))
        reward, *others = _facts(report)
        curve = Text(sparkline(self._rewards, width=30), "green")
        grid.add_row(Text(reward, "bold green"), curve, *others, Text(_time(report), "dim"))
        return grid


def sparkline(values: Sequence[float], *, width: int) -> str:
    """The course of rewards in at most `width` bars, each a mean; 0 to 1 unless they go beyond."""
    if not values:
        return ""
    size = -(-len(values) // width)
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    low, high = min(0.0, *means), max(1.0, *means)
    return "".join(_BARS[round((mean - low) / (high - low) * (len(_BARS) - 1))] for mean in means)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _facts(report: StepReport) -> list[str]:
    facts = [f"reward {'-' if report.reward is None else f'{report.reward:.3f}'}"]
    if report.length is not None:
        facts.append(f"length {report.length:.0f}")
    if report.turns is not None:
        facts.append(f"turns {report.turns:.1f}")
    return facts


def _time(report: StepReport) -> str:
    parts = [f"{phase} {seconds:.2f}" for phase, seconds in report.split.items() if seconds >= 0.01]
    return f"{report.seconds:.2f} s" + (f" ({', '.join(parts)})" if parts else "")
