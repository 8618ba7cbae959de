"""One provider for a process: chosen once, whoever asks, and said once."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from agentgym.errors import UsageError
from agentgym.tools.sandbox import shared
from agentgym.tools.sandbox.base import SandboxProvider
from agentgym.tools.sandbox.settings import SandboxSettings

UNSAFE = SandboxSettings(backend="unsafe-subprocess")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    shared.configure(SandboxSettings())
    shared.close_shared()


async def _asked_at_once(num: int) -> list[SandboxProvider]:
    return await asyncio.gather(*(shared.shared_provider() for _ in range(num)))


def test_everyone_gets_the_same_one(capfd: pytest.CaptureFixture[str]) -> None:
    """On any event loop; what was chosen is told to people once."""
    shared.configure(UNSAFE)
    found = [*asyncio.run(_asked_at_once(20)), *asyncio.run(_asked_at_once(20))]

    assert len(set(map(id, found))) == 1
    assert shared.choose_now().provider is found[0]
    assert capfd.readouterr().err.count("sandbox: unsafe-subprocess (level 1/4)") == 1


def test_nothing_is_tried_before_it_is_needed() -> None:
    """A run without code starts no process and says nothing."""
    shared.configure(UNSAFE)

    assert shared.shared_report() == {}


def test_what_was_chosen_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """For the run's metadata; a quiet process does not print it."""
    shared.configure(UNSAFE, quiet=True)
    shared.choose_now()
    report = shared.shared_report()

    assert (report["backend"], report["level"]) == ("unsafe-subprocess", 1)
    assert "keys" in report["not_covered"][0]
    assert "sandbox:" not in capfd.readouterr().err


def test_a_refusal_holds_for_everyone() -> None:
    """It is not tried again for each of a thousand trajectories."""
    shared.configure(SandboxSettings(backend="unsafe-subprocess", min_level=3))
    with pytest.raises(UsageError) as first:
        shared.choose_now()
    with pytest.raises(UsageError) as second:
        asyncio.run(_asked_at_once(1))

    assert second.value is first.value
    assert shared.shared_report() == {}


def test_other_settings_close_what_there_was() -> None:
    """Sandboxes of the old kind do not go on beside the new one."""

    async def process() -> int:
        sandbox = await (await shared.shared_provider()).open()
        result = await sandbox.run_cell("import os\nos.getppid()")
        return int(result.value)

    shared.configure(UNSAFE)
    runner = asyncio.run(process())
    before = os.path.exists(f"/proc/{runner}")
    shared.configure(SandboxSettings(backend="unsafe-subprocess", slots=1))

    assert before
    assert not os.path.exists(f"/proc/{runner}")
    assert shared.shared_report() == {}
