"""Calls written as a JSON list, `[{"name": ..., "arguments": ...}, ...]`, or as one such object.

Elements are decoded one by one, so that a broken one costs only itself and what follows it.
"""

import json
import re
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.rendering.base import ToolSchema
from agentgym.rendering.dialects.json_calls import call_fields, decode_json
from agentgym.rendering.dialects.reading import CUT, Turn, skip_space


def read_call_list(turn: Turn, *, border: re.Pattern[str], tools: Sequence[ToolSchema]) -> None:
    """Read what begins here; a list that is empty holds no call and is no mistake.

    Args:
        turn: stands before the list or the object.
        border: where a list that cannot be read ends.
        tools: as in `Dialect.parse`.
    """
    start = turn.position = skip_space(turn.text, turn.position)
    if not turn.text.startswith("[", start):
        _read_element(turn, border=border, tools=tools, is_last=True)
        return
    turn.position = skip_space(turn.text, start + 1)
    if turn.at_end:
        turn.give_up(start, "the list of calls is not closed", border=border)
    while not turn.at_end and not turn.text.startswith("]", turn.position):
        if not _read_element(turn, border=border, tools=tools, is_last=False):
            return
        turn.position = skip_space(turn.text, turn.position)
        if turn.text.startswith(",", turn.position):
            turn.position = skip_space(turn.text, turn.position + 1)
    turn.position = min(turn.position + 1, len(turn.text))


def _read_element(
    turn: Turn, *, border: re.Pattern[str], tools: Sequence[ToolSchema], is_last: bool
) -> bool:
    """Read one call; false if the reading cannot go on behind it.

    With `is_last` nothing has to follow; else a turn that was cut may have had more to say.
    """
    start = turn.position
    value, end, reason = decode_json(turn.text, start)
    if reason:
        turn.give_up(start, reason, border=border)
        return False
    turn.position = end
    name, arguments, reason = call_fields(value, tools=tools)
    if not reason and not is_last and turn.cut and skip_space(turn.text, end) == len(turn.text):
        reason = CUT
    if reason:
        turn.add_malformed(turn.text[start:end], reason)
    else:
        turn.add_call(name, arguments)
    return True


def written(call: ToolCall) -> str:
    """The call as a JSON object."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def told(tools: Sequence[ToolSchema], how: str) -> str:
    """Instructions for a system message: the tools, and how to write a call."""
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return f"You can use these tools:\n{lines}\n\nTo call one, write:\n{how}"
