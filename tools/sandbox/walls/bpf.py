"""The few words of classic BPF that a system call filter is made of.

A filter is a tree over the call's number with a short list of questions at each leaf. Everything is
laid out in the order it is run, so that jumps only ever skip what is known already and need no
labels.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

_LOAD, _AND, _RETURN, _JUMP = 0x20, 0x54, 0x06, 0x05
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
FULL = 0xFFFFFFFF
INSTRUCTION_BYTES = 8

ALLOW, KILL = 0x7FFF0000, 0x80000000
_ERRNO = 0x00050000


def refuse(errno: int) -> int:
    """The verdict that fails a call with an error; 0 makes it succeed without effect."""
    return _ERRNO | errno


class Question(NamedTuple):
    """One question about an argument, and the verdict where its answer is yes.

    Half an argument is looked at: the low one is all that the kernel takes of an `int`.
    """

    arg: int
    verdict: int
    value: int | None = None
    """What the masked half must be; `None`: any of the mask's bits is set."""
    mask: int = FULL
    high: bool = False


class Rule(NamedTuple):
    """What becomes of a call: the first question answered by yes decides."""

    otherwise: int
    questions: Sequence[Question] = ()


class Span(NamedTuple):
    """Calls from this number on, up to the next span's."""

    first: int
    rule: Rule


def program(arch: int, spans: Sequence[Span], *, end: int) -> bytes:
    """The filter as the kernel takes it, for a little-endian machine.

    Args:
        arch: the one machine whose calls are looked at; those of any other kill the process.
        spans: ordered by number, the first beginning at 0.
        end: numbers from here on kill the process too.
    """
    head = [
        *_one(_LOAD, _ARCH_AT),
        *_one(_IF_EQUAL, arch, yes=1),
        *_one(_RETURN, KILL),
        *_one(_LOAD, _NUMBER_AT),
        *_one(_IF_AT_LEAST, end, no=1),
        *_one(_RETURN, KILL),
    ]
    return b"".join([*head, *_tree(spans)])


def _tree(spans: Sequence[Span]) -> list[bytes]:
    if len(spans) == 1:
        return _leaf(spans[0].rule)
    middle = len(spans) // 2
    left, right = _tree(spans[:middle]), _tree(spans[middle:])
    branch = [*_one(_IF_AT_LEAST, spans[middle].first, no=1), *_one(_JUMP, len(left))]
    return [*branch, *left, *right]


def _leaf(rule: Rule) -> list[bytes]:
    code: list[bytes] = []
    for asked in rule.questions:
        code += _one(_LOAD, _ARGS_AT + 8 * asked.arg + 4 * asked.high)
        if asked.value is None:
            code += _one(_IF_ANY_BIT, asked.mask, no=1)
        else:
            code += _one(_AND, asked.mask) if asked.mask != FULL else []
            code += _one(_IF_EQUAL, asked.value, no=1)
        code += _one(_RETURN, asked.verdict)
    return [*code, *_one(_RETURN, rule.otherwise)]


def _one(code: int, operand: int, *, yes: int = 0, no: int = 0) -> list[bytes]:
    return [struct.pack("<HBBI", code, yes, no, operand)]
