"""Level 5: the best or the number of many ways."""

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import ints, letters, lists

SKETCHES = (
    Sketch(
        name="edit_price",
        level=5,
        entries=("edit_price", "rewrite", "convert"),
        values={"add": (1, 2), "drop": (1, 3), "swap": (1, 2, 4)},
        statement="Write a function `$f(a, b)` that returns the lowest price of turning the string "
        "a into the string b: inserting a character costs $add, deleting one $drop, replacing one "
        "by another $swap.",
        solution="""
def $f(a, b):
    prices = [j * $add for j in range(len(b) + 1)]
    for i, left in enumerate(a, 1):
        before, prices = prices, [i * $drop]
        for j, right in enumerate(b, 1):
            same = before[j - 1] + (0 if left == right else $swap)
            prices.append(min(same, before[j] + $drop, prices[j - 1] + $add))
    return prices[-1]
""",
        wrong="""
def $f(a, b):
    price = sum($swap for left, right in zip(a, b) if left != right)
    more = len(b) - len(a)
    return price + (more * $add if more > 0 else -more * $drop)
""",
        inputs=lambda rng, _: [
            ["ab", "abc"],
            ["house", "horse"],
            ["abcd", "bcde"],
            ["", "xyz"],
            ["xyz", ""],
            *(
                [letters(rng, "abc", size), letters(rng, "abc", size + shift)]
                for size, shift in ((8, 0), (10, 2), (14, -3), (20, 1), (40, 5), (60, -9))
            ),
        ],
    ),
    Sketch(
        name="fewest_coins",
        level=5,
        entries=("coins", "change", "pay"),
        values={
            "coins": (
                (1, 4, 5),
                (3, 7, 11),
                (2, 6, 9),
                (1, 7, 10),
                (4, 5, 13),
                (3, 5, 11),
                (1, 5, 8),
                (2, 7, 12),
                (5, 6, 17),
            )
        },
        statement="Coins are worth $coins. Write a function `$f(amount)` that returns the smallest "
        "number of coins whose sum is the amount (0 to 3000), or -1 if there are none.",
        solution="""
def $f(amount):
    best = [0]
    for n in range(1, amount + 1):
        ways = [best[n - c] for c in $coins if c <= n and best[n - c] >= 0]
        best.append(min(ways) + 1 if ways else -1)
    return best[amount]
""",
        wrong="""
def $f(amount):
    count = 0
    for coin in sorted($coins, reverse=True):
        count += amount // coin
        amount %= coin
    return -1 if amount else count
""",
        inputs=lambda rng, v: [
            [v.coins[2]],
            [v.coins[0] * 2],
            [8],
            [0],
            [v.coins[1] * 2],
            [v.coins[0] + 2 * v.coins[1]],
            *([n] for n in rng.sample(range(9, 31), 3)),
            *([n] for n in rng.sample(range(100, 3000), 3)),
        ],
    ),
    Sketch(
        name="rising",
        level=5,
        entries=("longest_climb", "rising", "climb"),
        values={"low": (1, 2, 3), "high": (8, 10, 15, 20, 30)},
        statement="Write a function `$f(numbers)` that returns the length of the longest list that "
        "can be made by crossing out numbers of a list, so that each number left is at least $low "
        "and at most $high above the one left before it.",
        solution="""
def $f(numbers):
    best = []
    for i, n in enumerate(numbers):
        before = [best[j] for j in range(i) if $low <= n - numbers[j] <= $high]
        best.append(1 + max(before, default=0))
    return max(best, default=0)
""",
        wrong="""
def $f(numbers):
    kept = []
    for n in numbers:
        if not kept or $low <= n - kept[-1] <= $high:
            kept.append(n)
    return len(kept)
""",
        inputs=lambda rng, _: [
            [[1, 9, 4, 7]],
            [[5, 4, 3]],
            [[50, 1, 5, 2, 9]],
            [[]],
            [[90, 1, 4, 7, 10, 13, 16, 19]],
            *([items] for items in lists(rng, 0, 60, sizes=(10, 15, 25, 40, 80, 150))),
        ],
    ),
    Sketch(
        name="packing",
        level=5,
        entries=("pack", "best_load", "load_up"),
        values={"k": range(3, 9)},
        statement="Write a function `$f(things, room)`: things are lists `[size, worth]`, sizes at "
        "least 1. Return the highest worth of things whose sizes add up to at most the room, with "
        "at most $k things in all; each can be taken once.",
        solution="""
def $f(things, room):
    best = [[0] * (room + 1) for _ in range($k + 1)]
    for size, worth in things:
        for count in range($k, 0, -1):
            for space in range(room, size - 1, -1):
                taken = best[count - 1][space - size] + worth
                best[count][space] = max(best[count][space], taken)
    return max(row[room] for row in best)
""",
        wrong="""
def $f(things, room):
    total = 0
    for size, worth in sorted(things, key=lambda thing: -thing[1])[:$k]:
        if size <= room:
            room -= size
            total += worth
    return total
""",
        inputs=lambda rng, _: [
            [[[3, 5], [2, 4], [4, 6]], 6],
            [[[9, 9]], 5],
            [[[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]], 5],
            [[], 3],
            [[[10, 60], [6, 35], [5, 34], [1, 1]], 12],
            *(
                [
                    [[rng.randint(4, 20), rng.randint(20, 50)] for _ in range(size)],
                    rng.randint(20, 40),
                ]
                for size in (5, 7, 9, 12, 15, 20, 25)
            ),
        ],
    ),
    Sketch(
        name="bookings",
        level=5,
        entries=("most_bookings", "choose_times", "book"),
        values={"rest": range(0, 12)},
        statement="Write a function `$f(bookings)`: lists `[start, end, price]` of whole numbers, "
        "start < end. Return the highest sum of prices of bookings that can all be taken, if "
        "between the end of one and the start of the next there must be at least $rest hours.",
        solution="""
def $f(bookings):
    done = []
    for start, end, price in sorted(bookings, key=lambda booking: booking[1]):
        before = max((p for e, p in done if e + $rest <= start), default=0)
        done.append((end, before + price))
    return max((price for _, price in done), default=0)
""",
        wrong="""
def $f(bookings):
    free, total = -1000, 0
    for start, end, price in sorted(bookings, key=lambda booking: booking[1]):
        if start >= free:
            total += price
            free = end + $rest
    return total
""",
        inputs=lambda rng, v: [
            [[[0, 3, 5], [2, 6, 9], [9, 12, 4]]],
            [[[1, 2, 7]]],
            [[[0, 2, 1], [2 + v.rest, 4 + v.rest, 1], [1, 3, 3]]],
            [[]],
            *(
                [
                    [
                        [start, start + rng.randint(1, 15), rng.randint(1, 30)]
                        for start in ints(rng, 0, 60, num=size)
                    ]
                ]
                for size in (5, 8, 10, 14, 20, 30, 50)
            ),
        ],
    ),
    Sketch(
        name="stair_ways",
        level=5,
        entries=("ways", "stairs", "climbs"),
        values={"steps": ((1, 2), (1, 3), (2, 3), (1, 2, 4), (2, 5)), "mod": (997, 1009, 10007)},
        statement="Write a function `$f(n, broken)` that counts the ways to climb n stairs (0 "
        "to 3000) with steps of $steps stairs at a time, without stepping on a stair whose number "
        "is in the list broken (stairs are numbered from 1 to n). Return the remainder of that "
        "number divided by $mod.",
        solution="""
def $f(n, broken):
    ways, bad = [1], set(broken)
    for stair in range(1, n + 1):
        reached = sum(ways[stair - step] for step in $steps if step <= stair)
        ways.append(0 if stair in bad else reached % $mod)
    return ways[n] % $mod
""",
        wrong="""
def $f(n, broken):
    ways = [1]
    for stair in range(1, n + 1):
        ways.append(sum(ways[stair - step] for step in $steps if step <= stair) % $mod)
    return ways[n]
""",
        inputs=lambda rng, _: [
            [4, []],
            [5, [3]],
            [1, []],
            [0, []],
            [3, [3]],
            *([n, rng.sample(range(1, n), 1 + n // 15)] for n in rng.sample(range(20, 90), 4)),
            *([n, []] for n in rng.sample(range(500, 3000), 2)),
        ],
    ),
    Sketch(
        name="shared_thread",
        level=5,
        entries=("common", "shared", "overlap"),
        values={"k": (2, 3, 4, 5, 6)},
        statement="Write a function `$f(a, b)` that returns the length of the longest string that "
        "can be made from both a and b by crossing out characters, where no character may come "
        "more than $k times in it.",
        solution="""
from functools import cache


def $f(a, b):
    letters = sorted(set(a) & set(b))

    @cache
    def longest(i, j, used):
        best = 0
        for n, c in enumerate(letters):
            x, y = a.find(c, i), b.find(c, j)
            if used[n] < $k and x >= 0 and y >= 0:
                after = used[:n] + (used[n] + 1,) + used[n + 1 :]
                best = max(best, 1 + longest(x + 1, y + 1, after))
        return best

    return longest(0, 0, (0,) * len(letters))
""",
        wrong="""
def $f(a, b):
    best = [0] * (len(b) + 1)
    for left in a:
        before = list(best)
        for j, right in enumerate(b, 1):
            best[j] = before[j - 1] + 1 if left == right else max(before[j], best[j - 1])
    return best[-1]
""",
        inputs=lambda rng, _: [
            ["abcd", "acbd"],
            ["aaaaa", "aaaaaa"],
            ["abab", "baba"],
            ["", "abc"],
            ["xyz", "abc"],
            ["aaaabbbb", "aaaabbbb"],
            *(
                [letters(rng, "aabc", size), letters(rng, "aabc", size)]
                for size in (6, 8, 10, 14, 18, 24)
            ),
        ],
    ),
)
