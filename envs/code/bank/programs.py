"""Levels 2 and 3: programs from stdin to stdout."""

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import ints, text, words

SKETCHES = (
    Sketch(
        name="sum_lines",
        level=2,
        kind="program",
        values={"k": range(2, 20), "what": ("sum", "max", "min")},
        statement="The input has one whole number per line, at least one. Print the $what of them, "
        "multiplied by $k.",
        solution="def solve(text):\n    return $what(int(line) for line in text.split()) * $k",
        wrong="def solve(text):\n    return $what(int(line) * $k for line in text.split()[:3])",
        inputs=lambda rng, _: [
            "1\n2\n3\n",
            "7\n",
            "-4\n10\n",
            "0\n0\n0\n5\n",
            "-3\n-8\n-1\n-9",
            *(
                "\n".join(map(str, ints(rng, -999, 999, num=size))) + "\n"
                for size in (10, 12, 15, 20, 30)
            ),
        ],
    ),
    Sketch(
        name="table_of",
        level=2,
        kind="program",
        values={"k": range(3, 20), "sign": ("x", "*", "times")},
        statement="The input is one whole number n of at least 0. Print n lines, for i from 1 to "
        "n: the number i, a blank, `$sign`, a blank, $k, ` = ` and the product. If n is 0, print "
        "`nothing`.",
        solution="""
def solve(text):
    n = int(text)
    rows = [f'{i} $sign $k = {i * $k}' for i in range(1, n + 1)]
    return '\\n'.join(rows) or 'nothing'
""",
        wrong="""
def solve(text):
    return '\\n'.join(f'{i} $sign $k = {i * $k}' for i in range(1, int(text)))
""",
        inputs=lambda rng, _: [
            "2\n",
            "3\n",
            "1\n",
            "0\n",
            "10",
            *map(str, rng.sample(range(11, 40), 4)),
        ],
    ),
    Sketch(
        name="every_other_word",
        level=2,
        kind="program",
        values={"k": (2, 3, 4), "sep": (" ", "-", "_")},
        statement="Read all words of the input, which may have several lines. Print every word "
        "whose number is divisible by $k, counting from 1, joined by '$sep'. If there is none, "
        "print `none`.",
        solution="""
def solve(text):
    return '$sep'.join(text.split()[$k - 1 :: $k]) or 'none'
""",
        wrong="""
def solve(text):
    return '$sep'.join(text.split()[::$k]) or 'none'
""",
        inputs=lambda rng, _: [
            "a b c d e f g h\n",
            "one\n",
            "red green\nblue grey\nwhite\n",
            "",
            *(f"{text(rng, size)}\n{text(rng, size)}\n" for size in (3, 4, 5, 6, 7, 9)),
        ],
    ),
    Sketch(
        name="word_ranking",
        level=3,
        kind="program",
        values={"k": (2, 3, 4, 5, 6), "order": ("alphabet", "length")},
        statement="Print the $k most frequent words of the input, one per line, with a blank and "
        "how often they come; capital letters are as small ones. Words that are equally frequent "
        "are sorted by $order, and those of equal length by alphabet. There may be fewer.",
        solution="""
from collections import Counter


def solve(text):
    counts = Counter(text.lower().split())

    def rank(word):
        return -counts[word], len(word) if '$order' == 'length' else 0, word

    return '\\n'.join(f'{word} {counts[word]}' for word in sorted(counts, key=rank)[:$k])
""",
        wrong="""
from collections import Counter


def solve(text):
    return '\\n'.join(f'{w} {n}' for w, n in Counter(text.lower().split()).most_common($k))
""",
        inputs=lambda rng, _: [
            "the cat and the dog\n",
            "One one\n",
            "b a c d e\n",
            "zz z ZZ z yyy YYY x x\n",
            *(
                f"{text(rng, size)}\n{text(rng, size).upper()}\n"
                for size in (6, 10, 15, 20, 25, 40)
            ),
        ],
    ),
    Sketch(
        name="columns",
        level=3,
        kind="program",
        values={"k": range(1, 5), "pad": (".", "_", "*", "-")},
        statement="Each line of the input has words with single blanks between them, the same "
        "number in each line. Print the lines as a table: each column as wide as its longest word "
        "plus $k, shorter words filled up with `$pad` on the right, the last column too.",
        solution="""
def solve(text):
    rows = [line.split() for line in text.splitlines()]
    widths = [max(map(len, column)) + $k for column in zip(*rows)]
    return '\\n'.join(
        ''.join(word.ljust(width, '$pad') for word, width in zip(row, widths)) for row in rows
    )
""",
        wrong="""
def solve(text):
    rows = [line.split() for line in text.splitlines()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return '\\n'.join(
        ('$pad' * $k).join(word.ljust(width, '$pad') for word, width in zip(row, widths))
        for row in rows
    )
""",
        inputs=lambda rng, _: [
            "a bb\nccc d\n",
            "one\n",
            "x y z\nlong longer longest\n",
            "a b c d e\n",
            *(
                "".join(f"{text(rng, width)}\n" for _ in range(height))
                for width, height in ((2, 3), (3, 4), (4, 2), (5, 5), (2, 8), (6, 3))
            ),
        ],
    ),
    Sketch(
        name="matrix_lines",
        level=3,
        kind="program",
        values={"what": ("row", "column"), "best": ("largest", "smallest")},
        statement="The input has a table of whole numbers: first a line with the number of rows "
        "and of columns, then the rows. Print the number (from 1) of the $what with the $best sum, "
        "a blank, and that sum; the first one, if several have it.",
        solution="""
def solve(text):
    first, *lines = text.splitlines()
    rows = [list(map(int, line.split())) for line in lines]
    lines = rows if '$what' == 'row' else list(zip(*rows))
    sums = [sum(line) for line in lines]
    best = max(sums) if '$best' == 'largest' else min(sums)
    return f'{sums.index(best) + 1} {best}'
""",
        wrong="""
def solve(text):
    first, *lines = text.splitlines()
    rows = [list(map(int, line.split())) for line in lines]
    lines = rows if '$what' == 'column' else list(zip(*rows))
    sums = [sum(line) for line in lines]
    best = max(sums) if '$best' == 'largest' else min(sums)
    return f'{sums.index(best)} {best}'
""",
        inputs=lambda rng, _: [
            "2 2\n1 2\n3 4\n",
            "1 3\n5 -6 7\n",
            "3 1\n2\n2\n1\n",
            "1 1\n-4\n",
            "2 3\n1 1 1\n1 1 1\n",
            *(
                f"{height} {width}\n"
                + "".join(
                    " ".join(map(str, ints(rng, -50, 99, num=width))) + "\n" for _ in range(height)
                )
                for height, width in ((3, 4), (4, 3), (5, 5), (2, 6), (6, 2))
            ),
        ],
    ),
    Sketch(
        name="settings",
        level=3,
        kind="program",
        values={"eq": ("=", ":", "->"), "mark": ("#", ";", "%")},
        statement="Each line of the input is empty, a comment that begins with `$mark`, or a "
        "setting `name $eq value`; there may be blanks before and after each of these parts. A "
        "later setting of the same name replaces an earlier one, at its place; a setting without a "
        "value removes the name, which is a new one if it comes again. Print what is left, one per "
        "line: the name, `$eq` and the value without blanks between them; or `empty`.",
        solution="""
def solve(text):
    settings = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith('$mark'):
            continue
        name, _, value = (part.strip() for part in line.partition('$eq'))
        if value:
            settings[name] = value
        else:
            settings.pop(name, None)
    return '\\n'.join(f'{name}$eq{value}' for name, value in settings.items()) or 'empty'
""",
        wrong="""
def solve(text):
    settings = {}
    for line in text.splitlines():
        name, _, value = line.partition('$eq')
        settings[name.strip()] = value.strip()
    return '\\n'.join(f'{name}$eq{value}' for name, value in settings.items())
""",
        inputs=lambda rng, v: [
            f"a {v.eq} 1\nb{v.eq}2\n",
            f"{v.mark} nothing here\n\n",
            f"x {v.eq} 1\nx {v.eq}\ny {v.eq} two words\n",
            "",
            f"a{v.eq}1\nb{v.eq}2\na{v.eq}3\n  {v.mark}c{v.eq}4\n",
            *(
                "".join(
                    rng.choice([f" {w} {v.eq} {n}", f"{w}{v.eq}{n} ", f"{w}{v.eq}", f"{v.mark}{w}"])
                    + "\n"
                    for w, n in zip(words(rng, size), ints(rng, 0, 99, num=size), strict=True)
                )
                for size in (8, 12, 16, 20, 30)
            ),
        ],
    ),
)
