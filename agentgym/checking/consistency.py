"""Checks that an episode keeps to what the policy was told, and touches only what is its own.

Tasks are shared by the members of a group, tools are told once, the process is everybody's: what an
env changes there is not seen in its own episode, but in that of another one.
"""

import contextlib
import decimal
import io
import os
import socket
import sys
from typing import Any

from agentgym.checking.contract import CALLS
from agentgym.checking.policies import Policy, named_golds, several_calls
from agentgym.checking.report import Findings
from agentgym.checking.session import Session
from agentgym.checking.subject import Subject
from agentgym.envs import Env
from agentgym.messages import Message
from agentgym.trajectory import Task

SEVERAL = Policy("several calls", several_calls)
_SAMPLE = 12
"""Questions of each split that are compared."""


async def consistency(subject: Subject) -> Findings:
    """Tasks and tools stay as they are, every call is answered."""
    found = Findings()
    for policy in (CALLS, SEVERAL, *subject.oracle):
        task = subject.first_tasks("train", 1)[0]
        before = task.model_copy(deep=True)
        session = Session(subject, task, seed=subject.seed, policy=policy)
        await session.start()
        told = _told(session.env)
        going = True
        while going:
            going = await session.move()
            found.faults += _unanswered(session) if going else []
            if going and _told(session.env) != told:
                found.faults.append(
                    f"after {session.transcript[-1]['turn']} the tools are "
                    f"{sorted(_told(session.env))}, after reset they were {sorted(told)}: models "
                    "are told once, after reset"
                )
                break
        await session.close()
        found.faults += _changed(before, task)
    found.faults = list(dict.fromkeys(found.faults))
    return found


def _told(env: Env) -> dict[str, str]:
    return {tool.name: repr(tool.to_schema()) for tool in env.tools}


def _unanswered(session: Session) -> list[str]:
    """Calls of the last action to which the observation says nothing."""
    calls = session.last_action.tool_calls
    answered = {message.tool_call_id for message in _since(session)}
    missing = [call.name for call in calls if call.id not in answered]
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(calls)} calls of a message got no tool message that names them: "
        "answer each call, in their order; agentgym.tools.run_calls does"
    ]


def _since(session: Session) -> list[Message]:
    """What was said after the last action."""
    said = session.messages
    start = max(i for i, message in enumerate(said) if message.role == "assistant")
    return said[start + 1 :]


def _changed(before: Task, after: Task) -> list[str]:
    if before == after:
        return []
    keys = {**before.data, **after.data}
    key = next(k for k in keys if before.data.get(k) != after.data.get(k))
    return [
        f"an episode changes its task: {key}={before.data.get(key)!r} became "
        f"{after.data.get(key)!r}; the members of a group share it: copy what you change"
    ]


async def process(subject: Subject) -> Findings:
    """The process's own state is as it was, and nothing is printed."""
    found, changed = Findings(), set()
    printed = io.StringIO()
    for task in subject.tasks[:3]:
        session = Session(subject, task, seed=subject.seed, policy=(*subject.oracle, CALLS)[0])
        before = _process_state()
        with contextlib.redirect_stdout(printed):
            await session.start()
            while await session.move():
                pass
            await session.close()
        now = _process_state()
        changed |= {name for name in {**before, **now} if before.get(name) != now.get(name)}
    found.faults = [
        f"playing changes {name}, which is the whole process's: all episodes share it"
        for name in sorted(changed)
    ]
    if printed.getvalue():
        found.warnings.append(
            f"it prints {printed.getvalue()[:40]!r}: use logging, output belongs to who runs it"
        )
    return found


def _process_state() -> dict[str, Any]:
    return {
        "the working directory": os.getcwd(),
        "sys.path": tuple(sys.path),
        "the recursion limit": sys.getrecursionlimit(),
        "the default timeout of sockets": socket.getdefaulttimeout(),
        "the decimal context": repr(decimal.getcontext()),
        **{f"os.environ[{name!r}]": value for name, value in os.environ.items()},
    }


async def held_out(subject: Subject) -> Findings:
    """Eval asks other questions than train."""
    known = {await _question(subject, task) for task in subject.first_tasks("train", _SAMPLE)}
    asked = {
        task.id: await _question(subject, task) for task in subject.first_tasks("eval", _SAMPLE)
    }
    if not all(gold for _, gold in {*known, *asked.values()}):
        return Findings(skipped="the tasks' data name no answer")
    both = [task_id for task_id, question in asked.items() if question in known]
    if 2 * len(both) <= len(asked):
        return Findings(note=f"{len(both)} of {len(asked)} by chance")
    return Findings(
        [
            f"{len(both)} of the first {len(asked)} eval tasks ask what a train task asks, with "
            f"the same answer, such as {both[0]!r}: held-out tasks must be others"
        ]
    )


async def _question(subject: Subject, task: Task) -> tuple[str, str]:
    """What is asked, and the answer."""
    session = Session(subject, task, seed=subject.seed, policy=CALLS)
    await session.start()
    await session.close()
    text = "\n".join(message.content for message in session.messages)
    golds = named_golds(task)
    return text, repr(sorted(golds)) if golds else ""
