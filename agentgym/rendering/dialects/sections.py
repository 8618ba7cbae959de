"""Calls between special tokens, grouped in sections, as DeepSeek and Kimi write them.

A call is `begin, head, separator, JSON arguments, end`. Its end and the section's marks may be
missing: the next mark, or the end of a turn that was not cut, ends it as well.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentgym.rendering.base import ToolSchema
from agentgym.rendering.dialects.json_calls import (
    CallFields,
    arguments_of,
    decode_json,
    has_no_parameters,
)
from agentgym.rendering.dialects.reading import CUT, Turn, skip_space
from agentgym.rendering.reasoning import FAMILIES, Marks


class SectionMarks(NamedTuple):
    """Marks of a family."""

    any_mark: re.Pattern[str]
    """Its named group tells the kind: `section`, `call`, `separator`, `end`, `foreign`, `think`."""
    fence: re.Pattern[str]
    """What may stand between the arguments and the end of the call."""


class Header(NamedTuple):
    """Tool of a call and where its arguments begin; `reason` says why there is none."""

    name: str
    position: int
    reason: str = ""


ReadHeader = Callable[[str, str, int], Header]
"""Given what stands before the separator, the text of the turn and where the separator ends."""


def section_marks(
    *,
    section: Marks,
    call: Marks,
    separator: str,
    foreign: str,
    fence: str = "",
) -> SectionMarks:
    """All marks but those of reasoning are regular expressions without groups.

    Args:
        section: opens and closes a section.
        call: opens and closes a call.
        separator: between head and arguments.
        foreign: what only the other side writes, as results and beginnings of messages.
        fence: may stand between the arguments and the end of the call.
    """
    kinds = {
        "section": section.open,
        "call": call.open,
        "separator": separator,
        "end": f"{call.close}|{section.close}",
        "foreign": foreign,
        "think": "|".join(re.escape(mark) for pair in FAMILIES for mark in pair),
    }
    any_mark = re.compile("|".join(f"(?P<{kind}>{mark})" for kind, mark in kinds.items()))
    return SectionMarks(any_mark, re.compile(rf"\s*(?:{fence})?\s*"))


def read_sections(
    turn: Turn, marks: SectionMarks, read_header: ReadHeader, *, tools: Sequence[ToolSchema]
) -> None:
    """Read the whole turn."""
    while (mark := turn.advance(marks.any_mark)) is not None:
        if mark.lastgroup == "call":
            _read_call(turn, marks, read_header, tools)
        elif mark.lastgroup == "section":
            _enter(turn, marks)
        elif mark.lastgroup == "foreign":
            turn.stop()


def _enter(turn: Turn, marks: SectionMarks) -> None:
    """A section has to begin with a call; an empty one is a call that was not made.

    One that is opened again and again is the same section.
    """
    start = skip_space(turn.text, turn.position)
    following = marks.any_mark.match(turn.text, start)
    if following is None or following.lastgroup not in ("call", "section"):
        _give_up(turn, marks, start, "the section of calls holds no call")


def _read_call(
    turn: Turn, marks: SectionMarks, read_header: ReadHeader, tools: Sequence[ToolSchema]
) -> None:
    start = turn.position
    separator = marks.any_mark.search(turn.text, start)
    if separator is None or separator.lastgroup != "separator":
        _give_up(turn, marks, start, "the call has no arguments")
        return
    head = turn.text[start : separator.start()].strip()
    header = read_header(head, turn.text, separator.end())
    fields, end = CallFields("", {}, header.reason), start
    if not header.reason:
        fields, end = _read_arguments(turn, marks, header, tools)
    if fields.reason:
        _give_up(turn, marks, start, fields.reason)
        return
    turn.position = end
    turn.add_call(fields.name, fields.arguments)


def _read_arguments(
    turn: Turn, marks: SectionMarks, header: Header, tools: Sequence[ToolSchema]
) -> tuple[CallFields, int]:
    """Arguments of the call, and where the text goes on behind it."""
    begin = skip_space(turn.text, header.position)
    value, end, reason = decode_json(turn.text, begin)
    if reason and has_no_parameters(header.name, tools):
        value, end, reason = {}, begin, ""
    behind = marks.fence.match(turn.text, end)
    assert behind is not None
    closing = marks.any_mark.match(turn.text, behind.end())
    if not reason and closing is None and behind.end() < len(turn.text):
        reason = "text after the JSON object"
    if not reason and closing is None and turn.cut:
        reason = CUT
    if reason:
        return CallFields("", {}, f"the arguments of {header.name}: {reason}"), end
    return arguments_of(value, name=header.name), behind.end()


def _give_up(turn: Turn, marks: SectionMarks, start: int, reason: str) -> None:
    """The attempt ends at the next mark that can end a call."""
    border = marks.any_mark.search(turn.text, start)
    while border is not None and border.lastgroup in ("separator", "think"):
        border = marks.any_mark.search(turn.text, border.end())
    turn.position = len(turn.text) if border is None else border.start()
    cut = border is None and turn.cut
    turn.add_malformed(turn.text[start : turn.position], CUT if cut else reason)
