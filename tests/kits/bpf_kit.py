"""Runs a system call filter as the kernel would, for a machine that this need not be."""

import struct
from collections.abc import Sequence
from functools import cache

ALLOWED, KILLED = "allowed", "killed"
ARCHS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}


def outcome(code: bytes, arch: int, number: int, arguments: Sequence[int] = ()) -> str | int:
    """`ALLOWED`, `KILLED`, or the errno that the call fails with (0: succeeds without effect)."""
    words = [argument & (2**64 - 1) for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *words)
    return _meaning(_run(code, data))


def _run(code: bytes, data: bytes) -> int:
    instructions = _decode(code)
    accumulator, at = 0, 0
    while True:
        kind, yes, no, operand = instructions[at]
        at += 1
        match kind:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x05:
                at += operand
            case 0x15:
                at += yes if accumulator == operand else no
            case 0x35:
                at += yes if accumulator >= operand else no
            case 0x45:
                at += yes if accumulator & operand else no
            case 0x06:
                return operand
            case _:
                raise ValueError(f"instruction {kind:#x} is not among those that are used")


@cache
def _decode(code: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<HBBI", code))


def _meaning(verdict: int) -> str | int:
    if verdict == 0x7FFF0000:
        return ALLOWED
    if verdict == 0x80000000:
        return KILLED
    assert verdict >> 16 == 5, hex(verdict)
    return verdict & 0xFFFF
