"""The process can always end, whatever an env does with a cancellation."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUBBORN = """
import asyncio
from pathlib import Path

from agentgym.envs import Task, TaskSet, ToolEnv, register


class Stubborn(ToolEnv):
    def tasks(self, split="train"):
        return TaskSet.procedural(lambda i: Task(id=str(i)))

    def prompt(self, task):
        return "q"

    def score(self, episode):
        return {"a": 1.0}

    async def astep(self, action):
        print("stepping", flush=True)
        while True:
            try:
                await asyncio.sleep(10)
            except BaseException:
                pass


register("Stubborn-v0", Stubborn)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_rollout_whose_env_swallows_it(tmp_path: Path):
    """Even the interpreter's own clearing up would run such a coroutine for ever."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "script.json").write_text('["hi"]')
    flags = ("--plugins", "stubborn.py", "--env", "stubborn", "--policy", "scripted:script.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", "rollout", "--n", "1", *flags],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "stepping\n"
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) == 130
