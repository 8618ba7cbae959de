"""The same episodes in a process of their own, where nothing is the same but the env.

The other process hashes strings with another seed, so that an order that comes from a set shows.
Run as a module, this file is that process: a JSON request on stdin, transcripts on stdout.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from agentgym.checking.origins import find
from agentgym.checking.repeating import members
from agentgym.checking.report import Findings
from agentgym.checking.session import Entry, difference, play
from agentgym.checking.subject import Origin, Subject
from agentgym.errors import EnvError, NotRegisteredError
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.shared import configure, wanted

_MARK = "agentgym-transcripts:"
_HASH_SEEDS = ("1", "2")
_SHARE_OF_TIME = 0.8
"""Of the deadline: the processes must end before the check does."""


class Request(BaseModel):
    """What the other process is to play."""

    origin: Origin
    num_tasks: int
    seed: int
    sandbox: SandboxSettings


async def fresh_process(subject: Subject) -> Findings:
    """A new process, with other hash seeds, plays the same episodes."""
    if subject.origin is None:
        return Findings(skipped="another process could not find this env: name it, or its class")
    here = await transcripts(subject)
    request = Request(
        origin=subject.origin,
        num_tasks=subject.num_tasks,
        seed=subject.seed,
        sandbox=wanted(),
    )
    asked = [asyncio.to_thread(_ask, request, seed, subject.timeout_s) for seed in _HASH_SEEDS]
    for there in await asyncio.gather(*asked):
        if there is None:
            return Findings(
                skipped=f"{subject.name!r} is registered in this process only: register it in a "
                "--plugins file or by an entry point"
            )
        for (task, seed, policy), one, other in zip(members(subject), here, there, strict=True):
            parts = difference(one, other)
            if parts is not None:
                return Findings(
                    [
                        f"task {task.id!r}, seed {seed}, {policy.name}: a new process plays another"
                        f" episode; {parts}; it must not depend on the order of a set, on hash(), "
                        "on the clock, or on what was played before"
                    ]
                )
    return Findings(note=f"{len(_HASH_SEEDS)} processes, {len(here)} episodes each")


async def transcripts(subject: Subject) -> list[list[Entry]]:
    """Of all episodes that are played again, each after its task."""
    played = [
        [{"turn": "the task", **task.model_dump(mode="json")}]
        + await play(subject, task, seed=seed, policy=policy)
        for task, seed, policy in members(subject)
    ]
    plain: list[list[Entry]] = json.loads(json.dumps(played))
    return plain


def _ask(request: Request, hash_seed: str, timeout_s: float) -> list[list[Entry]] | None:
    """What another process plays; `None` if the env's name is unknown there."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "agentgym.checking.fresh"],
            input=request.model_dump_json(),
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": _path()},
            capture_output=True,
            text=True,
            timeout=_SHARE_OF_TIME * timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvError(f"a new process did not end within {error.timeout:g} s") from error
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            answer: list[list[Entry]] | None = json.loads(line.removeprefix(_MARK))
            return answer
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    raise EnvError(f"a new process could not play it: {last}")


def _path() -> str:
    """What can be imported here can be imported there."""
    return os.pathsep.join(filter(None, sys.path))


def main() -> None:
    """Play what stdin asks for."""
    request = Request.model_validate_json(sys.stdin.read())
    configure(request.sandbox, quiet=True)
    played: Any = None
    with suppress(NotRegisteredError):
        played = asyncio.run(transcripts(_subject(request)))
    print(_MARK + json.dumps(played), flush=True)
    os._exit(0)


def _subject(request: Request) -> Subject:
    build = find(request.origin)
    build().close()
    return Subject(
        name="fresh",
        build=build,
        origin=None,
        is_registered=False,
        env_args=request.origin.env_args,
        num_tasks=request.num_tasks,
        seed=request.seed,
        timeout_s=60.0,
    )


if __name__ == "__main__":
    main()
