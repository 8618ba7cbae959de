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
import dataclasses, json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from conftest import WordsEnv, tiny_config
from transformers import Qwen3ForCausalLM
from agentgym.errors import AgentGymError, ConfigError
from agentgym.registry import LOSSES
from agentgym.rendering import renderer_for
from agentgym.store import StorageError
from agentgym.testing import byte_tokenizer
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.losses import dapo

folder, runs = sys.argv[2], json.loads(sys.argv[3])
torch.set_num_threads(1)
tokenizer = byte_tokenizer()

def judge(output):
    if is_faulty("reward"):
        raise ConfigError("rank 1 is misconfigured")
    return len(output.messages) / 10

def trl_judge(prompts, completions, **columns):
    return [float(len(c)) for c in completions][is_faulty("trl reward") :]

def my_loss(tokens, settings, normalizer):
    output = dapo(tokens, settings, normalizer)
    return dataclasses.replace(output, loss=output.loss / (not is_faulty("loss")))

class Keeps(AgentCallback):
    def on_window(self, *args, **kwargs):
        if is_faulty("window"):
            raise StorageError("the disk of rank 1 is full")

    def on_evaluation(self, *args, **kwargs):
        if is_faulty("evaluation"):
            raise StorageError("the disk of rank 1 is full")

def is_faulty(what):
    return what == fault and trainer.ranks.index == 1

LOSSES.register("mine", my_loss)
for name, settings in runs.items():
    torch.manual_seed(0)
    fault = settings.pop("fault", "")
    out = os.path.join(folder, name)
    args = AgentGRPOConfig(
        output_dir=out, use_cpu=True, max_steps=4, num_generations=4, max_completion_length=32,
        learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to="none",
        num_eval_tasks=5, **settings,
    )
    trainer = AgentGRPOTrainer(
        Qwen3ForCausalLM(tiny_config(tokenizer)), args, env=WordsEnv, rewards=[judge],
        reward_funcs=trl_judge, renderer=renderer_for(tokenizer, stop_token_ids=range(60)),
        processing_class=tokenizer, callbacks=[Keeps()],
    )
    try:
        if fault == "evaluation":
            trainer.evaluate_env()
        trainer.train()
    except AgentGymError as error:
        print("STOPPED", trainer.state.global_step, error)
        continue
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


def run(folder: Path, processes: int, runs: dict[str, dict[str, Any]]) -> ranks_kit.Ended:
    """One run after the other, in the same processes."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    out = folder / f"out{processes}"
    out.mkdir()
    program = [script, HERE, out, json.dumps(runs)]
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


FAULTS = {
    "reward": "rank 1 is misconfigured",
    "trl reward": "reward function 'trl_judge' returned 7 rewards for 8 trajectories",
    "loss": "the mine loss of ",
    "window": "the disk of rank 1 is full",
    "evaluation": "the disk of rank 1 is full",
}


def test_an_error_on_one_rank_stops_all_of_them(tmp_path: Path):
    """The others must not wait for it until a timeout; none makes the step."""
    common = {"per_device_train_batch_size": 8, "loss_type": "mine"}
    done = run(tmp_path, 2, {name: {**common, "fault": name} for name in FAULTS})

    first, second = (said.splitlines() for said in done.in_peace().said)
    for told, own, message in zip(first, second, FAULTS.values(), strict=True):
        assert told.startswith(f"STOPPED 0 rank 1: {message}"), first
        assert own.startswith(f"STOPPED 0 {message}"), second
