"""What Docker leaves to a container is emulated: namespaces are refused, the fallback is not."""

import json
import os
import re
import subprocess
import sys

import dockerlike_kit
import pytest

from agentgym.tools.sandbox.walls import uids

KIT = dockerlike_kit.__file__
IS_ROOT = os.geteuid() == 0
_REPORT = """
import asyncio, json, sys
from agentgym.tools.sandbox.choosing.choose import choose
from agentgym.tools.sandbox.settings import SandboxSettings

async def report():
    choice = await choose(SandboxSettings())
    sandbox = await choice.provider.open()
    said = await sandbox.run_cell("import os; os.getuid()")
    await sandbox.close()
    await choice.provider.aclose()
    print(json.dumps([choice.report.backend, choice.report.level, said.value, choice.line]))

asyncio.run(report())
"""


def enclosed(*command: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, KIT, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ("unshare", "--user", "true"),
        ("unshare", "--net", "true"),
        ("unshare", "--mount", "true"),
        ("mount", "-t", "tmpfs", "none", "/mnt"),
        ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"),
    ],
    ids=" ".join,
)
def test_namespaces_and_mounts_are_refused(command: tuple[str, ...]):
    """Else tests under it would show nothing about containers."""
    told = enclosed(*command)

    assert told.returncode != 0
    assert re.search("permi|superuser", told.stderr, re.IGNORECASE)


@pytest.mark.skipif(not IS_ROOT, reason="only root has capabilities to lose")
def test_root_keeps_what_docker_leaves_it():
    """No more, and no less."""
    told = enclosed("grep", "CapEff", "/proc/self/status")
    kept = int(told.stdout.split()[1], 16)

    assert kept & ~sum(1 << n for n in dockerlike_kit.KEPT.values()) == 0
    assert kept >> dockerlike_kit.KEPT["CAP_SETUID"] & 1


@pytest.mark.slow
def test_the_fallback_is_chosen_and_works():
    """The line says why it is not the better one, and what would make it that."""
    told = enclosed(sys.executable, "-c", _REPORT)

    assert told.returncode == 0, told.stderr
    backend, level, uid, line = json.loads(told.stdout.splitlines()[-1])
    assert (backend, level) == ("landlock", 2)
    assert uid in uids.available().free if IS_ROOT else uid == os.getuid()
    assert "For level 3" in line
