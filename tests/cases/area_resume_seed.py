"""Runs that go on, runs that repeat themselves, and runs that do not grow, of the real trainer."""

import asyncio
import gc
import importlib
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentgym.rollout.sampler import Sampler
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import RolloutOutput

kit = importlib.import_module("agentgym_cases_loop_kit")
choice_kit = importlib.import_module("agentgym_cases_choice_kit")
repeat_kit = importlib.import_module("agentgym_cases_repeat_kit")
resume_kit = importlib.import_module("agentgym_cases_resume_kit")

_NUMBER = re.compile(r"\d+")
_STOPS = ("run", "crash_at", "crash_at_step", "crash_after", "kill_at", "interrupt_at", "stop_at")
_OPTIMIZERS = {"adam": "adamw_torch", "adamw": "adamw_torch", "AdamW": "adamw_torch"}
_NAMES = {
    "num_generations": "group_size",
    "group": "group_size",
    "optimizer": "optim",
    "scheduler": "schedule",
    "warmup_steps": "warmup",
    "num_iterations": "iterations",
    "gradient_accumulation_steps": "accumulation",
    "max_steps": "planned",
    "warmup_ratio": "warmup",
    "lr": "learning_rate",
}
"""What cases call a setting of `resume_kit.DEFAULTS`."""


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whatever the input describes: a run in parts, a run twice, or a long one."""
    if "measure_after" in case:
        return _growth(case)
    if "n_rollouts" in case:
        return repeat_kit.repeated(case)
    if "checkpoints" in case:
        return choice_kit.chosen(case)
    if "dataset" in case or "dataset_size" in case:
        return _order(case)
    return _state(case)


def _settings(case: Mapping[str, Any], *, skip: str = "", **others: Any) -> dict[str, Any]:
    """Those of a run that a case names, `skip` aside, and `others` where it does not."""
    given = {
        name: case[name]
        for name in dict.keys(case)
        if name in resume_kit.DEFAULTS or (name in _NAMES and name != skip)
    }
    settings = {_NAMES.get(name, name): value for name, value in given.items()}
    if "optim" in settings:
        settings["optim"] = _OPTIMIZERS.get(settings["optim"], settings["optim"])
    return {**others, **settings}


# --- a run in parts


def _order(case: Mapping[str, Any]) -> dict[str, Any]:
    """Which tasks the optimizer steps see, in one go and in parts."""
    rows = case.get("dataset") or list(range(case["dataset_size"]))
    settings, parts = _settings(case, skip="max_steps"), _parts(case)
    case.get("num_workers")  # tasks come without a data loader's help
    every = _save_every(case)
    is_within = not every and sum(parts[:1]) % settings.get("iterations", 1) > 0
    with resume_kit.folder() as folder, _listening() as told:
        again = resume_kit.Run(folder / "parts", rows=rows, settings=settings)
        for number, steps in enumerate(parts):
            if number:
                _between(case, again)
            if is_within:  # a window: what is kept is of its beginning
                steps += parts[0] % settings["iterations"] if number == 1 else 0
                every = 0 if number else settings["iterations"]
            again.go(steps, save_every=every)
        whole = resume_kit.Run(folder / "whole", rows=rows, settings=again.settings)
        whole.go(again.step)
    return {**_of_order(whole, again, rows), **_of_ends(again), "told": "\n".join(told)}


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What the product warns of."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("agentgym")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def _of_order(whole: Any, again: Any, rows: Sequence[Any]) -> dict[str, Any]:
    epochs = _epochs(whole.seen, len(rows))
    first, second = (Counter(t for window in r.seen for t in window) for r in (whole, again))
    return {
        "order_seen_equals_uninterrupted": again.seen == whole.seen,
        "order_seen": again.seen,
        "each_task_once_per_epoch": all(sorted(e) == sorted(map(str, rows)) for e in epochs),
        "epochs_differ": len({tuple(epoch) for epoch in epochs}) == len(epochs),
        "skipped": sorted((first - second).elements()),
        "repeated": sorted((second - first).elements()),
        "params_equal": _difference(whole, again) <= 1e-6,
    }


def _of_ends(again: Any) -> dict[str, Any]:
    """How a run that was gone on with came to where it is, and what it wrote down."""
    steps = again.metrics_steps
    return {
        "global_step": again.step,
        "resumed_from": again.resumed_from,
        "epoch": again.epoch,
        "resumed_from_step": [int(name.rpartition("-")[2]) for name in again.resumed_from],
        "logged_steps": steps,
        "duplicate_steps": len(steps) - len({*steps}),
    }


def _between(case: Mapping[str, Any], run: Any) -> None:
    """What became of the run, or of its settings, until it is resumed."""
    if broken := case.get("broken_newest", case.get("crash_during_save")):
        path = run.copy_newest(run.step + 100) / (
            "trainer_state.json" if broken is True else broken
        )
        path.write_bytes(path.read_bytes()[:40])
    if lost := case.get("lost_newest"):
        path = run.copy_newest(run.step + 100)
        for name in lost:
            path.joinpath(name).unlink()
    for name in case.get("lost", ()):
        run.newest.joinpath(name).unlink()
    changed = dict(case.get("resume_with", {}))
    if "resume_batch" in case:
        changed["batch"] = case["resume_batch"]
    dataset = {"dataset": changed.pop("dataset")} if "dataset" in changed else {}
    run.change({**_settings(changed), **dataset})


def _state(case: Mapping[str, Any]) -> dict[str, Any]:
    """Weights, optimizer and learning rate, in one go and in parts."""
    for described in ("toy_policy", "policy"):
        if not isinstance(case.get(described, ""), str):
            pytest.fail(f"{described} is told in words, got {case[described]!r}")
    total, parts = case["steps_a"], _numbers(case["steps_b"])
    defaults = {"schedule": "linear", "learns": True, "planned": total}
    settings, rows = _settings(case, **defaults), list(range(10))
    with resume_kit.folder() as folder:
        whole = resume_kit.Run(folder / "whole", rows=rows, settings=settings)
        whole.go(total)
        again = resume_kit.Run(folder / "parts", rows=rows, settings=settings)
        for steps in parts:
            again.go(steps)
    same = {
        f"{name}_equal": whole.logged(key) == again.logged(key)
        for name, key in (("lr", "learning_rate"), ("rewards", "reward"), ("kl", "kl"))
    }
    return {
        "params_equal": _difference(whole, again) <= 1e-6,
        "params_max_difference": _difference(whole, again),
        "optimizer_state_equal": whole.moments == again.moments,
        "rng_equal": whole.random == again.random,
        "policy_versions": again.versions,
        "policy_versions_equal": whole.versions == again.versions,
        "max_kl": max(again.logged("kl"), default=0.0),
        "order_seen_equals_uninterrupted": again.seen == whole.seen,
        **same,
        **_of_ends(again),
    }


def _difference(whole: Any, again: Any) -> float:
    pairs = zip(whole.weights, again.weights, strict=True)
    return max(abs(a - b) for a, b in pairs)


def _parts(case: Mapping[str, Any]) -> list[int]:
    """Optimizer steps of each part; a run may be told to end at a step instead."""
    run = _first(case, *_STOPS)
    total = _first(case, "total_steps", "max_steps", "steps", "total")
    if run is None:
        pytest.fail(f"a case tells where the run stops by {', '.join(_STOPS)}")
    if total is None:
        resumed = case["resume_for"]
        return [run, *(resumed if isinstance(resumed, list) else [resumed])]
    every = _save_every(case)
    return [run, total - (run // every * every if every else run)]


def _save_every(case: Mapping[str, Any]) -> int:
    every: int = _first(case, "save_every", "save_steps", "checkpoint_every") or 0
    return every


def _first(case: Mapping[str, Any], *names: str) -> Any:
    """What a case gives under one of these names."""
    return next((case[name] for name in names if name in case), None)


def _numbers(text: Any) -> list[int]:
    """`3 + resume 3` is two parts of three steps."""
    if isinstance(text, list):
        return list(text)
    return [int(number) for number in _NUMBER.findall(str(text))]


def _epochs(seen: Sequence[Sequence[str]], size: int) -> list[list[str]]:
    """The whole epochs among the groups in their order."""
    flat = [task for window in seen for task in window]
    return [flat[start : start + size] for start in range(0, len(flat) - size + 1, size)]


# --- a long run


def _growth(case: Mapping[str, Any]) -> dict[str, Any]:
    """What is there after so many rollouts of one session, played window after window."""
    from agentgym.trainer.rollouts import Rollouts, Source

    marks, open_envs = sorted(case["measure_after"]), Counter[str]()
    size, turns = case.get("group_size", 8), case.get("turns", 2)
    renderer = kit.CharRenderer()
    engine = _Sessions(
        lambda call: "x" * (1 + call.sampling.seed % 512),
        encode=renderer.encode,
        decode=renderer.decode,
        stop_token_id=kit.END,
    )
    fails = case.get("fail_every", 0)
    rollouts = Rollouts(
        Source(make=lambda: engine, push=lambda engine, loop: loop.run(engine.update_weights())),
        lambda engine: kit.player_for(
            engine, renderer, lambda: _Sometimes(turns, fails, open_envs)
        ),
    )
    sampler = Sampler("case", repeat_kit.Echo().tasks(), seed=0, group_size=size)
    rss: list[float] = []
    count = window = pending = 0
    threads: list[int] = []
    with rollouts.session() as loop:
        while count < case["rollouts"]:
            requests = sampler.groups([window])[: case["rollouts"] - count]
            rollouts.sync()
            rollouts.finish(rollouts.begin(requests, temperature=1.0))
            rollouts.weights_changed()
            count, window = count + len(requests), window + 1
            if len(rss) < len(marks) and count >= marks[len(rss)]:
                rss.append(_resident_mb())
                threads.append(threading.active_count())
        pending = loop.run(_num_others())
        live = _num_live()
    return {
        "live_trajectory_objects_after": live,
        "pending_tasks_after": pending,
        "rss_growth_mb": rss[-1] - rss[0],
        "open_sessions_after": len(engine.open),
        "open_envs_after": open_envs["begun"] - open_envs["closed"],
        "more_threads_after": threads[-1] - threads[0],
        "rollouts": count,
    }


class _Sessions(kit.CallableEngine):  # type: ignore[misc, name-defined]
    """Knows which sessions nobody has let go."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.open: set[str] = set()

    async def generate(self, prompt_ids: Any, sampling: Any, *, session: str) -> Any:
        self.open.add(session)
        return await super().generate(prompt_ids, sampling, session=session)

    def release(self, session: str) -> None:
        self.open.discard(session)
        super().release(session)


class _Sometimes(repeat_kit.Echo):  # type: ignore[misc, name-defined]
    """Every so many episodes fail, at their beginning and in their first turn by turns."""

    def __init__(self, turns: int, fail_every: int, counts: Counter[str]) -> None:
        super().__init__(turns)
        self._counts = counts
        self._fails_in = ""
        counts["begun"] += 1
        if fail_every and counts["begun"] % fail_every == 0:
            self._fails_in = "step" if counts["begun"] // fail_every % 2 else "reset"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._fail_in("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._fail_in("step")
        return super().step(action)

    def close(self) -> None:
        self._counts["closed"] += 1

    def _fail_in(self, place: str) -> None:
        if self._fails_in == place:
            raise RuntimeError("down")


async def _num_others() -> int:
    return len(asyncio.all_tasks()) - 1


def _num_live() -> int:
    gc.collect()
    return sum(type(thing) in (Trajectory, RolloutOutput) for thing in gc.get_objects())


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
