"""`confine_kit.confined` from a small process: to fork one that has loaded all tests takes longer
than the attack.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confine_kit import Decoys, Told, Wall, confined

NAMES = ("user", "outside", "library", "workdir", "file", "book", "stream", "datagram", "abstract")


def confined_thin(
    attack: Callable[[Decoys], Any], decoys: Decoys, wall: Wall | None = None
) -> Told:
    """What a function of a module of tests/kits got behind a wall."""
    places = {name: vars(decoys)[name] for name in NAMES}
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump((attack, places, decoys.process.pid, wall), process.stdin)
    process.stdin.flush()
    told: Told = pickle.load(process.stdout)
    return told


@cache
def _process() -> "subprocess.Popen[bytes]":
    """Ends with whoever started it: its input does."""
    return subprocess.Popen(
        [sys.executable, "-c", "import confine_thin_kit; confine_thin_kit.serve()"],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def serve() -> None:
    """Answer until nobody asks any more."""
    while True:
        try:
            attack, places, pid, wall = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        decoys: Any = SimpleNamespace(**places, process=SimpleNamespace(pid=pid))
        pickle.dump(confined(attack, decoys, wall), sys.stdout.buffer)
        sys.stdout.buffer.flush()
