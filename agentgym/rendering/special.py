"""Words that look like special tokens stay words.

A tool that returns `<|im_end|>` must not end the turn. Such text is swapped for private-use marks
before rendering and encoded piece by piece after it; text without it is encoded as a whole, exactly
as the tokenizer would.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentgym.messages import Message, ToolCall
from agentgym.rendering.base import ToolSchema

_FIRST_MARK = 0xF0000
"""Start of a private-use plane: one character per token that may appear as text."""
_OWN = ("<think>", "</think>")
"""What an assistant writes as a token: chat templates read reasoning by these tags."""


class _Encoder(Protocol):
    added_tokens_decoder: Mapping[int, Any]

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...


class SpecialTokens:
    """Shields text from being read as special tokens, and encodes shielded text."""

    def __init__(self, tokenizer: _Encoder) -> None:
        self._tokenizer = tokenizer
        self.ids = {str(token): id_ for id_, token in tokenizer.added_tokens_decoder.items()}
        """By text."""
        words = sorted((token for token in self.ids if token.strip()), key=len, reverse=True)
        self._marks = {token: chr(_FIRST_MARK + i) for i, token in enumerate(words)}
        self._tokens = {mark: token for token, mark in self._marks.items()}
        self._pattern = _any_of(words)
        self._said_pattern = _any_of([token for token in words if token not in _OWN])
        self._mark_pattern = re.compile(f"([{''.join(self._tokens)}])" if words else r"(?!)")
        self._anchor = ""
        """A token that stands before text which is not the first of a prompt."""
        self._anchor = next((t for t in words if self._whole(t + "x")[:1] == [self.ids[t]]), "")

    def find(self, text: str) -> list[re.Match[str]]:
        """Special tokens in rendered text, in order."""
        return list(self._pattern.finditer(text))

    def shield_text(self, text: str) -> str:
        """`text` with every special token in it replaced by its mark."""
        return self._pattern.sub(lambda match: self._marks[match.group()], text)

    def shield(self, messages: Sequence[Message]) -> list[Message]:
        """What env and tools said, shielded; what the assistant said is left alone."""
        return [
            message
            if message.role == "assistant" or not self._pattern.search(message.content)
            else message.model_copy(update={"content": self.shield_text(message.content)})
            for message in messages
        ]

    def shield_all(self, messages: Sequence[Message]) -> list[Message]:
        """What anyone said, shielded, but for the tags around an assistant's reasoning."""
        return [
            self._shield_said(message) if message.role == "assistant" else message
            for message in self.shield(messages)
        ]

    def shield_tools(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """Schemas with the texts in them shielded."""
        if not self._said_pattern.search(str(tools)):
            return tools
        return [self._shield_value(tool) for tool in tools]

    def encode(self, text: str, *, start: bool = False) -> list[int]:
        """Ids of rendered text: special tokens of the template as such, marks as plain text.

        Args:
            text: shielded.
            start: whether nothing stands before it; some tokenizers begin a text otherwise than
                they go on with it.
        """
        ids: list[int] = []
        for piece in self._mark_pattern.split(text):
            token = self._tokens.get(piece)
            ids += self._plain(token) if token else self._whole(piece, start=start and not ids)
        return ids

    def _shield_said(self, message: Message) -> Message:
        said = (message.content, message.reasoning or "", str(message.tool_calls))
        if not any(map(self._said_pattern.search, said)):
            return message
        reasoning = message.reasoning
        update = {
            "content": self._shield_value(message.content),
            "reasoning": None if reasoning is None else self._shield_value(reasoning),
            "tool_calls": tuple(self._shield_call(call) for call in message.tool_calls),
        }
        return message.model_copy(update=update)

    def _shield_call(self, call: ToolCall) -> ToolCall:
        update = {
            "name": self._shield_value(call.name),
            "arguments": self._shield_value(call.arguments),
        }
        return call.model_copy(update=update)

    def _shield_value(self, value: Any) -> Any:
        """A JSON value with its texts shielded."""
        if isinstance(value, str):
            return self._said_pattern.sub(lambda match: self._marks[match.group()], value)
        if isinstance(value, list):
            return [self._shield_value(item) for item in value]
        if isinstance(value, dict):
            return {self._shield_value(k): self._shield_value(v) for k, v in value.items()}
        return value

    def _plain(self, token: str) -> list[int]:
        """Ids of a special token's text, cut so that the tokenizer cannot recognise it."""
        return [*self._whole(token[:1], start=False), *self.encode(self.shield_text(token[1:]))]

    def _whole(self, text: str, *, start: bool = True) -> list[int]:
        if not text:
            return []
        if start or not self._anchor:
            return self._tokenizer.encode(text, add_special_tokens=False)
        return self._tokenizer.encode(self._anchor + text, add_special_tokens=False)[1:]


def _any_of(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)) or r"(?!)")
