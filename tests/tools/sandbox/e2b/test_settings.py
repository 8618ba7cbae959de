"""What must be right before a machine of E2B is asked for, and what its failures mean."""

import subprocess
import sys

import e2b
import httpx
import pytest
from e2b_kit import Fault, StandIn, stand_in
from sandbox_kit import needs_a_wall, wall

from agentgym.errors import ConfigError, MissingExtraError, SandboxError, UsageError
from agentgym.tools.sandbox.choosing.choose import choose
from agentgym.tools.sandbox.e2b import E2BProvider
from agentgym.tools.sandbox.e2b.errors import Kind, kind_of
from agentgym.tools.sandbox.e2b.service import Terms
from agentgym.tools.sandbox.settings import SandboxSettings


@pytest.mark.parametrize("key", [None, "", "two words", "line\nbreak", "schl\u00fcssel"])
def test_a_key_that_cannot_be_one_is_refused_at_once(
    key: str | None, monkeypatch: pytest.MonkeyPatch
):
    """One line that says where to get one, before anything is loaded or asked."""
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(UsageError, match="E2B_API_KEY") as caught:
        E2BProvider(api_key=key)

    assert "\n" not in str(caught.value)


def test_the_extra_is_named_where_the_sdk_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "e2b_code_interpreter", None)
    with pytest.raises(MissingExtraError, match=r"agentgym-rl\[e2b\]"):
        E2BProvider(api_key="e2b_1")


def test_the_sdk_is_not_loaded_before_a_machine_is_asked_for():
    """It takes half a second, which runs without it must not pay."""
    code = (
        "import sys\n"
        "from agentgym.tools.sandbox.e2b import E2BProvider\n"
        "E2BProvider(api_key='e2b_1')\n"
        "assert not {'e2b', 'e2b_code_interpreter', 'httpx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_key_that_the_service_refuses_is_the_callers_error(service: StandIn):
    """Repeating it would not help, so it is asked once."""
    provider = E2BProvider(**{**service.settings, "api_key": "e2b_wrong"})
    with pytest.raises(UsageError, match="E2B_API_KEY"):
        await provider.open()

    assert service.count("create") == 1


async def test_a_template_that_is_not_there_is_the_callers_error(service: StandIn):
    provider = E2BProvider(terms=Terms(template="no-such-template"), **service.settings)
    with pytest.raises(UsageError, match="no such template"):
        await provider.open()

    assert service.count("create") == 1


@pytest.mark.slow
async def test_a_service_that_is_not_there_is_infrastructure():
    """No number of tries makes it a verdict on anybody's code."""
    async with stand_in() as service:
        settings = service.settings
    provider = E2BProvider(terms=Terms(attempts=1, request_s=2), **settings)

    with pytest.raises(SandboxError, match="creating a sandbox failed 1 times"):
        await provider.open()


async def test_the_probe_says_why_there_is_no_machine(service: StandIn):
    """Doctor prints it: the reason and the way out."""
    provider = E2BProvider(**{**service.settings, "api_key": "e2b_wrong"})
    report = await provider.probe()

    assert not report.usable
    assert "401" in report.probes[0].reason
    assert report.probes[0].fix


async def test_a_network_that_should_be_closed_is_probed(service: StandIn):
    """The claim rests on a try to leave, not on what was asked for."""
    needs_a_wall()
    provider = E2BProvider(**service.settings)
    report = await provider.probe()
    await provider.aclose()
    names = {probe.name: probe for probe in report.probes}

    assert report.usable
    assert names["network"].ok
    assert names["network"].reason
    assert not service.running


async def test_a_run_that_wants_e2b_gets_it_from_the_environment(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
):
    """Key and addresses as the SDK reads them; the line at the start says what leaves."""
    needs_a_wall()
    monkeypatch.setenv("E2B_API_KEY", service.settings["api_key"])
    monkeypatch.setenv("E2B_API_URL", service.url)
    monkeypatch.setenv("E2B_SANDBOX_URL", service.url)
    choice = await choose(SandboxSettings(backend="e2b", min_level=4))
    sandbox = await choice.provider.open()
    result = await sandbox.run_cell("6 * 7")
    await choice.provider.aclose()

    assert result.value == 42
    assert "e2b (level 4/4)" in choice.line
    assert "leave this machine" in choice.line
    assert not service.running


async def test_a_run_that_wants_e2b_and_cannot_have_it_is_refused(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
):
    """There is no silent step down to a local sandbox."""
    monkeypatch.setenv("E2B_API_KEY", "e2b_wrong")
    monkeypatch.setenv("E2B_API_URL", service.url)
    with pytest.raises(UsageError, match="401"):
        await choose(SandboxSettings(backend="e2b"))


def test_the_sdk_still_has_what_is_relied_upon():
    """Addresses of the service are deprecated; the names of errors decide who is to blame."""
    from e2b.connection_config import ConnectionConfig
    from e2b_code_interpreter import AsyncSandbox, Sandbox

    config = ConnectionConfig(api_key="k", api_url="http://a", sandbox_url="http://b")
    assert config.api_url == "http://a"
    assert config.get_sandbox_url("id", "domain") == "http://b"
    for kind in (AsyncSandbox, Sandbox):
        assert all(hasattr(kind, name) for name in ("create", "kill", "list", "run_code"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (e2b.AuthenticationException("x"), Kind.CALLER),
        (e2b.InvalidArgumentException("x"), Kind.CALLER),
        (e2b.SandboxException("x", status_code=403), Kind.CALLER),
        (e2b.RateLimitException("x"), Kind.BUSY),
        (e2b.ServiceBusyException("x"), Kind.BUSY),
        (e2b.SandboxException("x", status_code=500), Kind.BUSY),
        (e2b.SandboxNotRunningException("x"), Kind.GONE),
        (e2b.SandboxNotFoundException("x"), Kind.GONE),
        (e2b.TimeoutException("x"), Kind.UNCLEAR),
        (e2b.SandboxException("x"), Kind.UNCLEAR),
        (httpx.RemoteProtocolError("x"), Kind.UNCLEAR),
        (httpx.ConnectError("x"), Kind.UNCLEAR),
        (ValueError("no JSON"), Kind.UNCLEAR),
        (None, Kind.UNCLEAR),
    ],
)
def test_what_a_failure_means(error: Exception | None, kind: Kind):
    assert kind_of(error) is kind


@pytest.mark.parametrize("fault", [Fault(status=400), Fault(status=403)])
async def test_a_request_that_is_refused_is_not_repeated(service: StandIn, fault: Fault):
    service.fail("create", fault)
    with pytest.raises(UsageError, match=str(fault.status)):
        await E2BProvider(**service.settings).open()

    assert service.count("create") == 1


@pytest.fixture
async def service():
    async with stand_in(wall()) as service:
        yield service


@pytest.mark.parametrize("wrong", [{"machines": 0}, {"per_second": 0}])
def test_limits_that_let_nothing_through_are_refused(wrong: dict[str, int]):
    with pytest.raises(ConfigError):
        E2BProvider(api_key="e2b_1", **wrong)


@pytest.mark.parametrize("wrong", [{"life_s": 0}, {"silence_s": float("inf")}, {"attempts": 0}])
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, float]):
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        Terms(**wrong)
