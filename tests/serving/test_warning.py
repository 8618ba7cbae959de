"""Who listens to others is told that there is no login."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web

from agentgym.commands.serve_env import ServeEnvConfig, _serve


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_an_open_address_is_said_to_be_open(
    host: str, is_open: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """On loopback there is nothing to warn of."""
    settings = ServeEnvConfig(env="calculator", host=host, port=0)
    serving = asyncio.create_task(_serve(web.Application(), settings))
    said = ""
    async with asyncio.timeout(30):
        while not said:
            await asyncio.sleep(0.01)
            said = capsys.readouterr().out
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving

    assert said.startswith("serving calculator at http://")
    assert ("no login" in said) is is_open
