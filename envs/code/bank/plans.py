"""Level 5: expressions, orders and pages."""

from random import Random

from agentgym.envs.code.bank.base import Sketch
from agentgym.envs.code.bank.drawing import text

SKETCHES = (
    Sketch(
        name="own_arithmetic",
        level=5,
        entries=("evaluate", "reckon", "work_out"),
        values={"first": ("+", "*"), "other": ("-", "^", "~", "%")},
        statement="Write a function `$f(s)` that works out a string of whole numbers, the signs "
        "`+`, `*` and `$other`, brackets `(` and `)`, and blanks. `a $other b` is the larger of "
        "both minus the smaller. Brackets come first, then every `$first`, then the other two "
        "signs, which rank alike; signs that rank alike are worked out from left to right.",
        solution="""
import re


def $f(s):
    tokens = re.findall(r'\\d+|[^\\s\\d]', s)
    rank = {'$first': 2}

    def value():
        token = tokens.pop(0)
        if token != '(':
            return int(token)
        inner = level(1)
        tokens.pop(0)
        return inner

    def level(at):
        left = value() if at == 3 else level(at + 1)
        while at < 3 and tokens and tokens[0] != ')' and rank.get(tokens[0], 1) == at:
            sign, right = tokens.pop(0), level(at + 1)
            done = {'+': left + right, '*': left * right}
            left = done.get(sign, abs(left - right))
        return left

    return level(1)
""",
        wrong="""
import re


def $f(s):
    tokens = re.findall(r'\\d+|[^\\s\\d]', s.replace('(', '').replace(')', ''))
    left = int(tokens[0])
    for sign, right in zip(tokens[1::2], map(int, tokens[2::2])):
        left = left + right if sign == '+' else left * right if sign == '*' else abs(left - right)
    return left
""",
        inputs=lambda rng, v: [
            [f"2 + 3 {v.other} 9"],
            ["2 * 3 + 4 * 5"],
            ["(1 + 2) * 3"],
            ["42"],
            [f"3{v.other}((2))*(5+1)"],
            *([_sum(rng, size, v.other)] for size in (4, 6, 8, 10, 12, 14, 16)),
        ],
    ),
    Sketch(
        name="order_of_work",
        level=5,
        entries=("plan", "schedule", "work_order"),
        values={"pick": ("first", "last"), "none": (None, [], "'never'")},
        statement="Write a function `$f(jobs)`: a dict from the name of each job to the list of "
        "jobs that must be done before it, all of which are keys too. Return the names in the "
        "order the jobs are done: of those that can be done next, always the $pick in the order of "
        "the alphabet. If not all can ever be done, return $none.",
        solution="""
def $f(jobs):
    order, left = [], dict(jobs)
    while left:
        ready = [name for name, before in left.items() if not set(before) - set(order)]
        if not ready:
            return $none
        name = min(ready) if '$pick' == 'first' else max(ready)
        order.append(name)
        del left[name]
    return order
""",
        wrong="""
def $f(jobs):
    order = []
    for name in sorted(jobs, reverse='$pick' == 'last'):
        order += [job for job in sorted(jobs[name]) if job not in order]
        if name not in order:
            order.append(name)
    return order
""",
        inputs=lambda rng, _: [
            [{"b": ["a"], "a": [], "c": []}],
            [{"x": ["y"], "y": ["x"]}],
            [{"cut": [], "sew": ["cut"], "iron": ["sew", "wash"], "wash": []}],
            [{}],
            [{"a": ["a"]}],
            *([_jobs(rng, size, circle=size == 9)] for size in (5, 6, 7, 8, 9, 10, 12)),
        ],
    ),
    Sketch(
        name="page",
        level=5,
        kind="program",
        values={"width": (16, 18, 20, 22, 24, 28), "pad": ("left", "right")},
        statement="Print the words of the input in lines of exactly $width characters: as many "
        "words to a line as fit with at least one blank between neighbours. Blanks are spread as "
        "evenly as possible, the gaps further to the $pad get one more where it does not come out "
        "even. A line with one word, and the last line, have single blanks and are not filled up. "
        "No word is longer than a line. Without words, print `-`.",
        solution="""
def solve(text):
    lines, line = [], []
    for word in text.split():
        if len(' '.join([*line, word])) > $width:
            lines.append(line)
            line = []
        line.append(word)
    out = []
    for words in lines:
        if len(words) == 1:
            out.append(words[0])
            continue
        blanks, more = divmod($width - sum(map(len, words)), len(words) - 1)
        row = words[0]
        for gap, word in enumerate(words[1:]):
            wide = gap < more if '$pad' == 'left' else gap >= len(words) - 1 - more
            row += ' ' * (blanks + wide) + word
        out.append(row)
    return '\\n'.join([*out, ' '.join(line)]) if line else '-'
""",
        wrong="""
import textwrap


def solve(text):
    return '\\n'.join(line.center($width) for line in textwrap.wrap(text, $width))
""",
        inputs=lambda rng, v: [
            "a few words\n",
            "one two three four five six seven eight nine\n",
            "x" * v.width + " y\n",
            "",
            *(text(rng, size) + "\n" for size in (10, 14, 18, 25, 30, 40)),
        ],
    ),
)


def _sum(rng: Random, size: int, other: str) -> str:
    """Numbers and signs, with a bracket here and there."""
    parts = [str(rng.randint(1, 9))]
    for _ in range(size):
        sign = rng.choice(["+", "*", other])
        term = str(rng.randint(1, 9))
        if rng.random() < 0.3:
            term = f"({term} {rng.choice(['+', '*', other])} {rng.randint(1, 9)})"
        parts += [sign, term]
    return " ".join(parts)


def _jobs(rng: Random, size: int, *, circle: bool) -> dict[str, list[str]]:
    names = rng.sample("abcdefghijklmnop", size)
    jobs = {
        name: sorted(rng.sample(names[:i], min(i, rng.randint(0, 2))))
        for i, name in enumerate(names)
    }
    if circle:
        jobs[names[0]] = [names[-1]]
        jobs[names[-1]] = sorted({*jobs[names[-1]], names[0]})
    return dict(sorted(jobs.items(), key=lambda _: rng.random()))
