"""Providers of every back end that starts here, for tests that all of them must pass."""

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache

import pytest
from e2b_kit import stand_in

from agentgym.tools.sandbox.base import SandboxProvider
from agentgym.tools.sandbox.e2b import E2BProvider
from agentgym.tools.sandbox.e2b.service import Terms
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.walls.launch import Launcher

BACKENDS = ("bwrap", "landlock", "unsafe", "e2b")


def needs_a_wall() -> None:
    """Skip a test in which the code of a stand-in's machine would do something to this one."""
    if wall() is None:
        pytest.skip("bubblewrap does not start here")


@asynccontextmanager
async def open_provider(backend: str) -> AsyncIterator[SandboxProvider]:
    """A provider of a back end; skips, with the reason, where it does not start."""
    if backend == "e2b":
        async with e2b_provider() as provider:
            yield provider
        return
    provider = LocalProvider(launcher(backend))
    try:
        yield provider
    finally:
        await provider.aclose()


@asynccontextmanager
async def e2b_provider(terms: Terms | None = None) -> AsyncIterator[E2BProvider]:
    """Of the real service where this process has a key for it, else of the stand-in."""
    if has_real_key():
        provider = E2BProvider(terms=terms)
        try:
            yield provider
        finally:
            await provider.aclose()
        return
    async with stand_in(wall()) as service:
        terms = terms or Terms(allow_internet_access=wall() is None)
        provider = E2BProvider(terms=terms, per_second=100, **service.settings)
        try:
            yield provider
        finally:
            await provider.aclose()


def has_real_key() -> bool:
    return bool(os.environ.get("E2B_API_KEY")) and not os.environ.get("E2B_API_URL")


@cache
def launcher(backend: str) -> Launcher:
    """The first of a back end that starts here."""
    tried: list[str] = []
    for candidate in _LAUNCHERS[backend]():
        probes = candidate.probes()
        if all(probe.ok for probe in probes):
            return candidate
        tried += [f"{probe.name}: {probe.reason}" for probe in probes if not probe.ok]
    pytest.skip(f"{backend} does not start here: {'; '.join(tried) or 'no launcher'}")


@cache
def wall() -> Launcher | None:
    """What the stand-in's machines are put behind; nothing, where bubblewrap does not start."""
    found = [c for c in _LAUNCHERS["bwrap"]() if all(probe.ok for probe in c.probes())]
    return found[0] if found else None


def _bwrap() -> Iterable[Launcher]:
    from agentgym.tools.sandbox.walls.bwrap_find import launchers

    return launchers()


def _landlock() -> Iterable[Launcher]:
    from agentgym.tools.sandbox.walls.landlock import LandlockLauncher

    return [LandlockLauncher()]


def _unsafe() -> Iterable[Launcher]:
    from agentgym.tools.sandbox.walls.unsafe import UnsafeLauncher

    return [UnsafeLauncher()]


_LAUNCHERS: dict[str, Callable[[], Iterable[Launcher]]] = {
    "bwrap": _bwrap,
    "landlock": _landlock,
    "unsafe": _unsafe,
}
