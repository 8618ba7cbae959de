"""Ids of processes."""

import os
import subprocess
import sys

from agentgym.pids import started


def test_one_that_runs_has_a_start_and_one_that_ended_has_none():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        since = started(process.pid)
        assert int(since) >= int(started(os.getpid()))
    finally:
        process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert started(process.pid) == "", "a zombie waits to be asked about"
    process.communicate()
    assert started(process.pid) == ""
