"""Reasoning is cut out before anything else is read, so a draft inside it is never a call."""

from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Split(NamedTuple):
    """Reasoning and what is left."""

    reasoning: str | None
    text: str


def split_reasoning(text: str, *, prompt_suffix: str = "") -> Split:
    """Take every `<think>` block out; one that is not closed takes the rest.

    If the prompt already opened the reasoning, the text starts inside it.
    """
    if prompt_suffix.rstrip().endswith(OPEN):
        text = OPEN + text
    thoughts: list[str] = []
    visible: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        visible.append(text[position:start])
        end = text.find(CLOSE, start)
        stop = len(text) if end < 0 else end
        thoughts.append(text[start + len(OPEN) : stop].strip())
        position = len(text) if end < 0 else end + len(CLOSE)
    visible.append(text[position:])
    reasoning = "\n".join(thoughts) if thoughts else None
    return Split(reasoning, "".join(visible))
