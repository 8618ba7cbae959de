"""Calls of Llama 3 and 4, and of LFM2: JSON, bare or behind a tag, and Python's call syntax.

A turn is read in any of these forms, whichever its dialect writes: models mix them.
"""

import json
from collections.abc import Sequence
from typing import Literal

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.call_list import told
from agentgym.rendering.dialects.llama_calls import BLOCKS, RESULT, LlamaReader
from agentgym.rendering.dialects.pythonic import written_call
from agentgym.rendering.dialects.reading import Turn


class LlamaDialect:
    """See the module.

    Args:
        name: `llama3` writes JSON, `llama_pythonic` Python's call syntax; both read either.
    """

    def __init__(self, name: Literal["llama3", "llama_pythonic"]) -> None:
        self.name: str = name

    def parse(
        self,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> ParsedAction:
        """Read one turn; see `Dialect.parse`."""
        turn = Turn.of(
            text, finish_reason=finish_reason, prompt_suffix=prompt_suffix, blocks=BLOCKS
        )
        LlamaReader(turn, tools).read()
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        if self.name == "llama_pythonic":
            return told(tools, '[<tool name>(<argument>=<value>, <argument>="<text>")]')
        return told(tools, '{"name": <tool name>, "parameters": <JSON object>}')

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        if self.name == "llama_pythonic":
            return f"[{written_call(call.name, call.arguments)}]"
        return json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False)

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}\n{content}\n</tool_result>"
