"""What one process fails at, the others must learn of: none waits, and each knows what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import torch.distributed as dist
from accelerate import Accelerator
from agentgym.errors import AgentGymError, ConfigError
from agentgym.rollout.collect import TooManyFailuresError
from agentgym.trainer.ranks import Ranks

ranks = Ranks(Accelerator(cpu=True))
FAILURES = [ConfigError("misspelt"), TooManyFailuresError([]), OSError("disk"), KeyboardInterrupt()]

def work(failure):
    if failure is not None and ranks.index == 1:
        raise failure
    return ranks.index

assert ranks.gather(ranks.together(lambda: work(None))) == [0, 1]
for failure in FAILURES:
    try:
        ranks.together(lambda: work(failure))
    except (AgentGymError, OSError, KeyboardInterrupt) as error:
        sys.stdout.write(f"{ranks.index} {type(error).__name__} {error}\\n")
assert ranks.gather(ranks.together(lambda: work(None))) == [0, 1]
dist.destroy_process_group()
"""


UNCONNECTED = """
from agentgym.errors import ConfigError
from agentgym.trainer.config import AgentGRPOConfig

try:
    AgentGRPOConfig(
        output_dir="unused", bf16=False, per_device_train_batch_size=8, num_generations=4
    )
except ConfigError as error:
    print(error, flush=True)
"""


def run_two(script: Path, text: str) -> list[str]:
    """What two processes of a script print."""
    script.write_text(text)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, "--master_port", str(30500 + os.getpid() % 1000), str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_failure_of_one_rank_is_one_of_all_and_keeps_its_kind(tmp_path: Path):
    """Whatever was raised: nobody waits for a rank that left without a word."""
    lines = run_two(tmp_path / "script.py", SCRIPT)

    told = {line for line in lines if line[:2] == "0 "}
    assert told >= {"0 UsageError rank 1: misspelt", "0 AgentGymError rank 1: OSError: disk"}
    assert any(line.startswith("0 EpisodeError rank 1: ") for line in told)
    assert any(line.startswith("0 KeyboardInterrupt") for line in told)
    assert len([line for line in lines if line[:2] == "1 "]) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes with GPUs are connected")
def test_processes_that_nothing_connects_are_refused(tmp_path: Path):
    """Without a GPU and without `use_cpu`, each would train a policy of its own."""
    lines = run_two(tmp_path / "script.py", UNCONNECTED)

    assert len([line for line in lines if "WORLD_SIZE=2, but" in line]) == 2
    assert all("set use_cpu=True" in line for line in lines)
