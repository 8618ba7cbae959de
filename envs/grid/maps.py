"""Maps of ice, holes, a start and a goal; ways through them."""

from collections import deque
from collections.abc import Sequence
from random import Random

Cell = tuple[int, int]
"""Row and column, from the upper left corner."""

ICE, HOLE, GOAL = ".", "H", "G"
MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_HOLE_SHARE = 0.25


def draw_map(size: int, rng: Random) -> tuple[list[str], Cell]:
    """Rows of a square map, solvable or not, and where the player begins."""
    cells = [(row, column) for row in range(size) for column in range(size)]
    start, goal = rng.sample(cells, 2)
    content = {cell: HOLE if rng.random() < _HOLE_SHARE else ICE for cell in cells}
    content |= {start: ICE, goal: GOAL}
    rows = ["".join(content[row, column] for column in range(size)) for row in range(size)]
    return rows, start


def shortest_path(rows: Sequence[str], start: Cell) -> list[str] | None:
    """Moves to the goal, as few as there can be; `None` if no way leads there."""
    paths: dict[Cell, list[str]] = {start: []}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if rows[cell[0]][cell[1]] == GOAL:
            return paths[cell]
        for move in MOVES:
            target = step_to(rows, cell, move)
            if target not in paths and rows[target[0]][target[1]] != HOLE:
                paths[target] = [*paths[cell], move]
                queue.append(target)
    return None


def step_to(rows: Sequence[str], cell: Cell, move: str) -> Cell:
    """The cell a move leads to; at the edge of the map, the same one."""
    row, column = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
    is_inside = 0 <= row < len(rows) and 0 <= column < len(rows)
    return (row, column) if is_inside else cell
