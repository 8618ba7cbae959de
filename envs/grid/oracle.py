"""Takes the shortest way from where the map shows the player; it sees only what the policy sees."""

from collections.abc import Sequence

from agentgym.envs.grid.maps import ICE, shortest_path
from agentgym.envs.grid.view import PLAYER, read_map
from agentgym.messages import Message, assistant
from agentgym.trajectory import Task


def oracle(_: Task, messages: Sequence[Message]) -> Message:
    """The next move."""
    rows = read_map(messages[-1].content)
    cell = next((i, row.index(PLAYER)) for i, row in enumerate(rows) if PLAYER in row)
    path = shortest_path([row.replace(PLAYER, ICE) for row in rows], cell)
    assert path, "every map has a way, and holes end the episode"
    return assistant(f"Answer: {path[0]}")
