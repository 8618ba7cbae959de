"""Words that look like special tokens stay words.

A tool that returns `<|im_end|>` must not end the turn. Such text is swapped for private-use marks
before rendering and encoded piece by piece after it; text without it is encoded as a whole, exactly
as the tokenizer would.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentgym.messages import Message

_FIRST_MARK = 0xF0000
"""Start of a private-use plane: one character per token that may appear as text."""


class _Encoder(Protocol):
    added_tokens_decoder: Mapping[int, Any]

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...


class SpecialTokens:
    """Shields text from being read as special tokens, and encodes shielded text."""

    def __init__(self, tokenizer: _Encoder) -> None:
        self._tokenizer = tokenizer
        tokens = sorted(
            {str(token.content) for token in tokenizer.added_tokens_decoder.values()}, key=len
        )
        words = [token for token in reversed(tokens) if token.strip()]
        self._marks = {token: chr(_FIRST_MARK + i) for i, token in enumerate(words)}
        self._tokens = {mark: token for token, mark in self._marks.items()}
        self._pattern = re.compile("|".join(map(re.escape, words)) or r"(?!)")
        self._mark_pattern = re.compile(f"([{''.join(self._tokens)}])" if words else r"(?!)")

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

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: special tokens of the template as such, marks as plain text."""
        ids: list[int] = []
        for piece in self._mark_pattern.split(text):
            token = self._tokens.get(piece)
            ids += self._plain(token) if token else self._whole(piece)
        return ids

    def _plain(self, token: str) -> list[int]:
        """Ids of a special token's text, cut so that the tokenizer cannot recognise it."""
        return [*self._whole(token[:1]), *self.encode(self.shield_text(token[1:]))]

    def _whole(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False) if text else []
