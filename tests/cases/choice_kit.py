"""Folders of checkpoints, and which of them the product goes on from.

Every checkpoint is a copy of a real one, harmed as a case says.
"""

import importlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

resume_kit = importlib.import_module("agentgym_cases_resume_kit")

_FILES = {
    "optimizer": "optimizer.pt",
    "scheduler": "scheduler.pt",
    "rng": "rng_state.pth",
    "random": "rng_state.pth",
    "model": "model.safetensors",
    "weights": "model.safetensors",
    "state": "trainer_state.json",
}
"""By what a case calls them."""
_NUMBERED = re.compile(r"\D*(\d+)((?:[.-].*)?)")
_WHOLE = ("complete", "ok", "full", "good", "whole")
_GONE = ("no ", "missing", "without", "lost")
_LAST = "trainer_state.json"
"""Is written last, so it is what a killed run lacks."""


class _Wanted(NamedTuple):
    name: str
    how: Any
    """Whether it is complete, what became of it in words, or the files that are there."""


def chosen(case: Mapping[str, Any]) -> dict[str, Any]:
    """The checkpoint that is resumed from, and how far the run then comes.

    A case has `checkpoints`: a mapping from name or step, or a list of names (those in `incomplete`
    have no state) or of dictionaries with `step` or `name` and `complete`, `status` or `files`.
    """
    wanted = list(_wanted(case))
    with resume_kit.folder() as folder:
        run = resume_kit.Run(folder / "run", rows=range(4), settings={})
        run.go(1)
        made = run.newest.rename(folder / "made")
        for one in wanted:
            _make(made, run.folder.checkpoints / one.name, one.how)
        newest = run.newest.name
        run.go(1)
    step = int(newest.rpartition("-")[2])
    return {
        "resumed_from": newest,
        "resume_from": newest,
        "resume_from_step": step,
        "resumes_from": newest,
        "resumed_from_step": step,
        "step": step,
        "global_step": run.step,
        "crash": False,
    }


def _wanted(case: Mapping[str, Any]) -> Iterator[_Wanted]:
    given, incomplete = case["checkpoints"], case.get("incomplete", ())
    if isinstance(given, Mapping):
        yield from (_Wanted(_name(name), _how(given[name])) for name in dict.keys(given))  # type: ignore[arg-type]
        return
    for one in given:
        if isinstance(one, Mapping):
            key = next(key for key in ("name", "step") if key in one)
            yield _Wanted(_name(one[key]), _how(one))
        else:
            yield _Wanted(_name(one), one not in incomplete)


def _how(given: Any) -> Any:
    """What became of one, which a mapping tells under a key."""
    if not isinstance(given, Mapping):
        return given
    for part in _FILES:
        if not given.get(f"has_{part}", True):
            return f"no {part}"
    return next((given[key] for key in ("complete", "status", "files") if key in given), True)


def _name(given: Any) -> str:
    """`10`, `step-10` and `global_step_10` are `checkpoint-10` here, a suffix is left as it is."""
    found = _NUMBERED.fullmatch(str(given))
    if found is None:
        pytest.fail(f"which step is {given!r} of?")
    return f"checkpoint-{found[1]}{found[2]}"


def _make(made: Path, path: Path, how: Any) -> None:
    shutil.copytree(made, path)
    state = json.loads((path / _LAST).read_text("utf-8"))
    state["global_step"] = int(path.name.removeprefix("checkpoint-").partition(".")[0])
    (path / _LAST).write_text(json.dumps(state), "utf-8")
    if isinstance(how, list):
        for file in path.iterdir():
            if file.name not in how:
                file.unlink()
    elif isinstance(how, str) and how not in _WHOLE:
        words = how.lower()
        name = next((file for word, file in _FILES.items() if word in words), _LAST)
        _harm(path / name, is_gone=any(word in words for word in _GONE))
    elif how is False:
        (path / _LAST).unlink()
    elif how is not True and how not in _WHOLE:
        pytest.fail(f"what is {path.name}: {how!r}?")


def _harm(path: Path, *, is_gone: bool) -> None:
    if is_gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
