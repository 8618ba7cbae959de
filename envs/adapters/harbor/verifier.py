"""Runs the tests of a task where its agent never was: a fresh sandbox that gets the files as data.

The tests may run the agent's files, so a program can still write the reward file itself; what it
cannot do is change the tests, leave processes behind, or reach what the host reads otherwise. A
reward that is missing, no number or out of range is 0, never unscored: a policy could choose it.
"""

import json
import math
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym.envs.adapters.harbor.folder import HarborTask
from agentgym.envs.adapters.harbor.places import moved_file
from agentgym.errors import ToolError
from agentgym.tools.sandbox.base import Outcome, Sandbox
from agentgym.tools.sandbox.limits import Limits

_FIND = r"find . -type f -printf '%m\t%s\t%p\0'; true"
_MAX_BYTES = 32 * 2**20
_MAX_FILES = 1000
_MAX_LIST_BYTES = 2**20
_REWARD_FILES = ("reward.txt", "reward.json")
_TAIL = 2000


class File(NamedTuple):
    """What the agent left at a path."""

    data: bytes
    executable: bool = False


class Verdict(NamedTuple):
    """What the tests say."""

    reward: float
    parts: Mapping[str, float]
    """All numbers of the reward file."""
    reason: str = ""
    """Why the reward is 0 whatever the file says."""
    output: str = ""
    """End of what the tests printed."""


async def collect(sandbox: Sandbox, limits: Limits) -> dict[str, File] | None:
    """Files of the working directory; `None` if they cannot be had, which is the agent's doing."""
    found = await sandbox.run_shell(_FIND, limits=replace(limits, output_bytes=_MAX_LIST_BYTES))
    if not found.ok or found.stdout_cut:
        return None
    lines = [line.split("\t", 2) for line in found.stdout.split("\0") if line]
    if len(lines) > _MAX_FILES or sum(int(size) for _, size, _ in lines) > _MAX_BYTES:
        return None
    files: dict[str, File] = {}
    for mode, _, path in lines:
        with suppress(ToolError):  # made unreadable, or under a name that is no text
            data = await sandbox.read_file(path, max_bytes=_MAX_BYTES)
            files[path] = File(data, bool(int(mode, 8) & 0o100))
    return files


async def write_files(sandbox: Sandbox, files: Mapping[str, File]) -> None:
    """Put files into the working directory.

    Raises:
        ToolError: one cannot be there, such as for want of room.
    """
    for path, file in files.items():
        await sandbox.write_file(path, file.data)
    programs = [shlex.quote(path) for path, file in files.items() if file.executable]
    if programs:
        await sandbox.run_shell(f"chmod +x -- {' '.join(programs)}")


async def verify(
    task: HarborTask, files: Mapping[str, File], sandbox: Sandbox, limits: Limits
) -> Verdict:
    """Run the tests of a task on the files of its agent, in a sandbox nobody has used.

    Raises:
        SandboxError: the sandbox failed.
    """
    here = (await sandbox.run_shell("pwd -P")).stdout.strip()
    hidden = f".verifier-{secrets.token_hex(8)}"
    places = {
        str(task.image.workdir): here,
        **{f"/{name}": f"{here}/{hidden}/{name}" for name in ("tests", "logs", "solution")},
    }
    tests = {path: File(moved_file(data, places), True) for path, data in task.tests.items()}
    try:
        await write_files(sandbox, files)
        await write_files(sandbox, {f"{hidden}/tests/{path}": f for path, f in tests.items()})
    except ToolError as error:
        return Verdict(0.0, {}, f"the agent's files leave no room for the tests: {error}")
    result = await sandbox.run_shell(_command(task, hidden), limits=limits)
    output = (result.stdout + result.stderr)[-_TAIL:]
    if result.outcome not in (Outcome.OK, Outcome.ERROR):
        return Verdict(0.0, {}, f"the tests ended in {result.outcome.value}", output)
    return (await _read_reward(sandbox, f"{hidden}/logs/verifier"))._replace(output=output)


def _command(task: HarborTask, hidden: str) -> str:
    exports = "".join(
        f"export {name}={shlex.quote(value)}; " for name, value in task.verifier_env.items()
    )
    logs = f"{hidden}/logs/verifier"
    return (
        f"rm -rf {logs}; mkdir -p {logs} {hidden}/logs/agent; {exports}"
        f'bash "{hidden}/tests/test.sh" </dev/null'
    )


async def _read_reward(sandbox: Sandbox, folder: str) -> Verdict:
    for name in _REWARD_FILES:
        try:
            text = (await sandbox.read_file(f"{folder}/{name}", max_bytes=65_536)).decode()
        except (ToolError, UnicodeDecodeError):
            continue
        try:
            return _read(text, is_json=name.endswith("json"))
        except (ValueError, RecursionError) as error:
            return Verdict(0.0, {}, f"{name} is refused: {error}")
    return Verdict(0.0, {}, "the tests wrote no reward.txt or reward.json")


def _read(text: str, *, is_json: bool) -> Verdict:
    given: Any = json.loads(text) if is_json else {"reward": float(text)}
    if not isinstance(given, dict) or not given:
        raise ValueError("no numbers by name")
    parts = {str(name): _number(name, value) for name, value in given.items()}
    reward = parts["reward"] if "reward" in parts else math.fsum(parts.values()) / len(parts)
    return Verdict(reward, parts)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} = {value!r} is no number")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} = {value!r} is not from 0 to 1")
    return float(value)
