"""The map as text: one line per row, cells apart, so that a tokenizer cannot glue them."""

import re
from collections.abc import Sequence

from agentgym.envs.grid.maps import Cell

PLAYER = "P"
_ROW = re.compile(r"^[.HGP](?: [.HGP])+$", re.MULTILINE)


def draw_view(rows: Sequence[str], player: Cell) -> str:
    """The map with the player on it."""
    lines = [list(row) for row in rows]
    lines[player[0]][player[1]] = PLAYER
    return "\n".join(" ".join(line) for line in lines)


def read_map(text: str) -> list[str]:
    """Rows of the map that stands in a text."""
    return [row.replace(" ", "") for row in _ROW.findall(text)]
