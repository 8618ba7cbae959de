"""`agentgym serve`: vLLM's own server, with everything a trainer needs switched on.

The launcher adds no endpoint. It checks what can be checked in a second, starts the server, says
when it is ready, and takes it down with itself.
"""

import os
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field

from agentgym.addresses import http_url, is_loopback
from agentgym.commands import Command
from agentgym.config import Config
from agentgym.engines.loading import refuse_long_context, refuse_missing_folder, stored_dtype
from agentgym.engines.vllm.launching import Launch, run_server
from agentgym.engines.vllm.nccl import refuse_without_gpu
from agentgym.engines.vllm.ports import refuse_taken_port
from agentgym.engines.vllm.server_command import (
    KEY_VARIABLE,
    ServerSettings,
    server_argv,
    server_environment,
)
from agentgym.engines.vllm.transfer import GLOO, NCCL, SHM
from agentgym.errors import ConfigError, MissingExtraError

_BACKENDS = {"auto": None, "shm": SHM, "gloo": GLOO, "nccl": NCCL}
_GIB = 1 << 30


class ServeConfig(Config):
    """Serve a model with vLLM, for training and for rollouts.

    Words after `--` go to vLLM's server as they are, such as `-- --tensor-parallel-size 2`;
    host and port are given before.
    """

    passed_on = "vllm_args"

    model: str | None = Field(None, min_length=1)
    """Folder or hub id; without it, the embedded tiny one."""
    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; the default is reached from this machine alone. Any other needs a key:
    that of the environment variable VLLM_API_KEY, or of --key-file."""
    port: int = Field(8000, ge=1, le=65535)
    """Port to listen on."""
    key_file: Path | None = None
    """File with the key that requests need; made, readable for you alone, if it is not there."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """What to compute in; auto = as the weights are stored, which is what training computes in."""
    max_context: int | None = Field(None, ge=1)
    """Tokens of prompt and completion. (default: as many as the model allows)"""
    kv_cache_gb: float | None = Field(None, gt=0, allow_inf_nan=False)
    """GiB for the key/value cache. (default: 1 on a CPU, vLLM's share of the memory on a GPU)"""
    transfer: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """How a trainer's weights come: shm within this machine, gloo over networks, nccl from GPU to
    GPU; auto is shm if only this machine reaches --host, else nccl on a GPU and gloo without."""
    lora_rank: int = Field(0, ge=0, le=512)
    """Highest rank of LoRA adapters that a trainer may send; 0 = none."""
    threads: int | None = Field(None, ge=1)
    """Threads to compute with on a CPU. (default: one for each core)"""
    start_timeout: float = Field(900.0, gt=0, allow_inf_nan=False)
    """Seconds until the server must be ready."""
    vllm_args: tuple[str, ...] = ()
    """Arguments of vLLM's server."""


def serve(settings: ServeConfig) -> int:
    """Serve until interrupted; the server's exit code."""
    model = settings.model or _embedded()
    refuse_missing_folder(model)
    if not settings.vllm_args:  # which may stretch it, as --hf-overrides does
        refuse_long_context(model, settings.max_context)
    if find_spec("vllm") is None:
        raise MissingExtraError("agentgym serve", "vllm")
    if settings.transfer == "nccl":
        refuse_without_gpu()
    _refuse_place(settings.vllm_args)
    key = _key(settings)
    refuse_taken_port(settings.host, settings.port)
    server = _server(settings, model)
    launch = Launch(
        argv=server_argv(server),
        environment=server_environment(server, os.environ, key=key),
        url=_url(settings.host, settings.port),
        timeout_s=settings.start_timeout,
    )
    return run_server(launch, ready=f"serving {model} at {launch.url}")


def _refuse_place(words: Sequence[str]) -> None:
    """Hold vLLM's words against what decides who reaches the server.

    Raises:
        ConfigError: one of them does.
    """
    wrong = next((word for word in words if word.partition("=")[0] in ("--host", "--port")), None)
    if wrong is not None:
        raise ConfigError(f"{wrong} after `--`: give it before, where it may need a key")


def _embedded() -> str:
    from agentgym.trainer.tiny_policy import PATH

    return str(PATH)


def _server(settings: ServeConfig, model: str) -> ServerSettings:
    import torch

    on_gpu = torch.cuda.is_available()
    gib = settings.kv_cache_gb or (None if on_gpu else 1.0)
    return ServerSettings(
        model=model,
        host=settings.host,
        port=settings.port,
        on_gpu=on_gpu,
        backend=_BACKENDS[settings.transfer],
        dtype=_dtype(settings, model),
        max_context=settings.max_context,
        kv_cache_bytes=None if gib is None else int(gib * _GIB),
        threads=settings.threads or len(os.sched_getaffinity(0)),
        lora_rank=settings.lora_rank,
        extra=settings.vllm_args,
    )


def _dtype(settings: ServeConfig, model: str) -> str:
    """vLLM's own `auto` computes in 16 bits what is stored in 32."""
    stored = stored_dtype(model)
    return stored or "auto" if settings.dtype == "auto" else settings.dtype


def _key(settings: ServeConfig) -> str | None:
    """What requests must come with.

    Raises:
        ConfigError: nothing, though others can reach the server.
    """
    key = os.environ.get(KEY_VARIABLE)
    if settings.key_file is not None:
        key = _key_of(settings.key_file)
    if not key and not is_loopback(settings.host):
        raise ConfigError(
            f"--host {settings.host}: others could change the server's weights; give it a key with "
            f"{KEY_VARIABLE} or --key-file"
        )
    return key or None


def _key_of(path: Path) -> str:
    try:
        if not path.exists():
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(made, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--key-file {str(path)!r}: {error}") from error
    if not key:
        raise ConfigError(f"--key-file {str(path)!r} is empty: remove it to get a new key")
    return key


def _url(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on `host`."""
    return http_url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


COMMAND = Command(ServeConfig, serve)
