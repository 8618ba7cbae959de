"""Level 4: classes that keep what they were given."""

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
        name="bounded_stack",
        level=4,
        kind="class",
        entries=("Stack", "Pile", "Plates"),
        values={"k": range(3, 9), "full": ("bottom", "top")},
        statement="Write a class `$f()`, a stack of at most $k items. `push(item)` puts one on "
        "top and returns the number of items; if the stack is full, the item at the $full is lost "
        "first. `pop()` takes the top one and returns it, or None if there is none. `peek()` "
        "returns it without taking it, likewise.",
        solution="""
class $f:
    def __init__(self):
        self.items = []

    def push(self, item):
        if len(self.items) == $k:
            self.items.pop(0 if '$full' == 'bottom' else -1)
        self.items.append(item)
        return len(self.items)

    def pop(self):
        return self.items.pop() if self.items else None

    def peek(self):
        return self.items[-1] if self.items else None
""",
        wrong="""
class $f:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)
        return len(self.items)

    def pop(self):
        return self.items.pop() if self.items else None

    def peek(self):
        return self.items[-1] if self.items else None
""",
        inputs=lambda rng, v: [
            [[], [["push", 1], ["push", 2], ["pop"], ["peek"], ["pop"], ["pop"]]],
            [[], [["peek"], ["push", "a"], ["peek"]]],
            [[], [*(["push", n] for n in range(v.k + 2)), *([["pop"]] * (v.k + 1))]],
            *_scripts(
                rng,
                [],
                lambda: ["push", rng.randint(0, 99)],
                lambda: ["push", rng.randint(0, 99)],
                lambda: ["pop"],
                lambda: ["peek"],
                sizes=(15, 20, 25, 30, 40, 50, 60),
            ),
        ],
    ),
    Sketch(
        name="recent_keys",
        level=4,
        kind="class",
        entries=("Cache", "Memory", "Shelf"),
        values={"counts": ("reading or writing", "writing"), "k": (2, 3, 4, 5)},
        statement="Write a class `$f()`, a table of at most $k keys. `put(key, value)` writes a "
        "value and returns the key that was dropped for it, or None: if a new key does not fit, "
        "the one whose last use is longest ago goes. `get(key)` returns the value, or None. Only "
        "$counts is a use.",
        solution="""
class $f:
    def __init__(self):
        self.table = {}

    def put(self, key, value):
        dropped = None
        self.table.pop(key, None)
        if len(self.table) == $k:
            dropped = next(iter(self.table))
            del self.table[dropped]
        self.table[key] = value
        return dropped

    def get(self, key):
        if key not in self.table:
            return None
        if '$counts' != 'writing':
            self.table[key] = self.table.pop(key)
        return self.table[key]
""",
        wrong="""
class $f:
    def __init__(self):
        self.table = {}

    def put(self, key, value):
        dropped = None
        if len(self.table) == $k:
            dropped = next(iter(self.table))
            del self.table[dropped]
        self.table[key] = value
        return dropped

    def get(self, key):
        return self.table.get(key)
""",
        inputs=lambda rng, v: [
            [[], [["put", "a", 1], ["get", "a"], ["get", "b"]]],
            [[], [*(["put", str(n), n] for n in range(v.k + 1)), ["get", "0"]]],
            [
                [],
                [
                    *(["put", str(n), n] for n in range(v.k)),
                    ["get", "0"],
                    ["put", "new", 9],
                    ["get", "0"],
                    ["get", "1"],
                ],
            ],
            *_scripts(
                rng,
                [],
                lambda: ["put", rng.choice("abcdef"), rng.randint(0, 99)],
                lambda: ["get", rng.choice("abcdef")],
                sizes=(15, 20, 25, 30, 40, 60, 80),
            ),
        ],
    ),
    Sketch(
        name="window_mean",
        level=4,
        kind="class",
        entries=("Window", "Recent", "Meter"),
        values={"k": range(3, 8), "what": ("sum", "max", "min")},
        statement="Write a class `$f()`. `add(n)` takes a number and returns the $what of the last "
        "$k numbers (or of all, if there are fewer). `undo()` takes the last number back, as if it "
        "had never come, and returns how many are left; with none it does nothing and returns 0.",
        solution="""
class $f:
    def __init__(self):
        self.numbers = []

    def add(self, n):
        self.numbers.append(n)
        return $what(self.numbers[-$k:])

    def undo(self):
        if self.numbers:
            self.numbers.pop()
        return len(self.numbers)
""",
        wrong="""
class $f:
    def __init__(self):
        self.numbers = []

    def add(self, n):
        self.numbers = [*self.numbers, n][-$k:]
        return $what(self.numbers)

    def undo(self):
        if self.numbers:
            self.numbers.pop()
        return len(self.numbers)
""",
        inputs=lambda rng, _: [
            [[], [["add", 4], ["add", -1], ["undo"], ["add", 2]]],
            [[], [["undo"], ["add", 3], ["undo"], ["undo"]]],
            [[], [*(["add", n] for n in range(9, -1, -1)), ["undo"], ["add", 5]]],
            *_scripts(
                rng,
                [],
                lambda: ["add", rng.randint(-50, 50)],
                lambda: ["add", rng.randint(-50, 50)],
                lambda: ["undo"],
                sizes=(15, 20, 25, 30, 40, 50, 60),
            ),
        ],
    ),
    Sketch(
        name="editor",
        level=4,
        kind="class",
        entries=("Editor", "Line", "Draft"),
        values={"depth": range(2, 10)},
        statement="Write a class `$f()`, a line of text that is empty at first. `type(s)` appends "
        "a string; `erase(n)` removes the last n characters, or all if there are fewer. Both are "
        "changes, even if nothing is different after them, and return the text. `undo()` takes "
        "back the last change that was not taken back yet, at most the $depth latest ones are "
        "remembered; it returns the text.",
        solution="""
class $f:
    def __init__(self):
        self.text, self.before = '', []

    def _change(self, text):
        self.before = [*self.before, self.text][-$depth:]
        self.text = text
        return text

    def type(self, s):
        return self._change(self.text + s)

    def erase(self, n):
        return self._change(self.text[: max(0, len(self.text) - n)])

    def undo(self):
        if self.before:
            self.text = self.before.pop()
        return self.text
""",
        wrong="""
class $f:
    def __init__(self):
        self.text, self.before = '', []

    def type(self, s):
        self.before.append(self.text)
        self.text += s
        return self.text

    def erase(self, n):
        self.before.append(self.text)
        self.text = self.text[:-n]
        return self.text

    def undo(self):
        if self.before:
            self.text = self.before.pop()
        return self.text
""",
        inputs=lambda rng, v: [
            [[], [["type", "ab"], ["type", "c"], ["erase", 1], ["undo"]]],
            [[], [["undo"], ["type", "x"], ["undo"]]],
            [[], [*(["type", c] for c in "abcdef"), *([["undo"]] * (v.depth + 1))]],
            [[], [["type", "abc"], ["erase", 0], ["erase", 9], ["undo"], ["undo"]]],
            *_scripts(
                rng,
                [],
                lambda: ["type", rng.choice(words(rng, 3))],
                lambda: ["erase", rng.randint(0, 6)],
                lambda: ["undo"],
                sizes=(12, 16, 20, 30, 40, 50),
            ),
        ],
    ),
    Sketch(
        name="limiter",
        level=4,
        kind="class",
        entries=("Limiter", "Gate", "Guard"),
        values={"k": (2, 3, 4), "span": (5, 10, 20, 30)},
        statement="Write a class `$f()` that lets people pass. `ask(who, time)` returns whether "
        "that person may pass at that time: each one at most $k times in any $span seconds, "
        "whatever the others do, so that an earlier pass counts as long as fewer than $span "
        "seconds went by since. What was refused does not count. Times are whole seconds and never "
        "go back. `passed(who)` returns how often that person ever passed.",
        solution="""
class $f:
    def __init__(self):
        self.times = {}

    def ask(self, who, time):
        times = self.times.setdefault(who, [])
        if sum(time - t < $span for t in times) >= $k:
            return False
        times.append(time)
        return True

    def passed(self, who):
        return len(self.times.get(who, []))
""",
        wrong="""
class $f:
    def __init__(self):
        self.times = {}

    def ask(self, who, time):
        times = self.times.setdefault(who, [])
        times.append(time)
        return sum(time - t < $span for t in times) <= $k

    def passed(self, who):
        return len(self.times.get(who, []))
""",
        inputs=lambda rng, v: [
            [[], [["ask", "a", 0], ["ask", "a", 1], ["ask", "b", 1], ["passed", "a"]]],
            [[], [["passed", "x"], ["ask", "x", 3], ["passed", "x"]]],
            [[], [*(["ask", "a", n] for n in range(v.span + 2)), ["passed", "a"]]],
            *(
                [
                    [],
                    [
                        *(
                            ["ask", rng.choice("ab"), time]
                            for time in sorted(rng.choices(range(4 * v.span), k=size))
                        ),
                        ["passed", "a"],
                        ["passed", "b"],
                    ],
                ]
                for size in (10, 15, 20, 25, 30, 40)
            ),
        ],
    ),
)
