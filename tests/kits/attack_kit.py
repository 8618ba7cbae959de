"""Runs attacks in a sandbox and judges them from outside.

As a program it runs them as whoever it is started as, one line of JSON for each: a test starts it
as root, as an ordinary user, and under the restrictions of a container.

An attack is held off if it says so, and nothing of what the host sees speaks against it: decoys
untouched, no secret in what was printed, no process left, limits kept, the sandbox still good, and
nobody but the program blamed. One that ends without a word must end in a way that its row names.
"""

import argparse
import asyncio
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from attack_list import ATTACKS, QUICK, Attack
from attack_watch import Watch, survivors
from bare_kit import BareProvider
from decoy_kit import Decoys

from agentgym.tools.sandbox.base import (
    ExecResult,
    Level,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    Script,
)
from agentgym.tools.sandbox.choosing import choose
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.walls.landlock import LandlockLauncher

FOLDER = Path(__file__).parents[1] / "attacks"
OLD_LANDLOCK = "landlock of Linux 6.7"
LONGEST_S = 10.0
"""A call is stopped well before this, and what lingers on purpose lingers for longer."""


class Verdict(NamedTuple):
    """How one attack went."""

    attack: str
    harms: list[str]
    """What it did, as far as it could be told; empty if it was held off."""
    outcome: str
    blame: str
    seen: dict[str, str]
    refused: dict[str, str]
    seconds: float

    @property
    def held(self) -> bool:
        return not self.harms


def program(attack: str) -> str:
    """Source of an attack, with what all of them share."""
    shared = (FOLDER / "prelude.py").read_text()
    source = (FOLDER / f"{attack}.py").read_text()
    return (
        "import sys, types\n"
        "sys.modules['prelude'] = types.ModuleType('prelude')\n"
        f"exec({shared!r}, sys.modules['prelude'].__dict__)\n"
        f"exec(compile({source!r}, {attack!r}, 'exec'))\n"
    )


class Arena:
    """One back end and the decoys it has to keep attacks away from."""

    def __init__(self, provider: SandboxProvider, decoys: Decoys) -> None:
        self.provider = provider
        self.decoys = decoys
        self._shared: Sandbox | None = None

    async def run(self, attack: Attack) -> Verdict:
        """One attack: in a sandbox of its own, unless it leaves alone where it is."""
        mark = f"atk{os.urandom(5).hex()}"
        known = self.decoys.known() | {
            "attack": attack.name,
            "mark": mark,
            "rendezvous": f"meet-{mark}",
            "uid": os.getuid(),
            "level": int(self.provider.level),
            "walled": self.provider.level > Level.NONE,
        }
        start = time.monotonic()
        sandbox = await self._sandbox(attack)
        duel = Duel(self, sandbox, program(attack.file or attack.name), known)
        try:
            with Watch(mark, active=attack.watched) as watch:
                result = await attack.drive(duel)
            call_s = time.monotonic() - start
            harms = [*duel.harms, *watch.harms(attack.limits), *await self._after(attack, duel)]
        finally:
            if sandbox is not self._shared:
                await sandbox.close()
            left = survivors(mark, wait_s=0.0)
        harms += left
        if harms:
            await self.close()
        _clear_meeting_places(known["rendezvous"])
        if call_s > LONGEST_S:
            harms.append(f"the call took {call_s:.1f} s")
        return self._verdict(attack, result, [*harms, *self.decoys.damage()], call_s)

    async def close(self) -> None:
        """End the sandbox that attacks share."""
        sandbox, self._shared = self._shared, None
        if sandbox is not None:
            await sandbox.close()

    async def _sandbox(self, attack: Attack) -> Sandbox:
        if not attack.shares:
            return await self.provider.open(SandboxSpec(limits=attack.limits))
        if self._shared is None:
            self._shared = await self.provider.open(SandboxSpec(limits=QUICK))
        return self._shared

    async def _after(self, attack: Attack, duel: "Duel") -> list[str]:
        harms = survivors(duel.known["mark"], wait_s=1.0)
        [again] = await duel.sandbox.run_tests("print(6 * 7)", [Script()])
        if not again.ok or again.stdout.strip() != "42":
            harms.append(f"the next call failed: {again.outcome}, {again.evidence} {again.stderr}")
        return harms

    def _verdict(
        self, attack: Attack, result: ExecResult, harms: list[str], seconds: float
    ) -> Verdict:
        said = last_report(result.stdout)
        if said is None and result.outcome not in attack.ends:
            tail = result.stderr[-300:]
            harms.append(f"no report: {result.outcome}, {result.evidence}, {tail}")
        said = said or {"succeeded": False, "seen": {}, "refused": {}}
        if said["succeeded"]:
            harms.append(f"it says so: {said['seen']}")
        if self.decoys.secret in result.stdout + result.stderr:
            harms.append("a secret was printed")
        if result.blame != "code":
            harms.append(f"it was blamed on the machine: {result.outcome}, {result.evidence}")
        for name, text in {"stdout": result.stdout, "stderr": result.stderr}.items():
            if len(text) > 2 * attack.limits.output_bytes:
                harms.append(f"{len(text)} characters of {name} came back")
        return Verdict(
            attack.name,
            harms,
            result.outcome,
            result.blame,
            said["seen"],
            said["refused"],
            round(seconds, 2),
        )


