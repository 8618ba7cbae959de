"""TRL and Transformers settings this trainer would ignore, and what to do instead.

They are refused when they differ from their default, so that no setting is silently without effect.
"""

from dataclasses import MISSING, fields

from trl.trainer.grpo_config import GRPOConfig

from agentgym.errors import ConfigError

_SAMPLER = "choose the engine instead (`engine=`)"
_DISTRIBUTION = "the trainer's logprobs would not be those of the distribution sampled from"
_ENTROPY = "the loss has no entropy term"
_LOSS = "register a loss of your own instead (`agentgym.registry.LOSSES`)"
_DATA = "data comes from the env's tasks, without a data loader's help"
_EVALUATION = "evaluation plays the env"

UNSUPPORTED: dict[str, str] = {
    "top_p": f"use 1.0; {_DISTRIBUTION}",
    "top_k": f"use 0; {_DISTRIBUTION}",
    "min_p": _DISTRIBUTION,
    "repetition_penalty": f"use 1.0; {_DISTRIBUTION}",
    "generation_kwargs": _DISTRIBUTION,
    "cache_implementation": _SAMPLER,
    "ds3_gather_for_generation": _SAMPLER,
    "use_transformers_continuous_batching": _SAMPLER,
    "transformers_continuous_batching_config": _SAMPLER,
    "use_transformers_paged": _SAMPLER,
    "use_vllm": _SAMPLER,
    "vllm_mode": _SAMPLER,
    "vllm_model_impl": _SAMPLER,
    "vllm_enable_sleep_mode": _SAMPLER,
    "vllm_structured_outputs_regex": _SAMPLER,
    "vllm_server_base_url": _SAMPLER,
    "vllm_server_host": _SAMPLER,
    "vllm_server_port": _SAMPLER,
    "vllm_server_timeout": _SAMPLER,
    "vllm_group_port": _SAMPLER,
    "vllm_gpu_memory_utilization": _SAMPLER,
    "vllm_max_model_length": _SAMPLER,
    "vllm_tensor_parallel_size": _SAMPLER,
    "vllm_importance_sampling_correction": "set rollout_correction",
    "vllm_importance_sampling_mode": "set rollout_correction",
    "vllm_importance_sampling_clip_max": "set rollout_correction_max",
    "vllm_importance_sampling_clip_min": "set rollout_correction_min",
    "vllm_importance_sampling_cap": "set rollout_correction_max",
    "top_entropy_quantile": _LOSS,
    "sapo_temperature_neg": _LOSS,
    "sapo_temperature_pos": _LOSS,
    "vespo_k_pos": _LOSS,
    "vespo_lambda_pos": _LOSS,
    "vespo_k_neg": _LOSS,
    "vespo_lambda_neg": _LOSS,
    "entropy_coef": _ENTROPY,
    "use_adaptive_entropy": _ENTROPY,
    "entropy_coef_min": _ENTROPY,
    "entropy_coef_max": _ENTROPY,
    "entropy_coef_delta": _ENTROPY,
    "entropy_target": _ENTROPY,
    "multi_objective_aggregation": "rewards are summed, then normalised; register an advantage "
    "estimator for anything else",
    "max_tool_calling_iterations": "set max_turns",
    "chat_template_kwargs": "give them to the renderer (`renderer=`)",
    "pad_to_multiple_of": "rows are packed, not padded",
    "use_liger_kernel": "its fused loss replaces the model's forward",
    "liger_kernel_config": "its fused loss replaces the model's forward",
    "fp16": "use bf16: a step without a trained token must not need a loss scaler",
    "fp16_full_eval": "use bf16",
    "bf16_full_eval": "use bf16",
    "torch_compile": "packed rows have another shape at every step, and each would be compiled",
    "torch_compile_backend": "see torch_compile",
    "torch_compile_mode": "see torch_compile",
    "per_device_eval_batch_size": "see num_eval_tasks and concurrency",
    "neftune_noise_alpha": _DISTRIBUTION,
    "label_smoothing_factor": "there are no labels",
    "auto_find_batch_size": "lower token_budget instead",
    "include_num_input_tokens_seen": "see the metric num_tokens",
    "dataloader_drop_last": _DATA,
    "dataloader_num_workers": _DATA,
    "dataloader_persistent_workers": _DATA,
    "dataloader_prefetch_factor": _DATA,
    "train_sampling_strategy": _DATA,
    "data_seed": "set seed",
    "batch_eval_metrics": _EVALUATION,
    "eval_accumulation_steps": _EVALUATION,
    "eval_do_concat_batches": _EVALUATION,
    "eval_use_gather_object": _EVALUATION,
    "include_for_metrics": _EVALUATION,
    "prediction_loss_only": _EVALUATION,
    "torch_empty_cache_steps": "lower token_budget instead",
    "average_tokens_across_devices": "tokens are always counted over all processes",
    "enable_jit_checkpoint": "it saves in the middle of a step; agentgym train that is interrupted "
    "saves after the window",
    "ignore_data_skip": "tasks follow from the number of the step",
    "remove_unused_columns": _DATA,
    "label_names": "there are no labels",
    "length_column_name": _DATA,
    "dataloader_pin_memory": _DATA,
    "dataloader_multiprocessing_context": _DATA,
    "dataloader_in_order": _DATA,
    "log_multimodal": "only text is supported",
}


def refuse_unsupported(args: GRPOConfig) -> None:
    """Raise a `ConfigError` if a setting that would be ignored is not at its default."""
    defaults = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(args)
    }
    for name, instead in UNSUPPORTED.items():
        value = getattr(args, name)
        if value != defaults[name]:
            raise ConfigError(f"{name}={value!r} is not supported here: {instead}")
