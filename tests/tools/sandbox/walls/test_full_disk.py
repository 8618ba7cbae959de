"""A disk that is full is the machine's fault, unless it is the program that has filled it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Script
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.sandbox.walls.landlock import LandlockLauncher

SIZE_MB = 24
LIMITS = Limits(disk_mb=8, file_mb=8)
FILLS = """
import os
for size in (4 * 2**20, 2**20, 2**16):
    try:
        for n in range(1000):
            fd = os.open(f"{size}-{n}", os.O_RDWR | os.O_CREAT)
            os.posix_fallocate(fd, 0, size)
            os.close(fd)
    except OSError:
        pass
os._exit(1)
"""
WRITES = "open('a', 'wb').write(b'x' * 6 * 2**20)"


async def told(program: str, *, others_mb: int) -> str:
    """Who is to blame for what comes of it, where others have written so much."""
    provider = LocalProvider(LandlockLauncher(), warm=0)
    sandbox = await provider.open()
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, others_mb * 2**20)
        try:
            [result] = await sandbox.run_tests(program, [Script()], limits=LIMITS)
        except SandboxError:
            return "infra"
        finally:
            await provider.aclose()
    return "nobody" if result.ok else result.blame


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "others_mb", "blame"), [("FILLS", 1, "code"), ("WRITES", SIZE_MB - 4, "infra")]
)
def test_who_has_filled_it(folder: Path, program: str, others_mb: int, blame: str) -> None:
    """On a small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = f"mount -t tmpfs -o size={SIZE_MB}m,mode=1777 none {folder}"
    this = [sys.executable, __file__, program, str(others_mb)]
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *this],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no disk can be mounted here: {run.stderr}")

    assert run.stdout.strip() == blame, run.stderr


if __name__ == "__main__":
    print(asyncio.run(told(globals()[sys.argv[1]], others_mb=int(sys.argv[2]))))
