"""Every back end that starts here, for the contract that all of them keep."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sandbox_kit import BACKENDS, open_provider

from agentgym.tools.sandbox.base import Sandbox, SandboxProvider

PARAMS = [
    backend if backend in ("bwrap", "landlock") else pytest.param(backend, marks=pytest.mark.slow)
    for backend in BACKENDS
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PARAMS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    async with open_provider(request.param) as provider:
        yield provider


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    sandbox = await provider.open()
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    """For tests that leave nothing behind."""
    sandbox = await provider.open()
    yield sandbox
    await sandbox.close()
