"""Starts vLLM in this process, and undoes what it does to the process on its way.

vLLM seeds every random generator, replaces `torch.set_num_threads` and reads the environment while
it starts; a trainer in the same process must not notice.
"""

import gc
import os
import random
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.engines.loading import refuse_missing_folder, stored_dtype
from agentgym.engines.vllm.local_settings import VllmSettings
from agentgym.engines.vllm.server_command import TOKEN_SHARE, highest_lora_rank
from agentgym.errors import AgentGymError, ConfigError, MissingExtraError, boundary

_CPU_KV_CACHE_BYTES = 1 << 30
_MAX_REASON = 400
_AMONG_OTHERS = "external_launcher"
"""vLLM's name for a process that was started together with others."""
_running: list[Any] = []
"""vLLM has one state per process, which a second engine would take away when it is closed."""
_WISHED = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
_ON_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""By default vLLM pins its threads to all cores but one."""


def start(model: str | Path, settings: VllmSettings) -> Any:
    """vLLM's `LLMEngine`, computing in the calling thread, after a first token.

    Raises:
        MissingExtraError: vLLM is not installed.
        ConfigError: it cannot serve the model this way; says why.
    """
    refuse_missing_folder(str(model))
    if _running:
        raise ConfigError("this process has a vLLM engine already: close it first, or share it")
    gc.collect()  # the last act of an engine that is over would fall into the start of this one
    with _environment({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}, _WISHED | _ON_CPU):
        _import()
        num_processes = _num_processes()
        try:
            with boundary(ConfigError, "it does not start"), _process_as_it_was():
                engine = _build(str(model), settings)
                _sample_once(engine)
        except AgentGymError as error:
            _let_go(error)
            if num_processes == 1:
                _clean_up()
            reason = " ".join(str(error).split())
            if len(reason) > _MAX_REASON:
                reason = f"{reason[:_MAX_REASON]}..."
            raise ConfigError(f"vLLM cannot serve {str(model)!r}: {reason}") from error
    _running.append(engine)
    return engine


def _let_go(error: BaseException) -> None:
    """Free what a failed start has left in frames, so that it can be collected."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    gc.collect()


def shut_down(engine: Any) -> None:
    """Free an engine's memory; process groups of a training run are left as they were."""
    _running.remove(engine)
    core = engine.engine_core.engine_core
    backend = core.vllm_config.parallel_config.distributed_executor_backend
    if backend != _AMONG_OTHERS:
        engine.engine_core.shutdown()
        return
    from vllm.distributed.parallel_state import destroy_model_parallel

    engine.engine_core._finalizer.detach()
    core.structured_output_manager.clear_backend()
    core.model_executor.shutdown()
    core.scheduler.shutdown()
    destroy_model_parallel()


def on_cpu() -> bool:
    """Whether vLLM computes on the CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _import() -> None:
    try:
        import vllm  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("vLLM", "vllm") from error


def _build(model: str, settings: VllmSettings) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    device = _for_cpu(model, settings) if on_cpu() else _for_gpu(settings)
    config = EngineArgs(**_common(model, settings) | device).create_engine_config()
    executor = Executor.get_class(config)
    return LLMEngine(config, executor, log_stats=False, multiprocess_mode=False)


def _common(model: str, settings: VllmSettings) -> dict[str, Any]:
    """Arguments for every device.

    Without asynchronous scheduling no token is under way between two steps, so an update falls
    exactly between the tokens of the old weights and those of the new ones.
    """
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": settings.dtype,
        "max_model_len": settings.max_context,
        "max_num_seqs": settings.max_num_seqs,
        "enable_prefix_caching": settings.enable_prefix_caching,
        "seed": settings.seed,
        "generation_config": "vllm",
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "logprobs_mode": "processed_logprobs",
        "async_scheduling": False,
        "skip_tokenizer_init": not has_tokenizer(model),
        "disable_log_stats": True,
    }
    if _num_processes() > 1:
        arguments["distributed_executor_backend"] = _AMONG_OTHERS
    if settings.lora_rank:
        arguments |= {
            "enable_lora": True,
            "max_loras": 2,
            "max_lora_rank": highest_lora_rank(settings.lora_rank),
        }
    return arguments


def _for_cpu(model: str, settings: VllmSettings) -> dict[str, Any]:
    """Arguments for a CPU, where vLLM fails at a prompt with a seed that takes several steps."""
    import torch

    # Attention of small bfloat16 models may be the first to use the tile unit of a CPU, and ends
    # the process unless the kernel has been asked for it.
    torch.cpu._init_amx()
    return {
        "kv_cache_memory_bytes": settings.kv_cache_bytes or _CPU_KV_CACHE_BYTES,
        "block_size": settings.cpu_block_size,
        "enable_chunked_prefill": False,
        "dtype": _dtype_on_cpu(model) if settings.dtype == "auto" else settings.dtype,
        "enforce_eager": settings.enforce_eager is not False,
    }


def _dtype_on_cpu(model: str) -> str:
    """vLLM's `auto` makes bfloat16 of float32, which is no faster here, and not what is trained."""
    return "float32" if stored_dtype(model) == "float32" else "auto"


def _for_gpu(settings: VllmSettings) -> dict[str, Any]:
    return {
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "gpu_memory_utilization": (
            TOKEN_SHARE if settings.kv_cache_bytes else settings.gpu_memory_utilization
        ),
        "enforce_eager": settings.enforce_eager is True,
        "enable_sleep_mode": True,
    }


def has_tokenizer(model: str) -> bool:
    """Whether stop strings and constraints can be served; models of a hub have one."""
    folder = Path(model)
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    return not folder.is_dir() or any((folder / name).exists() for name in names)


def _sample_once(engine: Any) -> None:
    """Some models fail at their first step only, and what is compiled is compiled then."""
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input

    params = SamplingParams(max_tokens=2, ignore_eos=True, detokenize=False, seed=0, logprobs=0)
    engine.add_request("first", tokens_input([0]), params)
    while engine.has_unfinished_requests():
        engine.step()
    engine.reset_prefix_cache()


def _clean_up() -> None:
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


def _num_processes() -> int:
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 1
    return torch.distributed.get_world_size()


@contextmanager
def _environment(needed: Mapping[str, str], wished: Mapping[str, str]) -> Iterator[None]:
    """Variables for the time being; the user's own ones stand before those that are `wished`."""
    before = dict(os.environ)
    os.environ.update({**wished, **before, **needed})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Random states and torch's own functions afterwards as before."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if on_gpu:
            torch.cuda.set_rng_state_all(on_gpu)
        torch.set_num_threads = set_num_threads
