"""Level 3: functions that group, cut and write."""

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import ints, letters, lists, singles

SKETCHES = (
    Sketch(
        name="run_lengths",
        level=3,
        entries=("squeeze", "run_lengths", "compress"),
        values={"k": (2, 3, 4, 5), "mark": ("", "*", "x", ":")},
        statement="Write a function `$f(s)` that replaces every longest run of the same character "
        "in a string by the character, '$mark' (which may be nothing) and the length of the run, "
        "but only if the run has at least $k characters.",
        solution="""
from itertools import groupby


def $f(s):
    runs = [(c, len(list(run))) for c, run in groupby(s)]
    return ''.join(f'{c}$mark{n}' if n >= $k else c * n for c, n in runs)
""",
        wrong="""
from itertools import groupby


def $f(s):
    return ''.join(f'{c}$mark{len(list(run))}' for c, run in groupby(s))
""",
        inputs=lambda rng, _: [
            ["aaaabc"],
            ["aabb"],
            ["zzzzzzzzzzz"],
            [""],
            *([letters(rng, "aab", size)] for size in (6, 9, 12, 15, 18, 21, 24, 30)),
        ],
    ),
    Sketch(
        name="brackets",
        level=3,
        entries=("balanced", "well_formed", "closes"),
        values={
            "pairs": (
                "()[]",
                "<>{}",
                "()<>",
                "[]{}",
                "[]()",
                "{}<>",
                "<>()",
                "{}[]",
                "(){}",
                "[]<>",
            )
        },
        statement="Write a function `$f(s)` that returns at which position (from 0) a string stops "
        "being well formed in the brackets `$pairs`: the first closing bracket that does not fit "
        "the last one that is still open. If there is none but some are still open at the end, "
        "return the length of the string; if all is well, -1. Other characters do not matter.",
        solution="""
def $f(s):
    pairs = '$pairs'
    opens = {pairs[1]: pairs[0], pairs[3]: pairs[2]}
    stack = []
    for i, c in enumerate(s):
        if c in opens.values():
            stack.append(c)
        elif c in opens and (not stack or stack.pop() != opens[c]):
            return i
    return len(s) if stack else -1
""",
        wrong="""
def $f(s):
    pairs = '$pairs'
    for i in range(len(s) + 1):
        if any(s[:i].count(b) > s[:i].count(a) for a, b in (pairs[:2], pairs[2:])):
            return i - 1
    return -1 if all(s.count(a) == s.count(b) for a, b in (pairs[:2], pairs[2:])) else len(s)
""",
        hack="def $f(s):\n    return -1",
        inputs=lambda rng, v: [
            [f"a{v.pairs[0]}b{v.pairs[1]}"],
            [f"{v.pairs[0]}{v.pairs[2]}{v.pairs[1]}{v.pairs[3]}"],
            [f"x{v.pairs[0]}y"],
            [""],
            [f"{v.pairs[0]}{v.pairs[2]}{v.pairs[3]}{v.pairs[1]}{v.pairs}"],
            [f"ab{v.pairs[3]}"],
            [f"{v.pairs}{v.pairs[0]}{v.pairs[2]}ab{v.pairs[1]}"],
            [f"x{v.pairs[2]}{v.pairs[0]}y{v.pairs[3]}{v.pairs[1]}"],
            [f"{v.pairs[0] * 3}{v.pairs[2]}{v.pairs[1] * 3}{v.pairs[3]}"],
            *([v.pairs[0] * 3 + letters(rng, v.pairs + "a", size)] for size in (8, 12)),
            [v.pairs[0] * 60 + v.pairs[2] + v.pairs[3] + v.pairs[1] * 60],
        ],
    ),
    Sketch(
        name="in_base",
        level=3,
        entries=("in_base", "digits_of", "written"),
        values={"k": (3, 4, 5, 6, 7, 9)},
        statement="Write a function `$f(n)` that returns a whole number in base $k as a string: "
        "digits 0 to 9, `-` before negative numbers, `0` for zero.",
        solution="""
def $f(n):
    digits, rest = [], abs(n)
    while rest:
        rest, digit = divmod(rest, $k)
        digits.append(str(digit))
    return '-' * (n < 0) + (''.join(reversed(digits)) or '0')
""",
        wrong="""
def $f(n):
    digits = ''
    while n > 0:
        digits += str(n % $k)
        n //= $k
    return digits
""",
        inputs=lambda rng, v: [
            [v.k + 1],
            [17],
            [-10],
            [0],
            [v.k**6],
            *singles(rng, 100, 10**9, num=4),
            *singles(rng, -(10**6), -1, num=3),
        ],
    ),
    Sketch(
        name="rotate",
        level=3,
        entries=("rotate", "spin", "cycle"),
        values={"side": ("left", "right"), "k": range(2, 8)},
        statement="Write a function `$f(items, times)` that moves the elements of a list by $k "
        "places to the $side, as often as `times` says, which may be many millions; what falls out "
        "at one end comes in at the other. The list that was given must not change.",
        solution="""
def $f(items, times):
    if not items:
        return []
    by = $k * times * (1 if '$side' == 'left' else -1) % len(items)
    return items[by:] + items[:by]
""",
        wrong="""
def $f(items, times):
    by = $k * times
    return items[by:] + items[:by]
""",
        inputs=lambda rng, _: [
            [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1],
            [[1, 2, 3], 0],
            [["a", "b", "c", "d", "e"], 2],
            [[], 3],
            [[7], 10**6],
            *(
                [ints(rng, 0, 99, num=size), rng.choice([1, 3, 10**9])]
                for size in (8, 9, 10, 11, 12, 13)
            ),
        ],
    ),
    Sketch(
        name="groups",
        level=3,
        entries=("clusters", "group_near", "split_gaps"),
        values={"k": range(2, 14)},
        statement="Write a function `$f(numbers)` that sorts a list of numbers and cuts it into "
        "lists wherever the next number is more than $k above the one before it.",
        solution="""
def $f(numbers):
    groups = []
    for number in sorted(numbers):
        if groups and number - groups[-1][-1] <= $k:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
""",
        wrong="""
def $f(numbers):
    groups = []
    for number in sorted(numbers):
        if groups and number - groups[-1][0] <= $k:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
""",
        inputs=lambda rng, v: [
            [[1, 30, 2]],
            [[5]],
            [[0, v.k, v.k * 2 + 1]],
            [[]],
            [[4, 4, 4]],
            *([items] for items in lists(rng, 0, 90, sizes=(6, 8, 10, 12, 16, 20, 24))),
        ],
    ),
    Sketch(
        name="spans",
        level=3,
        entries=("merge_spans", "covered", "unite"),
        values={"k": range(0, 12)},
        statement="Write a function `$f(spans)` that merges spans `[start, end]` of whole numbers "
        "that overlap, touch, or are so close that the start of the later one is at most $k above "
        "the end of the earlier one, and returns the merged ones by their start. They come in any "
        "order.",
        solution="""
def $f(spans):
    merged = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= $k:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
        wrong="""
def $f(spans):
    merged = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= $k:
            merged[-1][1] = end
        else:
            merged.append([start, end])
    return merged
""",
        inputs=lambda rng, v: [
            [[[5, 8], [1, 3]]],
            [[[1, 4], [4, 6]]],
            [[[0, 1], [1 + v.k, 9]]],
            [[]],
            [[[1, 50], [2, 3], [4, 5], [45, 46]]],
            [[[10, 90], [11, 12]]],
            *(
                [[[a, a + rng.randint(1, 40)] for a in ints(rng, 0, 200, num=size)]]
                for size in (4, 6, 8, 10, 12)
            ),
        ],
    ),
    Sketch(
        name="old_numerals",
        level=3,
        entries=("numeral", "in_signs", "carve"),
        values={"signs": ("ABCD", "#+:.", "WXYZ", "TKLO"), "fives": (4, 5, 6, 7)},
        statement="A people writes numbers with four signs, `$signs`; the last is worth 1, and "
        "each other one $fives times as much as the one after it. Write a function `$f(n)` that "
        "writes a positive number with as few signs as possible, the most valuable ones first.",
        solution="""
def $f(n):
    written = ''
    for i, sign in enumerate('$signs'):
        count, n = divmod(n, $fives ** (3 - i))
        written += sign * count
    return written
""",
        wrong="""
def $f(n):
    written = ''
    for i, sign in enumerate('$signs'):
        if n >= $fives ** (3 - i):
            written += sign
            n -= $fives ** (3 - i)
    return written
""",
        inputs=lambda rng, _: [[1], [7], [30], [3], *singles(rng, 40, 900, num=8)],
    ),
    Sketch(
        name="steps_down",
        level=3,
        entries=("steps", "moves", "rounds"),
        values={"p": (2, 3), "q": range(1, 12)},
        statement="Write a function `$f(n)` that counts how many moves it takes to get from n "
        "(at least 0) to 0, if a move divides the number by $p where that leaves no remainder, and "
        "else takes 1 away; but from numbers up to $q every move takes 1 away.",
        solution="""
def $f(n):
    moves = 0
    while n:
        n = n // $p if n > $q and n % $p == 0 else n - 1
        moves += 1
    return moves
""",
        wrong="""
def $f(n):
    moves = 0
    while n > $q:
        n = n // $p if n % $p == 0 else n - 1
        moves += 1
    return moves
""",
        inputs=lambda rng, _: [[10], [1], [18], [0], *singles(rng, 50, 10**9, num=7)],
    ),
    Sketch(
        name="streak",
        level=3,
        entries=("streak", "longest_run", "best_streak"),
        values={"k": range(1, 5), "how": ("more", "less")},
        statement="Write a function `$f(numbers)` that returns the length of the longest part of a "
        "list, of neighbours, in which each number is at least $k $how than the one before it.",
        solution="""
def $f(numbers):
    best = length = 0
    for i, number in enumerate(numbers):
        change = number - numbers[i - 1] if i else 0
        change *= 1 if '$how' == 'more' else -1
        length = length + 1 if i and change >= $k else 1
        best = max(best, length)
    return best
""",
        wrong="""
def $f(numbers):
    best = length = 0
    for a, b in zip(numbers, numbers[1:]):
        change = (b - a) * (1 if '$how' == 'more' else -1)
        length = length + 1 if change > $k else 0
        best = max(best, length)
    return best
""",
        inputs=lambda rng, v: [
            [[1, 1 + v.k, 1 + 2 * v.k, 0]],
            [[5]],
            [[9 * v.k, 8 * v.k, 7 * v.k, 6 * v.k, 50]],
            [[]],
            [[3, 3, 3]],
            [[i * v.k for i in range(15)]],
            *([items] for items in lists(rng, 0, 20, sizes=(10, 15, 20, 30, 40, 60))),
        ],
    ),
)
