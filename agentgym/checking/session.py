"""One episode played step by step, without an engine, and its transcript.

Two episodes are the same if their transcripts are; what is compared is all that the loop reads, and
nothing that differs by nature (times, call ids).
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from agentgym.checking.policies import Policy, View, golds_of
from agentgym.checking.subject import Subject
from agentgym.envs import Env
from agentgym.jsonable import as_json
from agentgym.messages import Message, ToolResult, assistant
from agentgym.trajectory import Task

MAX_TURNS = 8
_SHOWN = 100
Entry = dict[str, Any]


class Session:
    """An env in one episode.

    Args:
        subject: who builds the env.
        task: what is played.
        seed: of the reset.
        policy: who plays.
        env: instead of a new one.
    """

    def __init__(
        self, subject: Subject, task: Task, *, seed: int, policy: Policy, env: Env | None = None
    ) -> None:
        self.env = subject.make() if env is None else env
        self.transcript: list[Entry] = []
        self.is_over = False
        self.last_action = assistant("")
        self._subject = subject
        self._task, self._seed, self._policy = task, seed, policy
        self._golds = golds_of([task])
        self.messages: list[Message] = []
        """The conversation so far."""
        self._turn = 0

    def _what(self, call: str) -> str:
        return f"{call} (task {self._task.id!r}, seed {self._seed}, policy {self._policy.name!r})"

    async def start(self) -> None:
        """Reset."""
        with self._subject.asking(self._what("reset")):
            options = {"task": self._task}
            observation, info = await self.env.areset(seed=self._seed, options=options)
        self.messages += observation
        self.transcript.append({"turn": "reset", **_heard(observation), **_reported(info)})

    def _act(self) -> Message:
        view = View(
            task=self._task,
            messages=self.messages,
            tools=tuple(self.env.tools),
            turn=self._turn,
            env=self.env,
            golds=self._golds,
        )
        with self._subject.asking(self._what("the policy")):
            return self._policy.act(view)

    async def move(self) -> bool:
        """One step; False if the episode is over, or was played long enough."""
        if self.is_over or self._turn >= MAX_TURNS:
            return False
        action = self._act()
        with self._subject.asking(self._what(f"step {self._turn + 1}")):
            observation, reward, terminated, truncated, info = await self.env.astep(action)
        self.messages += [action, *observation]
        self.last_action = action
        self._turn += 1
        ended = {"reward": reward, "terminated": terminated, "truncated": truncated}
        entry = {"turn": f"step {self._turn}", "action": _said(action), **_heard(observation)}
        self.transcript.append(entry | ended | _reported(info))
        self.is_over = terminated or truncated
        return not self.is_over

    async def close(self) -> None:
        """Close the env."""
        with self._subject.asking(self._what("close")):
            await self.env.aclose()


async def play(subject: Subject, task: Task, *, seed: int, policy: Policy) -> list[Entry]:
    """Transcript of an episode in a new env."""
    session = Session(subject, task, seed=seed, policy=policy)
    await session.start()
    while await session.move():
        pass
    await session.close()
    return session.transcript


def digest(transcript: Sequence[Entry]) -> str:
    """Equal for equal transcripts."""
    return hashlib.sha256(json.dumps(transcript, sort_keys=True).encode()).hexdigest()[:16]


def difference(one: Sequence[Entry], other: Sequence[Entry]) -> str | None:
    """Where two transcripts part, and both values; `None` if they do not."""
    for first, second in zip(one, other, strict=False):
        for key in first:
            if key not in second or first[key] != second[key]:
                values = _part(first[key], second.get(key))
                return f"{first['turn']}: {key} {values[0]} and {values[1]}"
    if len(one) != len(other):
        return f"{len(one) - 1} steps and {len(other) - 1}"
    return None


def _part(one: Any, other: Any) -> tuple[str, str]:
    """Both values, from a little before where they part."""
    first, second = (json.dumps(value, ensure_ascii=False) for value in (one, other))
    same = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    start = max(0, same - 20)
    return first[start : start + _SHOWN], second[start : start + _SHOWN]


def _heard(observation: Sequence[Message]) -> Entry:
    return {"observation": [m.model_dump(mode="json", exclude_defaults=True) for m in observation]}


def _said(action: Message) -> Entry:
    return action.model_dump(mode="json", exclude_defaults=True)


def _reported(info: dict[str, Any]) -> Entry:
    """What the loop reads of `info`."""
    results = [_result(result) for result in info.get("tool_results", ())]
    read = {key: info[key] for key in ("rewards", "stop_reason", "report") if key in info}
    plain: Entry = as_json({"results": results, **read})
    return plain


def _result(result: ToolResult) -> list[Any]:
    return [result.name, result.content, result.error]
