"""What every dialect needs to read a turn: one pass from left to right that never goes back.

A dialect moves from mark to mark with `Turn.advance`; reasoning on the way is taken out there, so a
draft inside it is never a call, while a thinking mark inside a call's string stays part of the
string. The JSON decoder, not the closing mark, finds where arguments end.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentgym.messages import MalformedCall, ToolCall
from agentgym.rendering.base import ParsedAction
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
CUT = "the turn was cut by the length limit before the call was complete"
"""Why the call at the end of such a turn is none."""
_SPACE = re.compile(r"\s*")


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
    _thinking_marks: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._thinking_marks = frozenset(mark for pair in self.thinking for mark in pair)

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
        if mark not in self._thinking_marks:
            return False
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
