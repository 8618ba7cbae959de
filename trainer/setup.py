"""From what a user may hand in to what the trainer works with."""

import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.utils import is_peft_model
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import get_callable_name, get_config_model_id

from agentgym.engines.base import Engine, refuse_text_only
from agentgym.engines.loading import load_tokenizer
from agentgym.engines.transformers.model import PolicyModel
from agentgym.engines.transformers.support import refuse_unservable
from agentgym.engines.weights import CopiesModel, KeepsWeights
from agentgym.errors import ConfigError
from agentgym.registry import REWARDS
from agentgym.rewards.rubric import Reward
from agentgym.rollout.curriculum import Curriculum
from agentgym.rollout.game import Game
from agentgym.rollout.sampler import Sampler
from agentgym.trainer.batching import refuse_saving_within
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.logprobs import packing_refusal
from agentgym.trainer.trl_contract import GRPOTrainer

logger = logging.getLogger(__name__)

Rewards = Mapping[str, Reward] | Sequence[Reward | str]
"""Reward functions by name, or a list of functions and registered names."""

_TRLS = frozenset({"prompts", "completions", "completion_ids"})


def tokenizer_of(
    model: str | PreTrainedModel, processing_class: object, args: AgentGRPOConfig
) -> PreTrainedTokenizerBase:
    """The tokenizer that was handed in, or the model's own.

    Raises:
        ConfigError: it is a multimodal processor, or the model has no tokenizer.
    """
    if isinstance(processing_class, PreTrainedTokenizerBase):
        return processing_class
    if processing_class is not None:
        raise ConfigError(
            f"processing_class must be a tokenizer, got {type(processing_class).__name__}: "
            "only text is supported"
        )
    init: Mapping[str, Any] = {}
    if isinstance(model, str) and isinstance(args.model_init_kwargs, Mapping):
        init = args.model_init_kwargs
    tokenizer = load_tokenizer(
        model if isinstance(model, str) else get_config_model_id(model.config),
        revision=init.get("revision"),
        trust_remote_code=init.get("trust_remote_code", args.trust_remote_code),
    )
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer


def refuse_given(
    model: str | PreTrainedModel,
    args: AgentGRPOConfig,
    *,
    engine: Engine | None,
    peft_config: object,
) -> None:
    """Raise a `ConfigError` if what was handed in cannot work, before anything is loaded."""
    refuse_text_only(engine)
    if args.sync_kind == "lora":
        refuse_adapter_alone(model, peft_config, engine=engine)
    if peft_config is None:
        refuse_nameless_reference(model, args.beta)


def refuse_nameless_reference(model: str | PreTrainedModel, beta: float) -> None:
    """Raise a `ConfigError` if a reference is needed that cannot be loaded from anywhere."""
    if not beta or isinstance(model, str) or is_peft_model(model):
        return
    if not get_config_model_id(model.config):
        raise ConfigError(
            f"beta={beta} needs a reference, loaded from the model's folder or hub id, but this "
            "model has none: give its path, train an adapter (peft_config), or set beta=0"
        )


def refuse_adapter_alone(
    model: str | PreTrainedModel, peft_config: object, *, engine: Engine | None
) -> None:
    """Raise a `ConfigError` if there is no adapter to send alone, or nobody who takes it."""
    if not isinstance(engine, KeepsWeights) or isinstance(engine, CopiesModel):
        raise ConfigError(
            "sync_kind='lora' is for engines that take an adapter alone (VllmServerEngine, "
            "VllmEngine): hand one in, or leave it out"
        )
    if peft_config is None and (isinstance(model, str) or not is_peft_model(model)):
        raise ConfigError(
            "sync_kind='lora' sends the adapter alone, and the model has none: give peft_config, "
            "or set sync_kind='full'"
        )


