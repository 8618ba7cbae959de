"""Only arriving pays: nearness does not, since walking to a hole beside the goal would earn it."""

from collections.abc import Sequence

from agentgym.envs.grid.maps import GOAL, Cell


def has_arrived(rows: Sequence[str], cell: Cell) -> bool:
    """Whether the player stands on the goal."""
    return rows[cell[0]][cell[1]] == GOAL
