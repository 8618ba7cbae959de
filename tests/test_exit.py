"""The process can always end, whatever an env does with a cancellation."""

import os
import signal
from pathlib import Path

import pytest
import warm_kit

STUBBORN = """
import asyncio

from agentgym import deadlines
from agentgym.envs import Task, TaskSet, ToolEnv, register


deadlines.GRACE_S = 0.5


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
    process = warm_kit.start("-m", "agentgym", "rollout", "--n", "1", *flags, cwd=tmp_path)
    assert process.stdout.readline() == "stepping\n"
    os.kill(process.pid, signal.SIGINT)
    process.communicate(60)

    assert process.returncode == 130
