"""Addresses of HTTP servers, without asking anybody about them."""

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    Args:
        host: an address, without brackets, or a name; of all names `localhost` alone is known.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_loopback


def http_url(host: str, port: int) -> str:
    """Of a server, by its address or name."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
