"""Hermes-style calls: JSON inside `<tool_call>` tags (Hermes, Qwen2.5, Qwen3, the embedded policy).

The JSON decoder finds where a call ends, not the closing tag, so tags and braces inside strings are
harmless. Only loss-free repairs: control characters inside strings, arguments given as a JSON text,
and a missing closing tag after a complete object at the end of a turn that was not cut.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.messages import MalformedCall, ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.reasoning import split_reasoning

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESULT = "<tool_response>"
_DECODER = json.JSONDecoder(strict=False)
_TAG = re.compile(f"{OPEN}|{RESULT}")
_NEXT_BLOCK = re.compile(rf"(?:^|(?<=\n)){OPEN}|{CLOSE}")
_SPACE = re.compile(r"\s*")
_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>")
_MAX_MALFORMED = 32
"""One more and the rest of the turn is not read: the decoder's error costs time in the length."""


class HermesDialect:
    """See the module."""

    name = "hermes"

    def parse(
        self,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> ParsedAction:
        """Read one turn; see `Dialect.parse`."""
        reasoning, visible = split_reasoning(text, prompt_suffix=prompt_suffix)
        reader = _Reader(_without_end_tokens(visible), cut=finish_reason == "length")
        reader.read()
        return ParsedAction(
            content="".join(reader.content).strip(),
            reasoning=reasoning,
            calls=tuple(reader.calls),
            malformed=tuple(reader.malformed),
            truncated=reader.cut,
            raw=text,
        )

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = f'{OPEN}\n{{"name": <tool name>, "arguments": <JSON object>}}\n{CLOSE}'
        return f"You can use these tools:\n{lines}\n\nTo call one, write:\n{example}"

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        return f"{OPEN}\n{body}\n{CLOSE}"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"{RESULT}\n{content}\n</tool_response>"


@dataclass(slots=True)
class _Reader:
    """One left-to-right pass over the visible text of a turn."""

    text: str
    cut: bool
    content: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    malformed: list[MalformedCall] = field(default_factory=list)
    _borders: list[int] = field(init=False)
    """Where a block that cannot be read may end, ascending."""

    def __post_init__(self) -> None:
        self._borders = [match.start() for match in _NEXT_BLOCK.finditer(self.text)]

    def read(self) -> None:
        position = 0
        while (tag := _TAG.search(self.text, position)) is not None:
            self.content.append(self.text[position : tag.start()])
            if tag.group() == RESULT:
                return
            position = self._read_block(tag.end())
        self.content.append(self.text[position:])

    def _read_block(self, start: int) -> int:
        """Read the calls of one block that begins at `start`; returns where the text goes on."""
        found: list[ToolCall] = []
        position = _skip_space(self.text, start)
        reason = "the block is empty"
        while position < len(self.text) and not self.text.startswith(CLOSE, position):
            value, end, reason = _decode(self.text, position)
            if not reason:
                call, reason = self._to_call(value, offset=len(found))
            if reason or call is None:
                return self._give_up(start, reason)
            found.append(call)
            position = _skip_space(self.text, end)
        if self.cut and position >= len(self.text):
            return self._give_up(start, "the turn was cut before the call was complete")
        if not found:
            return self._give_up(start, reason)
        self.calls += found
        return min(position + len(CLOSE), len(self.text))

    def _to_call(self, value: Any, *, offset: int) -> tuple[ToolCall | None, str]:
        name, arguments, reason = _name_and_arguments(value)
        if reason:
            return None, reason
        return ToolCall(id=self._new_id(offset), name=name, arguments=arguments), ""

    def _new_id(self, offset: int = 0) -> str:
        return f"call_{len(self.calls) + len(self.malformed) + offset}"

    def _give_up(self, start: int, reason: str) -> int:
        """Record a malformed call; it ends at its closing tag or where the next block begins."""
        if len(self.malformed) == _MAX_MALFORMED:
            return len(self.text)
        border = bisect_left(self._borders, start)
        end = self._borders[border] if border < len(self._borders) else len(self.text)
        block = self.text[start:end].strip()
        self.malformed.append(MalformedCall(id=self._new_id(), text=block, reason=reason))
        return end + len(CLOSE) if self.text.startswith(CLOSE, end) else end


def _without_end_tokens(text: str) -> str:
    """End tokens given as text, which a renderer would have taken off as ids."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = next((token for token in _END_TOKENS if text.endswith(token, 0, end)), None)
        if token is None:
            return text[:end]
        end -= len(token)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _decode(text: str, position: int) -> tuple[Any, int, str]:
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        return None, position, f"not valid JSON: {error.msg} at character {error.pos - position}"
    except RecursionError:
        return None, position, "not valid JSON: nested too deeply"
    except ValueError as error:
        return None, position, f"not valid JSON: {error}"
    return value, end, ""


def _name_and_arguments(value: Any) -> tuple[str, dict[str, Any], str]:
    if not isinstance(value, dict):
        return "", {}, "a call must be a JSON object with name and arguments"
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        return "", {}, 'the call has no "name"'
    if isinstance(arguments, str):
        text = arguments.strip()
        arguments, end, reason = _decode(text, 0)
        if reason or end < len(text):
            return "", {}, f'"arguments" of {name}: {reason or "text after the JSON object"}'
    if not isinstance(arguments, dict):
        return "", {}, f'"arguments" of {name} must be a JSON object'
    return name, arguments, ""
