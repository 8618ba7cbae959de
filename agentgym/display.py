"""Trajectories and tables for people.

A trajectory is shown segment by segment, in the order of its tokens, with the source named in the
margin: colours repeat what the margin says, so nothing is lost in a file or a pipe.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentgym.tokens import Segment, Source
from agentgym.trajectory import RolloutOutput

Kind = Source | Literal["forced", "frozen"]
STYLES: dict[Kind, str] = {
    "template": "dim",
    "sampled": "bold green",
    "forced": "cyan",
    "frozen": "green",
    "env": "blue",
    "injected": "yellow",
}
MEANINGS: dict[Kind, str] = {
    "template": "the rendered prompt",
    "sampled": "sampled by the policy and trained (mask 1)",
    "forced": "sampled by the policy under a constraint (mask 0)",
    "frozen": "sampled by the policy, of another trace or taken back (mask 0)",
    "env": "the env's observations",
    "injected": "put in by a scheduler",
}
Decode = Callable[[Sequence[int]], str]


def legend(outputs: Iterable[RolloutOutput]) -> Text:
    """What the colours mean, for the sources that occur."""
    traces = (trace for output in outputs for trace in output.traces)
    seen = {_kind(segment) for trace in traces for segment in trace}
    lines = [(f"{source:>8}  {MEANINGS[source]}", STYLES[source]) for source in STYLES]
    return Text("\n").join(
        Text(text, style)
        for source, (text, style) in zip(STYLES, lines, strict=True)
        if source in seen
    )


def _kind(segment: Segment) -> Kind:
    if segment.frozen:
        return "frozen"
    return "forced" if segment.constrained else segment.source


def trajectory_view(output: RolloutOutput, decode: Decode) -> Iterator[tuple[Text, Text]]:
    """The lines of a trajectory's segments: margin and text."""
    for place, trace in enumerate(output.traces, start=1):
        if output.branches:
            yield (
                Text(" " * 13 + " │", "dim"),
                Text(f"trace {place} of {len(output.traces)}", "dim"),
            )
        for segment in trace:
            yield from _segment_lines(segment, decode(segment.ids))
    if output.error:
        yield Text("   error      │", "red"), Text(output.error, "red")


def _heading(output: RolloutOutput) -> Text:
    scores = ", ".join(f"{name} {number(value)}" for name, value in output.rewards.items())
    heading = Text(f"── {output.request_id} ", "bold")
    heading.append(f"task {output.task_id} · {output.stop_reason} · return {number(output.reward)}")
    return heading.append(f" ({scores})" if scores else "")


def _segment_lines(segment: Segment, text: str) -> Iterator[tuple[Text, Text]]:
    """Each line once; a line break that begins or ends the segment is shown as ↵."""
    body = text.strip("\n")
    before, after = len(text) - len(text.lstrip("\n")), len(text) - len(text.rstrip("\n"))
    if not body:
        before, after = len(text), 0
    kind = _kind(segment)
    margin = f"{kind:>8} {len(segment.ids):4} │"
    for line in ("↵" * before + body + "↵" * after).split("\n"):
        yield Text(margin, "dim"), Text(line, STYLES[kind], overflow="fold")
        margin = " " * 13 + " │"


def number(value: float | None) -> str:
    """A score; `-` if unscored."""
    return "-" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


_FIGURES = ("return", "turns", "tokens", "sampled", "seconds")
_DIGITS = (3, 1, 0, 0, 2)


def _sizes(output: RolloutOutput) -> tuple[int, int, int]:
    sampled = sum(len(segment.ids) for segment in output.spoken)
    return output.num_turns, len(output.token_ids), sampled


def _seconds(output: RolloutOutput) -> float:
    return output.timings.get("total", 0.0)


def _figures(output: RolloutOutput) -> list[str]:
    return [number(output.reward), *map(str, _sizes(output)), f"{_seconds(output):.2f}"]


class Tally:
    """Counts and means over trajectories, of which none is kept."""

    def __init__(self, outputs: Iterable[RolloutOutput] = ()) -> None:
        self.num = 0
        self.num_failed = 0
        self.tool_failures: Counter[str] = Counter()
        """Tool calls that failed, by kind."""
        self._num_scored = 0
        self._sums = [0.0] * len(_FIGURES)
        for output in outputs:
            self.add(output)

    def add(self, output: RolloutOutput) -> None:
        """Count one more."""
        self.num += 1
        self.num_failed += output.stop_reason.is_failure
        self.tool_failures.update(output.rollout_infos.get("tool_failures", {}))
        if output.is_scored:
            self._num_scored += 1
            figures = (output.reward or 0.0, *_sizes(output), _seconds(output))
            self._sums = [old + new for old, new in zip(self._sums, figures, strict=True)]

    def means(self) -> list[str]:
        """Of the scored ones, as the columns of the summary show them."""
        if not self._num_scored:
            return ["-"] * len(_FIGURES)
        means = [total / self._num_scored for total in self._sums]
        return [f"{mean:.{digits}f}" for mean, digits in zip(means, _DIGITS, strict=True)]


def summary_table(outputs: Sequence[RolloutOutput], tally: Tally) -> Table:
    """One row for each of `outputs`, and the means over all that were counted."""
    table = Table(box=None, pad_edge=False, header_style="bold", footer_style="bold")
    table.add_column("name", "mean", overflow="fold")
    table.add_column("task", overflow="fold")
    for title, footer in zip(_FIGURES, tally.means(), strict=True):
        table.add_column(title, footer, justify="right")
    table.add_column("stop", overflow="fold")
    for output in outputs:
        cells = (output.request_id, output.task_id, *_figures(output), output.stop_reason.value)
        table.add_row(*cells, style="red" if output.stop_reason.is_failure else "")
    if tally.num > len(outputs):
        table.add_row(f"... and {tally.num - len(outputs)} more")
    table.show_footer = tally.num > 1
    return table


def print_trajectories(
    console: Console,
    outputs: Sequence[RolloutOutput],
    decode: Decode,
    *,
    show: int,
    tally: Tally | None = None,
) -> None:
    """The first `show` trajectories in full with the legend, and the summary.

    Args:
        console: where to.
        outputs: those that get a row of the summary.
        decode: ids to text.
        show: how many are printed in full.
        tally: of all trajectories, if there are more than `outputs`.
    """
    shown = outputs[:show]
    for output in shown:
        console.print(_heading(output))
        _print_lines(console, trajectory_view(output, decode))
        console.print()
    if any(output.segments for output in shown):
        console.print(legend(shown), "")
    tally = tally or Tally(outputs)
    console.print(summary_table(outputs, tally))
    if tally.tool_failures:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.tool_failures.items()))
        console.print(f"tool calls that failed: {kinds}", highlight=False)


def _print_lines(console: Console, lines: Iterable[tuple[Text, Text]]) -> None:
    """Long lines are folded beside the margin; in a file or a pipe they stay whole."""
    if not console.is_terminal:
        for margin, text in lines:
            console.print(Text(" ").join([margin, text]), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    for margin, text in lines:
        grid.add_row(margin, text)
    console.print(grid)
