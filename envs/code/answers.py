"""Finds the program in what a policy said: the last fenced block in the asked language.

A block that is not closed was cut and is none. Fences are those of CommonMark: a longer one may
hold shorter ones, and what is indented with its fence, as in a list, is read without that.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"([ \t]*)(?:<answer>[ \t]*)?(`{3,}|~{3,})[ \t]*([\w+#.-]*)")
_AFTER = re.compile(r"[ \t]*(?:</answer>[ \t]*)?")
_MAX_SHIFT = 3
"""Columns that a closing fence may stand right of the one that opened."""
LANGUAGES = {"python": frozenset({"", "python", "python3", "py", "py3"})}
"""What may stand behind a fence, by language; a fence without a name is of any language."""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    """As it is named, in small letters; empty if it is not."""
    code: str
    """With a line end after every line."""
    end: int
    """Where in the text it ends, its closing fence included."""


def blocks_of(text: str) -> Iterator[Block]:
    """The closed fenced blocks of a text, in their order; takes linear time."""
    opened: re.Match[str] | None = None
    lines, position = list[str](), 0
    for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text):
        position += len(line)
        if opened is None:
            opened, lines = _opens(line), []
        elif _closes(line.rstrip("\r\n"), opened):
            yield Block(opened[3].lower(), "".join(lines), position)
            opened = None
        else:
            lines.append(_without_indent(line, len(opened[1])))


def _opens(line: str) -> re.Match[str] | None:
    match = _FENCE.match(line)
    return None if match is None or "`" in line[match.end() :] else match


def _closes(line: str, opened: re.Match[str]) -> bool:
    indent, fence = opened[1], opened[2]
    rest = line.lstrip(" \t")
    mark = rest[: len(rest) - len(rest.lstrip(fence[0]))]
    is_far_right = len(line) - len(rest) > len(indent) + _MAX_SHIFT
    return (
        len(mark) >= len(fence)
        and not is_far_right
        and _AFTER.fullmatch(rest[len(mark) :]) is not None
    )


def _without_indent(line: str, width: int) -> str:
    blank = len(line) - len(line.lstrip(" \t"))
    return line[min(width, blank) :]


def is_of(block: Block, language: str = "python") -> bool:
    """Whether a block is of a language and holds something."""
    names = LANGUAGES.get(language, frozenset({"", language}))
    return block.language in names and bool(block.code.strip())


def program_of(text: str | None, language: str = "python") -> str | None:
    """The last block of a language; one without a name only if none has one."""
    found = [block for block in blocks_of(text or "") if is_of(block, language)]
    named = [block for block in found if block.language]
    return (named or found)[-1].code if found else None


def has_form(text: str | None, language: str = "python") -> bool:
    """Whether there is one block of the language, and nothing after it."""
    text = text or ""
    blocks = list(blocks_of(text))
    found = [block for block in blocks if is_of(block, language)]
    return len(found) == 1 and not text[found[0].end :].strip()


def fenced(code: str, language: str = "python") -> str:
    """A program as an answer, in a fence that nothing in it closes."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"
