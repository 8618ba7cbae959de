"""Use more memory than allowed in one process."""

from prelude import MIB, report

blocks = []
try:
    for _ in range(15):
        blocks.append(bytearray(b"x") * (25 * MIB))
except MemoryError:
    size = 25 * len(blocks)
    del blocks
    report(succeeded=False, mb=size)
else:
    report(succeeded=True, mb=375)
