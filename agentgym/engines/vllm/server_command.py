"""The command that starts vLLM's own server with what a trainer needs of it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agentgym.addresses import is_loopback
from agentgym.engines.vllm.transfer import GLOO, NCCL, SHM

EXTENSION = "agentgym.engines.vllm.extension.WorkerExtension"
GUARD = "agentgym.engines.vllm.guard.Guard"
KEY_VARIABLE = "VLLM_API_KEY"
TOKEN_SHARE = 0.01
"""Of a GPU's memory. vLLM does not start unless its share is free, even if it is told how many
bytes to take; on a GPU that others use, too, it is not."""
_CPU_BLOCK = 32
"""Tokens; vLLM's own 128 on CPU is longer than many prompts, which are then never shared."""


_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those that vLLM takes as the highest."""
_COMPACT_JSON = '{"backend": "xgrammar", "disable_any_whitespace": true}'
"""A policy that may put in any white space may put it in for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How to serve a model."""

    model: str
    """Folder or hub id."""
    host: str = "127.0.0.1"
    port: int = 8000
    on_gpu: bool = False
    backend: str | None = None
    """How weights come; `None` = through shared memory if only this machine reaches the server,
    else over NCCL on GPUs and gloo without."""
    dtype: str = "auto"
    max_context: int | None = None
    """Tokens of prompt and completion; `None` = as long as the model allows."""
    kv_cache_bytes: int | None = None
    """`None` = a share of the memory, as vLLM has it, most of a GPU's."""
    threads: int = 2
    """To compute with, on CPU."""
    lora_rank: int = 0
    """Highest rank of adapters that the server takes; 0 = none."""
    extra: tuple[str, ...] = ()
    """Arguments of vLLM's server; they stand against all of ours but host and port."""


def server_argv(settings: ServerSettings) -> list[str]:
    """The command line."""
    backend = settings.backend or _backend_for(settings)
    options: dict[str, object] = {
        "--model": settings.model,
        "--dtype": settings.dtype,
        "--generation-config": "vllm",
        "--logprobs-mode": "processed_logprobs",
        "--max-logprobs": -1,
        "--worker-extension-cls": EXTENSION,
        "--weight-transfer-config": f'{{"backend": "{backend}"}}',
        "--middleware": GUARD,
        "--structured-outputs-config": _COMPACT_JSON,
        "--uvicorn-log-level": "warning",
        "--max-model-len": settings.max_context,
        "--kv-cache-memory-bytes": settings.kv_cache_bytes,
    }
    flags = ["--enable-scale-out", "--enable-prefix-caching"]
    if not settings.on_gpu:
        options["--block-size"] = _CPU_BLOCK
        # A prompt with a seed that takes several steps kills vLLM's engine on CPU.
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
    elif settings.kv_cache_bytes:
        options["--gpu-memory-utilization"] = TOKEN_SHARE
    if settings.lora_rank:
        options["--max-lora-rank"] = highest_lora_rank(settings.lora_rank)
        flags.append("--enable-lora")
    given = [text for name, v in options.items() if v is not None for text in (name, str(v))]
    module = "vllm.entrypoints.openai.api_server"
    # Last, so that no word of `extra` opens to others what is guarded for loopback.
    place = ["--host", settings.host, "--port", str(settings.port)]
    return [sys.executable, "-m", module, *given, *flags, *settings.extra, *place]


def highest_lora_rank(rank: int) -> int:
    """The setting of vLLM under which adapters of `rank` fit; `rank`, which it refuses, if none."""
    return next((known for known in _LORA_RANKS if known >= rank), rank)


def _backend_for(settings: ServerSettings) -> str:
    if is_loopback(settings.host):
        return SHM
    return NCCL if settings.on_gpu else GLOO


def server_environment(
    settings: ServerSettings, environment: Mapping[str, str], *, key: str | None
) -> dict[str, str]:
    """The environment variables; what `environment` says about threads stands.

    Args:
        settings: how to serve.
        environment: to start from, such as `os.environ`.
        key: what requests must come with; never on the command line, which everybody can read.
    """
    needed = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
    wished = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if not settings.on_gpu:
        wished |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(settings.threads),
            "GOMP_SPINCOUNT": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
    if settings.lora_rank:
        needed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    rest = {name: value for name, value in environment.items() if name != KEY_VARIABLE}
    return wished | rest | needed | ({KEY_VARIABLE: key} if key else {})
