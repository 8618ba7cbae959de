"""What every dialect needs to read a turn: one pass from left to right that never goes back.

A dialect moves from mark to mark with `Turn.advance`; reasoning on the way is taken out there, so a
draft inside it is never a call, while a thinking mark inside a call's string stays part of the
string. The JSON decoder, not the closing mark, finds where arguments end.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.messages import MalformedCall, ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.reasoning import FAMILIES, Marks, left_open

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


def finite(text: str) -> float:
    """The number that a text writes.

    Raises:
        ValueError: JSON has no such number.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number that JSON can hold")
    return value


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_unique, parse_float=finite, parse_constant=finite
)


def decode_json(text: str, position: int = 0) -> Decoded:
    """The JSON value that begins exactly at `position`; raw control characters are let pass."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + 20]
        where = f"{error.msg} at character {error.pos - position}, before {near!r}"
        return Decoded(None, position, f"not valid JSON: {where}")
    except RecursionError:
        return Decoded(None, position, "not valid JSON: nested too deeply")
    except ValueError as error:
        return Decoded(None, position, f"not valid JSON: {error}")
    return Decoded(value, end)


def _encodable(text: str) -> str:
    """Half of a surrogate pair, as JSON can escape it, could not be written down."""
    return text.encode(errors="backslashreplace").decode()


def skip_space(text: str, position: int) -> int:
    """Where the next character that is no space stands."""
    if position < len(text) and not text[position].isspace():
        return position
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


def mark_pattern(
    marks: Iterable[str], *, patterns: Iterable[str] = (), thinking: Iterable[Marks] = FAMILIES
) -> re.Pattern[str]:
    """For `Turn.advance`: any of the literal `marks`, or of `patterns`, or of reasoning's marks."""
    words = sorted([*marks, *(mark for pair in thinking for mark in pair)], key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, words), *patterns]))


def has_no_parameters(name: str, tools: Sequence[ToolSchema]) -> bool:
    """Whether the tool is known to take no arguments, so that a call may leave them out."""
    functions = [tool["function"] for tool in tools if tool["function"].get("name") == name]
    return bool(functions) and not (functions[0].get("parameters") or {}).get("properties")


def tool_names(tools: Sequence[ToolSchema]) -> frozenset[str]:
    """Names that a call may have."""
    return frozenset(tool["function"]["name"] for tool in tools)


class CallFields(NamedTuple):
    """Name and arguments of a call; `reason` says why they are none."""

    name: str
    arguments: dict[str, Any]
    reason: str = ""


CUT = "the turn was cut by the length limit before the call was complete"
ARGUMENT_KEYS = ("arguments", "parameters")


def call_fields(value: Any, *, tools: Sequence[ToolSchema] = ()) -> CallFields:
    """Read `{"name": ..., "arguments": ...}`, or the same as OpenAI wraps it.

    Arguments may be given as a JSON text, and left out where the tool takes none.
    """
    if not isinstance(value, dict):
        return CallFields("", {}, "a call must be a JSON object with name and arguments")
    if "name" not in value and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return CallFields("", {}, 'the call has no "name"')
    keys = [key for key in ARGUMENT_KEYS if value.get(key) is not None]
    if len(keys) > 1 and value[keys[0]] != value[keys[1]]:
        return CallFields("", {}, f'{name} has both "arguments" and "parameters"')
    if not keys and has_no_parameters(name, tools):
        return CallFields(name, {})
    if not keys:
        return CallFields("", {}, f'the call of {name} has no "arguments"')
    return arguments_of(value[keys[0]], name=name, label=f'"{keys[0]}"')


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


def _begun_block(prompt_suffix: str, blocks: Iterable[Marks]) -> str:
    """The end of the prompt from the last mark on that opened a call and was not closed since."""
    starts = [prompt_suffix.rfind(block.open) for block in blocks]
    ends = [prompt_suffix.rfind(block.close) for block in blocks]
    start = max(starts, default=-1)
    return prompt_suffix[start:] if start > max(ends, default=-1) else ""


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
        thinking: tuple[Marks, ...] = FAMILIES,
        blocks: Iterable[Marks] = (),
    ) -> "Turn":
        """Begin to read.

        Args:
            text: as sampled.
            finish_reason: as in `Dialect.parse`.
            prompt_suffix: as in `Dialect.parse`.
            thinking: what opens and closes reasoning.
            blocks: what opens and closes a call; one that the prompt leaves open is read whole.
        """
        thought = left_open(prompt_suffix, families=thinking)
        begun = _begun_block(prompt_suffix, blocks) if thought is None else thought.open
        shown = begun + without_end_tokens(text)
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
            if not self._is_thinking(match.group()):
                return match
        self.content.append(self.text[self.position :])
        self.position = len(self.text)
        return None

    def _is_thinking(self, mark: str) -> bool:
        """Whether the mark belongs to reasoning, which is then read."""
        for pair in self.thinking:
            if mark == pair.open:
                self._think(pair)
                return True
            if mark == pair.close:
                self._think_in_hindsight()
                return True
        return False

    def _think(self, pair: Marks) -> None:
        start = skip_space(self.text, self.position)
        while self.text.startswith(pair.open, start):
            self.position = start + len(pair.open)
            start = skip_space(self.text, self.position)
        end = self.text.find(pair.close, self.position)
        stop = len(self.text) if end < 0 else end
        self.thoughts.append(self.text[self.position : stop].strip())
        self.position = len(self.text) if end < 0 else end + len(pair.close)

    def _think_in_hindsight(self) -> None:
        """Reasoning ends that nobody opened: what came before it was no answer."""
        if not (self.calls or self.malformed or self.thoughts):
            self.thoughts.append("".join(self.content).strip())
            self.content.clear()

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
        text, reason = (_encodable(said) for said in (text.strip(), reason))
        self.malformed.append(MalformedCall(id=self.next_id, text=text, reason=reason))

    def give_up(self, start: int, reason: str, *, border: re.Pattern[str], close: str = "") -> None:
        """What began at `start` cannot be read.

        Args:
            start: where the attempt begins in the text.
            reason: what is wrong, for the model.
            border: where the attempt ends at the latest.
            close: the border that belongs to the attempt.
        """
        match = border.search(self.text, start)
        end = len(self.text) if match is None else match.start()
        self.position = end
        if match is not None and match.group() == close:
            self.position = match.end()
        if match is None and self.cut:
            reason = CUT
        self.add_malformed(self.text[start:end], reason)

    def action(self) -> ParsedAction:
        """What was found."""
        return ParsedAction(
            content=without_end_tokens("".join(self.content)).strip(),
            reasoning="\n".join(self.thoughts) if self.thoughts else None,
            calls=tuple(self.calls),
            malformed=tuple(self.malformed),
            truncated=self.cut,
            raw=self.raw,
        )
