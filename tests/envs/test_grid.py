"""The frozen lake: maps that can be solved, moves, and ice."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs import Task
from agentgym.envs.grid import GridEnv
from agentgym.envs.grid.maps import MOVES, draw_map, shortest_path, step_to
from agentgym.envs.grid.tasks import LEVELS, draw
from agentgym.envs.grid.view import draw_view, read_map

TASK = Task(id="t", data={"rows": ["..H", ".HG", "..."], "start": [0, 0], "moves": 6})
WAY = ("down", "down", "right", "right", "up")
randoms = st.builds(Random, st.integers(0, 2**32))


def play(*said: str, slippery: bool = False, seed: int = 0) -> list[tuple]:
    env = GridEnv(slippery=slippery)
    env.reset(seed=seed, options={"task": TASK})
    steps: list[tuple] = []
    for text in said:
        if not steps or not steps[-1][2]:
            steps.append(env.step(text))
    env.close()
    return [(step[0][0].content, *step[1:]) for step in steps]


def test_a_whole_walk():
    steps = play(*(f"Answer: {move}" for move in WAY))

    assert steps[0][0] == "You moved down. Moves left: 5.\n\n. . H\nP H G\n. . ."
    assert steps[-1] == (
        "You moved up. Moves left: 1.\n\n. . H\n. H P\n. . .",
        1.0,
        True,
        False,
        {"rewards": {"goal": 1.0}},
    )


def test_a_hole_ends_it():
    _, reward, terminated, _, info = play("Answer: Right", "DOWN")[-1]

    assert (reward, terminated, info["rewards"]) == (0.0, True, {"goal": 0.0})


def test_edges_hold_and_other_messages_cost_a_move():
    steps = play("up", "Answer: jump", "Answer: up\nAnswer: down", "up", "up")
    last = play("up", "up", "up", "up", "up", "up")[-1]

    assert steps[0][0].startswith("You are at the edge. Moves left: 5.\n\nP . H")
    assert steps[1][0].startswith("That is no move")
    assert steps[2][0].startswith("That is no move")
    assert not steps[-1][2]
    assert last[1:4] == (0.0, True, False)


@given(st.sampled_from(sorted(LEVELS)), randoms)
def test_every_map_has_a_way_within_the_moves(level: int, rng: Random):
    data = draw(level, rng).data
    start = (data["start"][0], data["start"][1])
    path = shortest_path(data["rows"], start)

    assert path is not None
    assert LEVELS[level].shortest <= len(path) <= data["moves"]
    cell = start
    for move in path:
        cell = step_to(data["rows"], cell, move)
        assert data["rows"][cell[0]][cell[1]] != "H"
    assert data["rows"][cell[0]][cell[1]] == "G"


@given(st.integers(2, 5), randoms)
@settings(max_examples=50)
def test_the_shortest_way_is_as_short_as_any(size: int, rng: Random):
    """Against an independent search: distances that grow until nothing changes."""
    rows, start = draw_map(size, rng)
    reached, steps = {start}, 0
    while not any(rows[r][c] == "G" for r, c in reached):
        grown = {step_to(rows, cell, move) for cell in reached for move in MOVES}
        grown = {(r, c) for r, c in grown if rows[r][c] != "H"} | reached
        if grown == reached:
            break
        reached, steps = grown, steps + 1
    path = shortest_path(rows, start)

    assert (path is None) == (not any(rows[r][c] == "G" for r, c in reached))
    assert path is None or len(path) == steps


@given(st.integers(2, 6), randoms)
def test_the_view_shows_the_whole_map(size: int, rng: Random):
    rows, (row, column) = draw_map(size, rng)
    seen = read_map(f"You moved up. Moves left: 3.\n\n{draw_view(rows, (row, column))}")

    assert seen[row][column] == "P"
    assert [line.replace("P", ".") for line in seen] == rows


@pytest.mark.parametrize("meant", MOVES)
def test_slippery_ice_goes_three_ways_alike(meant: str):
    """As meant or to either side, each a third of the time; never back."""
    env = GridEnv(slippery=True)
    env.reset(seed=3, options={"task": TASK})
    slides = [env._slide(meant) for _ in range(3000)]
    env.close()

    back = {"up": "down", "down": "up", "left": "right", "right": "left"}[meant]
    counts = {move: slides.count(move) for move in MOVES}
    assert counts.pop(back) == 0
    assert all(900 < count < 1100 for count in counts.values())


def test_slips_come_from_the_seed_of_the_episode():
    """Members of a group meet the same ice; the global generators are not asked."""
    walks = {seed: play(*WAY, slippery=True, seed=seed) for seed in range(8)}

    assert all(play(*WAY, slippery=True, seed=seed) == walks[seed] for seed in walks)
    assert len({str(walk) for walk in walks.values()}) > 1
