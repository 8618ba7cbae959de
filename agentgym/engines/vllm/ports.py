"""Addresses of this machine."""

import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from agentgym.addresses import is_loopback
from agentgym.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = "127.0.0.1"


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
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"cannot listen on --host {host}: {error.strerror}") from error
    try:
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; give another --port"
        ) from error


def place_of(url: str) -> str:
    """A name for a server that it has on every machine, however its URL is written.

    What loopback leads to is another server on each.

    Raises:
        ConfigError: it is no URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise ConfigError(f"{url!r} is no URL of a server: {error}") from error
    is_local = is_loopback(host)
    address = f"{_LOOPBACK if is_local else host}:{port}"
    place = f"{parts.scheme}://{address}{parts.path.rstrip('/')}"
    return f"{place} of {socket.gethostname()}" if is_local else place


def address_towards(urls: Sequence[str]) -> str:
    """By which the servers at `urls` reach this machine: loopback only if all of them are on it."""
    found = [source_address(str(urlsplit(url).hostname)) for url in urls]
    return next((address for address in found if not is_loopback(address)), found[0])


def source_address(host: str) -> str:
    """Of what is sent to a host, by this machine's routes; nothing is sent.

    Raises:
        ConfigError: there is no such host, or no way to it.
    """
    try:
        family, kind, *_, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"there is no way from this machine to {host}: {error}") from error