def refuse_model(trainer: GRPOTrainer, *, has_engine: bool) -> None:
    """Raise a `ConfigError` if the trainer's model is of a kind that is not supported."""
    if not has_engine and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        raise ConfigError(
            "the policy's weights may be spread over processes, and the built-in engine samples "
            "from whole ones: choose one with weights of its own (--engine vllm or vllm-server)"
        )
    if trainer.is_deepspeed_enabled and trainer.accelerator.state.deepspeed_plugin.zero_stage == 3:
        raise ConfigError(
            "DeepSpeed's stage 3 hides the weights that the engine is to be given: use stage 2, or "
            "FSDP2"
        )
    if not has_engine:
        model: Any = trainer.model
        refuse_unservable(PolicyModel(model))
    if trainer.aux_loss_enabled:
        raise ConfigError(
            "the load-balancing loss of mixture-of-experts models is not supported: set "
            "router_aux_loss_coef=0.0 to train without it"
        )


def must_pad(model: PreTrainedModel) -> bool:
    """Whether packed rows would be wrong for this model; says so once."""
    reason = packing_refusal(model)
    if reason is not None:
        logger.warning("rows are padded, not packed: %s", reason)
    return reason is not None


def refuse_endless(game: Game, args: AgentGRPOConfig) -> None:
    """Raise a `ConfigError` if nothing says when the run is over, or it ends inside a window, or
    is saved inside one."""
    if args.max_steps > 0:
        return
    if game.train.size is None:
        raise ConfigError(f"env {game.name!r} makes tasks without end: set max_steps")
    steps = math.ceil(args.num_train_epochs * steps_per_epoch(game, args))
    if steps % args.steps_per_window:
        raise ConfigError(
            f"num_train_epochs={args.num_train_epochs:g} makes {steps} optimizer steps, no "
            f"multiple of {args.steps_per_window}, the steps of one window"
        )
    refuse_saving_within(args, steps)


def steps_per_epoch(game: Game, args: AgentGRPOConfig) -> int:
    """Optimizer steps until every task was played; all of them where tasks have no end."""
    if game.train.size is None:
        return args.max_steps
    groups = args.groups_per_rank * args.world_size
    windows: int = -(-game.train.size // groups)
    return windows * args.steps_per_window


def placeholder() -> Dataset:
    """TRL wants a dataset; tasks come from the game."""
    return Dataset.from_dict({"prompt": [""]})


def sampler_of(game: Game, args: AgentGRPOConfig, curriculum: Curriculum | None) -> Sampler:
    """Which trajectories the run's windows play."""
    return Sampler(
        env=game.name,
        tasks=game.train if curriculum is None else curriculum,
        seed=args.seed,
        group_size=args.num_generations,
        shuffle=bool(args.shuffle_dataset),
    )


def named_rewards(rewards: Rewards | None) -> dict[str, Reward]:
    """Reward functions by name.

    Raises:
        NotRegisteredError: no reward is registered under a given name.
        ConfigError: two have the same name, or one is written for TRL.
    """
    named = dict(rewards) if isinstance(rewards, Mapping) else _by_name(rewards or ())
    for name, reward in named.items():
        _refuse_trls(name, reward)
    return named


def _by_name(rewards: Sequence[Reward | str]) -> dict[str, Reward]:
    named: dict[str, Reward] = {}
    for reward in rewards:
        name = reward if isinstance(reward, str) else get_callable_name(reward)
        if name in named:
            raise ConfigError(f"two rewards are called {name!r}: hand them in as a dict")
        named[name] = REWARDS.get(reward) if isinstance(reward, str) else reward
    return named


def _refuse_trls(name: str, reward: Reward) -> None:
    """It would fail, and be left out, on every trajectory."""
    try:
        taken = inspect.signature(reward).parameters.keys()
    except (TypeError, ValueError):
        return
    if batch := _TRLS & taken:
        raise ConfigError(
            f"reward {name!r} takes {min(batch)!r}, as TRL's reward functions do: hand it in as "
            "reward_funcs=; one of rewards= takes a trajectory (RolloutOutput)"
        )
