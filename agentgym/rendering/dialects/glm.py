"""GLM's calls (4.5 and later): the tool's name, then pairs of key and value tags, values bare.

`<tool_call>NAME` and per argument `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`; newlines
between them are layout, those inside a value are not. Models drop or double one of a pair's tags at
times, which is harmless while the rest still says where key and value begin and end.
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
_ROLES = ("<|observation|>", "<|user|>", "<|system|>")
_MARKS = mark_pattern([OPEN, RESULT, *_ROLES])
_TAG = re.compile(
    r"<tool_call>(?P<name>\n?[^<\n]*)"
    r"|(?P<block_end></tool_call>)"
    r"|<arg_key>(?:<arg_key>)?(?P<key>[^<>]*)(?:</arg_key>)+(?P<value>\s*<arg_value>)?"
    r"|</arg_value>"
)


class GlmDialect:
    """See the module."""

    name = "glm"

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
        reader = TagReader(turn, _tags(turn.text), tools, named_blocks=True)
        while (mark := turn.advance(_MARKS)) is not None:
            if mark.group() == OPEN:
                reader.read(mark.start())
            else:
                turn.stop()
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = f"{OPEN}NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n{CLOSE}"
        return (
            f"You can use these tools:\n{lines}\n\nTo call one, write:\n{example}\n"
            "with one pair of tags per argument: strings as they are, other values as JSON."
        )

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        pairs = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{spell(value)}</arg_value>\n"
            for key, value in call.arguments.items()
        ]
        return f"{OPEN}{call.name}\n{''.join(pairs)}{CLOSE}"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}\n{content}\n</tool_response>"


def _tags(text: str) -> Iterator[Tag]:
    for match in _TAG.finditer(text):
        name, key = match["name"], match["key"]
        if name is not None:
            yield Tag("block", False, name, match.start(), match.end())
        elif key is not None:
            opens_value = match["value"] is not None
            yield Tag("parameter", False, key, match.start(), match.end(), opens_value)
        else:
            kind: Kind = "block" if match["block_end"] else "parameter"
            yield Tag(kind, True, "", match.start(), match.end())
