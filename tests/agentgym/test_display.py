"""What people see of trajectories and runs: nothing is lost without colours."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentgym.display import STYLES, print_trajectories
from agentgym.plotting import RewardCurve, reward_curve_png, smoothed
from agentgym.progress import LineProgress, StepReport, duration, progress_for, sparkline
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason


def decode(ids) -> str:
    return "".join(map(chr, ids))


def segment(text: str, source: str) -> Segment:
    ids = tuple(map(ord, text))
    if source != "sampled":
        return Segment(ids=ids, source=source)
    return Segment(ids=ids, source=source, logprobs=(-0.5,) * len(ids), policy_version=0)


def trajectory(*segments: Segment, **changes) -> RolloutOutput:
    values = {
        "request_id": "g0-m0",
        "group_id": "g0",
        "task_id": "task-7",
        "env": "e",
        "seed": 0,
        "messages": (),
        "segments": segments,
        "rewards": {"correct": 1.0, "style": None},
        "reward": 1.0,
        "stop_reason": StopReason.FINAL_ANSWER,
        **changes,
    }
    return RolloutOutput(**values)


def printed(*outputs: RolloutOutput, terminal: bool, show: int = 9) -> str:
    file = io.StringIO()
    colours = "standard" if terminal else None
    console = Console(file=file, force_terminal=terminal, width=100, color_system=colours)
    print_trajectories(console, outputs, decode, show=show)
    return file.getvalue()


CODES = {
    "template": "\x1b[2m",
    "sampled": "\x1b[1;32m",
    "env": "\x1b[34m",
    "injected": "\x1b[33m",
    "forced": "\x1b[36m",
    "frozen": "\x1b[32m",
}


@pytest.mark.parametrize("source", list(STYLES))
def test_every_source_has_its_colour_and_its_place_in_the_legend(source: str):
    """What was trained must be seen at a glance."""
    sampled = segment("words", "sampled")
    special = {
        "frozen": sampled.head(5, frozen=True),
        "forced": sampled.model_copy(update={"constrained": True}),
    }
    given = special.get(source)
    text = printed(trajectory(given or segment("words", source)), terminal=True)
    others = set(STYLES) - {source}

    assert f"{CODES[source]}words" in text
    assert f"{source}  " in text.rpartition("words")[2]
    assert not any(f" {other}  " in text for other in others)


def test_without_a_terminal_the_margin_says_what_colours_say():
    """Trajectories are read in files and bug reports, too."""
    text = printed(
        trajectory(segment("sys\n", "template"), segment("a\n\nb" * 60, "sampled")), terminal=False
    )

    assert "\x1b" not in text
    assert "template    4 │ sys↵\n" in text
    assert " sampled  240 │ a\n" in text
    assert "              │ b" in text


@given(st.lists(st.text(st.sampled_from("ab\n"), min_size=1), min_size=1, max_size=4))
def test_the_text_of_every_segment_is_shown_once_and_in_order(texts: list[str]):
    """The view is of the tokens, not of a summary."""
    out = printed(trajectory(*(segment(text, "env") for text in texts)), terminal=False)
    body = out.partition("\n")[2].partition("\n\n     env  ")[0]
    shown = "\n".join(line.partition("│ ")[2] for line in body.split("\n")).strip("\n")

    assert shown.replace("↵", "").replace("\n", "") == "".join(texts).replace("\n", "")


def test_an_error_is_shown_with_its_trajectory():
    """The reason of a failure is what one looks for."""
    failed = trajectory(stop_reason=StopReason.ENV_ERROR, error="step: boom", reward=None)

    text = printed(failed, terminal=False)
    assert "step: boom" in text
    assert "env_error" in text


def test_the_summary_counts_what_was_scored_only():
    """A failed trajectory is not a reward of 0."""
    good = trajectory(segment("p", "template"), segment("abc", "sampled"))
    failed = trajectory(stop_reason=StopReason.ENV_ERROR, error="boom", reward=None)

    last = printed(good, failed, terminal=False, show=0).strip().splitlines()[-1]
    assert last.split() == ["mean", "1.000", "1.0", "4", "3", "0.00"]


def test_markup_in_a_trajectory_stays_text():
    """Models write square brackets."""
    text = printed(trajectory(segment("[bold]x[/nope] :smile:", "sampled")), terminal=False)

    assert "[bold]x[/nope] :smile:" in text


def report(step: int, reward: float | None = 0.5) -> StepReport:
    split = {"sample": 0.75, "update": 0.25, "reward": 0.0}
    return StepReport(
        step=step, num_steps=4, reward=reward, length=61.4, turns=2.25, seconds=1.0, split=split
    )


def test_a_file_gets_one_line_per_step():
    """Progress in a log of a cluster job."""
    file = io.StringIO()
    with progress_for(Console(file=file), "[title]") as progress:
        progress.phase("loading")
        progress.trajectory()
        progress.step(report(1))
        progress.step(report(2, None))

    step = "length 61  turns 2.2  1.00 s (sample 0.75, update 0.25)"
    assert isinstance(progress, LineProgress)
    assert file.getvalue().splitlines() == [
        "[title]",
        "loading ...",
        f"step 1/4  reward 0.500  {step}  ETA 3 s",
        f"step 2/4  reward -  {step}  ETA 2 s",
    ]


def test_a_terminal_gets_a_panel_with_the_last_step():
    """The panel is redrawn, so its last state is what stays."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with progress_for(console, "title") as progress:
        for step in (1, 2, 3, 4):
            progress.trajectory()
            progress.step(report(step, step / 4))

    last = file.getvalue().rpartition("title")[2]
    assert "step 4/4" in last
    assert "reward 1.000" in last
    assert "▃▅▆█" in last


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=100), st.integers(1, 40))
def test_a_sparkline_fits_and_keeps_the_order_of_its_values(values: list[float], width: int):
    """However long the run."""
    line = sparkline(values, width=width)

    assert 1 <= len(line) <= width
    if len(values) <= width:
        order = sorted(range(len(values)), key=lambda i: values[i])
        assert [line[i] for i in order] == sorted(line)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_durations_are_written_for_people(seconds: float, text: str):
    """No run is 4,213 s long to a reader."""
    assert duration(seconds) == text


@given(st.lists(st.floats(-1, 1), max_size=50))
def test_smoothing_stays_within_the_values(values: list[float]):
    """A mean of neighbours: as long, never beyond them, and a constant stays."""
    means = smoothed(values)

    assert len(means) == len(values)
    assert all(min(values) - 1e-9 <= mean <= max(values) + 1e-9 for mean in means)
    assert smoothed([0.5] * len(values)) == [0.5] * len(values)


@pytest.mark.parametrize("num_steps", [0, 1, 60])
def test_the_reward_curve_is_a_picture_at_any_length(num_steps: int):
    """A run that was interrupted in its first step has a plot, too."""
    steps = range(1, num_steps + 1)
    curve = RewardCurve(title="t", steps=steps, rewards=[0.5] * num_steps, before=0.2)

    png = reward_curve_png(curve)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (960, 540)
    assert png == reward_curve_png(curve)
