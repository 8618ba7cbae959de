"""The picture of a run: what it learned, at a glance."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_RAW, _SMOOTH, _EVAL = "#9db4d0", "#1f5fa8", "#d1495b"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCurve:
    """What is drawn."""

    title: str
    steps: Sequence[int]
    """[S] optimizer steps."""
    rewards: Sequence[float]
    """[S] mean reward of the trajectories of each step."""
    before: float | None = None
    """Held-out reward before training, at the training temperature."""
    after: float | None = None
    """The same after training."""


def reward_curve_png(curve: RewardCurve) -> bytes:
    """The curve as a PNG: a point per step, their running mean, and the held-out rewards."""
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.plot(curve.steps, curve.rewards, "o", color=_RAW, markersize=4, label="one step")
    axes.plot(
        curve.steps, smoothed(curve.rewards), color=_SMOOTH, linewidth=2.2, label="running mean"
    )
    last = max(curve.steps, default=0)
    _mark(axes, 0, curve.before, "held-out tasks, before and after")
    _mark(axes, last, curve.after, None if curve.before is not None else "held-out tasks, after")
    axes.set(title=curve.title, xlabel="optimizer step", ylabel="mean reward per trajectory")
    _set_limits(axes, curve, last)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def smoothed(values: Sequence[float], *, radius: int = 3) -> list[float]:
    """[S] mean over the values up to `radius` steps away, as far before as after at the start."""
    reaches = [min(radius, index) for index in range(len(values))]
    return [fmean(values[i - reach : i + reach + 1]) for i, reach in enumerate(reaches)]


def _mark(axes: Axes, step: int, reward: float | None, label: str | None) -> None:
    if reward is None:
        return
    axes.plot(
        [step], [reward], "D", color=_EVAL, markersize=8, label=label, zorder=3, clip_on=False
    )
    axes.annotate(
        f"{reward:.2f}",
        (step, reward),
        xytext=(0, -16 if reward > 0.12 else 10),
        textcoords="offset points",
        ha="center",
        color=_EVAL,
        fontweight="bold",
    )


def _set_limits(axes: Axes, curve: RewardCurve, last: int) -> None:
    values = [*curve.rewards, *(v for v in (curve.before, curve.after) if v is not None)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    axes.set_xlim(-0.03 * max(last, 1), 1.03 * max(last, 1))
    axes.set_ylim(min(0.0, low) - 0.02, max(1.0, high) + 0.05)
