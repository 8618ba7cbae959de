"""Ports that nobody listens on."""

import os
import socket

from agentgym.errors import ConfigError


def free_port(host: str = "127.0.0.1") -> int:
    """One that is free now; another process may take it before it is used."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def refuse_taken_port(host: str, port: int) -> None:
    """Hold an address against what is in use.

    Raises:
        ConfigError: somebody listens there, or this machine has no such address.
    """
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; give another --port"
        ) from error
