"""A checkpoint of two processes goes on in one, and the other way round, as if nothing had been."""

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
from agentgym.errors import ConfigError
from agentgym.rendering import renderer_for
from agentgym.testing import byte_tokenizer
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer

runs = json.loads(sys.argv[2])
torch.set_num_threads(1)
tokenizer = byte_tokenizer()

class Played(AgentCallback):
    def __init__(self):
        self.windows = {}

    def on_window(self, args, state, control, *, outputs, advantages, **kwargs):
        rows = [[o.task_id, o.seed, o.response_token_ids] for o in outputs]
        self.windows[state.global_step] = rows

for folder, run in runs.items():
    torch.manual_seed(run["model_seed"])
    args = AgentGRPOConfig(
        output_dir=folder, use_cpu=True, max_steps=4, num_generations=4, max_completion_length=32,
        learning_rate=1e-2, lr_scheduler_type="linear", logging_steps=1, save_steps=2,
        per_device_train_batch_size=run["size"], report_to="none",
    )
    played = Played()
    trainer = AgentGRPOTrainer(
        Qwen3ForCausalLM(tiny_config(tokenizer)), args, env=WordsEnv, callbacks=[played],
        renderer=renderer_for(tokenizer, stop_token_ids=range(60)), processing_class=tokenizer,
    )
    try:
        trainer.train(resume_from_checkpoint=run["resume"])
    except ConfigError as error:
        print("REFUSED", error)
        continue
    windows = trainer.ranks.gather(played.windows)
    if trainer.ranks.index == 0:
        merged = {step: sum((w[step] for w in windows), []) for step in windows[0]}
        rates = [row["learning_rate"] for row in trainer.state.log_history if "step_time" in row]
        tokens = trainer.state.num_input_tokens_seen
        figures = {"windows": merged, "rates": rates, "tokens": tokens}
        open(os.path.join(folder, "found.json"), "w").write(json.dumps(figures))
        weights = torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])
        torch.save(weights, os.path.join(folder, "weights.pt"))
    assert WordsEnv.num_open == 0
trainer.accelerator.wait_for_everyone()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)  # threads of torch.distributed may abort an interpreter that is ending
"""


def run(folder: Path, processes: int, runs: dict[str, dict[str, Any]]) -> str:
    """One training after the other in the same processes, by output folder; what the first said."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    program = [script, HERE, json.dumps(runs)]
    done = ranks_kit.alone(program) if processes == 1 else ranks_kit.run(program, processes)
    return done.in_peace().said[0]


def test_a_checkpoint_goes_on_with_another_number_of_processes(tmp_path: Path):
    """Model, optimizer, schedule, tasks and seeds; or it says what is to be changed."""
    of_two, of_one, on_one, on_two = (
        str(tmp_path / name) for name in ("of-two", "of-one", "on-one", "on-two")
    )
    whole = {"size": 16, "model_seed": 0, "resume": None}
    run(tmp_path, 2, {of_two: whole | {"size": 8}})
    from_two = {"size": 16, "model_seed": 9, "resume": f"{of_two}/checkpoint-2"}
    refused = str(tmp_path / "refused")
    said = run(tmp_path, 1, {of_one: whole, on_one: from_two, refused: from_two | {"size": 8}})
    from_one = {"size": 8, "model_seed": 9, "resume": f"{of_one}/checkpoint-2"}
    run(tmp_path, 2, {on_two: from_one})

    expected, weights = _found(of_one)
    assert len(expected["windows"]["2"]) == 16
    for folder in (of_two, on_one, on_two):
        found, theirs = _found(folder)
        for step in found["windows"]:
            assert found["windows"][step] == expected["windows"][step], (folder, step)
        assert found["rates"] == expected["rates"]
        assert found["tokens"] == expected["tokens"]
        assert torch.allclose(theirs, weights, atol=1e-4), folder
    assert list(_found(on_one)[0]["windows"]) == list(_found(on_two)[0]["windows"]) == ["2", "3"]
    assert "REFUSED" in said
    assert "4 groups per window of 1 optimizer steps, this run has 2 per 1" in said
    assert "per_device_train_batch_size is what each of them plays" in said


def _found(folder: str) -> tuple[dict[str, Any], torch.Tensor]:
    figures: dict[str, Any] = json.loads((Path(folder) / "found.json").read_text())
    return figures, torch.load(Path(folder) / "weights.pt")
