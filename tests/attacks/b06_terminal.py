"""Type into the terminal of whoever runs the trainer, or write on it."""

import fcntl
import os

from prelude import D, attempt, report

TIOCSTI, TIOCLINUX = 0x5412, 0x541C


def typed(path):
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    fcntl.ioctl(fd, TIOCSTI, b"x")
    return "typed"


def shown(path):
    fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return os.write(fd, D["mark"].encode())


for path in ("/dev/console", "/dev/tty0", "/dev/ptmx"):
    attempt(f"open {path}", os.open, path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
for path in ("/dev/tty", *D["terminals"]):
    attempt(f"type into {path}", typed, path)
    attempt(f"write on {path}", shown, path)
for fd in range(3):
    attempt(f"type into fd {fd}", fcntl.ioctl, fd, TIOCSTI, b"x")
    attempt(f"paste into fd {fd}", fcntl.ioctl, fd, TIOCLINUX, b"\x03")
report()
