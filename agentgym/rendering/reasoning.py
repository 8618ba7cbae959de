"""Reasoning is cut out before anything else is read, so a draft inside it is never a call.

What opened it decides what closes it; the other families' marks inside are part of the thought.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Marks(NamedTuple):
    """What opens and closes a block."""

    open: str
    close: str


THINK = Marks("<think>", "</think>")
FAMILIES = (
    THINK,
    Marks("[THINK]", "[/THINK]"),
    Marks("◁think▷", "◁/think▷"),
    Marks("<thinking>", "</thinking>"),
    Marks("<seed:think>", "</seed:think>"),
    Marks("<longcat_think>", "</longcat_think>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),
    Marks("<|begin_of_thought|>", "<|end_of_thought|>"),
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),
)
"""Qwen and DeepSeek; Magistral; Kimi; Claude-like; Seed; LongCat; Command; OpenThinker; Apertus."""


class Split(NamedTuple):
    """Reasoning and what is left."""

    reasoning: str | None
    text: str


def left_open(prompt_suffix: str, *, families: Sequence[Marks] = FAMILIES) -> Marks | None:
    """The reasoning that is open at the end of what stands before the text, if any.

    Open is what was opened last and not closed since.
    """
    opened = max(families, key=lambda marks: prompt_suffix.rfind(marks.open))
    start = prompt_suffix.rfind(opened.open)
    closed = max(prompt_suffix.rfind(marks.close) for marks in families)
    return opened if start > closed else None


def split_reasoning(
    text: str, *, prompt_suffix: str = "", families: Sequence[Marks] = FAMILIES
) -> Split:
    """Take every block of reasoning out; one that is not closed takes the rest.

    What stands before a closing mark that nothing opened is reasoning too; later ones are dropped.

    Args:
        text: one turn, or what is left of it.
        prompt_suffix: what stands before it in the same message; may leave the reasoning open.
        families: the marks that count.
    """
    begun = left_open(prompt_suffix, families=families)
    closing = {marks.open: marks.close for marks in families}
    pattern = re.compile("|".join(re.escape(mark) for marks in families for mark in marks))
    thoughts: list[str] = []
    visible: list[str] = []
    position = 0 if begun is None else _think(text, 0, begun.close, thoughts)
    while (match := pattern.search(text, position)) is not None:
        visible.append(text[position : match.start()])
        position = match.end()
        if match.group() in closing:
            position = _think(text, position, closing[match.group()], thoughts)
        elif not thoughts:
            thoughts.append("".join(visible).strip())
            visible.clear()
    visible.append(text[position:])
    return Split("\n".join(thoughts) if thoughts else None, "".join(visible))


def _think(text: str, start: int, close: str, thoughts: list[str]) -> int:
    end = text.find(close, start)
    thoughts.append(text[start : len(text) if end < 0 else end].strip())
    return len(text) if end < 0 else end + len(close)
