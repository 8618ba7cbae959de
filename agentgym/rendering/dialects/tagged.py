"""Calls written as tags, one per argument, with values that nothing escapes (Qwen3-Coder, GLM).

A value may hold any tag itself, so the first closing tag may be the wrong one. What settles it:
tags opened inside a value are closed inside it; a closing tag that counts stands on its own line or
before the next part of the call; and an argument begins inside a value only if the tool has one of
that name which is not given yet. Reading never goes back, so it is linear in the text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from agentgym.rendering.base import ToolSchema
from agentgym.rendering.dialects.json_calls import (
    CallFields,
    arguments_of,
    call_fields,
    decode_json,
)
from agentgym.rendering.dialects.reading import CUT, Turn, skip_space
from agentgym.rendering.dialects.values import to_value

Kind = Literal["block", "function", "parameter"]
_INNER: dict[Kind, tuple[Kind, ...]] = {
    "block": ("function", "parameter"),
    "function": ("parameter",),
    "parameter": (),
}
_NAME = re.compile(r"[^\s(){}\[\]\"'<>=,]+")
_GARBLED_CLOSE = re.compile(r"</(?:parameter|arg_value)[^\s<>]*>?\s*\Z")
_BLOCK_END = "</tool_call>"
_SNIPPET = 40
_MAX_TAGS = 20_000
"""Tags behind that many are text: no turn that means something has them, and they cost time."""


class Tag(NamedTuple):
    """A tag of the call format; offsets into the text."""

    kind: Kind
    closing: bool
    name: str
    start: int
    end: int
    opens_value: bool = True
    """False where the tag before a value is missing, so that only the closing one marks it."""

    @property
    def text_start(self) -> int:
        """Where the text after the tag itself begins; the name of a block belongs to it."""
        return self.end - len(self.name) if self.kind == "block" else self.end


class UnreadableError(Exception):
    """Why a call cannot be read, for the model; never leaves the reader."""


class Call(NamedTuple):
    """A call that was read, and where the reading goes on."""

    name: str
    arguments: dict[str, Any]
    next_tag: int
    end: int


class _Value(NamedTuple):
    text: str
    next_tag: int
    end: int


@dataclass(slots=True)
class TagReader:
    """Reads the calls of one turn.

    `named_blocks` is for formats whose block is the function: its tag has the name, and its end is
    the function's. In the others, one newline on either side of a value is layout.
    """

    turn: Turn
    written_tags: InitVar[Iterable[Tag]]
    tools: Sequence[ToolSchema]
    named_blocks: bool
    tags: Sequence[Tag] = field(init=False)
    _schemas: dict[str, Mapping[str, Any]] = field(init=False)
    _index: dict[int, int] = field(init=False)

    def __post_init__(self, written_tags: Iterable[Tag]) -> None:
        self.tags = list(islice(written_tags, _MAX_TAGS))
        functions = [tool["function"] for tool in self.tools]
        self._schemas = {each["name"]: each.get("parameters") or {} for each in functions}
        self._index = {tag.start: index for index, tag in enumerate(self.tags)}

    def read(self, start: int) -> None:
        """Read what begins with the tag at `start`, where the turn has just passed its mark."""
        index = self._index.get(start)
        if index is None or self._is_prose(index):
            self.turn.content.append(self.turn.text[start : self.turn.position])
            return
        try:
            calls = self._calls(index)
        except UnreadableError as error:
            self._give_up(index, str(error))
            return
        for call in calls:
            self.turn.add_call(call.name, call.arguments)
        self.turn.position = calls[-1].end

    def _calls(self, index: int) -> list[Call]:
        if self.tags[index].kind == "function":
            call = self._function(index)
            return [self._closed(call) if self._comes("block", call, closing=True) else call]
        if self._text(self.tags[index].text_start).startswith("{"):
            return [self._json_call(index)]
        if self.named_blocks:
            return [self._closed(self._function(index))]
        return self._functions(index)

    def _functions(self, index: int) -> list[Call]:
        calls: list[Call] = []
        at, end = index + 1, self.tags[index].end
        while (tag := self._tag(at)) is not None and tag.kind == "function" and not tag.closing:
            self._refuse_text(end, tag.start)
            calls.append(self._function(at))
            at, end = calls[-1].next_tag, calls[-1].end
        if not calls:
            self._refuse_text(end, len(self.turn.text) if tag is None else tag.start)
            raise UnreadableError("the block is empty: <function=NAME> is missing")
        calls[-1] = self._closed(calls[-1])
        return calls

    def _closed(self, call: Call) -> Call:
        """The call with its block's closing tag, which may be missing before what comes next."""
        if self._comes("block", call, closing=True):
            return call._replace(next_tag=call.next_tag + 1, end=self.tags[call.next_tag].end)
        if self._is_cut(call.end):
            raise UnreadableError(CUT)
        return call

    def _comes(self, kind: Kind, call: Call, *, closing: bool) -> bool:
        tag = self._tag(call.next_tag)
        found = tag is not None and tag.kind == kind and tag.closing == closing
        return found and tag is not None and not self._between(call.end, tag.start)

    def _json_call(self, index: int) -> Call:
        """Hermes' form, which models of these families fall back to."""
        fields, end = self._json_at(
            self.tags[index].text_start, lambda value: call_fields(value, tools=self.tools)
        )
        return self._closed(self._behind(fields, index, end))

    def _json_at(
        self, start: int, fields_of: Callable[[Any], CallFields]
    ) -> tuple[CallFields, int]:
        value, end, reason = decode_json(self.turn.text, skip_space(self.turn.text, start))
        fields = CallFields("", {}, reason) if reason else fields_of(value)
        if fields.reason:
            raise UnreadableError(fields.reason)
        return fields, end

    def _behind(self, fields: CallFields, index: int, end: int) -> Call:
        """The call, with the first tag that does not stand inside its JSON."""
        next_tag = index + 1
        while (tag := self._tag(next_tag)) is not None and tag.start < end:
            next_tag += 1
        self._refuse_text(end, len(self.turn.text) if tag is None else tag.start)
        return Call(fields.name, fields.arguments, next_tag, end)

    def _function(self, index: int) -> Call:
        name = self.tags[index].name.strip().strip("\"'")
        if not _NAME.fullmatch(name):
            raise UnreadableError(
                f"{name!a} is no tool name" if name else "the call has no tool name"
            )
        root = self._schemas.get(name, {})
        properties = root.get("properties") or {}
        arguments: dict[str, Any] = {}
        at, end = index + 1, self.tags[index].end
        if self._text(end).startswith("{"):
            return self._end_of_function(self._with_json(name, index))
        while True:
            tag = self._tag(at)
            self._refuse_text(end, len(self.turn.text) if tag is None else tag.start)
            if tag is None or tag.kind != "parameter" or tag.closing:
                return self._end_of_function(Call(name, arguments, at, end))
            key = tag.name.strip().strip("\"'")
            if not key or key in arguments:
                raise UnreadableError(
                    f"the argument {key!a} {'is given twice' if key else 'is empty'}"
                )
            unused = set(properties) - {key, *arguments} if name in self._schemas else None
            text, at, end = self._value(at, unused)
            arguments[key] = to_value(text, properties.get(key) or {}, root=root)

    def _with_json(self, name: str, index: int) -> Call:
        """Arguments that are written as one JSON object."""
        fields, end = self._json_at(
            self.tags[index].end, lambda value: arguments_of(value, name=name)
        )
        return self._behind(fields, index, end)

    def _end_of_function(self, call: Call) -> Call:
        tag = self._tag(call.next_tag)
        if tag is not None and tag.closing and tag.kind == "parameter":
            raise UnreadableError("a closing tag of an argument stands where none is open")
        if tag is not None and tag.closing and tag.kind == "function":
            return call._replace(next_tag=call.next_tag + 1, end=tag.end)
        if self.named_blocks and tag is not None and tag.closing:
            return call._replace(end=tag.start)
        if self.turn.cut and tag is None:
            raise UnreadableError(CUT)
        if not call.arguments:
            raise UnreadableError(f"the call of {call.name} is not closed")
        return call._replace(end=len(self.turn.text) if tag is None else tag.start)

    def _value(self, index: int, unused: set[str] | None) -> _Value:
        """The value after the tag at `index`; `unused` are names that may come next, if known."""
        inside: Counter[Kind] = Counter()
        num_literal = 0
        for at in range(index + 1, len(self.tags)):
            tag = self.tags[at]
            if not tag.closing:
                if tag.kind == "parameter" and not inside.total() and self._begins(tag, unused):
                    return self._unclosed_value(index, at, is_clear=num_literal == 0)
                inside[tag.kind] += 1
            elif inside[tag.kind]:
                inside[tag.kind] -= 1
                inside.subtract({kind: inside[kind] for kind in _INNER[tag.kind]})
            elif not self._ends(at):
                num_literal += tag.kind == "parameter"
            elif tag.kind != "parameter":
                return self._unclosed_value(index, at, is_clear=num_literal == 0)
            else:
                return _Value(self._cut_out(index, tag.start), at + 1, tag.end)
        key = self.tags[index].name
        raise UnreadableError(CUT if self.turn.cut else f"the argument {key!a} is not closed")

    def _unclosed_value(self, index: int, at: int, *, is_clear: bool) -> _Value:
        """A value whose closing tag is missing, or was taken for that of a tag inside it."""
        opening, before, tag = self.tags[index], self.tags[at - 1], self.tags[at]
        is_close = before.closing and before.kind == "parameter" and at - 1 > index
        if is_close and not self._between(before.end, tag.start):
            return _Value(self._cut_out(index, before.start), at, tag.start)
        if not (is_clear and opening.opens_value):
            why = "has no value" if is_clear else "is followed by text outside the tags"
            raise UnreadableError(f"the argument {opening.name!a} {why}")
        text = self.turn.text[opening.end : tag.start]
        garbled = _GARBLED_CLOSE.search(text, max(0, text.rfind("</")))
        text = (text if garbled is None else text[: garbled.start()]).removesuffix("\n")
        return _Value(text if self.named_blocks else text.removeprefix("\n"), at, tag.start)

    def _cut_out(self, index: int, end: int) -> str:
        text = self.turn.text[self.tags[index].end : end]
        return text if self.named_blocks else text.removeprefix("\n").removesuffix("\n")

    def _begins(self, tag: Tag, unused: set[str] | None) -> bool:
        """Whether an argument begins here although the one before is not closed."""
        if unused is not None:
            return tag.name.strip() in unused
        return self._starts_line(tag.start)

    def _ends(self, at: int) -> bool:
        """Whether a closing tag that nothing inside the value opened is that of the call."""
        tag, after = self.tags[at], self._tag(at + 1)
        stop = len(self.turn.text) if after is None else after.start
        if self._between(tag.end, stop):
            return tag.kind != "block" and not self.named_blocks and self._starts_line(tag.start)
        if after is None:
            return True
        if tag.kind == "block":
            return after.kind != "parameter" and not after.closing
        return not after.closing or tag.kind in {after.kind, *_INNER[after.kind]}

    def _starts_line(self, position: int) -> bool:
        return position > 0 and self.turn.text[position - 1] == "\n"

    def _is_prose(self, index: int) -> bool:
        """Whether the text only speaks of the tag: no part of a call follows it."""
        tag, after = self.tags[index], self._tag(index + 1)
        if tag.kind == "function":
            has_part = after is not None and (after.kind == "parameter" or after.closing)
            return tag.name.strip() not in self._schemas or not (has_part or self._is_cut(tag.end))
        if after is not None and (after.closing or after.kind != "block"):
            return False
        if self.named_blocks:
            is_begun = self.turn.cut and after is None and len(tag.name.split()) < 2
            return bool(tag.name.strip()) and tag.name.strip() not in self._schemas and not is_begun
        return self._text(tag.end)[:1] not in {"", "<", "{", "["}

    def _is_cut(self, position: int) -> bool:
        """Whether the turn was cut here, or within the block's closing tag."""
        return self.turn.cut and _BLOCK_END.startswith(self._text(position))

    def _give_up(self, index: int, reason: str) -> None:
        """Record the attempt; it ends with its closing tag or before the next one."""
        is_bare = self.tags[index].kind == "function"
        closing = {"block", "function"} if is_bare else {"block"}
        end = position = len(self.turn.text)
        for at in range(index + 1, len(self.tags)):
            tag = self.tags[at]
            if tag.closing and tag.kind in closing:
                end, position = tag.start, tag.end
                break
            if not tag.closing and tag.kind == "block" and self._starts_line(tag.start):
                end = position = tag.start
                break
        else:
            reason = CUT if self.turn.cut else reason
        start = self.tags[index].start if is_bare else self.tags[index].text_start
        self.turn.position = position
        self.turn.add_malformed(self.turn.text[start:end], reason)

    def _tag(self, index: int) -> Tag | None:
        return self.tags[index] if index < len(self.tags) else None

    def _between(self, start: int, end: int) -> bool:
        """Whether more than space stands there."""
        return bool(self.turn.text[start:end].strip())

    def _text(self, start: int) -> str:
        """The first characters from `start` on that are no space."""
        position = skip_space(self.turn.text, start)
        return self.turn.text[position : position + _SNIPPET]

    def _refuse_text(self, start: int, end: int) -> None:
        if not self._between(start, end):
            return
        if self.turn.cut and end == len(self.turn.text):
            raise UnreadableError(CUT)
        found = ascii(self.turn.text[start:end].strip()[:_SNIPPET])
        raise UnreadableError(
            f"text outside the tags of the call, or a tag that is not closed: {found}"
        )
