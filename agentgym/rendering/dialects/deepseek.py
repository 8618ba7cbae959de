# ruff: noqa: RUF001 - the family's tokens have these characters
"""Calls of DeepSeek V3 / R1 and V3.1: the same special tokens around two layouts.

V3 writes a type, the name and fenced JSON; V3.1 only name and JSON. A turn is read in either, told
apart by what follows the separator, since fine-tuned models mix them.
"""

import json
import re
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.call_list import told
from agentgym.rendering.dialects.reading import Turn
from agentgym.rendering.dialects.sections import Header, read_sections, section_marks
from agentgym.rendering.reasoning import Marks

SECTION = Marks("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
CALL = Marks("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
SEPARATOR = "<｜tool▁sep｜>"
RESULT = Marks("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")


def _loose(mark: str) -> str:
    """Distilled models write the tokens with the ASCII characters that look like them."""
    return re.escape(mark).replace("｜", "[｜|]").replace("▁", "[▁_ ]")


_MARKS = section_marks(
    section=Marks(*map(_loose, SECTION)),
    call=Marks(*map(_loose, CALL)),
    separator=_loose(SEPARATOR),
    foreign="|".join(
        _loose(mark)
        for mark in (
            "<｜tool▁outputs▁begin｜>",
            RESULT.open,
            "<｜User｜>",
            "<｜Assistant｜>",
            "<｜end▁of▁sentence｜>",
        )
    ),
    fence="```",
)
_NAME = re.compile(r"\s*([^\n`{<]*)\s*(?:```(?:json)?)?")
_FENCE = re.compile(r"\s*```(?:json)?")


class DeepSeekDialect:
    """See the module.

    Args:
        name: `deepseek_v3` or `deepseek_v31`, the layout that is written.
    """

    def __init__(self, name: str) -> None:
        self.name = name

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
            blocks=(SECTION, CALL),
        )
        read_sections(turn, _MARKS, _read_header, tools=tools)
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        return told(tools, self._written("<tool name>", "<JSON object>"))

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        return self._written(call.name, json.dumps(call.arguments, ensure_ascii=False))

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT.open}{content}{RESULT.close}"

    def _written(self, name: str, arguments: str) -> str:
        body = f"{name}{SEPARATOR}{arguments}"
        if self.name == "deepseek_v3":
            body = f"function{SEPARATOR}{name}\n```json\n{arguments}\n```"
        return f"{SECTION.open}{CALL.open}{body}{CALL.close}{SECTION.close}"


def _read_header(head: str, text: str, position: int) -> Header:
    """The name stands before the separator (V3.1), or behind it and the type before it (V3)."""
    name = _NAME.match(text, position)
    assert name is not None
    if head == "function" and name[1].strip():
        return Header(name[1].strip(), name.end())
    fence = _FENCE.match(text, position)
    if not head or (head == "function" and fence is not None):
        return Header("", position, "the call has no name")
    return Header(head, position if fence is None else fence.end())
