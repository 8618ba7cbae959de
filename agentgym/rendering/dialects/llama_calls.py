"""Where a call of Llama begins: nothing marks it, so what counts depends on where it stands.

Behind the tag everything is an attempt; at the beginning of the turn, or behind another call,
whatever has the form of one; inside prose only a call of a registered tool. Other JSON is part of
an answer and left there whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from agentgym.rendering.base import ToolSchema
from agentgym.rendering.dialects.json_calls import (
    ARGUMENT_KEYS,
    call_fields,
    decode_json,
    tool_names,
)
from agentgym.rendering.dialects.pythonic import NAME, PythonCall, balanced_end, read_python_call
from agentgym.rendering.dialects.reading import CUT, MAX_MALFORMED, Turn, mark_pattern, skip_space
from agentgym.rendering.reasoning import Marks

TAGS = ("<|python_tag|>", "<|python_start|>", "<|tool_call_start|>")
"""Of Llama 3, Llama 4, and LFM2, which writes the same calls."""
_TAG_ENDS = ("<|python_end|>", "<|tool_call_end|>")
BLOCKS = tuple(Marks(tag, end) for tag in TAGS for end in "})")
"""Behind the tag a call is open until its last bracket."""
RESULT = "<tool_result>"
_FOREIGN = (
    *(RESULT, "<|tool_response_start|>"),
    *("<|start_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    *("<|header_start|>", "<|eot|>", "<|eom|>"),
)
_OBJECT = r"\{\s*\""
_LIST = r"\[\s*\{\s*\""
_PYTHON = rf"\[\s*{NAME}\s*\("
_PYTHON_START = re.compile(_PYTHON)
_START = re.compile(f"{_OBJECT}|{_LIST}|{_PYTHON}")
_MARKS = mark_pattern([*TAGS, *_TAG_ENDS, *_FOREIGN], patterns=[_START.pattern])
_BORDER = re.compile(
    "|".join(map(re.escape, [*TAGS, *_TAG_ENDS, *_FOREIGN])) + r"|;\s{0,8}(?=\{)|\n(?=[{\[])"
)
_SEPARATOR = re.compile(rf"\s*+(?:[;,]\s*+)?(?=\Z|{_START.pattern})")
_SHAPE = re.compile(
    r'(?:\[\s*)?\{\s*(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)?"(?:name|function)"\s*:\s*"([^"\\]*)"'
    r'\s*,\s*"(?:parameters|arguments)"'
)
_BEGUN = re.compile(r'(?:\[\s*)?\{\s*"(?:name|function|type)"')


class _Place(IntEnum):
    """How sure it is that a call is meant."""

    PROSE = 0
    ALONE = 1
    TAGGED = 2


@dataclass(slots=True)
class LlamaReader:
    """Reads calls where they stand, and keeps count of what looked like one and was none."""

    turn: Turn
    tools: Sequence[ToolSchema]
    known: frozenset[str] = field(init=False)
    num_misses: int = 0
    num_seen: int = 0
    has_prose: bool = False
    """Whether one of the first `num_seen` pieces of content is more than space."""

    def __post_init__(self) -> None:
        self.known = tool_names(self.tools)

    def read(self) -> None:
        """Read the whole turn."""
        turn = self.turn
        while (mark := turn.advance(_MARKS)) is not None:
            word = mark.group()
            if word in _FOREIGN:
                turn.stop()
            elif word in TAGS:
                self._read_tagged()
            elif word not in _TAG_ENDS:
                turn.position = mark.start()
                place = self._place()
                if self._read_one(place):
                    self._read_following(max(place, _Place.ALONE))

    def _place(self) -> _Place:
        content = self.turn.content
        if len(content) < self.num_seen:
            self.num_seen, self.has_prose = 0, False
        self.has_prose |= any(part.strip() for part in content[self.num_seen :])
        self.num_seen = len(content)
        return _Place.PROSE if self.has_prose else _Place.ALONE

    def _read_tagged(self) -> None:
        turn = self.turn
        start = turn.position = skip_space(turn.text, turn.position)
        if _START.match(turn.text, start):
            self._read_following(_Place.TAGGED)
            return
        call = read_python_call(turn.text, start)
        if call.reason:
            turn.give_up(start, f"behind {TAGS[0]}: {call.reason}", border=_BORDER)
            return
        turn.position = call.end
        turn.add_call(call.name.removesuffix(".call"), call.arguments)
        self._read_following(_Place.TAGGED)

    def _read_following(self, place: _Place) -> None:
        """Read the calls that begin here, up to the first thing that is none."""
        turn = self.turn
        while (gap := _SEPARATOR.match(turn.text, turn.position)) is not None:
            turn.position = gap.end()
            if turn.at_end or not self._read_one(place):
                return

    def _read_one(self, place: _Place) -> bool:
        """Read what begins here; false if it is no call, which makes it content."""
        if _PYTHON_START.match(self.turn.text, self.turn.position):
            return self._read_python(place)
        return self._read_json(place)

    def _read_json(self, place: _Place) -> bool:
        """An object, or a list, in which one element that is no call makes all of it an answer."""
        turn = self.turn
        start = turn.position
        value, end, reason = decode_json(turn.text, start)
        if reason:
            return self._miss(place, reason)
        items = value if isinstance(value, list) else [value]
        if not all(self._is_meant(item, place) for item in items):
            turn.content.append(turn.text[start:end])
            turn.position = end
            return False
        turn.position = end
        for name, arguments, why in (call_fields(item, tools=self.tools) for item in items):
            if why:
                turn.add_malformed(turn.text[start:end], why)
            else:
                turn.add_call(name, arguments)
        return True

    def _is_meant(self, value: Any, place: _Place) -> bool:
        """Whether a JSON value is an attempt at a call."""
        if place is _Place.TAGGED:
            return True
        fields = call_fields(value, tools=self.tools)
        if not fields.reason:
            return place is _Place.ALONE or self._may_be(fields.name)
        inner = value.get("function", value) if isinstance(value, dict) else None
        if not isinstance(inner, dict) or not any(key in inner for key in ARGUMENT_KEYS):
            return False
        name = inner.get("name")
        return isinstance(name, str) and name in self.known

    def _may_be(self, name: str) -> bool:
        return not self.known or name in self.known

    def _miss(self, place: _Place, reason: str) -> bool:
        """JSON that cannot be read: an attempt at a call, or part of the prose."""
        turn = self.turn
        shape = _SHAPE.match(turn.text, turn.position)
        is_begun = place is _Place.ALONE and turn.cut and _BEGUN.match(turn.text, turn.position)
        if place is _Place.TAGGED or is_begun or (shape and self._may_be(shape[1])):
            turn.give_up(turn.position, reason, border=_BORDER)
            return True
        self._pass()
        return False

    def _pass(self) -> None:
        """Leave a bracket and what it holds in the content; after too many, all the rest."""
        turn = self.turn
        start = turn.position
        self.num_misses += 1
        if self.num_misses > MAX_MALFORMED:
            turn.position = len(turn.text)
        else:
            turn.position = balanced_end(turn.text, start) or start + 1
        turn.content.append(turn.text[start : turn.position])

    def _read_python(self, place: _Place) -> bool:
        """`[name(...), name(...)]`; a call that cannot be read costs only itself."""
        turn = self.turn
        begin = skip_space(turn.text, turn.position + 1)
        first = read_python_call(turn.text, begin)
        is_call = not first.reason and place is _Place.ALONE
        is_told = first.name in self.known or (not self.known and not first.reason)
        if not (place is _Place.TAGGED or is_call or is_told):
            self._pass()
            return False
        turn.position, call = begin, first
        while self._add_python(call):
            if turn.at_end or turn.text.startswith("]", turn.position):
                turn.position = min(turn.position + 1, len(turn.text))
                break
            call = read_python_call(turn.text, turn.position)
        return True

    def _add_python(self, call: PythonCall) -> bool:
        """Take one call of a list, from here on; false if the reading cannot go on behind it."""
        turn = self.turn
        start = turn.position
        end = balanced_end(turn.text, start) if call.reason and call.name else call.end
        if end is None or not call.name:
            turn.give_up(start, call.reason, border=_BORDER)
            return False
        turn.position = skip_space(turn.text, end)
        reason = CUT if turn.cut and turn.at_end else call.reason
        if reason:
            turn.add_malformed(turn.text[start:end], reason)
        else:
            turn.add_call(call.name, call.arguments)
        if turn.text.startswith(",", turn.position):
            turn.position = skip_space(turn.text, turn.position + 1)
        return True
