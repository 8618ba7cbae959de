"""Level 4: classes that keep accounts of people and things."""

from random import Random
from typing import Any

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import words

Script = list[list[Any]]


def _scripts(rng: Random, arguments: list[Any], *makers: Any, sizes: tuple[int, ...]) -> Script:
    """One input per size: the class's arguments, then calls, each made by one of the makers."""
    return [[arguments, [rng.choice(makers)() for _ in range(size)]] for size in sizes]


SKETCHES = (
    Sketch(
        name="account",
        level=4,
        kind="class",
        entries=("Account", "Purse", "Till"),
        values={"fee": range(1, 6), "low": (0, -20, -50)},
        statement="Write a class `$f(start)`, an account with that many coins. `put(n)` adds n and "
        "returns the new balance. `take(n)` takes n, and a fee of $fee beside it; if less than "
        "$low would be left, nothing happens and it returns None, else the new balance. "
        "`fees()` returns the sum of all fees so far.",
        solution="""
class $f:
    def __init__(self, start):
        self.balance = start
        self.paid = 0

    def put(self, n):
        self.balance += n
        return self.balance

    def take(self, n):
        if self.balance - n - $fee < $low:
            return None
        self.balance -= n + $fee
        self.paid += $fee
        return self.balance

    def fees(self):
        return self.paid
""",
        wrong="""
class $f:
    def __init__(self, start):
        self.balance = start
        self.paid = 0

    def put(self, n):
        self.balance += n
        return self.balance

    def take(self, n):
        self.paid += $fee
        if self.balance - n < $low:
            return None
        self.balance -= n + $fee
        return self.balance

    def fees(self):
        return self.paid
""",
        inputs=lambda rng, v: [
            [[10], [["put", 5], ["take", 3], ["fees"]]],
            [[0], [["take", 100], ["fees"], ["put", 1]]],
            [[20], [["take", 20 - v.fee - v.low], ["take", 1], ["fees"]]],
            *(
                script
                for start in (5, 30, 60)
                for script in _scripts(
                    rng,
                    [start],
                    lambda: ["put", rng.randint(1, 30)],
                    lambda: ["take", rng.randint(1, 40)],
                    lambda: ["take", rng.randint(1, 40)],
                    lambda: ["fees"],
                    sizes=(12, 24, 36),
                )
            ),
        ],
    ),
    Sketch(
        name="waiting_room",
        level=4,
        kind="class",
        entries=("WaitingRoom", "Desk", "Line"),
        values={"k": range(1, 9)},
        statement="Write a class `$f()`, a waiting room. `come(name, urgent)` lets somebody in and "
        "returns how many wait. `call()` returns the name of the next one, who leaves, or None: "
        "urgent people in the order they came, before the others in the order they came; but after "
        "$k urgent ones in a row one of the others is next, if there is one.",
        solution="""
class $f:
    def __init__(self):
        self.lines = {True: [], False: []}
        self.row = 0

    def come(self, name, urgent):
        self.lines[urgent].append(name)
        return len(self.lines[True]) + len(self.lines[False])

    def call(self):
        urgent = bool(self.lines[True])
        if urgent and self.row >= $k and self.lines[False]:
            urgent = False
        if not self.lines[urgent]:
            return None
        self.row = self.row + 1 if urgent else 0
        return self.lines[urgent].pop(0)
""",
        wrong="""
class $f:
    def __init__(self):
        self.lines = {True: [], False: []}

    def come(self, name, urgent):
        self.lines[urgent].append(name)
        return len(self.lines[True]) + len(self.lines[False])

    def call(self):
        for urgent in (True, False):
            if self.lines[urgent]:
                return self.lines[urgent].pop(0)
        return None
""",
        inputs=lambda rng, v: [
            [[], [["come", "Ann", False], ["come", "Bob", True], ["call"], ["call"], ["call"]]],
            [[], [["call"], ["come", "Cy", False], ["call"]]],
            [
                [],
                [
                    ["come", "Di", False],
                    *(["come", f"u{n}", True] for n in range(v.k + 2)),
                    *([["call"]] * (v.k + 3)),
                ],
            ],
            *(
                [
                    [],
                    [
                        *(["come", f"p{n}", rng.random() < 0.7] for n in range(size)),
                        *([["call"]] * (size // 2)),
                        *(["come", f"q{n}", rng.random() < 0.6] for n in range(size)),
                        *([["call"]] * size),
                    ],
                ]
                for size in (8, 10, 12, 14, 16, 20)
            ),
        ],
    ),
    Sketch(
        name="stock",
        level=4,
        kind="class",
        entries=("Stock", "Store", "Depot"),
        values={"k": range(2, 16)},
        statement="Write a class `$f()`, a store of goods. `bring(name, n)` adds n pieces. "
        "`order(name, n)` sells as many of n pieces as there are. Both return how many pieces of "
        "that name are left. `short()` returns the names, in the order of the alphabet, of which "
        "fewer than $k pieces are left, among those that were ever brought.",
        solution="""
class $f:
    def __init__(self):
        self.left = {}

    def bring(self, name, n):
        self.left[name] = self.left.get(name, 0) + n
        return self.left[name]

    def order(self, name, n):
        if name not in self.left:
            return 0
        self.left[name] -= min(n, self.left[name])
        return self.left[name]

    def short(self):
        return sorted(name for name, n in self.left.items() if n < $k)
""",
        wrong="""
class $f:
    def __init__(self):
        self.left = {}

    def bring(self, name, n):
        self.left[name] = self.left.get(name, 0) + n
        return self.left[name]

    def order(self, name, n):
        self.left[name] = self.left.get(name, 0) - n
        return max(self.left[name], 0)

    def short(self):
        return [name for name, n in self.left.items() if n < $k]
""",
        inputs=lambda rng, v: [
            [[], [["bring", "tea", v.k], ["order", "tea", 1], ["short"]]],
            [[], [["order", "oil", 2], ["short"]]],
            [[], [["bring", "z", 1], ["bring", "a", 1], ["bring", "m", 50], ["short"]]],
            *_scripts(
                rng,
                [],
                lambda: ["bring", rng.choice(words(rng, 1)[0][:1]), rng.randint(1, 9)],
                lambda: ["order", rng.choice("abcdefgh"), rng.randint(1, 12)],
                lambda: ["short"],
                sizes=(15, 20, 25, 30, 40, 60),
            ),
        ],
    ),
    Sketch(
        name="round_robin",
        level=4,
        kind="class",
        entries=("Turns", "Circle", "Table"),
        values={"k": range(1, 9)},
        statement="Write a class `$f(names)`, people who sit in a circle, at least one. The first "
        "has the turn. `next()` passes the turn on by $k seats and returns who has it then. "
        "`leave(name)` takes somebody out and returns how many are left; if it was the one who had "
        "the turn, the next seat has it. The last one cannot leave, and somebody who is not there "
        "cannot either: nothing happens.",
        solution="""
class $f:
    def __init__(self, names):
        self.names = list(names)

    def next(self):
        by = $k % len(self.names)
        self.names = self.names[by:] + self.names[:by]
        return self.names[0]

    def leave(self, name):
        if name in self.names and len(self.names) > 1:
            self.names.remove(name)
        return len(self.names)
""",
        wrong="""
class $f:
    def __init__(self, names):
        self.names = list(names)
        self.at = 0

    def next(self):
        self.at = (self.at + $k) % len(self.names)
        return self.names[self.at]

    def leave(self, name):
        if name in self.names and len(self.names) > 1:
            self.names.remove(name)
            self.at %= len(self.names)
        return len(self.names)
""",
        inputs=lambda rng, _: [
            [[["A", "B", "C"]], [["next"], ["next"], ["next"], ["next"]]],
            [[["A"]], [["next"], ["leave", "A"], ["next"]]],
            [[["A", "B", "C", "D"]], [["next"], ["next"], ["leave", "A"], ["next"], ["next"]]],
            [[["A", "B", "C", "D"]], [["leave", "A"], ["next"], ["leave", "X"], ["next"]]],
            *(
                script
                for size in (5, 7, 9)
                for script in _scripts(
                    rng,
                    [list("ABCDEFGHI"[:size])],
                    lambda: ["next"],
                    lambda: ["next"],
                    lambda: ["leave", rng.choice("ABCDEFGHI")],
                    sizes=(14, 24),
                )
            ),
        ],
    ),
    Sketch(
        name="scoreboard",
        level=4,
        kind="class",
        entries=("Scores", "Board", "League"),
        values={"win": (2, 3, 4, 5), "draw": (0, 1)},
        statement="Write a class `$f()` for a league. `play(a, b, x, y)` enters a game in which "
        "team a scored x and team b scored y goals: a win is worth $win points, a draw $draw to "
        "each. `points(team)` returns the points of a team, 0 if it never played. `table()` "
        "returns the names of all teams that played, by points, then by goals scored minus goals "
        "let in, both from high to low, then by the alphabet.",
        solution="""
class $f:
    def __init__(self):
        self.teams = {}

    def play(self, a, b, x, y):
        for team, own, other in ((a, x, y), (b, y, x)):
            entry = self.teams.setdefault(team, [0, 0])
            entry[0] += $win if own > other else $draw if own == other else 0
            entry[1] += own - other

    def points(self, team):
        return self.teams.get(team, [0, 0])[0]

    def table(self):
        return sorted(self.teams, key=lambda t: (-self.teams[t][0], -self.teams[t][1], t))
""",
        wrong="""
class $f:
    def __init__(self):
        self.teams = {}

    def play(self, a, b, x, y):
        for team, own, other in ((a, x, y), (b, y, x)):
            entry = self.teams.setdefault(team, [0, 0])
            entry[0] += $win if own > other else $draw if own == other else 0
            entry[1] += own

    def points(self, team):
        return self.teams.get(team, [0, 0])[0]

    def table(self):
        return sorted(self.teams, key=lambda t: self.teams[t], reverse=True)
""",
        inputs=lambda rng, _: [
            [[], [["play", "ants", "bees", 2, 1], ["points", "ants"], ["table"]]],
            [[], [["points", "cats"], ["table"]]],
            [[], [["play", "b", "a", 1, 1], ["points", "a"], ["table"]]],
            *(
                [
                    [],
                    [
                        *(
                            ["play", *rng.sample("abcdef", 2), rng.randint(0, 3), rng.randint(0, 3)]
                            for _ in range(size)
                        ),
                        ["points", "a"],
                        ["points", "b"],
                        ["table"],
                    ],
                ]
                for size in (3, 4, 5, 6, 8, 10, 12)
            ),
        ],
    ),
)
