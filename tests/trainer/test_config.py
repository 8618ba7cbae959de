"""Settings that cannot work together are refused at the start, with the values and the way out."""

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOConfig

from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.pipeline import make_args as args_from
from agentgym.trainer.unsupported import UNSUPPORTED

MakeArgs = Callable[..., AgentGRPOConfig]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.9),
        ("top_k", 20),
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("generation_kwargs", {"num_beams": 2}),
        ("use_vllm", True),
        ("use_liger_kernel", True),
        ("top_entropy_quantile", 0.2),
        ("entropy_coef", 0.1),
        ("multi_objective_aggregation", "normalize_then_sum"),
        ("torch_empty_cache_steps", 4),
        ("include_for_metrics", ["loss"]),
        ("remove_unused_columns", True),
        ("average_tokens_across_devices", False),
        ("max_tool_calling_iterations", 3),
        ("fp16", True),
    ],
)
def test_a_setting_without_effect_is_refused_by_name(make_args: MakeArgs, name: str, value: object):
    """TRL users bring their configs along; a setting that is silently dropped costs days."""
    with pytest.raises(ConfigError, match=f"^{name}="):
        make_args(**{name: value})


def test_every_refused_setting_is_one_of_trls():
    """A name that TRL renames would otherwise stop being checked."""
    known = {field.name for field in fields(GRPOConfig)}

    assert set(UNSUPPORTED) <= known


HONOURED = """
    output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate
    lr_scheduler_type lr_scheduler_kwargs warmup_steps optim optim_args optim_target_modules
    weight_decay adam_beta1 adam_beta2 adam_epsilon gradient_accumulation_steps max_grad_norm
    bf16 tf32 activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing
    gradient_checkpointing_kwargs use_cache full_determinism seed use_cpu accelerator_config
    parallelism_config ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers
    ddp_static_graph ddp_backend ddp_timeout fsdp fsdp_config deepspeed local_rank debug
    logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter
    log_level log_level_replica disable_tqdm report_to run_name project trackio_space_id
    trackio_bucket_id trackio_static_space_id skip_memory_metrics
    eval_strategy eval_steps eval_delay eval_on_start
    save_only_model save_strategy save_steps save_on_each_node save_total_limit
    push_to_hub hub_token hub_private_repo hub_model_id hub_strategy
    hub_always_push hub_revision load_best_model_at_end metric_for_best_model greater_is_better
    restore_callback_states_from_checkpoint
    model_init_kwargs trust_remote_code router_aux_loss_coef disable_dropout cast_lm_head_to_fp32
    num_generations num_generations_eval max_completion_length shuffle_dataset
    generation_batch_size steps_per_generation temperature beta num_iterations epsilon delta
    epsilon_high importance_sampling_level reward_weights scale_rewards loss_type
    mask_truncated_completions off_policy_mask_threshold use_bias_correction_kl
    sync_ref_model ref_model_mixup_alpha
    ref_model_sync_steps log_completions num_completions_to_print log_unique_prompts
    log_completions_hub_repo
"""
FOR_SCRIPTS = {"do_train", "do_eval", "do_predict", "resume_from_checkpoint"}
"""Read by no trainer, by Transformers' own word."""


def test_every_setting_is_honoured_or_refused():
    """One that a new release adds must be looked at before it is let through."""
    known = {field.name for field in fields(GRPOConfig)}

    let_through = set(HONOURED.split()) | FOR_SCRIPTS
    assert let_through | set(UNSUPPORTED) == known
    assert not let_through & set(UNSUPPORTED)


def test_what_a_trl_config_has_is_a_setting_here_or_refused(make_args: MakeArgs):
    """The defaults of both pass: nothing is refused that nobody asked for."""
    args = make_args()

    assert args.num_generations == 4
    assert args.bf16 is False
    assert args.gradient_checkpointing is False


@given(per_rank=st.integers(1, 24), size=st.integers(2, 12), accumulation=st.integers(1, 3))
def test_groups_are_whole_on_every_process(per_rank: int, size: int, accumulation: int):
    """A group split over ranks would need its baseline from elsewhere; it is never split."""
    settings = {
        "output_dir": "unused",
        "use_cpu": True,
        "save_strategy": "no",
        "per_device_train_batch_size": per_rank,
        "num_generations": size,
        "gradient_accumulation_steps": accumulation,
    }
    trajectories = per_rank * accumulation
    if trajectories % size:
        with pytest.raises(ConfigError) as raised:
            AgentGRPOConfig(**settings)
        assert f"num_generations={size} does not divide the {trajectories}" in str(raised.value)
        valid = [n for n in range(2, trajectories + 1) if trajectories % n == 0]
        assert (", ".join(map(str, valid)) or "none") in str(raised.value)
    else:
        assert AgentGRPOConfig(**settings).groups_per_rank == trajectories // size


def test_the_launchers_process_count_is_known_before_anything_is_set_up(
    make_args: MakeArgs, monkeypatch: pytest.MonkeyPatch
):
    """Under `torchrun` the message must come from the config, not from a hang."""
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(ConfigError, match="6 trajectories a process plays per window"):
        make_args(per_device_train_batch_size=6)


def test_a_window_is_whole_optimizer_steps(make_args: MakeArgs):
    """An optimizer step over two windows would mix two policies."""
    with pytest.raises(ConfigError, match="steps_per_generation=3 is no multiple of"):
        make_args(steps_per_generation=3, gradient_accumulation_steps=2)

    args = make_args(
        steps_per_generation=4, gradient_accumulation_steps=2, num_iterations=3, max_steps=6
    )
    assert (args.batches_per_window, args.steps_per_window) == (2, 6)


