"""Whether earlier turns are shown otherwise once new messages come.

What counts is what is said: white space at the ends of messages, calls spelled anew and empty
blocks of reasoning are layout. A turn is kept as sampled for their sake rather than shown again.
"""

import re
from typing import Literal

OnRewrite = Literal["refuse", "keep", "fork"]
"""Of a template that shows earlier turns otherwise: do not start, go on with what was sampled, or
show what the template shows in a trace of its own."""
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>|<\|channel>thought\s*<channel\|>")
_OPEN_THOUGHT = re.compile(r"(<think>|<\|channel>thought|<\|think\|>)\s*$")


def shown_otherwise(before: str, after: str) -> bool:
    """Whether the render `after` does not begin with the render `before`."""
    return not _condensed(after).startswith(_condensed(before))


def without_open_thought(prompt: str) -> str:
    """A prompt without the tag that lets the model begin inside its reasoning."""
    return _OPEN_THOUGHT.sub("", _EMPTY_THOUGHT.sub("", prompt).rstrip())


def _condensed(text: str) -> str:
    return "".join(_EMPTY_THOUGHT.sub("", text).split())
