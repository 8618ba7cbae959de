"""Level 2: functions with a loop or a few conditions."""

from random import Random

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import letters, lists, singles, text


def _long(rng: Random, size: int, gap: str) -> str:
    """Words of three to ten letters."""
    return gap.join(letters(rng, "abdelmnorst", rng.randint(3, 10)) for _ in range(size))


SKETCHES = (
    Sketch(
        name="call_numbers",
        level=2,
        entries=("calls", "say_numbers", "count_out"),
        values={"p": (2, 3, 4), "q": (5, 7, 9), "a": ("hop", "tick"), "b": ("clap", "boom")},
        statement="Write a function `$f(n)` that returns a list of strings for the numbers 1 to n: "
        "'$a' if the number is divisible by $p, '$b' if it is divisible by $q, '$a-$b' if by both, "
        "else the number itself.",
        solution="""
def $f(n):
    said = []
    for number in range(1, n + 1):
        words = [word for by, word in (($p, '$a'), ($q, '$b')) if number % by == 0]
        said.append('-'.join(words) or str(number))
    return said
""",
        wrong="""
def $f(n):
    said = []
    for number in range(1, n + 1):
        if number % $p == 0:
            said.append('$a')
        elif number % $q == 0:
            said.append('$b')
        else:
            said.append(str(number))
    return said
""",
        inputs=lambda rng, _: [[3], [10], [1], [0], *singles(rng, 36, 90, num=6)],
    ),
    Sketch(
        name="count_multiples",
        level=2,
        entries=("count_hits", "how_many", "tally"),
        values={"k": range(2, 8), "m": range(0, 2)},
        statement="Write a function `$f(numbers)` that counts how many numbers of a list leave "
        "the remainder $m when divided by $k.",
        solution="def $f(numbers):\n    return sum(number % $k == $m for number in numbers)",
        wrong="def $f(numbers):\n    return sum(number // $k == $m for number in numbers)",
        inputs=lambda rng, v: [
            [[v.k, v.k + 1, 2 * v.k, 2 * v.k + 1]],
            [[0, 1]],
            [[5, 6, 7, 8]],
            [[]],
            *([items] for items in lists(rng, -40, 99, sizes=(4, 6, 9, 12, 20, 30, 45))),
        ],
    ),
    Sketch(
        name="digit_sum",
        level=2,
        entries=("digit_sum", "checksum", "digits"),
        values={"k": range(2, 40)},
        statement="Write a function `$f(n)` that returns the sum of the decimal digits of a whole "
        "number, multiplied by $k. A minus sign does not matter.",
        solution="def $f(n):\n    return $k * sum(int(digit) for digit in str(abs(n)))",
        wrong="def $f(n):\n    return $k * (n % 10 + n // 10)",
        inputs=lambda rng, _: [
            [12],
            [305],
            [-47],
            [0],
            [-100],
            *singles(rng, 1000, 10**9, num=4),
            *singles(rng, -(10**6), -100, num=3),
        ],
    ),
    Sketch(
        name="count_letters",
        level=2,
        entries=("count_letters", "letter_count", "found"),
        values={"set": ("aeiou", "aeo", "lmnr", "st", "xyz", "bdg", "en", "aou", "rst", "kml")},
        statement="Write a function `$f(s)` that counts the characters of a string that are one of "
        "the letters `$set`, small or capital.",
        solution="def $f(s):\n    return sum(letter in '$set' for letter in s.lower())",
        wrong="def $f(s):\n    return len(set(s.lower()) & set('$set'))",
        inputs=lambda rng, v: [
            [f"{v.set} and {v.set.upper()}"],
            [f"a {v.set[0]} b {v.set[0]}"],
            ["qqq"],
            [""],
            *([text(rng, size)] for size in (3, 4, 6, 8, 12)),
            *([letters(rng, v.set.upper() + v.set + "q ", size)] for size in (9, 20, 31)),
        ],
    ),
    Sketch(
        name="clamp",
        level=2,
        entries=("clamp", "limit", "keep_between"),
        values={"low": range(-20, 5), "high": range(10, 60)},
        statement="Write a function `$f(numbers)` that returns a list in which every number below "
        "$low became $low and every number above $high became $high.",
        solution="def $f(numbers):\n    return [min(max(n, $low), $high) for n in numbers]",
        wrong="def $f(numbers):\n    return [n for n in numbers if $low <= n <= $high]",
        inputs=lambda rng, _: [
            [[5, 100]],
            [[-100, 7]],
            [[6, 8]],
            [[]],
            *([items] for items in lists(rng, -60, 120, sizes=(5, 6, 7, 8, 9, 10, 11))),
        ],
    ),
    Sketch(
        name="long_words",
        level=2,
        entries=("long_words", "keep_long", "filtered"),
        values={"k": range(3, 7), "sep": (" ", "-", "+")},
        statement="Write a function `$f(s)` that returns the words of a string that have more "
        "than $k letters, in their order, as one string with '$sep' between them. Words are "
        "separated by one or more blanks.",
        solution="def $f(s):\n    return '$sep'.join(w for w in s.split() if len(w) > $k)",
        wrong="def $f(s):\n    return '$sep'.join(w for w in s.split(' ') if len(w) >= $k)",
        inputs=lambda rng, _: [
            ["an old elephant sat down"],
            ["a bee"],
            ["wheat  and   maple"],
            [""],
            ["four seven  of five letters"],
            *([_long(rng, size, "  ")] for size in (4, 6, 8)),
            *([_long(rng, size, " ")] for size in (5, 9, 10, 12)),
        ],
    ),
    Sketch(
        name="running_best",
        level=2,
        entries=("best_so_far", "records", "running"),
        values={"kind": ("max", "min"), "start": range(-5, 6)},
        statement="Write a function `$f(numbers)` that returns, for each position of a list, the "
        "$kind of $start and all numbers up to and including that position.",
        solution="""
def $f(numbers):
    best, result = $start, []
    for number in numbers:
        best = $kind(best, number)
        result.append(best)
    return result
""",
        wrong="""
def $f(numbers):
    return [$kind(numbers) for _ in numbers]
""",
        inputs=lambda rng, _: [
            [[1, 3, 2]],
            [[-9, 9]],
            [[0, 0]],
            [[]],
            *([items] for items in lists(rng, -30, 30, sizes=(4, 5, 6, 8, 10, 12, 20))),
        ],
    ),
    Sketch(
        name="shift_letters",
        level=2,
        entries=("shift", "encode", "cipher"),
        values={"k": range(1, 25)},
        statement="Write a function `$f(s)` that moves every small letter of a string forward in "
        "the alphabet by $k, going on from `a` after `z`. Other characters stay.",
        solution="""
def $f(s):
    return ''.join(
        chr((ord(c) - 97 + $k) % 26 + 97) if 'a' <= c <= 'z' else c for c in s
    )
""",
        wrong="""
def $f(s):
    return ''.join(chr(ord(c) + $k) if 'a' <= c <= 'z' else c for c in s)
""",
        inputs=lambda rng, _: [
            ["abc"],
            ["Hi!"],
            ["xyz"],
            [""],
            ["ABC 123"],
            *([text(rng, size)] for size in (2, 3, 4, 5, 6, 7)),
        ],
    ),
    Sketch(
        name="runner_up",
        level=2,
        entries=("runner_up", "next_best", "nth_place"),
        values={"k": (2, 3, 4), "order": ("largest", "smallest")},
        statement="Write a function `$f(numbers)` that returns number $k of the different numbers "
        "of a list, the $order being number 1, or None if there are fewer.",
        solution="""
def $f(numbers):
    ranked = sorted(set(numbers), reverse='$order' == 'largest')
    return ranked[$k - 1] if len(ranked) >= $k else None
""",
        wrong="""
def $f(numbers):
    ranked = sorted(numbers, reverse='$order' == 'largest')
    return ranked[$k - 1] if len(ranked) >= $k else None
""",
        inputs=lambda rng, _: [
            [[4, 9, 7, 1]],
            [[2, 2, 2]],
            [[5, 5, 3, 3, 8, 8]],
            [[]],
            *([items + items] for items in lists(rng, -20, 20, sizes=(3, 4, 5, 6, 7, 8, 9))),
        ],
    ),
    Sketch(
        name="pairs_apart",
        level=2,
        entries=("pairs", "count_pairs", "matches"),
        values={"k": range(1, 9)},
        statement="Write a function `$f(numbers)` that counts the pairs of positions i < j of a "
        "list whose numbers differ by exactly $k.",
        solution="""
def $f(numbers):
    return sum(
        abs(a - b) == $k for i, a in enumerate(numbers) for b in numbers[i + 1 :]
    )
""",
        wrong="""
def $f(numbers):
    return sum(b - a == $k for i, a in enumerate(numbers) for b in numbers[i + 1 :])
""",
        inputs=lambda rng, v: [
            [[1, 1 + v.k]],
            [[4]],
            [[3 + v.k, 3, 3 + v.k]],
            [[]],
            *([items] for items in lists(rng, 0, 12, sizes=(8, 10, 12, 15, 20, 25, 30))),
        ],
    ),
    Sketch(
        name="initials",
        level=2,
        entries=("initials", "abbreviate", "short_form"),
        values={"end": (".", "", "-", "/"), "k": (1, 2, 3)},
        statement="Write a function `$f(name)` that takes the first $k letters of every word of a "
        "string, in capitals, each followed by '$end' (which may be nothing), and returns them "
        "without blanks.",
        solution="def $f(name):\n    return ''.join(w[:$k].upper() + '$end' for w in name.split())",
        wrong="def $f(name):\n    return ''.join(w[:$k] + '$end' for w in name.split())",
        inputs=lambda rng, _: [
            ["ada love lace"],
            ["x"],
            ["Old  Fox"],
            [""],
            *([text(rng, size)] for size in (2, 3, 4, 5, 6, 7, 8)),
        ],
    ),
)
