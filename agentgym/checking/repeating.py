"""Checks that an episode depends on its task, its seed and the policy, and on nothing else."""

import pickle
import random
from typing import Any

import numpy as np

from agentgym.checking.contract import CALLS
from agentgym.checking.looped import play_in_loop
from agentgym.checking.policies import Policy, random_text
from agentgym.checking.report import Findings
from agentgym.checking.session import Session, difference, play
from agentgym.checking.subject import Subject
from agentgym.trajectory import Task

_NUM_TASKS = 3
_WORDS = Policy("random text", random_text)
Members = list[tuple[Task, int, Policy]]


def members(subject: Subject) -> Members:
    """What is played again: some tasks, with seeds and policies."""
    some = subject.tasks[:_NUM_TASKS]
    players = (CALLS, _WORDS, *subject.oracle)
    return [
        (task, subject.seed + number, policy)
        for number, task in enumerate(some)
        for policy in players
    ]


async def global_random(subject: Subject) -> Findings:
    """The global generators of `random` and NumPy are neither used nor seeded."""
    found = Findings()
    touched: set[tuple[str, str]] = set()
    for task, seed, policy in members(subject):
        before = _global_state()
        session = Session(subject, task, seed=seed, policy=policy)
        touched |= {("building the env", name) for name in _changed(before)}
        before = _global_state()
        await session.start()
        touched |= {("reset", name) for name in _changed(before)}
        before = _global_state()
        while await session.move():
            pass
        touched |= {("step", name) for name in _changed(before)}
        await session.close()
    found.faults = [
        f"{where} changes the global state of {name}: use self.np_random, or ToolContext.rng in a "
        "tool"
        for where, name in sorted(touched)
    ]
    return found


def _global_state() -> dict[str, Any]:
    of_numpy = pickle.dumps(np.random.get_state(legacy=False))
    return {"random": random.getstate(), "numpy.random": of_numpy}


def _changed(before: dict[str, Any]) -> list[str]:
    now = _global_state()
    return [name for name in before if before[name] != now[name]]


async def seeds(subject: Subject) -> Findings:
    """The same task, seed and actions give the same episode, in new envs and in one used before."""
    found = Findings()
    for task, seed, policy in members(subject):
        first = await play(subject, task, seed=seed, policy=policy)
        again = Session(subject, task, seed=seed, policy=policy)
        for where in ("a new env", "an env that was used before"):
            again = Session(subject, task, seed=seed, policy=policy, env=again.env)
            await again.start()
            while await again.move():
                pass
            parts = difference(first, again.transcript)
            if parts is not None:
                found.faults.append(
                    f"task {task.id!r}, seed {seed}, {policy.name}: {where} plays another episode; "
                    f"{parts}; draw from self.np_random only and start from nothing in reset"
                )
                break
        await again.close()
    found.faults = found.faults[:1]
    return found


async def groups(subject: Subject) -> Findings:
    """The members of a group begin in one state, as the loop hashes it."""
    found = Findings()
    hashes = set()
    for task in subject.tasks[:_NUM_TASKS]:
        seen = []
        for member in range(3):
            played = await play_in_loop(subject, task, CALLS, member=member)
            seen.append(played.output.rollout_infos.get("initial_state_hash"))
        if len(set(seen)) > 1:
            found.faults.append(
                f"task {task.id!r}, seed {subject.seed}: the members of one group begin in "
                f"{len(set(seen))} states {sorted(set(map(str, seen)))}: the first observation may "
                "depend on task and seed only"
            )
        hashes |= set(seen)
    found.note = f"{len(hashes)} states for {len(subject.tasks[:_NUM_TASKS])} tasks"
    return found


async def interleaving(subject: Subject) -> Findings:
    """Two envs played in turns are what they are alone."""
    found = Findings()
    one, other = subject.tasks[0], subject.tasks[-1]
    for policy in (CALLS, *subject.oracle):
        plan = [(one, subject.seed), (other, subject.seed + 1)]
        alone = [await play(subject, task, seed=seed, policy=policy) for task, seed in plan]
        sessions = [Session(subject, task, seed=seed, policy=policy) for task, seed in plan]
        for session in sessions:
            await session.start()
        while any([await session.move() for session in sessions]):
            pass
        for session, before in zip(sessions, alone, strict=True):
            parts = difference(before, session.transcript)
            if parts is not None:
                found.faults.append(
                    f"played beside another env, {policy.name} sees another episode; {parts}; keep "
                    "the episode's state on self, not on the class or the module"
                )
            await session.close()
    found.faults = found.faults[:1]
    return found
