"""Which addresses only this machine reaches, and how they are written."""

import pytest

from agentgym.addresses import http_url, is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("LocalHost", True),
        ("::1", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("127.0.0.1.page.example", False),
        ("localhost.page.example", False),
        ("", False),
    ],
)
def test_loopback_is_known_in_every_form(host: str, expected: bool) -> None:
    """A name is not looked up: whoever owns it may let it point here."""
    assert is_loopback(host) is expected


def test_the_colons_of_an_address_are_not_those_of_the_port() -> None:
    assert http_url("::1", 80) == "http://[::1]:80"
    assert http_url("gpu-7", 80) == "http://gpu-7:80"
