"""Fill a disk where whoever measures it does not look: deleted, deep, unreadable, mapped."""

import mmap
import os

from prelude import MIB, D, report

ENOUGH = 300
block = b"x" * MIB
total = 0
number = 0


def fill(flags, megabytes=15):
    """A file of that size, open."""
    global number, total
    number += 1
    fd = os.open(f"file{number}", os.O_CREAT | os.O_RDWR | flags, 0o600)
    for _ in range(megabytes):
        total += os.write(fd, block) // MIB
    return fd


def deleted():
    fill(0)
    os.unlink(f"file{number}")


def nameless():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    global total
    for _ in range(15):
        total += os.write(fd, block) // MIB


def mapped():
    fd = fill(0)
    keep.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    os.unlink(f"file{number}")
    os.close(fd)


def deep():
    for _ in range(60):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
    for _ in range(30):
        os.close(fill(0))


def unreadable():
    os.mkdir("closed", 0o300)
    os.chdir("closed")
    for _ in range(30):
        os.close(fill(0))


keep = []
os.chdir(os.environ["HOME"])
way = {"deleted": deleted, "nameless": nameless, "mapped": mapped, "deep": deep,
       "unreadable": unreadable}[D["way"]]  # fmt: skip
problem = ""
try:
    while total < ENOUGH and number < 40:
        way()
except (OSError, ValueError) as error:
    problem = str(error)
report(succeeded=total >= ENOUGH, mb=total, problem=problem)
