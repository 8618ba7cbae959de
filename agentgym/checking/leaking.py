"""Checks that an episode leaves nothing behind: threads, tasks, files, processes, shared state.

Envs are kept alive while things are counted: what is only freed with the env was not closed. The
first episodes warm caches up and do not count.
"""

import asyncio
import gc
import os
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from agentgym.checking.contract import CALLS
from agentgym.checking.report import Findings
from agentgym.checking.session import Session
from agentgym.checking.subject import Subject, innermost
from agentgym.envs import Env

_SHARED = "agentgym.tools.sandbox.shared"
_NUM_EPISODES = 6
_WARM_UP = 2
_SETTLE_S = 0.5
"""How long what was closed may take to be gone."""
_OWN = ("agentgym-", "asyncio_")
_PLAIN = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (dict, list, set, frozenset, tuple, deque, Counter, defaultdict, OrderedDict)
_Counts = dict[str, set[str]]


async def leaks(subject: Subject) -> Findings:
    """Episodes leave no thread, asyncio task, file or child process, and no env."""
    with _own_temporary_folder() as folder:
        envs = [await _episode(subject, number) for number in range(_WARM_UP)]
        await _cool_sandboxes()
        before = _counts()
        num_before = len(os.listdir(folder))
        envs += [await _episode(subject, number) for number in range(_NUM_EPISODES)]
        await _cool_sandboxes()
        left = await _settled(before)
        left["temporary files"] = set(sorted(os.listdir(folder))[num_before:])
    left["closed envs"] = _kept(envs)
    faults = [
        f"{_NUM_EPISODES} episodes left {len(what)} {kind} behind, such as {min(what)}: free them "
        "in close"
        for kind, what in left.items()
        if len(what) > _NUM_EPISODES // 2
    ]
    return Findings(faults, note=f"{_NUM_EPISODES} episodes")


@contextmanager
def _own_temporary_folder() -> Iterator[str]:
    """Where `tempfile` puts things for now, so that others' things do not count."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before


async def _cool_sandboxes() -> None:
    """Those that are kept warm belong to the process, not to an env."""
    if _SHARED in sys.modules:
        await import_module(_SHARED).cool_shared()


def _kept(envs: list[Env]) -> set[str]:
    """Envs that are not freed with the last reference that the checker has."""
    held = [(weakref.ref(innermost(env)), repr(env)) for env in envs]
    envs.clear()
    gc.collect()
    return {f"{name} ({number})" for number, (ref, name) in enumerate(held) if ref() is not None}


async def _episode(subject: Subject, number: int) -> Env:
    task = subject.tasks[number % len(subject.tasks)]
    session = Session(subject, task, seed=subject.seed, policy=(*subject.oracle, CALLS)[0])
    await session.start()
    while await session.move():
        pass
    await session.close()
    return session.env


async def _settled(before: _Counts) -> _Counts:
    """What is there that was not there before, once closing has had its time."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        gc.collect()
        left = {kind: now - before[kind] for kind, now in _counts().items()}
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.02)


def _counts() -> _Counts:
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith(_OWN))
    return {
        "threads": {f"{thread.name} ({thread.ident})" for thread in threads},
        "asyncio tasks": {_task_name(task) for task in asyncio.all_tasks() if not task.done()},
        "open files": _open_files(),
        "child processes": _children(),
    }


def _task_name(task: "asyncio.Task[Any]") -> str:
    return f"{task.get_name()} {task.get_coro()!r}"


def _open_files() -> set[str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    names = set()
    for number in os.listdir(folder):
        try:
            names.add(f"{os.readlink(folder / number)} (descriptor {number})")
        except OSError:
            continue
    return names


def _children() -> set[str]:
    folder = Path(f"/proc/{os.getpid()}/task")
    if not folder.is_dir():
        return set()
    found: set[str] = set()
    for task in os.listdir(folder):
        try:
            found |= set((folder / task / "children").read_text().split())
        except OSError:
            continue
    return found


async def shared_state(subject: Subject) -> Findings:
    """No class or module variable of the env changes by playing."""
    warm = subject.make()
    subject.discard(warm)
    for number in range(_WARM_UP):
        await _episode(subject, number)
    before = _variables(innermost(warm))
    for number in range(_WARM_UP):
        await _episode(subject, number)
    now = _variables(innermost(warm))
    return Findings(
        warnings=[
            f"{name} changes by playing ({_short(before.get(name))} to {_short(now[name])}): state "
            "shared by all episodes makes them depend on each other; keep it on self"
            for name in sorted(now)
            if before.get(name) != now[name]
        ]
    )


def _short(value: str | None) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _variables(env: Env) -> dict[str, str]:
    """Plain class and module variables of the author's code, as text."""
    classes = [cls for cls in type(env).__mro__ if _is_authors(cls.__module__)]
    spaces = {f"{cls.__name__}.": dict(vars(cls)) for cls in classes}
    modules = {cls.__module__ for cls in classes} & sys.modules.keys()
    spaces |= {f"{name}.": dict(vars(sys.modules[name])) for name in modules}
    return {
        prefix + name: repr(value)
        for prefix, space in spaces.items()
        for name, value in space.items()
        if not name.startswith("__") and _is_plain(value, 3)
    }


def _is_authors(module: str) -> bool:
    return not module.startswith(("gymnasium", "builtins", "typing", "abc")) and module not in (
        "agentgym.envs.base",
        "agentgym.envs.tool_env",
        "agentgym.envs.text_env",
        "agentgym.envs.wrappers",
    )


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if not isinstance(value, _CONTAINERS) or depth == 0:
        return False
    items = [*value, *value.values()] if isinstance(value, dict) else list(value)
    return all(_is_plain(item, depth - 1) for item in items)
