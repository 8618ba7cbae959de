"""From settings to a trainer that can start: the cheap checks first, the weights last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from agentgym.config import refuse_unknown
from agentgym.engines.base import Engine
from agentgym.errors import ConfigError, UsageError
from agentgym.rendering.base import Renderer
from agentgym.rollout.game import MakeEnv
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.factory import trainer_class
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.setup import Rewards, tokenizer_of


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a training run is made of."""

    model: str
    """Folder or hub id of a causal language model with a chat template."""
    args: AgentGRPOConfig
    env: str | MakeEnv
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    rewards: Rewards = ()
    """Reward functions and names of registered ones."""
    scheduler: str | None = None
    """A registered name; by default the env's."""
    trainer: str = "grpo"
    """A name in `agentgym.registry.TRAINERS`."""
    tokenizer: PreTrainedTokenizerBase | None = None
    """By default the model's own."""
    renderer: Renderer | None = None
    """By default the tokenizer's."""
    engine: Engine | None = None
    """Samples instead of the model that is trained; the caller closes it."""
    callbacks: Sequence[TrainerCallback] = ()
    peft_config: Any = None


def make_args(values: Mapping[str, Any]) -> AgentGRPOConfig:
    """Trainer settings from a mapping.

    Raises:
        ConfigError: an unknown setting, or settings that cannot work together.
    """
    known = {f.name: f for f in fields(AgentGRPOConfig) if f.init}
    refuse_unknown(values, known, "trainer settings")
    types = get_type_hints(AgentGRPOConfig)
    typed = {name: _typed(name, value, types[name]) for name, value in values.items()}
    try:
        args = AgentGRPOConfig(**typed)
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trainer settings: {_one_line(error)}") from error
    _refuse_missing_reporters(args)
    return args


def _refuse_missing_reporters(args: AgentGRPOConfig) -> None:
    """Hugging Face's trainer makes them after the model is loaded, and they say what is missing."""
    classes_of: Any = get_reporting_integration_callbacks
    try:
        for make_callback in classes_of(args.report_to):
            make_callback()
    except (ImportError, RuntimeError, ValueError) as error:
        message = f"trainer settings: report_to={args.report_to}: {_one_line(error)}"
        raise ConfigError(message) from error


def _typed(name: str, value: Any, annotation: Any) -> Any:
    """A value as its field wants it: a dataclass would take anything."""
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Input ")
        raise ConfigError(f"trainer settings: {name}={value!r}: {reason}") from error


def build(recipe: Recipe) -> AgentGRPOTrainer:
    """A trainer for a recipe.

    Raises:
        UsageError: something cannot work; of what can be known without the model's weights,
            everything is checked before they are loaded.
    """
    make_trainer: Any = trainer_class(recipe.trainer)
    tokenizer = tokenizer_of(recipe.model, recipe.tokenizer, recipe.args)
    try:
        trainer = make_trainer(
            model=recipe.model,
            args=recipe.args,
            env=recipe.env,
            env_kwargs=recipe.env_kwargs,
            rewards=recipe.rewards,
            scheduler=recipe.scheduler,
            engine=recipe.engine,
            renderer=recipe.renderer,
            processing_class=tokenizer,
            callbacks=list(recipe.callbacks),
            peft_config=recipe.peft_config,
        )
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot train {recipe.model!r}: {_one_line(error)}") from error
    assert isinstance(trainer, AgentGRPOTrainer)
    return trainer


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
