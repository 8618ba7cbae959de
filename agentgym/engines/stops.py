"""Finds the token that completes a stop string, while a turn is being sampled.

Only the last tokens are decoded after each one, as many as the longest stop string could need, so
the cost of a token does not grow with the turn. Whole tokens are kept: a stop string may begin and
end inside one. Text is read as the tokenizer decodes it, so a character may span tokens.
"""

from collections.abc import Callable, Sequence

from agentgym.errors import ConfigError

Decode = Callable[[Sequence[int]], str]
"""Text of ids, special tokens included."""

_MARGIN = 4
"""Tokens more than the longest stop string has bytes: a window may begin inside a character, and
some tokenizers drop a space at the beginning of a text."""


class StopStrings:
    """Watches one turn.

    Args:
        stop: what ends it.
        decode: text of ids.
    """

    def __init__(self, stop: Sequence[str], decode: Decode) -> None:
        self._stop = tuple(stop)
        self._decode = decode
        self._longest = max((len(text.encode()) for text in self._stop), default=0)

    def completed_by_last(self, token_ids: Sequence[int]) -> bool:
        """Whether a stop string lies in the text of these ids.

        Args:
            token_ids: [T] what was sampled; it was asked of every shorter prefix before.
        """
        window = self._longest + _MARGIN
        text = self._decode(token_ids[-window:])
        while len(text) < self._longest and window < len(token_ids):  # tokens without text
            window *= 2
            text = self._decode(token_ids[-window:])
        return any(stop in text for stop in self._stop)


def watch(stop: Sequence[str], decode: Decode | None) -> StopStrings | None:
    """A watch over one turn, or `None` if nothing needs be watched.

    Raises:
        ConfigError: there are stop strings and the engine cannot decode.
    """
    if not stop:
        return None
    if decode is None:
        raise ConfigError(
            f"stop={list(stop)}: this engine was made without `decode`, so it cannot find stop "
            "strings; hand it the renderer's"
        )
    return StopStrings(stop, decode)


def length_until_stop(token_ids: Sequence[int], watched: StopStrings | None) -> int | None:
    """How many ids it takes to complete a stop string; `None` if they complete none."""
    if watched is None:
        return None
    lengths = range(1, len(token_ids) + 1)
    return next((n for n in lengths if watched.completed_by_last(token_ids[:n])), None)
