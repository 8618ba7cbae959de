"""Level 5: maps and rings on which a way or an area is sought."""

from random import Random

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import lists


def _map(rng: Random, height: int, width: int, *, walls: float) -> list[str]:
    return [
        "".join("#" if rng.random() < walls else "." for _ in range(width)) for _ in range(height)
    ]


SKETCHES = (
    Sketch(
        name="cheapest_way",
        level=5,
        entries=("cheapest", "least_cost", "way"),
        values={"turns": (0, 1, 2, 3, 5), "side": (1, 2, 3)},
        statement="Write a function `$f(costs)` for a table of costs, at least 1 x 1. A way begins "
        "in the top row and ends in the bottom row; it goes down one row at a time, straight or by "
        "up to $side columns to the left or right. Its price is the sum of the costs of its "
        "fields, plus $turns for each step that is not straight. Return the lowest price.",
        solution="""
def $f(costs):
    prices = list(costs[0])
    for row in costs[1:]:
        prices = [
            cost + min(
                prices[j] + (0 if j == i else $turns)
                for j in range(max(0, i - $side), min(len(row), i + $side + 1))
            )
            for i, cost in enumerate(row)
        ]
    return min(prices)
""",
        wrong="""
def $f(costs):
    at = costs[0].index(min(costs[0]))
    price = costs[0][at]
    for row in costs[1:]:
        near = range(max(0, at - $side), min(len(row), at + $side + 1))
        step = min(near, key=lambda j: row[j] + (0 if j == at else $turns))
        price += row[step] + (0 if step == at else $turns)
        at = step
    return price
""",
        inputs=lambda rng, _: [
            [[[1, 9], [9, 1]]],
            [[[5]]],
            [[[3, 1, 2], [9, 9, 1], [1, 9, 9]]],
            [[[2], [3], [4]]],
            *(
                [lists(rng, 1, 20, sizes=(width,) * height)]
                for height, width in ((4, 4), (5, 3), (6, 6), (8, 5), (10, 7), (12, 12), (20, 9))
            ),
        ],
    ),
    Sketch(
        name="lakes",
        level=5,
        entries=("lakes", "count_areas", "regions"),
        values={"touch": ("a side", "a side or a corner"), "k": (2, 3, 4, 5, 6)},
        statement="Write a function `$f(rows)` for a map: strings of equal length of `.` (land) "
        "and `#` (water). Fields of water that have $touch in common belong to the same lake. "
        "Return the number of lakes of at least $k fields.",
        solution="""
def $f(rows):
    water = {(y, x) for y, row in enumerate(rows) for x, c in enumerate(row) if c == '#'}
    corner = '$touch' != 'a side'
    lakes = 0
    while water:
        todo, size = [water.pop()], 0
        while todo:
            y, x = todo.pop()
            size += 1
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    near = (y + dy, x + dx)
                    if near in water and (corner or not dy or not dx):
                        water.remove(near)
                        todo.append(near)
        lakes += size >= $k
    return lakes
""",
        wrong="""
def $f(rows):
    return sum(len(part) >= $k for row in rows for part in row.split('.'))
""",
        inputs=lambda rng, _: [
            [["##.", "..#", "###"]],
            [["..", ".."]],
            [["####"]],
            [[]],
            [["#.#.#", ".#.#.", "#.#.#"]],
            *(
                [_map(rng, height, width, walls=0.45)]
                for height, width in ((5, 5), (6, 9), (9, 6), (12, 12), (20, 20), (30, 30))
            ),
        ],
    ),
    Sketch(
        name="garden",
        level=5,
        entries=("grow", "next_years", "garden"),
        values={"born": ((3,), (2,), (3, 4), (3, 6)), "stay": ((2, 3), (1, 2), (3, 4), (2, 4))},
        statement="Write a function `$f(rows, years)` for a garden: strings of equal length of `.` "
        "and `#` (a plant). Each year, all at once: an empty field with one of $born plants around "
        "it (of its up to 8 neighbours) gets one, and a plant stays only if it has one of $stay. "
        "Return the rows after that many years.",
        solution="""
def $f(rows, years):
    for _ in range(years):
        def around(y, x):
            near = (row[max(0, x - 1) : x + 2] for row in rows[max(0, y - 1) : y + 2])
            return sum(part.count('#') for part in near) - (rows[y][x] == '#')

        rows = [
            ''.join(
                '#' if around(y, x) in ($stay if c == '#' else $born) else '.'
                for x, c in enumerate(row)
            )
            for y, row in enumerate(rows)
        ]
    return rows
""",
        wrong="""
def $f(rows, years):
    rows = [list(row) for row in rows]
    for _ in range(years):
        for y, row in enumerate(rows):
            for x, c in enumerate(row):
                near = [r[max(0, x - 1) : x + 2] for r in rows[max(0, y - 1) : y + 2]]
                count = sum(part.count('#') for part in near) - (c == '#')
                row[x] = '#' if count in ($stay if c == '#' else $born) else '.'
    return [''.join(row) for row in rows]
""",
        inputs=lambda rng, _: [
            [["...", "###", "..."], 1],
            [["##", "##"], 2],
            [["#....", "##...", "....#"], 1],
            [["#"], 0],
            *(
                [_map(rng, height, width, walls=0.4), years]
                for height, width, years in (
                    (4, 4, 1),
                    (5, 7, 1),
                    (6, 6, 2),
                    (7, 5, 3),
                    (8, 8, 2),
                    (9, 4, 4),
                    (10, 10, 1),
                )
            ),
        ],
    ),
    Sketch(
        name="code_lock",
        level=5,
        entries=("turns", "unlock", "dial"),
        values={"ring": (24, 30, 37, 40), "jump": (4, 5, 7)},
        statement="A lock has one wheel with $ring numbers, from 0 up. In one move it turns "
        "by 1 or by $jump, in either direction; after the highest number comes 0. Write a function "
        "`$f(start, goal, banned)` that returns the smallest number of moves from start to goal "
        "that never stop at a number of the list banned (start is never in it), or -1.",
        solution="""
def $f(start, goal, banned):
    seen, front, moves = {start}, [start], 0
    while front:
        if goal in front:
            return moves
        near = {(at + by) % $ring for at in front for by in (1, -1, $jump, -$jump)}
        front = sorted(near - seen - set(banned))
        seen |= set(front)
        moves += 1
    return -1
""",
        wrong="""
def $f(start, goal, banned):
    way = min((goal - start) % $ring, (start - goal) % $ring)
    return -1 if goal in banned else way // $jump + way % $jump
""",
        inputs=lambda rng, v: [
            [0, 4, []],
            [2, 2, [5]],
            [1, 6, [6]],
            [0, v.ring - 1, []],
            [0, v.ring // 2, [1, v.ring - 1, v.jump, v.ring - v.jump]],
            *(
                [start, goal, sorted(banned)]
                for start, goal, *banned in (
                    rng.sample(range(v.ring), 2 + num) for num in (1, 2, 3, 4, 4, 5)
                )
            ),
        ],
    ),
)
