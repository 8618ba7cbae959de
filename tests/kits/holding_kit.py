"""A process that holds busy sandboxes until something happens to it; run as a script.

Prints one JSON line: the pids of everything it has started, and the folders.
"""

import asyncio
import json
import os
import sys

from processes_kit import bwrap_provider, descendants, name

from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.walls.landlock import LandlockLauncher

BUSY = """
import os, subprocess, time
subprocess.Popen(["sleep", "600"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


async def hold(backend: str) -> None:
    """Three sandboxes in the middle of a cell, and warm ones."""
    provider = bwrap_provider(warm=2) if backend == "bwrap" else LocalProvider(LandlockLauncher())
    sandboxes = [await provider.open() for _ in range(3)]
    calls = [asyncio.create_task(sandbox.run_cell(BUSY)) for sandbox in sandboxes]
    pids = await _settled()
    print(json.dumps({"pids": pids}), flush=True)
    await asyncio.gather(*calls)


async def _settled() -> list[int]:
    """Everything below this process, once code runs and nothing comes or goes."""
    before: list[int] = []
    while True:
        pids = [process.pid for process in descendants(os.getpid())]
        if pids == before and "sleep" in map(name, pids):
            return pids
        before = pids
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1]))
