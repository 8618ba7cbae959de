"""Ways to ask for the same chain of operations: a formula, instructions, or a little story."""

from random import Random

from agentgym.envs.calculator.arithmetic import Operator, to_decimal, to_text
from agentgym.envs.calculator.chains import Chain

_FORMULA = ("What is {}?", "Compute {}.", "Calculate {}.")
_INSTRUCTION: dict[Operator, str] = {
    "+": "Add {}.",
    "-": "Subtract {}.",
    "*": "Multiply by {}.",
    "/": "Divide by {}.",
}
_EVENTS: dict[Operator, tuple[str, ...]] = {
    "+": ("{name} gets {n} more.", "{name} buys {n} more."),
    "-": ("{name} gives away {n}.", "{name} loses {n}."),
    "*": ("{name} then has {n} times as many.",),
    "/": ("{name} keeps one of {n} equal parts.",),
}
_NAMES = ("Mia", "Tom", "Ana")
_THINGS = ("apples", "coins", "books")


def ask(chain: Chain, rng: Random) -> str:
    """The question in words or as a formula."""
    return rng.choice((_formula, _instructions, _story))(chain, rng)


def _formula(chain: Chain, rng: Random) -> str:
    return rng.choice(_FORMULA).format(to_text(chain.expression))


def _instructions(chain: Chain, _: Random) -> str:
    parts = [f"Start with {to_decimal(chain.start)}."]
    parts += [_INSTRUCTION[op].format(to_decimal(operand)) for op, operand in chain.links]
    return " ".join([*parts, "What is the result?"])


def _story(chain: Chain, rng: Random) -> str:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    parts = [f"{name} has {to_decimal(chain.start)} {things}."]
    for operator, operand in chain.links:
        event = rng.choice(_EVENTS[operator])
        parts.append(event.format(name=name, n=to_decimal(operand)))
    return " ".join([*parts, f"How many {things} does {name} have now?"])
