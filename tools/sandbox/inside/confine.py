"""Walls a child puts around itself, where the launcher could put none around the runner.

The runner stays outside of them, so it must not be the host's root either: it changes its user
before it does anything else, and keeps at most the capability to read what its own user may not.
"""

import base64
import os

from agentgym.tools.sandbox.inside import landlock, seccomp, system, users
from agentgym.tools.sandbox.inside.config import ConfineConfig

_PR_SET_NO_NEW_PRIVS = 38


class Confinement:
    """What was prepared once, in the runner, for all children.

    Raises:
        OSError: this kernel does not offer it.
    """

    def __init__(self, config: ConfineConfig) -> None:
        if config["user"] is not None:
            users.become(config["user"], keep=config["capability"])
        self._filter = base64.b64decode(config["filter"])
        self._rules = landlock.Ruleset(config["abi"])
        self._rules.allow(config["read"], landlock.READ)
        self._rules.allow(config["listed"], landlock.LIST)
        self._rules.allow(config["use"], landlock.USE)
        self._rules.allow(config["write"], landlock.WRITE)
        self._runner, self._group = os.getpid(), os.getpgrp()

    @property
    def fd(self) -> int:
        """Descriptor of the rules, which a child needs until it has entered."""
        return self._rules.fd

    def enter(self) -> None:
        """Close this process in, for good; the last thing before foreign code.

        Raises:
            OSError: the kernel refused.
            RuntimeError: another thread of this process would stay outside.
        """
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("a process with several threads cannot be closed in")
        system.prctl(_PR_SET_NO_NEW_PRIVS, 1)
        self._rules.enclose()
        os.close(self._rules.fd)
        ids = {
            seccomp.OWN_PID: os.getpid(),
            seccomp.RUNNER_PID: self._runner,
            seccomp.RUNNER_GROUP: -self._group,
        }
        seccomp.install(seccomp.with_ids(self._filter, ids))
