"""Two processes on one machine: the same groups give the update of one process."""

import json
from pathlib import Path
from typing import Any

import pytest
import ranks_kit
import torch

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent

SCRIPT = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from conftest import WordsEnv, tiny_config
from transformers import Qwen3ForCausalLM
from agentgym.errors import AgentGymError, ConfigError
from agentgym.rendering import renderer_for
from agentgym.testing import byte_tokenizer
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer

folder, runs, fault = sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
tokenizer = byte_tokenizer()

def judge(output):
    if fault == "usage" and trainer.ranks.index == 1:
        raise ConfigError("rank 1 is misconfigured")
    return len(output.messages) / 10

def trl_judge(prompts, completions, **columns):
    return [float(len(c)) for c in completions]

for name, settings in runs.items():
    torch.manual_seed(0)
    out = os.path.join(folder, name)
    args = AgentGRPOConfig(
        output_dir=out, use_cpu=True, max_steps=4, num_generations=4, max_completion_length=32,
        learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to="none",
        num_eval_tasks=5, **settings,
    )
    trainer = AgentGRPOTrainer(
        Qwen3ForCausalLM(tiny_config(tokenizer)), args, env=WordsEnv, rewards=[judge],
        reward_funcs=trl_judge, renderer=renderer_for(tokenizer, stop_token_ids=range(60)),
        processing_class=tokenizer,
    )
    try:
        trainer.train()
    except AgentGymError as error:
        print("STOPPED", error)
        sys.exit(7)
    figures = trainer.evaluate_env()
    if trainer.accelerator.is_main_process:
        weights = torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])
        torch.save(weights, out + ".pt")
        rows = [r for r in trainer.state.log_history if "step_time" in r]
        open(out + ".json", "w").write(json.dumps({"rows": rows, "eval": figures}))
    assert WordsEnv.num_open == 0
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)  # threads of torch.distributed may abort an interpreter that is ending
"""


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "uneven micro-batches": {"token_budget": 60, "loss_type": "grpo", "scale_rewards": "batch"},
    "iterations and accumulation": {
        "num_iterations": 2,
        "steps_per_generation": 2,
        "gradient_accumulation_steps": 2,
    },
}


def run(
    folder: Path, processes: int, runs: dict[str, dict[str, Any]], *, fault: str = ""
) -> ranks_kit.Ended:
    """One run after the other, in the same processes."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    out = folder / f"out{processes}"
    out.mkdir()
    program = [script, HERE, out, json.dumps(runs), fault]
    return ranks_kit.alone(program) if processes == 1 else ranks_kit.run(program, processes)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All ways, once in one process and once in two."""
    folder = tmp_path_factory.mktemp("played")
    for processes in (1, 2):
        runs = {}
        for name, settings in WAYS.items():
            size = 16 // processes // settings.get("gradient_accumulation_steps", 1)
            runs[name] = settings | {"per_device_train_batch_size": size}
        run(folder, processes, runs).in_peace()
    return folder


def result(folder: Path, processes: int, name: str) -> tuple[torch.Tensor, dict[str, Any]]:
    out = folder / f"out{processes}" / name
    figures: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return torch.load(out.with_suffix(".pt")), figures


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_make_the_update_of_one(played: Path, way: str):
    """Whole groups per rank, counts from all ranks, gradients averaged: nothing else may differ."""
    (one, alone), (two, together) = result(played, 1, way), result(played, 2, way)
    assert torch.cosine_similarity(one, two, dim=0) >= 0.99999
    assert torch.allclose(one, two, atol=1e-4)
    for ours, theirs in zip(alone["rows"], together["rows"], strict=True):
        for name in ("loss", "grad_norm", "reward", "reward_std", "entropy", "num_tokens"):
            if name in ours:
                assert theirs[name] == pytest.approx(ours[name], rel=1e-3, abs=1e-4), name
    assert together["eval"] == pytest.approx(alone["eval"], rel=1e-3)


def test_an_error_on_one_rank_stops_all_of_them(tmp_path: Path):
    """The others must not wait for it until a timeout."""
    done = run(tmp_path, 2, {"run": {"per_device_train_batch_size": 8}}, fault="usage")

    assert done.code != 0
    first, second = done.said
    assert "STOPPED rank 1: rank 1 is misconfigured" in first, done.errors[-2000:]
    assert "STOPPED rank 1 is misconfigured" in second
