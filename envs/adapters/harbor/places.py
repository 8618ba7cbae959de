"""Puts the fixed folders of Harbor's containers where a sandbox has room for them.

Scripts name `/app`, `/tests`, `/logs` and `/solution`; without a container there are no such
folders, so that the names are replaced in the texts.
"""

import re
from collections.abc import Mapping


def moved(text: str, places: Mapping[str, str]) -> str:
    """The text with every path under a key under its value.

    Args:
        text: a script, a program or an instruction.
        places: new folders by absolute old ones; the root is never moved.
    """
    olds = sorted((old.rstrip("/") for old in places if old.rstrip("/")), key=len, reverse=True)
    if not olds:
        return text
    names = "|".join(map(re.escape, olds))
    pattern = re.compile(rf"(?<![\w./}}$-])({names})(?![\w-]|\.\w)(/?)")
    return pattern.sub(lambda found: _join(places[found[1]], found[2]), text)


def moved_file(data: bytes, places: Mapping[str, str]) -> bytes:
    """The file, with its paths moved if it is a text."""
    try:
        return moved(data.decode("utf-8"), places).encode("utf-8")
    except UnicodeDecodeError:
        return data


def _join(folder: str, slash: str) -> str:
    if folder != ".":
        return folder + slash
    return "" if slash else "."
