"""What one process fails at, the others must learn of: none waits, and each knows what to do."""

from pathlib import Path

import pytest
import ranks_kit
import torch

pytestmark = pytest.mark.slow

SCRIPT = """
import os
import signal
import time
import torch.distributed as dist
from accelerate import Accelerator
from agentgym.errors import AgentGymError, ConfigError
from agentgym.rollout.collect import TooManyFailuresError
from agentgym.trainer.ranks import ProcessGoneError, Ranks

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
        print(type(error).__name__, error, flush=True)
def num_keys():
    ranks.together(lambda: None)
    dist.barrier()
    return dist.distributed_c10d._get_default_store().num_keys()

before = num_keys()
for _ in range(20):
    assert ranks.gather(ranks.together(lambda: work(None))) == [0, 1]
assert num_keys() - before < 20, "what was told stays for ever"

def interrupt(*_):
    raise KeyboardInterrupt

if ranks.index == 0:
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
since = time.monotonic()
try:
    ranks.together(lambda: time.sleep(3 * ranks.index))
except KeyboardInterrupt:
    assert time.monotonic() - since < 2.5, "who waits hears no signal"
    print("interrupted")
dist.barrier()
try:
    ranks.together(lambda: os._exit(0) if ranks.index else None)
except ProcessGoneError as error:
    print(error, flush=True)
    os._exit(0)  # what else is to be left together
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


def run_two(script: Path, text: str) -> list[list[str]]:
    """The lines that two processes of a script print; that one waits is no news."""
    script.write_text(text)
    ended = ranks_kit.run([script]).in_peace()
    assert "timed out" not in ended.errors
    return [said.splitlines() for said in ended.said]


def test_a_failure_of_one_rank_is_one_of_all_and_keeps_its_kind(tmp_path: Path):
    """Whatever was raised: nobody waits for a rank that left without a word."""
    told, own = run_two(tmp_path / "script.py", SCRIPT)

    assert told[0] == "UsageError rank 1: misspelt"
    assert told[1].startswith("EpisodeError rank 1: ")
    assert told[2] == "AgentGymError rank 1: OSError: disk"
    assert told[3].startswith("KeyboardInterrupt")
    assert told[4] == "interrupted"
    assert told[5].startswith("process 1 of this run has ended without a word")
    assert len(told) == 6
    assert len(own) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes with GPUs are connected")
def test_processes_that_nothing_connects_are_refused(tmp_path: Path):
    """Without a GPU and without `use_cpu`, each would train a policy of its own."""
    for [line] in run_two(tmp_path / "script.py", UNCONNECTED):
        assert "WORLD_SIZE=2, but" in line
        assert "set use_cpu=True" in line
