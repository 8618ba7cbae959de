"""What every dialect needs to read a turn: one pass from left to right that never goes back.

A dialect moves from mark to mark with `Turn.advance`; reasoning on the way is taken out there, so a
draft inside it is never a call, while a thinking mark inside a call's string stays part of the
string. The JSON decoder, not the closing mark, finds where arguments end.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.messages import MalformedCall, ToolCall
from agentgym.rendering.base import ParsedAction

MAX_MALFORMED = 32
"""One more and the rest of the turn is not read: the decoder's error costs time in the length."""
END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek's tokens have these characters
    "</s>",
)
"""End tokens of all families; a renderer has mostly taken them off as ids."""
_SPACE = re.compile(r"\s*")


class Marks(NamedTuple):
    """What opens and closes a block."""

    open: str
    close: str


THINK = Marks("<think>", "</think>")


class Decoded(NamedTuple):
    """A value of the text, and where it ends; `reason` says why there is none."""

    value: Any
    end: int
    reason: str = ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(
            name for name, times in Counter(name for name, _ in pairs).items() if times > 1
        )
        raise ValueError(f"the key {twice!a} stands there twice")
    return found


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_unique)


def decode_json(text: str, position: int = 0) -> Decoded:
    """The JSON value that begins exactly at `position`; raw control characters are let pass."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        where = f"{error.msg} at character {error.pos - position}"
        return Decoded(None, position, f"not valid JSON: {where}")
    except RecursionError:
        return Decoded(None, position, "not valid JSON: nested too deeply")
    except ValueError as error:
        return Decoded(None, position, f"not valid JSON: {error}")
    return Decoded(value, end)


def skip_space(text: str, position: int) -> int:
    """Where the next character that is no space stands."""
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def without_end_tokens(text: str) -> str:
    """`text` without end tokens and spaces at its end."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = next((token for token in END_TOKENS if text.endswith(token, 0, end)), None)
        if token is None:
            return text[:end]
        end -= len(token)


def mark_pattern(marks: Iterable[str], *, thinking: Iterable[Marks] = (THINK,)) -> re.Pattern[str]:
    """Matches any of the literal `marks`, and what opens reasoning; for `Turn.advance`."""
    words = [*marks, *(pair.open for pair in thinking)]
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


class CallFields(NamedTuple):
    """Name and arguments of a call; `reason` says why they are none."""

    name: str
    arguments: dict[str, Any]
    reason: str = ""


def call_fields(value: Any, *, argument_keys: Iterable[str] = ("arguments",)) -> CallFields:
    """Read `{"name": ..., "arguments": ...}`; arguments may be given as a JSON text."""
    if not isinstance(value, dict):
        return CallFields("", {}, "a call must be a JSON object with name and arguments")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return CallFields("", {}, 'the call has no "name"')
    key = next((key for key in argument_keys if key in value), "arguments")
    return arguments_of(value.get(key), name=name, label=f'"{key}"')


def arguments_of(value: Any, *, name: str, label: str = "the arguments") -> CallFields:
    """Arguments of the tool `name`, given as an object or as its JSON text."""
    if isinstance(value, str):
        text = value.strip()
        value, end, reason = decode_json(text)
        if reason or end < len(text):
            why = reason or "text after the JSON object"
            return CallFields("", {}, f"{label} of {name}: {why}")
    if not isinstance(value, dict):
        return CallFields("", {}, f"{label} of {name} must be a JSON object")
    return CallFields(name, value)


@dataclass(slots=True)
class Turn:
    """The text of one turn, how far it is read, and what was found."""

    text: str
    """Without end tokens; begins with the mark that the prompt left open."""
    cut: bool
    """Cut by length, so what is open at the end must not be closed."""
    raw: str
    thinking: tuple[Marks, ...]
    position: int = 0
    content: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    malformed: list[MalformedCall] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        thinking: tuple[Marks, ...] = (THINK,),
        openers: Iterable[str] = (),
    ) -> "Turn":
        """Begin to read.

        Args:
            text: as sampled.
            finish_reason: as in `Dialect.parse`.
            prompt_suffix: as in `Dialect.parse`.
            thinking: what opens and closes reasoning.
            openers: marks that open a call, if the prompt may end with one.
        """
        suffix = prompt_suffix.rstrip()
        begun = [
            pair.open for pair in thinking if suffix.rfind(pair.open) > suffix.rfind(pair.close)
        ]
        begun += [mark for mark in openers if suffix.endswith(mark)]
        shown = "".join(begun[:1]) + without_end_tokens(text)
        return cls(text=shown, cut=finish_reason == "length", raw=text, thinking=thinking)

    @property
    def at_end(self) -> bool:
        """Whether nothing is left to read."""
        return self.position >= len(self.text)

    @property
    def next_id(self) -> str:
        """Id of the call that is added next."""
        return f"call_{len(self.calls) + len(self.malformed)}"

    def advance(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind the next mark outside reasoning; what is passed is content.

        Args:
            pattern: from `mark_pattern`, with the same `thinking`.

        Returns:
            The mark, or `None` if the rest of the turn held none.
        """
        while (match := pattern.search(self.text, self.position)) is not None:
            self.content.append(self.text[self.position : match.start()])
            self.position = match.end()
            pair = next((pair for pair in self.thinking if pair.open == match.group()), None)
            if pair is None:
                return match
            self._think(pair)
        self.content.append(self.text[self.position :])
        self.position = len(self.text)
        return None

    def _think(self, pair: Marks) -> None:
        end = self.text.find(pair.close, self.position)
        stop = len(self.text) if end < 0 else end
        self.thoughts.append(self.text[self.position : stop].strip())
        self.position = len(self.text) if end < 0 else end + len(pair.close)

    def stop(self) -> None:
        """Leave the rest unread: neither content nor calls."""
        self.position = len(self.text)

    def add_call(self, name: str, arguments: dict[str, Any]) -> None:
        """A call to run."""
        self.calls.append(ToolCall(id=self.next_id, name=name, arguments=arguments))

    def add_malformed(self, text: str, reason: str) -> None:
        """An attempt that must not be run; too many of them end the reading."""
        if len(self.malformed) == MAX_MALFORMED:
            self.stop()
            return
        self.malformed.append(MalformedCall(id=self.next_id, text=text.strip(), reason=reason))

    def action(self) -> ParsedAction:
        """What was found."""
        return ParsedAction(
            content="".join(self.content).strip(),
            reasoning="\n".join(self.thoughts) if self.thoughts else None,
            calls=tuple(self.calls),
            malformed=tuple(self.malformed),
            truncated=self.cut,
            raw=self.raw,
        )
