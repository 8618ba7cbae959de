"""How model families write tool calls, by name."""

from agentgym.errors import NotRegisteredError
from agentgym.rendering.base import Dialect
from agentgym.rendering.dialects.deepseek import DeepSeekDialect
from agentgym.rendering.dialects.glm import GlmDialect
from agentgym.rendering.dialects.harmony import HarmonyDialect
from agentgym.rendering.dialects.hermes import HermesDialect
from agentgym.rendering.dialects.kimi import KimiDialect
from agentgym.rendering.dialects.llama import LlamaDialect
from agentgym.rendering.dialects.mistral import MistralDialect
from agentgym.rendering.dialects.phi import PhiDialect
from agentgym.rendering.dialects.qwen3_coder import Qwen3CoderDialect
from agentgym.rendering.dialects.react import ReActDialect

DIALECTS: dict[str, Dialect] = {
    known.name: known
    for known in (
        HermesDialect(),
        LlamaDialect("llama3"),
        LlamaDialect("llama_pythonic"),
        MistralDialect(),
        DeepSeekDialect("deepseek_v3"),
        DeepSeekDialect("deepseek_v31"),
        PhiDialect(),
        KimiDialect(),
        Qwen3CoderDialect(),
        GlmDialect(),
        HarmonyDialect(),
        ReActDialect(),
    )
}


def dialect(name: str) -> Dialect:
    """The dialect registered under `name`.

    Raises:
        NotRegisteredError: unknown name; names a near one.
    """
    if name not in DIALECTS:
        raise NotRegisteredError("dialect", name, sorted(DIALECTS))
    return DIALECTS[name]
