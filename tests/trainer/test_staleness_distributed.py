"""Windows played ahead on two processes, one of which is slower than the other."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import ranks_kit

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent

SCRIPT = '''
import asyncio, json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from conftest import WordsEnv, tiny_config
from transformers import Qwen3ForCausalLM
from agentgym.errors import AgentGymError, ConfigError
from agentgym.rendering import renderer_for
from agentgym.testing import byte_tokenizer
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer

out, settings, fault = sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
tokenizer = byte_tokenizer()
torch.manual_seed(0)

class Uneven(WordsEnv):
    """Takes longer on one rank than on the other, and fails now and then."""

    async def astep(self, action):
        await asyncio.sleep(0.01 * (1 + 5 * trainer.ranks.index) * (self.number % 3))
        if fault == "uneven" and self.number % 5 == 4 and len(action.content) % 2:
            raise RuntimeError("died")
        return await super().astep(action)

    def reset(self, *, seed=None, options=None):
        self.number = options["task"]["number"]
        if fault == "usage" and trainer.ranks.index == 1 and self.number >= 8:
            raise ConfigError("rank 1 cannot go on")
        return super().reset(seed=seed, options=options)

def trl_judge(prompts, completions, **columns):
    return [float(len(c)) for c in completions]

args = AgentGRPOConfig(
    output_dir=out, use_cpu=True, max_steps=4, num_generations=4, max_completion_length=32,
    per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=1, save_strategy="no",
    report_to="none", num_eval_tasks=5, eval_strategy="steps", eval_steps=2, **settings,
)
trainer = AgentGRPOTrainer(
    Qwen3ForCausalLM(tiny_config(tokenizer)), args, env=Uneven, reward_funcs=trl_judge,
    renderer=renderer_for(tokenizer, stop_token_ids=range(60)), processing_class=tokenizer,
)
try:
    trainer.train()
except AgentGymError as error:
    print("STOPPED", trainer.state.global_step, error)
    assert WordsEnv.num_open == 0
    sys.exit(7)
assert WordsEnv.num_open == 0
weights = torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])
sums = trainer.ranks.gather((float(weights.sum()), len(trainer.window.parts[0].micro_batches)))
if trainer.accelerator.is_main_process:
    rows = [r for r in trainer.state.log_history if "step_time" in r]
    open(out + ".json", "w").write(json.dumps({"rows": rows, "sums": sums}))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)  # threads of torch.distributed may abort an interpreter that is ending
'''


def run(tmp_path: Path, fault: str, **settings: Any) -> ranks_kit.Ended:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return ranks_kit.run([script, HERE, tmp_path / "out", json.dumps(settings), fault])


def test_two_ranks_need_not_be_equally_fast(tmp_path: Path):
    """Uneven envs and failures: no deadlock, equal weights, equally many micro-batches."""
    run(tmp_path, "uneven", staleness=1, token_budget=90, max_failed_fraction=1.0).in_peace()

    figures = json.loads((tmp_path / "out.json").read_text())
    rows, (one, other) = figures["rows"], figures["sums"]
    assert one == other
    assert len(rows) == 4
    assert sum(row["failed"] for row in rows) > 0
    assert rows[0]["staleness/max"] == 0
    assert max(row["staleness/max"] for row in rows) == 1
    assert all(math.isfinite(row["loss"]) for row in rows)


def test_a_window_that_fails_on_one_rank_stops_all_of_them(tmp_path: Path):
    """Where it is needed: the windows before it are trained on."""
    done = run(tmp_path, "usage", staleness=2)

    assert done.code != 0
    first, second = done.said
    assert "STOPPED 2 rank 1: rank 1 cannot go on" in first, done.errors[-2000:]
    assert "STOPPED 2 rank 1 cannot go on" in second
