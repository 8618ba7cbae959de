"""Phi-4-mini's calls: a JSON list behind the word `functools` or between `<|tool_call|>` marks."""

import re
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.call_list import read_call_list, told, written
from agentgym.rendering.dialects.reading import Turn, mark_pattern
from agentgym.rendering.reasoning import Marks

OPEN, CLOSE, RESULT = "<|tool_call|>", "<|/tool_call|>", "<|tool_response|>"
_WORD = r"\bfunctools\s{0,8}(?=\[)"
_NEW_MESSAGE = ("<|user|>", "<|system|>", "<|assistant|>", "<|tool|>")
_MARKS = mark_pattern([OPEN, CLOSE, RESULT, *_NEW_MESSAGE], patterns=[_WORD])
_BORDER = re.compile(rf"{re.escape(OPEN)}|{re.escape(CLOSE)}|{re.escape(RESULT)}|{_WORD}")


class PhiDialect:
    """See the module."""

    name = "phi4"

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
            text,
            finish_reason=finish_reason,
            prompt_suffix=prompt_suffix,
            blocks=(Marks(OPEN, CLOSE),),
        )
        while (mark := turn.advance(_MARKS)) is not None:
            if mark.group() == RESULT or mark.group() in _NEW_MESSAGE:
                turn.stop()
            elif mark.group() != CLOSE:
                read_call_list(turn, border=_BORDER, tools=tools)
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        return told(tools, 'functools[{"name": <tool name>, "arguments": <JSON object>}]')

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        return f"functools[{written(call)}]"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}{content}<|/tool_response|>"
