"""Hundreds of executions inside rollouts, a tenth of them hostile: all right, and nothing left."""

import asyncio
import gc
import glob
import json
import os
import tempfile
from pathlib import Path

import pytest
from processes_kit import bwrap_provider, descendants

from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs.code import CodeEnv
from agentgym.envs.code.answers import fenced
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.testing import byte_tokenizer
from agentgym.tools.sandbox.base import SandboxProvider
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest

NUM, CELLS, HOSTILE_EVERY = 30, 9, 10
HOSTILE_CELLS = [
    "import os\nwhile True: os.fork()",
    "x = []\nwhile True: x.append(bytearray(10**7))",
    "while True: pass",
    "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "import os\nos._exit(137)",
    "import subprocess as s\n[s.Popen(['sleep', '600'], start_new_session=True) for _ in 'abc']",
    "open('/tmp/fill', 'wb').write(b'x' * 10**9)",
    "print('x' * 10**7)",
    "import time\ntime.sleep(600)",
]
HOSTILE_PROGRAM = "import os\nos.kill(1, 9)\nos._exit(0)"


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _is_hostile(index: int) -> bool:
    return index % HOSTILE_EVERY == 0


def _env(provider: SandboxProvider) -> CodeEnv:
    env = CodeEnv(levels=[1], limits={"cpu_s": 0.5, "wall_s": 1.0, "file_mb": 8})
    env.sandbox_provider = provider
    return env


async def _play(provider: SandboxProvider, numbers: range) -> list[RolloutOutput]:
    tokenizer, env = byte_tokenizer(), _env(provider)
    tasks = env.tasks("train")

    def policy(call: EngineCall) -> list[int]:
        index = int(call.session.partition("~")[0])
        if call.turn < CELLS:
            hostile = HOSTILE_CELLS[call.turn % len(HOSTILE_CELLS)]
            code = hostile if _is_hostile(index) else f"print({index} * 1000 + {call.turn})"
            asked = json.dumps({"name": "python", "arguments": {"code": code}})
            said = f"<tool_call>\n{asked}\n</tool_call>"
        elif _is_hostile(index):
            said = fenced(HOSTILE_PROGRAM)
        else:
            said = env.oracle(tasks[index], []).content
        return tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)

    player = Player(
        engine=CallableEngine(policy),
        renderer=renderer_for(tokenizer),
        scheduler=GymScheduler(lambda: _env(provider)),
        budget=Budget(max_turns=CELLS + 1, max_sampled_tokens=1 << 16),
        concurrency=16,
    )
    requests = [
        RolloutRequest(
            request_id=str(index),
            group_id=str(index),
            env="code",
            task=tasks[index],
            seed=index,
            sampling_seed=index,
        )
        for index in numbers
    ]
    return await collect(requests, player)


def _is_right(output: RolloutOutput) -> bool:
    index = int(output.request_id)
    if _is_hostile(index):
        return output.rewards["passed"] == 0.0
    said = [m.content for m in output.messages if m.role == "tool"]
    expected = [f"{index * 1000 + turn}" for turn in range(CELLS)]
    return output.rewards["passed"] == 1.0 and [text.strip() for text in said] == expected


@pytest.mark.slow
async def test_hostile_code_in_rollouts_harms_nobody() -> None:
    """Processes, descriptors, folders and memory are as they were."""
    others = {process.pid for process in descendants(os.getpid())}
    provider = bwrap_provider(warm=2)
    await _play(provider, range(1, 12))
    await asyncio.sleep(0.5)
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), len(descendants(os.getpid()))
    resident = _resident_mb()
    outputs = await _play(provider, range(NUM))
    await asyncio.sleep(0.5)
    gc.collect()
    after = len(os.listdir("/proc/self/fd")), len(descendants(os.getpid()))
    growth = _resident_mb() - resident
    await provider.aclose()

    assert [o.request_id for o in outputs if not _is_right(o)] == []
    assert after <= before
    assert growth < 48
    assert {process.pid for process in descendants(os.getpid())} <= others
    assert not glob.glob(f"{tempfile.gettempdir()}/agentgym-sandbox-{os.getpid()}-*")
