"""Checks of what an env is before anything is played: its name, its parts, its tasks."""

import gymnasium

from agentgym.checking.report import Findings
from agentgym.checking.subject import SPLITS, Subject, innermost
from agentgym.envs import FAMILIES, Env, spec
from agentgym.trajectory import Task

_SAMPLE = 64
"""Tasks of each split that are compared."""
_UNSAID = {"split", "index", "id", "seed"}
"""Data that tell tasks apart without saying what is asked."""


async def registration(subject: Subject) -> Findings:
    """Gymnasium and the loop find the same env under its name."""
    if not subject.is_registered:
        return Findings(skipped="the env was given as a class, not by name")
    found = spec(subject.name)
    faults = []
    of_family = not FAMILIES.keys().isdisjoint((found.namespace, found.name))
    if found.version is None and not of_family:  # families keep their own names
        faults.append(f"the id {found.id!r} has no version: register it as 'Name-v0'")
    with subject.asking(f"gymnasium.make({found.id!r})"):
        env = gymnasium.make(found.id, **subject.env_args)
        env.reset(seed=subject.seed)
        env.close()
    return Findings(faults, note=found.id)


async def building(subject: Subject) -> Findings:
    """It can be built, twice, and is an agentgym env."""
    first, second = subject.make(), subject.make()
    subject.discard(first)
    subject.discard(second)
    if not isinstance(first, Env):
        return Findings([f"{type(first).__name__} is no agentgym.envs.Env: derive from it"])
    given = innermost(first).reward_range
    if not (isinstance(given, tuple) and len(given) == 2 and given[0] < given[1]):
        return Findings([f"reward_range is {given!r}: give (lowest, highest) return"])
    return Findings(note=type(first.unwrapped).__name__)


async def tasks_exist(subject: Subject) -> Findings:
    """Both splits have at least one."""
    found = Findings()
    for split in SPLITS:
        if not subject.first_tasks(split, 1):
            found.faults.append(f"tasks({split!r}) is empty: both splits need tasks")
    found.note = ", ".join(f"{subject.task_set(s).size or 'endless'} for {s}" for s in SPLITS)
    return found


async def tasks(subject: Subject) -> Findings:
    """Ids are unique; no task is in both splits; the index alone decides; all are JSON."""
    found = Findings()
    splits = {split: subject.first_tasks(split, _SAMPLE) for split in SPLITS}
    for split, some in splits.items():
        found.faults += _repeated_ids(split, some)
        found.faults += _unwritable(split, some)
        found.faults += _unstable(subject, split, some)
    found.faults += _overlap(splits["train"], splits["eval"])
    found.note = f"the first {len(splits['train'])} of train, {len(splits['eval'])} of eval"
    return found


def _repeated_ids(split: str, tasks: list[Task]) -> list[str]:
    first: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if first.setdefault(task.id, index) != index:
            return [
                f"tasks({split!r})[{first[task.id]}] and [{index}] have the same id {task.id!r}: "
                "ids must be unique, groups are told apart by them"
            ]
    return []


def _unwritable(split: str, tasks: list[Task]) -> list[str]:
    for index, task in enumerate(tasks):
        try:
            again = Task.model_validate_json(task.model_dump_json())
        except ValueError as error:
            return [f"tasks({split!r})[{index}] cannot be written as JSON: {error}"]
        if again != task:
            return [
                f"tasks({split!r})[{index}] comes back from JSON as another task: keep only JSON "
                f"values in its data, not {_changed(task, again)}"
            ]
    return []


def _changed(task: Task, again: Task) -> str:
    for key, value in task.data.items():
        if again.data.get(key) != value:
            return f"{key}={value!r}"
    return repr(task.data)


def _unstable(subject: Subject, split: str, tasks: list[Task]) -> list[str]:
    """Asked for again, from another env, the last first."""
    again = subject.task_set(split)
    for index in reversed(range(len(tasks))):
        with subject.asking(f"tasks({split!r})[{index}]"):
            other = again[index]
        if other != tasks[index]:
            return [
                f"tasks({split!r})[{index}] differs when asked for again: "
                f"{tasks[index].data or tasks[index].id} and {other.data or other.id}; derive it "
                "from the index alone"
            ]
    return []


def _overlap(train: list[Task], held_out: list[Task]) -> list[str]:
    ids = {task.id for task in train} & {task.id for task in held_out}
    if ids:
        return [f"the id {min(ids)!r} is in train and in eval: held-out tasks must be others"]
    known = {_content(task): task.id for task in train}
    both = [task for task in held_out if task.data and _content(task) in known]
    if not both:
        return []
    return [
        f"{len(both)} of the first {len(held_out)} eval tasks are in train too: {both[0].id!r} has "
        f"the data of {known[_content(both[0])]!r}; held-out tasks must be others"
    ]


def _content(task: Task) -> str:
    return repr(sorted((k, v) for k, v in task.data.items() if k not in _UNSAID))