def _clear_meeting_places(name: str) -> None:
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/dev"):
        for path in (Path(place, name), Path(place, f"{name}-meet")):
            path.unlink(missing_ok=True)


class Duel:
    """One attack in one sandbox, for what the host does beside it."""

    def __init__(self, arena: Arena, sandbox: Any, source: str, known: dict[str, Any]) -> None:
        self.arena = arena
        self.sandbox = sandbox
        self.source = source
        self.known = known
        self.harms: list[str] = []

    async def attack(self, sandbox: Any = None, **more: Any) -> ExecResult:
        """Run it; `more` is for it to know."""
        stdin = json.dumps(self.known | more) + "\n"
        results = await (sandbox or self.sandbox).run_tests(self.source, [Script(stdin=stdin)])
        return results[0]

    def check(self, held: bool, harm: str) -> None:
        if not held:
            self.harms.append(harm)


def last_report(stdout: str) -> dict[str, Any] | None:
    """What an attack said of itself."""
    for line in reversed(stdout.splitlines()):
        if line.startswith('{"succeeded"'):
            try:
                return json.loads(line)  # type: ignore[no-any-return]
            except ValueError:
                continue
    return None


async def run_all(
    provider: SandboxProvider,
    attacks: Sequence[Attack],
    *,
    on_verdict: Callable[[Verdict], None],
    at_once: bool = False,
) -> None:
    """Attacks one after the other or all at once; ends the provider and looks what is left."""
    with Decoys() as decoys:

        async def fight(some: Sequence[Attack]) -> None:
            arena = Arena(provider, decoys)
            try:
                for attack in some:
                    on_verdict(await arena.run(attack))
            finally:
                await arena.close()

        try:
            groups = [[attack] for attack in attacks] if at_once else [attacks]
            await asyncio.gather(*map(fight, groups))
        finally:
            await provider.aclose()
    left = os.listdir(tempfile.gettempdir())
    on_verdict(Verdict("z_leftovers", [f"left: {left}"] if left else [], "", "", {}, {}, 0.0))


def backend(name: str) -> SandboxProvider:
    """A provider by the name of its back end, of what starts here.

    Raises:
        LookupError: nothing does; says why.
    """
    if name == "bare":
        return BareProvider()
    if name == OLD_LANDLOCK:
        return LocalProvider(LandlockLauncher(abi=4), warm=0)
    reasons = []
    for launcher in choose.launchers(SandboxSettings(backend=name)):
        failed = [probe for probe in launcher.probes() if not probe.ok]
        if not failed:
            return LocalProvider(launcher, warm=0)
        reasons += [f"{probe.name}: {probe.reason}" for probe in failed]
    raise LookupError(f"{name} does not start here: {'; '.join(reasons) or 'not installed'}")


def own_terminal(stack: ExitStack) -> None:
    """Make a terminal the controlling one, as it is for whoever trains from a shell."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.getsid(0) != os.getpid():
        return
    master, slave = os.openpty()
    stack.callback(os.close, master)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("--attacks", default="", help="names, separated by commas")
    parser.add_argument("--at-once", action="store_true")
    options = parser.parse_args()
    wanted = [a for a in ATTACKS if not options.attacks or a.name in options.attacks.split(",")]
    with ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="agentgym-attacks-")
        stack.callback(subprocess.run, ["rm", "-rf", folder], check=False)
        os.chmod(folder, 0o1777)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        own_terminal(stack)
        os.chdir(folder)
        provider = backend(options.backend)
        asyncio.run(run_all(provider, wanted, on_verdict=_print, at_once=options.at_once))


def _print(verdict: Verdict) -> None:
    print(json.dumps(verdict._asdict()), flush=True)


if __name__ == "__main__":
    main()
