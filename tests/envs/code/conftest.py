"""The sandbox that programs are graded in."""

from collections.abc import AsyncIterator

import pytest_asyncio
from sandbox_kit import open_provider

from agentgym.tools.sandbox.base import SandboxProvider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[SandboxProvider]:
    """One for all tests of a file, on that file's event loop."""
    async with open_provider("bwrap") as provider:
        yield provider
