"""Tables by index in which some entries form the chain that is asked for."""

from itertools import pairwise
from random import Random

from agentgym.envs.levels import Problem

LEVELS = {1: 1, 2: 2, 3: 3, 4: 5, 5: 8}
"""Look-ups from the first key to the answer."""
_NUM_DISTRACTORS = 12
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def draw(level: int, rng: Random) -> Problem:
    """A table and a first key; the chain is its identity."""
    num_hops = LEVELS[level]
    codes = _draw_codes(num_hops + 1 + 2 * _NUM_DISTRACTORS, rng)
    chain, others = codes[: num_hops + 1], codes[num_hops + 1 :]
    entries = [*pairwise(chain), *zip(others[::2], others[1::2], strict=True)]
    entries.append((chain[-1], others[0]))  # one look-up too many leads astray
    rng.shuffle(entries)
    data = {
        "start": chain[0],
        "hops": num_hops,
        "table": dict(entries),
        "chain": chain,
        "answer": chain[-1],
    }
    return Problem("-".join(chain), data)


def _draw_codes(count: int, rng: Random) -> list[str]:
    """Different codes, a letter and three digits each: too many to be guessed."""
    numbers = rng.sample(range(100, 1000), count)
    return [f"{rng.choice(_LETTERS)}{number}" for number in numbers]
