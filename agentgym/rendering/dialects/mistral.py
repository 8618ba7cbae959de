"""Mistral's calls behind `[TOOL_CALLS]`, in both forms that its models write.

Up to tokenizer 7 a JSON list of objects, from 11 on `name[CALL_ID]id[ARGS]{...}`; a model is read
in either form, because fine-tuned ones mix them. Neither form has a closing mark.
"""

import re
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.call_list import read_call_list, told, written
from agentgym.rendering.dialects.json_calls import arguments_of, decode_json, has_no_parameters
from agentgym.rendering.dialects.reading import Turn, mark_pattern, skip_space
from agentgym.rendering.reasoning import Marks

OPEN, RESULT = "[TOOL_CALLS]", "[TOOL_RESULTS]"
_MARKS = mark_pattern([OPEN, RESULT, "[INST]"])
_BORDER = re.compile(r"\[TOOL_CALLS\]|\[TOOL_RESULTS\]|\[INST\]")
_HEAD = re.compile(r"([^\s\[\]{}]+)\s*(?:\[CALL_ID\][^\[\]{}]*)?(?:\[ARGS\])?\s*")
_NEXT = re.compile(r"\s*(?=[^\s\[\]{}]+\s*(?:\[CALL_ID\][^\[\]{}]*)?\[ARGS\])")
"""Another call behind the first, without a mark of its own."""


class MistralDialect:
    """See the module."""

    name = "mistral"

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
            blocks=(Marks(OPEN, "}"),),
        )
        while (mark := turn.advance(_MARKS)) is not None:
            if mark.group() != OPEN:
                turn.stop()
            elif turn.text.startswith(("[", "{"), skip_space(turn.text, turn.position)):
                read_call_list(turn, border=_BORDER, tools=tools)
            else:
                _read_named(turn, tools)
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        return told(tools, f'{OPEN} [{{"name": <tool name>, "arguments": <JSON object>}}]')

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        return f"{OPEN} [{written(call)}]"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT} {content}[/TOOL_RESULTS]"


def _read_named(turn: Turn, tools: Sequence[ToolSchema]) -> None:
    """Read `name[ARGS]{...}`, as many as there are."""
    while True:
        start = turn.position = skip_space(turn.text, turn.position)
        head = _HEAD.match(turn.text, start)
        if head is None:
            turn.give_up(start, "the mark is followed by no call", border=_BORDER)
            return
        name = head[1]
        value, end, reason = decode_json(turn.text, head.end())
        if reason and _is_over(turn, head.end()) and has_no_parameters(name, tools):
            value, end, reason = {}, head.end(), ""
        fields = arguments_of(value, name=name)
        if reason or fields.reason:
            turn.give_up(start, reason or fields.reason, border=_BORDER)
            return
        turn.position = end
        turn.add_call(name, fields.arguments)
        if (following := _NEXT.match(turn.text, end)) is None:
            return
        turn.position = following.end()


def _is_over(turn: Turn, position: int) -> bool:
    """Whether nothing of this call is left, and nothing of it can have been cut off."""
    at_end = position == len(turn.text)
    return not turn.cut if at_end else _BORDER.match(turn.text, position) is not None
