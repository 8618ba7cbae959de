"""A real trainer on a random model of 20 thousand parameters, in an env of several turns."""

import importlib.metadata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agentgym.envs import Env, Task, TaskSet
from agentgym.messages import user
from agentgym.rendering import Renderer, renderer_for
from agentgym.testing import byte_tokenizer
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer

# Accelerate reads a package's description anew whenever it asks whether that is installed.
importlib.metadata.metadata = cache(importlib.metadata.metadata)


class WordsEnv(Env):
    """Listens for a few turns; pays for what it likes. Counts how many of its kind are open."""

    num_open = 0
    num_made = 0
    reward_weights = {"low": 1.0, "turns": 0.25}

    def __init__(self, *, turns: int = 3) -> None:
        super().__init__()
        WordsEnv.num_open += 1
        WordsEnv.num_made += 1
        self._turns = turns
        self._is_open = True

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda i: Task(id=f"{split}-{i}", data={"number": i}))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._said: list[str] = []
        return [user(f"{self.pick_task(options)['number']}?")], {}

    def step(self, action: Any) -> Any:
        self._said.append(action.content)
        is_over = len(self._said) == self._turns
        info = {"rewards": {"low": self._score(), "turns": 1.0}} if is_over else {}
        return [user(f"go on {len(self._said)}")], 0.0, is_over, False, info

    def _score(self) -> float:
        letters = "".join(self._said)
        return sum(ord(letter) % 2 for letter in letters) / max(len(letters), 1)

    def close(self) -> None:
        if self._is_open:
            WordsEnv.num_open -= 1
        self._is_open = False
        super().close()


@pytest.fixture(autouse=True)
def no_env_is_left_open() -> Iterator[None]:
    """Invariant 7, after every test of the trainer."""
    WordsEnv.num_open = WordsEnv.num_made = 0
    yield
    assert WordsEnv.num_open == 0


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def words_env() -> type[WordsEnv]:
    return WordsEnv


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def chatty(tokenizer: PreTrainedTokenizerFast) -> Renderer:
    """Ends a turn at a quarter of all tokens, so that a random model has turns at all."""
    return renderer_for(tokenizer, stop_token_ids=range(60))


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=48,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


@pytest.fixture
def make_model(tokenizer: PreTrainedTokenizerFast) -> Callable[[], Qwen3ForCausalLM]:
    """The same random weights on every call."""

    def make() -> Qwen3ForCausalLM:
        torch.manual_seed(0)
        return Qwen3ForCausalLM(tiny_config(tokenizer))

    return make


@pytest.fixture
def model_folder(
    make_model: Callable[[], Qwen3ForCausalLM], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> str:
    """The same model and its tokenizer, saved."""
    folder = str(tmp_path / "model")
    make_model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_args(tmp_path: Path) -> Callable[..., AgentGRPOConfig]:
    """Two groups of four, one step per window, no files."""

    def make(**settings: Any) -> AgentGRPOConfig:
        defaults = {
            "output_dir": str(tmp_path / "out"),
            "use_cpu": True,
            "max_steps": 1,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 32,
            "learning_rate": 1e-2,
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "num_eval_tasks": 4,
        }
        return AgentGRPOConfig(**{**defaults, **settings})

    return make


@pytest.fixture
def make_trainer(
    make_model: Callable[[], Qwen3ForCausalLM],
    make_args: Callable[..., AgentGRPOConfig],
    tokenizer: PreTrainedTokenizerFast,
    chatty: Renderer,
) -> Callable[..., AgentGRPOTrainer]:
    """A trainer; what is not a setting goes to its constructor by `with_`."""

    def make(with_: dict[str, Any] | None = None, **settings: Any) -> AgentGRPOTrainer:
        given = {"model": None, "env": WordsEnv, "renderer": chatty, **(with_ or {})}
        given["model"] = given["model"] or make_model()
        trainer = AgentGRPOTrainer(args=make_args(**settings), processing_class=tokenizer, **given)
        for name in ("PrinterCallback", "ProgressCallback"):
            for callback in list(trainer.callback_handler.callbacks):
                if type(callback).__name__ == name:
                    trainer.remove_callback(callback)
        return trainer

    return make
