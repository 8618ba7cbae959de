"""Kimi K2's calls: a section of special tokens in which the call's id carries the tool's name.

`functions.NAME:INDEX` is the id. Other forms are read only where they name a registered tool, so a
spoilt id never becomes an unknown tool.
"""

import json
import re
from collections.abc import Callable, Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.call_list import told
from agentgym.rendering.dialects.json_calls import tool_names
from agentgym.rendering.dialects.reading import Turn
from agentgym.rendering.dialects.sections import Header, read_sections, section_marks
from agentgym.rendering.reasoning import Marks

SECTION = Marks("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
CALL = Marks("<|tool_call_begin|>", "<|tool_call_end|>")
SEPARATOR = "<|tool_call_argument_begin|>"
_MARKS = section_marks(
    section=Marks(
        r"<\|tool_calls?_section_begin\|>",
        r"<\|tool_calls?_section_end\|>",
    ),
    call=Marks(*map(re.escape, CALL)),
    separator=re.escape(SEPARATOR),
    foreign=r"<\|im_(?:system|user|assistant|end)\|>|(?m:^## Return of )",
)
_ID = re.compile(r"(?:functions\.)?(.+):\d+", re.DOTALL)
_OTHER_ID = re.compile(r"(?:functions[._])?(.+?)(?:[._:-]\d+)?", re.DOTALL)


class KimiDialect:
    """See the module."""

    name = "kimi"

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
        read_sections(turn, _MARKS, _reader(tool_names(tools)), tools=tools)
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        return told(tools, _written("<tool name>", "<JSON object>"))

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        return _written(call.name, json.dumps(call.arguments, ensure_ascii=False))

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"## Return of the call\n{content}"


def _written(name: str, arguments: str) -> str:
    body = f"functions.{name}:0{SEPARATOR}{arguments}"
    return f"{SECTION.open}{CALL.open}{body}{CALL.close}{SECTION.close}"


def _reader(known: frozenset[str]) -> Callable[[str, str, int], Header]:
    def read_header(head: str, _: str, position: int) -> Header:
        """The whole head is the id."""
        usual = _ID.fullmatch(head)
        if usual is not None:
            return Header(usual[1], position)
        candidates = [head, head.removeprefix("functions."), head.removeprefix("functions_")]
        if (other := _OTHER_ID.fullmatch(head)) is not None:
            candidates.append(other[1])
        name = next((name for name in candidates if name in known), None)
        if name is None:
            return Header("", position, f"the call's id {head[:80]!r} is not functions.NAME:INDEX")
        return Header(name, position)

    return read_header