def test_a_run_is_whole_windows(make_args: MakeArgs):
    """Otherwise the last window's trajectories would be used less often than the others."""
    with pytest.raises(ConfigError, match=r"max_steps=7 .* 2, .* take 6 or 8"):
        make_args(num_iterations=2, max_steps=7)
    with pytest.raises(ConfigError, match=r"max_steps=1 .* 2, .* take 2$"):
        make_args(num_iterations=2, max_steps=1)

    assert make_args(num_iterations=2, max_steps=6).max_steps == 6
    assert make_args(num_iterations=2, max_steps=-1).max_steps == -1


def test_checkpoints_lie_between_windows(make_args: MakeArgs):
    """A window is not saved, so a checkpoint inside one could not be resumed exactly."""
    with pytest.raises(ConfigError, match="save_steps=3 is no multiple of 2"):
        make_args(num_iterations=2, save_strategy="steps", save_steps=3, max_steps=4)

    with pytest.raises(ConfigError, match=r"save_steps=0\.3 is no multiple of 2"):
        make_args(num_iterations=2, save_strategy="steps", save_steps=0.3, max_steps=10)

    best = {"save_strategy": "best", "metric_for_best_model": "reward", "eval_strategy": "steps"}
    with pytest.raises(ConfigError, match="eval_steps=1 is no multiple of 2"):
        make_args(num_iterations=2, eval_steps=1, max_steps=4, **best)
    make_args(num_iterations=2, eval_steps=2, max_steps=4, **best)

    saved = {"save_strategy": "steps", "max_steps": 6}
    assert make_args(num_iterations=2, save_steps=4, **saved).save_steps == 4
    assert make_args(num_iterations=3, **saved).save_steps == 501


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"max_failed_fraction": 1.5}, "max_failed_fraction=1.5 is not in 0..1"),
        ({"token_budget": 0}, "token_budget=0 must be at least 1"),
        ({"max_turns": 0}, "max_turns=0 must be at least 1"),
        ({"max_turns": 2.5}, "max_turns=2.5 must be .* whole number"),
        ({"max_completion_length": 0}, "max_completion_length=0 must be at least 1"),
        ({"max_turn_tokens": 0}, "max_turn_tokens=0 must be at least 1"),
        ({"max_total_tokens": -1}, "max_total_tokens=-1 must be at least 2"),
        ({"max_parse_errors": -1}, "max_parse_errors=-1 must be at least 0"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0 must be at least 1"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size=0 must be at least 1"),
        ({"num_generations_eval": 0}, "num_generations_eval=0 must be at least 1"),
        ({"concurrency": 10**20}, r"concurrency=1\d+ is not in 1\.\.4096"),
        ({"epsilon": math.nan}, "epsilon=nan must be at least 0"),
        ({"epsilon": -1}, "epsilon=-1 must be at least 0"),
        ({"learning_rate": math.nan}, "learning_rate=nan must be at least 0"),
        ({"learning_rate": math.inf}, "learning_rate=inf must be .* finite"),
        ({"adam_beta1": 1.0}, r"adam_beta1=1\.0 is not in"),
        ({"num_train_epochs": math.nan}, "num_train_epochs=nan must be"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be"),
        ({"temperature": math.nan}, "temperature=nan must be above 0"),
        ({"temperature": math.inf}, "temperature=inf must be .* finite"),
        ({"reward_weights": [1.0]}, "give them by name"),
        ({"reward_weights": {"low": math.nan}}, "reward_weights: low=nan must be a finite"),
        ({"num_generations": 1}, "num_generations=1 does not divide"),
    ],
)
def test_values_out_of_range_are_refused(make_args: MakeArgs, settings: object, message: str):
    """With the value in the message."""
    with pytest.raises(ConfigError, match=message):
        make_args(**settings)


@pytest.mark.parametrize("name", ["loss_type", "advantage_estimator"])
def test_unknown_names_are_refused_with_a_suggestion(make_args: MakeArgs, name: str):
    """At the start, not at the first update."""
    with pytest.raises(NotRegisteredError, match="grpo"):
        make_args(**{name: "grppo"})


def test_budget_fields_become_the_trajectorys_limits(make_args: MakeArgs):
    """TRL's `max_completion_length` bounds the tokens of all turns together."""
    budget = make_args(max_completion_length=99, max_turns=3, max_turn_tokens=40).budget

    assert (budget.max_sampled_tokens, budget.max_turns, budget.max_turn_tokens) == (99, 3, 40)


def test_the_kl_terms_correction_is_a_setting_of_the_loss(make_args: MakeArgs):
    """Off by default, unlike TRL's."""
    assert not make_args().loss_settings.use_bias_correction_kl
    assert make_args(use_bias_correction_kl=True).loss_settings.use_bias_correction_kl


def test_the_best_model_is_chosen_by_reward(make_args: MakeArgs):
    """Hugging Face's default is the loss, which says nothing in reinforcement learning."""
    args = make_args(
        load_best_model_at_end=True,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
    )

    assert (args.metric_for_best_model, args.greater_is_better) == ("reward", True)


def test_unknown_settings_from_a_file_are_refused_with_a_suggestion(tmp_path: Path):
    """`trainer_args` of a YAML file go through here."""
    with pytest.raises(ConfigError, match=r"'num_iteration'.*'num_iterations'"):
        args_from({"output_dir": str(tmp_path), "num_iteration": 2})
    with pytest.raises(ConfigError, match="trainer settings: "):
        args_from({"output_dir": str(tmp_path), "use_cpu": True, "eval_strategy": "sometimes"})
