"""Qwen3-Coder's calls, also Qwen3.5's and Nemotron 3's: a tag per argument, values as bare text.

`<tool_call><function=NAME><parameter=KEY>` and the same tags closed. Models leave out the outer tag
at times; a bare `<function=NAME>` counts if there is such a tool.
"""

import json
import re
from collections.abc import Iterator, Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.reading import Turn, mark_pattern
from agentgym.rendering.dialects.tagged import Kind, Tag, TagReader
from agentgym.rendering.dialects.values import spell
from agentgym.rendering.reasoning import Marks

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESULT = "<tool_response>"
_BARE = "<function="
_MARKS = mark_pattern([OPEN, _BARE, RESULT, "<|im_start|>"])
_TAG = re.compile(r"<(/?)(tool_call|function|parameter)(?:=([^<>\n]*))?>")
_KINDS: dict[str, Kind] = {"tool_call": "block", "function": "function", "parameter": "parameter"}


class Qwen3CoderDialect:
    """See the module."""

    name = "qwen3_coder"

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
        reader = TagReader(turn, _tags(turn.text), tools, named_blocks=False)
        while (mark := turn.advance(_MARKS)) is not None:
            if mark.group() in {OPEN, _BARE}:
                reader.read(mark.start())
            else:
                turn.stop()
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = (
            f"{OPEN}\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n{CLOSE}"
        )
        return (
            f"You can use these tools:\n{lines}\n\nTo call one, write:\n{example}\n"
            "with one parameter block per argument: strings as they are, other values as JSON."
        )

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        lines = [
            f"<parameter={key}>\n{spell(value)}\n</parameter>"
            for key, value in call.arguments.items()
        ]
        return "\n".join([OPEN, f"<function={call.name}>", *lines, "</function>", CLOSE])

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}\n{content}\n</tool_response>"


def _tags(text: str) -> Iterator[Tag]:
    for match in _TAG.finditer(text):
        slash, word, name = match.groups()
        is_plain = word == "tool_call" or slash
        if (name is None) == bool(is_plain):
            yield Tag(_KINDS[word], bool(slash), name or "", match.start(), match.end())
