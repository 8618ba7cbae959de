"""Looks for the answer in the question: a heuristic, certain only where the words say so."""

import re

from agentgym.checking.contract import CALLS
from agentgym.checking.policies import HIDDEN_KEYS, named_golds
from agentgym.checking.report import Findings
from agentgym.checking.rewarding import Measured
from agentgym.checking.session import Session
from agentgym.checking.subject import Subject
from agentgym.trajectory import RolloutOutput, Task

_LEAST_LENGTH = 2
"""Characters of an answer that is looked for."""


async def answer_hidden(subject: Subject) -> Findings:
    """The first observation does not give the answer away."""
    measured: Measured = subject.memo["measured"]
    by_id = {task.id: task for task in subject.tasks}
    played = [
        (
            by_id[output.task_id],
            f"{_first_words(output)}\n{await _tools(subject, by_id[output.task_id])}",
        )
        for output in measured.outputs["null"]
    ]
    named = [(task, text) for task, text in played if _golds(task)]
    if not named:
        return Findings(skipped="the tasks' data name no answer")
    told = [found for task, text in named if (found := _told(task, text))]
    seen = [found for task, text in named if (found := _contained(task, text))]
    if 2 * len(told) > len(named):
        return Findings(
            [f"{len(told)} of {len(named)} first observations say the answer: {told[0]}"]
        )
    if 2 * len(seen) > len(named):
        return Findings(
            warnings=[
                f"{len(seen)} of {len(named)} first observations contain the answer: {seen[0]}; "
                "fine if it is to be chosen or found there"
            ]
        )
    failed = [
        found
        for task, text in named
        if not _contained(task, text) and (found := _contained(task, await _errors(subject, task)))
    ]
    if 2 * len(failed) > len(named):
        return Findings(
            warnings=[
                f"errors of tools contain the answer of {len(failed)} of {len(named)} tasks: "
                f"{failed[0]}; say what was wrong, not what would be right"
            ]
        )
    return Findings(note=f"{len(seen)} of {len(named)} contain it by chance")


async def _tools(subject: Subject, task: Task) -> str:
    """What models are told of the tools of a task."""
    session = Session(subject, task, seed=subject.seed, policy=CALLS)
    await session.start()
    told = "\n".join(str(tool.to_schema()) for tool in session.env.tools)
    await session.close()
    return told


async def _errors(subject: Subject, task: Task) -> str:
    """What tools say to calls that fail."""
    session = Session(subject, task, seed=subject.seed, policy=CALLS)
    await session.start()
    while await session.move():
        pass
    await session.close()
    results = [result for entry in session.transcript for result in entry.get("results", ())]
    return "\n".join(content for _, content, error in results if error is not None)


def _first_words(output: RolloutOutput) -> str:
    first = next(
        (i for i, message in enumerate(output.messages) if message.role == "assistant"),
        len(output.messages),
    )
    return "\n".join(message.content for message in output.messages[:first])


def _golds(task: Task) -> list[tuple[str, str]]:
    return [
        (key, gold)
        for key, gold in named_golds(task)
        if key.lower() in HIDDEN_KEYS and len(gold) >= _LEAST_LENGTH
    ]


def _told(task: Task, text: str) -> str | None:
    """Its name, then the answer: `answer: 42`, `the answer is 42`."""
    for key, gold in _golds(task):
        name = re.escape(key.lower().rstrip("s")).replace("_", r"[\W_]")
        pattern = rf"\b{name}s?\b\W{{0,6}}(?:is|are|=)?\W{{0,6}}{re.escape(gold)}(?!\w)"
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            return f"task {task.id!r}: {match.group()!r}"
    return None


def _contained(task: Task, text: str) -> str | None:
    for key, gold in _golds(task):
        if re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", text):
            return f"task {task.id!r}: {key} {gold!r}"
    return None
