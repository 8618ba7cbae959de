"""`agentgym serve-env`: an environment for clients that speak the OpenEnv protocol."""

import asyncio
import inspect
import signal
from typing import Any

from aiohttp import web
from pydantic import Field

from agentgym import envs
from agentgym.addresses import http_url, is_loopback
from agentgym.commands import Command
from agentgym.commands.sandboxes import settle_sandbox
from agentgym.commands.sections import PluginSection, SandboxSection
from agentgym.envs.base import Env
from agentgym.errors import ConfigError, boundary
from agentgym.serving.app import ServingLimits, make_app


class ServeEnvConfig(SandboxSection, PluginSection):
    """Serve an environment over HTTP and WebSocket (OpenEnv protocol)."""

    arguments = ("env",)

    env: str = Field(min_length=1)
    """Name or id of a registered environment; see `agentgym envs`."""
    env_args: dict[str, Any] = {}
    """Arguments of the environment, such as '{"levels": [1, 2]}'."""
    host: str = "127.0.0.1"
    """Address to listen on; others than this machine reach it only if told to."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 is any that is free."""
    max_sessions: int = Field(64, ge=1)
    """Episodes at once; each has an environment of its own."""
    timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds for a reset or step."""


def serve_env(settings: ServeEnvConfig) -> None:
    """Serve until interrupted."""
    settings.load_plugins()
    with boundary(ConfigError, f"env {settings.env!r} cannot be built", also=(SystemExit,)):
        probe = envs.make(settings.env, **settings.env_args)
        inner = probe.unwrapped
        description = (inspect.getdoc(type(inner)) or "").split("\n")[0]
        specs = inner.sandbox_specs() if isinstance(inner, Env) else ()
        probe.close()
    settle_sandbox(settings, specs)
    app = make_app(
        lambda: envs.make(settings.env, **settings.env_args),
        name=settings.env,
        description=description,
        limits=ServingLimits(max_sessions=settings.max_sessions, timeout_s=settings.timeout),
    )
    asyncio.run(_serve(app, settings))


async def _serve(app: web.Application, settings: ServeEnvConfig) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        await _listen(runner, settings)
        host, port = runner.addresses[0][:2]
        print(f"serving {settings.env} at {http_url(host, port)}", flush=True)
        if not is_loopback(host):
            print("whoever reaches this address can play: there is no login", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, settings: ServeEnvConfig) -> None:
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
            "give another --port"
        ) from error


COMMAND = Command(ServeEnvConfig, serve_env)
