"""Finds the program in what a policy said: the last fenced block in the asked language.

A block that is not closed was cut and is none. Fences are those of CommonMark: a longer one may
hold shorter ones.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`\n]*")
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
    fence, language, lines, position = "", "", list[str](), 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        match = _FENCE.fullmatch(line.rstrip("\r\n"))
        mark = match[1] if match else ""
        if not fence:
            if match:
                fence, language, lines = mark, match[2].lower(), []
        elif mark[:1] == fence[0] and len(mark) >= len(fence) and not line.strip(" \t\r\n`~"):
            yield Block(language, "".join(lines), position)
            fence = ""
        else:
            lines.append(line)


def is_of(block: Block, language: str = "python") -> bool:
    """Whether a block is of a language and holds something."""
    names = LANGUAGES.get(language, frozenset({"", language}))
    return block.language in names and bool(block.code.strip())


def program_of(text: str | None, language: str = "python") -> str | None:
    """The last block of a language; `None` if there is none."""
    found = [block.code for block in blocks_of(text or "") if is_of(block, language)]
    return found[-1] if found else None


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
