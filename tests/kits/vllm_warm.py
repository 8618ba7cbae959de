"""vLLM's server as it is before it starts, to be forked: what it and its engine import.

On CPU vLLM spawns its engine, which then imports everything a second time; here it is forked, as it
is on a GPU. The server of `test_serve.py` starts as a user's does.
"""

import multiprocessing
import os

os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"

import vllm.entrypoints.openai.api_server
import vllm.model_executor.models.llama
import vllm.model_executor.models.qwen3
import vllm.v1.engine.core
import vllm.v1.engine.utils
from vllm.platforms import current_platform

import agentgym.engines.vllm.extension
import agentgym.engines.vllm.guard  # noqa: F401

if current_platform.is_cpu():
    import vllm.v1.worker.cpu_worker

    vllm.v1.engine.utils.get_mp_context = lambda: multiprocessing.get_context("fork")
