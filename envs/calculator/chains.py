"""Chains of operations on whole numbers: each step works on the result of the one before."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from agentgym.envs.calculator.arithmetic import Expression, Operation, Operator, apply

_LARGEST = 9999


@dataclass(frozen=True, slots=True)
class Chain:
    """A first number and what is done to it, one operation after another."""

    start: Fraction
    links: tuple[tuple[Operator, Fraction], ...]

    @property
    def expression(self) -> Expression:
        expression: Expression = self.start
        for operator, operand in self.links:
            expression = Operation(operator, expression, operand)
        return expression


def make_chain(num_operations: int, rng: Random) -> Chain:
    """Operands from 2 to 99 (factors and divisors to 9); every result is whole and positive."""
    value = start = Fraction(rng.randint(2, 99))
    links: list[tuple[Operator, Fraction]] = []
    for _ in range(num_operations):
        operator, choices = rng.choice(_possible_links(int(value)))
        operand = Fraction(rng.choice(choices))
        links.append((operator, operand))
        value = apply(operator, value, operand)
    return Chain(start, tuple(links))


def _possible_links(value: int) -> list[tuple[Operator, Sequence[int]]]:
    """Operators and the operands with which they keep the result whole, positive and small."""
    factors = range(2, 1 + min(9, _LARGEST // value))
    operands: dict[Operator, Sequence[int]] = {
        "+": range(2, 1 + min(99, _LARGEST - value)),
        "-": range(2, min(100, value)),
        "*": factors,
        "/": [divisor for divisor in range(2, 10) if value % divisor == 0],
    }
    return [(operator, choices) for operator, choices in operands.items() if choices]
