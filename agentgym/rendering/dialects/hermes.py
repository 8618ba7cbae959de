"""Hermes-style calls: JSON inside `<tool_call>` tags (Hermes, Qwen2.5, Qwen3, the embedded policy).

The JSON decoder finds where a call ends, not the closing tag, so tags and braces inside strings are
harmless. Only loss-free repairs: control characters inside strings, arguments given as a JSON text,
and a missing closing tag after a complete object at the end of a turn that was not cut.
"""

import json
import re
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.json_calls import CallFields, call_fields, decode_json
from agentgym.rendering.dialects.reading import (
    CUT,
    END_TOKENS,
    Turn,
    mark_pattern,
    skip_space,
)
from agentgym.rendering.reasoning import Marks

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESULT = "<tool_response>"
_MARKS = mark_pattern([OPEN, RESULT, "<|im_start|>"])
_BORDER = re.compile(rf"(?:^|(?<=\n)){OPEN}|{CLOSE}")
"""Where a block that cannot be read ends."""
_UNCLOSED = re.compile("|".join(map(re.escape, (OPEN, RESULT, "<|im_start|>", *END_TOKENS))))
"""What ends a block of complete calls whose closing tag is missing."""


class HermesDialect:
    """See the module."""

    name = "hermes"

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
            if mark.group() == OPEN:
                _read_block(turn, tools)
            else:
                turn.stop()
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = f'{OPEN}\n{{"name": <tool name>, "arguments": <JSON object>}}\n{CLOSE}'
        return f"You can use these tools:\n{lines}\n\nTo call one, write:\n{example}"

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        return f"{OPEN}\n{body}\n{CLOSE}"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}\n{content}\n</tool_response>"


def _read_block(turn: Turn, tools: Sequence[ToolSchema]) -> None:
    """Read the block that begins here; it counts as a whole or not at all."""
    start = turn.position
    found: list[CallFields] = []
    reason = "the block is empty"
    position = skip_space(turn.text, start)
    while position < len(turn.text) and not turn.text.startswith(CLOSE, position):
        if found and _is_over(turn, position):
            break
        value, end, reason = decode_json(turn.text, position)
        fields = CallFields("", {}, reason) if reason else call_fields(value, tools=tools)
        if fields.reason:
            turn.give_up(start, fields.reason, border=_BORDER, close=CLOSE)
            return
        found.append(fields)
        position = skip_space(turn.text, end)
    if turn.cut and position >= len(turn.text):
        found, reason = [], CUT
    if not found:
        turn.give_up(start, reason, border=_BORDER, close=CLOSE)
        return
    rest = turn.text[position : position + len(CLOSE)]
    turn.position = position + len(rest) if CLOSE.startswith(rest) else position
    for fields in found:
        turn.add_call(fields.name, fields.arguments)


def _is_over(turn: Turn, position: int) -> bool:
    """Whether what follows complete calls is another part of the turn, or half a closing tag."""
    if turn.cut:
        return False
    rest = turn.text[position : position + len(CLOSE)]
    return CLOSE.startswith(rest) or _UNCLOSED.match(turn.text, position) is not None
