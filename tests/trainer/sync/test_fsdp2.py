"""FSDP2 on two processes: what is gathered, sent and saved is what one process has.

Accelerate makes FSDP into DDP on CPUs, so the model is sharded by torch itself; checkpoints are
written and read by the functions of accelerate that Hugging Face's trainer calls.
"""

from pathlib import Path

import pytest
import ranks_kit

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent.parent

SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
from conftest import tiny_config
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import Qwen3ForCausalLM
from agentgym.engines.base import Sampling
from agentgym.engines.transformers.copying import CopyEngine
from agentgym.errors import AgentGymError
from agentgym.rollout.background import LoopThread
from agentgym.testing import byte_tokenizer
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync import SyncSettings, WeightSync
from agentgym.trainer.sync.gather import contents_of

folder, action = sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
ranks = Ranks(accelerator)
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")

def make(seed):
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(tiny_config(byte_tokenizer()))

def sharded(model):
    mesh = init_device_mesh("cpu", (ranks.count,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def steps(model, optimizer, count, first=0):
    for number in range(first, first + count):
        torch.manual_seed(number)
        ids = torch.randint(0, 100, (2, 12))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def whole(model):
    buckets = contents_of(model, "full").buckets(20_000)
    return {n: t.clone() for bucket in buckets for n, t in bucket.items()}

class Deaf(CopyEngine):
    async def update_weights(self, weights=None):
        next(weights.buckets())
        raise AgentGymError("the connection was cut") if ranks.index else ValueError("broken")

plain = make(0)
engine, deaf = CopyEngine(plain), Deaf(plain)
model = sharded(make(0) if action != "resume" else make(9))
assert all(isinstance(p, DTensor) for p in model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if action == "resume":
    fsdp_utils.load_fsdp_model(plugin, accelerator, model, folder)
    fsdp_utils.load_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    steps(model, optimizer, 2, first=3)
else:
    own = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    steps(plain, own, 3)
    steps(model, optimizer, 3)
    found, expected = whole(model), dict(plain.named_parameters())
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor.detach(), rtol=0, atol=1e-5)

    loop = LoopThread()
    sync = WeightSync(model, settings=SyncSettings(bucket_bytes=20_000), ranks=ranks)
    try:
        sync.push(deaf, loop)
        raise SystemExit("a failed update is an error on every rank")
    except (AgentGymError, ValueError) as error:
        print("FAILED", type(error).__name__, error)
    version = sync.push(engine, loop)
    asked = Sampling(max_tokens=8, seed=0)
    said = loop.run(engine.generate((70, 71, 72), asked, session="s"))
    fresh = CopyEngine(plain)
    wanted = loop.run(fresh.generate((70, 71, 72), asked, session="s"))
    assert said.token_ids == wanted.token_ids and said.policy_version == version
    assert max(abs(a - b) for a, b in zip(said.logprobs, wanted.logprobs)) < 1e-3

    fsdp_utils.save_fsdp_model(plugin, accelerator, model, folder)
    fsdp_utils.save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    steps(model, optimizer, 2, first=3)

tensors = whole(model)
if ranks.index == 0:
    torch.save(tensors, os.path.join(folder, action + ".pt"))
    print("DONE", flush=True)
accelerator.wait_for_everyone()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)  # threads of torch.distributed may abort an interpreter that is ending
"""


def run(folder: Path, processes: int, action: str) -> tuple[str, ...]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return ranks_kit.run([script, HERE, folder, action], processes).in_peace().said


def test_a_sharded_policy_is_gathered_sent_and_saved_as_one(tmp_path: Path):
    """Also where the engine of a rank fails half-way, and on another number of processes."""
    import torch

    assert ["FAILED" in said for said in run(tmp_path, 2, "save")] == [True, True]
    assert "DONE" in run(tmp_path, 1, "resume")[0]

    uninterrupted, resumed = (torch.load(tmp_path / f"{a}.pt") for a in ("save", "resume"))
    assert uninterrupted.keys() == resumed.keys()
    for name, tensor in uninterrupted.items():
        torch.testing.assert_close(resumed[name], tensor, rtol=0, atol=1e-6)
