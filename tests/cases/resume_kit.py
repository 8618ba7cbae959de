"""A training run that is left and gone on with, each time by another trainer, as after a crash.

The model is tiny, the trainer and its checkpoints are real. What loads torch is loaded late.
"""

import importlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from agentgym.checkpoints import step_of
from agentgym.progress import progress_for
from agentgym.store import RunFolder

repeat_kit = importlib.import_module("agentgym_cases_repeat_kit")

DEFAULTS: Mapping[str, Any] = {
    "group_size": 2,
    "batch": 2,
    "shuffle": True,
    "seed": 0,
    "accumulation": 1,
    "iterations": 1,
    "staleness": 0,
    "epochs": None,
    "planned": None,
    "learns": False,
    "optim": "adamw_torch",
    "schedule": "constant",
    "warmup": 0,
    "beta": 0.0,
    "lora": False,
    "dropout": 0.0,
    "eval_every": 0,
    "max_grad_norm": 1.0,
    "weight_decay": 0.0,
    "learning_rate": 1e-2,
}
"""Settings of a run: `batch` is groups of an optimizer step, `planned` the steps its schedule is
made for, `learns` whether the policy itself is asked."""


class Run:
    """See the module.

    Args:
        folder: of its checkpoints.
        rows: values of the tasks.
        settings: those of `DEFAULTS` that are others.
    """

    def __init__(self, folder: Path, *, rows: Sequence[Any], settings: Mapping[str, Any]) -> None:
        assert settings.keys() <= DEFAULTS.keys()
        self.folder = RunFolder(folder)
        self.folder.create("")
        self._rows = _as_rows(rows)
        self.settings: dict[str, Any] = {**DEFAULTS, **settings}
        self.step, self.epoch = 0, 0.0
        self.seen: list[list[str]] = []
        """Tasks of each window, group after group."""
        self.versions: list[list[int]] = []
        """Policy versions that sampled each window."""
        self.log: list[dict[str, Any]] = []
        """A row for each step, of all parts."""
        self.weights: list[float] = []
        self.moments: list[float] = []
        """What the optimizer keeps."""
        self.random: list[int] = []
        """State of torch's generator."""
        self.resumed_from: list[str] = []
        self.metrics_steps: list[int] = []
        """Steps of the lines in the run's folder."""

    def go(self, steps: int, *, save_every: int = 0) -> None:
        """Go on for so many optimizer steps.

        Args:
            steps: a checkpoint is left after the last one.
            save_every: leave one after every so many instead.
        """
        import torch

        checkpoint = self.newest if self.step else None
        if checkpoint is not None:
            self.resumed_from.append(checkpoint.name)
            self._rewind(step_of(checkpoint))
        trainer = self._trainer(self.step + steps, save_every)
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        self.step, self.epoch = trainer.state.global_step, trainer.state.epoch
        self.log = [row for row in trainer.state.log_history if "step_time" in row]
        self.weights = _numbers_of(trainer.policy.state_dict())
        states = trainer.optimizer.state_dict()["state"]
        self.moments = [number for state in states.values() for number in _numbers_of(state)]
        self.random = torch.get_rng_state().tolist()
        self.metrics_steps = [r["step"] for r in self.folder.read_metrics() if "step_time" in r]

    def logged(self, name: str) -> list[float]:
        """A figure of each step that has it."""
        return [row[name] for row in self.log if name in row]

    @property
    def newest(self) -> Path:
        """The checkpoint to go on from."""
        return self.folder.newest_checkpoint()

    def copy_newest(self, step: int) -> Path:
        """A checkpoint that says it is of another step."""
        copied = self.newest.with_name(f"checkpoint-{step}")
        shutil.copytree(self.newest, copied)
        return copied

    def change(self, settings: Mapping[str, Any]) -> None:
        """Go on with other settings, or other tasks."""
        others = {name: value for name, value in settings.items() if name != "dataset"}
        assert others.keys() <= DEFAULTS.keys()
        self.settings |= others
        if "dataset" in settings:
            self._rows = _as_rows(settings["dataset"])

    def _rewind(self, step: int) -> None:
        """What came after a checkpoint was lost, and will come again."""
        self.step = step
        windows = step // self.settings["iterations"]
        self.seen, self.versions = self.seen[:windows], self.versions[:windows]
        self.folder.rewind(step)

    def _trainer(self, until: int, save_every: int) -> Any:
        import torch
        from transformers import TrainerCallback, set_seed

        from agentgym.engines.scripted import CallableEngine
        from agentgym.rendering import renderer_for
        from agentgym.testing import byte_tokenizer
        from agentgym.trainer.callbacks import AgentCallback
        from agentgym.trainer.grpo import AgentGRPOTrainer
        from agentgym.trainer.run_callbacks import FollowRun

        run = self

        class Keep(AgentCallback):
            def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
                groups = {output.group_id: output.task_id for output in window["outputs"]}
                run.seen.append(list(groups.values()))
                versions = {v for output in window["outputs"] for v in output.policy_versions}
                run.versions.append(sorted(versions))

        class Leave(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                control.should_training_stop = state.global_step == until
                control.should_save = (
                    state.global_step % save_every == 0
                    if save_every
                    else state.global_step == until
                )

        torch.set_num_threads(1)
        set_seed(0)
        tokenizer = byte_tokenizer()
        progress = progress_for(Console(quiet=True), "")
        learns = self.settings["learns"] or self.settings["staleness"] > 0
        return AgentGRPOTrainer(
            self._model(tokenizer),
            self._args(until),
            env=repeat_kit.Echo,
            engine=None if learns else CallableEngine(lambda call: [65 + call.sampling.seed % 26]),
            train_dataset=self._rows,
            renderer=renderer_for(tokenizer, stop_token_ids=range(128)),
            processing_class=tokenizer,
            peft_config=_adapter(self.settings["dropout"]) if self.settings["lora"] else None,
            callbacks=[Keep(), Leave(), FollowRun(self.folder, progress)],
        )

    def _model(self, tokenizer: Any) -> Any:
        """The same one every time; in a folder of its own, where a reference is loaded from it."""
        model = _tiny_model(tokenizer, self.settings["dropout"])
        if not self.settings["beta"]:
            return model
        path = self.folder.path / "model"
        if not path.exists():
            model.save_pretrained(path)
        return str(path)

    def _args(self, until: int) -> Any:
        from agentgym.trainer.config import AgentGRPOConfig

        given = self.settings
        whole = -(-until // given["iterations"]) * given["iterations"]
        ends: dict[str, Any] = {"max_steps": given["planned"] or whole}
        if given["epochs"]:
            ends = {"num_train_epochs": given["epochs"]}
        size, accumulation = given["group_size"], given["accumulation"]
        return AgentGRPOConfig(
            output_dir=str(self.folder.checkpoints),
            use_cpu=True,
            per_device_train_batch_size=given["batch"] * size // accumulation,
            gradient_accumulation_steps=accumulation,
            num_generations=size,
            num_iterations=given["iterations"],
            max_completion_length=8,
            learning_rate=given["learning_rate"],
            lr_scheduler_type=given["schedule"],
            warmup_steps=given["warmup"],
            optim=given["optim"],
            max_grad_norm=given["max_grad_norm"],
            weight_decay=given["weight_decay"],
            shuffle_dataset=given["shuffle"],
            seed=given["seed"],
            staleness=given["staleness"],
            beta=given["beta"],
            eval_strategy="steps" if given["eval_every"] else "no",
            eval_steps=given["eval_every"] or None,
            num_eval_tasks=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **ends,
        )


def _as_rows(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"id": str(value), "value": value} for value in values]


def _tiny_model(tokenizer: Any, dropout: float) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=16,
            max_position_embeddings=128,
            initializer_range=0.3,
            attention_dropout=dropout,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def _adapter(dropout: float) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=dropout)


def _numbers_of(state: Mapping[str, Any]) -> list[float]:
    """All numbers of tensors, and numbers by themselves."""
    import torch

    tensors = (torch.as_tensor(state[name]) for name in sorted(state) if state[name] is not None)
    return [float(number) for tensor in tensors for number in tensor.flatten().tolist()]


@contextmanager
def folder() -> Iterator[Path]:
    """One for runs."""
    with TemporaryDirectory() as path:
        yield Path(path)
