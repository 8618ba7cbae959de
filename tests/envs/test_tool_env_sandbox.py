"""A sandbox per episode: opened at first use, closed on every path, told in the record."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from counting_kit import Counting
from local_kit import descendants

from agentgym.envs import Episode, Task, TaskSet, ToolEnv
from agentgym.errors import ConfigError, EnvError, SandboxError
from agentgym.messages import assistant
from agentgym.tools import ToolContext, tool
from agentgym.tools.python import python
from agentgym.tools.sandbox.base import (
    Sandbox,
    SandboxSpec,
)
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.shell import shell

RUN = assistant("", ("python", {"code": "6 * 7"}))


class Computing(ToolEnv):
    """Asks for something to be computed; a file lies ready."""

    tools = (python, shell)
    sandbox = SandboxSpec(limits=Limits(cpu_s=1.0))

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet(lambda index: Task(id=str(index), data={"text": "ready"}), 4)

    def prompt(self, task: Task) -> str:
        return "6 * 7?"

    async def prepare_sandbox(self, sandbox: Sandbox, task: Task) -> None:
        await sandbox.write_file("given.txt", task["text"].encode())

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(episode.answer == "42")}


def _env(kind: type[Computing] = Computing, **how: Any) -> tuple[Computing, Counting]:
    env, counting = kind(), Counting(**how)
    env.sandbox_provider = counting
    return env, counting


async def test_an_episode_without_code_opens_none() -> None:
    """Most trajectories of most envs never need one."""
    env, counting = _env()
    await env.areset(seed=0)
    _, _, _, _, info = await env.astep("42")
    await env.aclose()

    assert counting.opened == []
    assert "report" not in info


async def test_an_episode_has_one_and_it_is_told() -> None:
    """Names, files and the level of isolation, for the record."""
    env, counting = _env()
    await env.areset(seed=0)
    observation, *_, info = await env.astep(RUN)
    assert observation[0].content == "42"
    assert info["report"] == {"sandbox": {"backend": counting.backend, "level": counting.level}}
    observation, *_ = await env.astep(assistant("", ("shell", {"command": "cat given.txt"})))
    assert observation[0].content == "ready"
    *_, info = await env.astep("42")
    assert info["report"]["sandbox"]["level"] == counting.level
    assert counting.num_open == len(counting.opened) == 1

    await env.aclose()
    await env.aclose()
    assert counting.num_open == 0


async def test_the_next_episode_has_a_new_one() -> None:
    """Nothing of a trajectory is seen by another one."""
    env, counting = _env()
    for _ in range(2):
        await env.areset(seed=0)
        seen, *_ = await env.astep(assistant("", ("python", {"code": "'x' in dir()"})))
        await env.astep(assistant("", ("python", {"code": "x = 1"})))
        assert seen[0].content == "False"
        assert counting.num_open == 1
    await env.aclose()

    assert [sandbox.closed for sandbox in counting.opened] == [True, True]


def test_the_sync_side_closes_too() -> None:
    """Users of Gymnasium's own API know no `aclose`."""
    env, counting = _env()
    env.reset(seed=0)
    assert env.step(RUN)[0][0].content == "42"
    assert counting.num_open == 1

    env.close()
    assert counting.num_open == 0


class Forgetful(Computing):
    """Its author did not call `super().aclose()`, and fails besides."""

    async def aclose(self) -> None:
        raise ValueError("no")


class ForgetfulSync(Computing):
    def close(self) -> None:
        raise ValueError("no")


@pytest.mark.parametrize("kind", [Forgetful, ForgetfulSync])
async def test_an_authors_own_close_cannot_leave_it_open(kind: type[Computing]) -> None:
    """Whatever it does or forgets."""
    env, counting = _env(kind)
    await env.areset(seed=0)
    await env.astep(RUN)
    with pytest.raises(ValueError, match="no"):
        await env.aclose()

    assert counting.num_open == 0


async def test_a_sandbox_that_is_not_to_be_had_fails_the_trajectory() -> None:
    """It is nothing the model could put right."""
    env, _ = _env(fails=1)
    await env.areset(seed=0)
    with pytest.raises(SandboxError, match="no sandboxes today"):
        await env.astep(RUN)
    await env.aclose()


async def test_a_sandbox_that_dies_fails_the_trajectory() -> None:
    """And is closed all the same."""
    env, counting = _env()
    await env.areset(seed=0)
    await env.astep(RUN)
    counting.opened[0].dead = True
    with pytest.raises(SandboxError, match="gone"):
        await env.astep(RUN)
    await env.aclose()

    assert counting.num_open == 0


class Unprepared(Computing):
    async def prepare_sandbox(self, sandbox: Sandbox, task: Task) -> None:
        raise OSError("no such template")


async def test_a_sandbox_that_cannot_be_prepared_is_closed() -> None:
    """Nobody ever gets it, so nobody else could."""
    env, counting = _env(Unprepared)
    await env.areset(seed=0)
    with pytest.raises(EnvError, match="prepare_sandbox: OSError: no such template"):
        await env.astep(RUN)
    await env.aclose()

    assert len(counting.opened) == 1
    assert counting.num_open == 0


async def test_closing_while_it_opens_leaves_none() -> None:
    """A trajectory may be cancelled at any time."""
    env, counting = _env(delay_s=0.05)
    await env.areset(seed=0)
    step = asyncio.create_task(env.astep(RUN))
    await asyncio.sleep(0.02)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    await env.aclose()
    await asyncio.sleep(0.1)

    assert counting.num_open == 0


async def test_closing_waits_for_what_a_cancelled_call_still_ends() -> None:
    """No process is there any more when `aclose` has returned, not only soon after."""
    before = descendants()
    env, _ = _env()
    await env.areset(seed=0)
    code = "import subprocess; subprocess.Popen(['sleep', '60'])\nwhile True: pass"
    await env.astep(RUN)
    step = asyncio.create_task(env.astep(assistant("", ("python", {"code": code}))))
    await asyncio.sleep(0.2)
    assert len(descendants() - before) > 1
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    await env.aclose()

    assert descendants() == before


async def test_a_cancellation_does_not_cut_closing_short() -> None:
    """It is raised once the sandbox is closed."""
    env, counting = _env()
    await env.areset(seed=0)
    await env.astep(RUN)
    closing = asyncio.create_task(env.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert counting.num_open == 0


async def test_tools_at_the_same_time_share_one() -> None:
    """Whoever asks while it is being opened waits for the same one."""

    @tool
    async def where(context: ToolContext) -> str:
        """Which sandbox."""
        return (await context.sandbox.get()).id

    env, counting = _env(delay_s=0.05)
    env.tools = (where,)
    await env.areset(seed=0)
    observation, *_ = await env.astep(assistant("", *[("where", {})] * 4))
    await env.aclose()

    assert len(counting.opened) == 1
    assert {message.content for message in observation} == {counting.opened[0].id}


async def test_scoring_finds_what_the_tools_left() -> None:
    """Also after the last turn; an episode the loop cuts is scored as well."""

    class Reading(Computing):
        async def score(self, episode: Episode) -> dict[str, float | None]:  # type: ignore[override]
            sandbox = await episode.sandbox.get()
            return {"file": float(await sandbox.read_file("made.txt") == b"42\n")}

    env, counting = _env(Reading)
    await env.areset(seed=0)
    await env.astep(assistant("", ("shell", {"command": "echo 42 > made.txt"})))
    assert await env.acut() == {"file": 1.0}
    await env.aclose()

    assert counting.num_open == 0


async def test_a_handle_on_another_loop_still_closes() -> None:
    """Sync callers and the event loop may take turns."""
    counting = Counting()
    handle = LazySandbox(replace(SandboxSpec()), provider=counting)
    await asyncio.to_thread(lambda: asyncio.run(handle.get()))  # type: ignore[arg-type]
    assert counting.num_open == 1
    assert (await (await handle.get()).run_cell("1")).shown == "1"
    await handle.aclose()

    assert counting.num_open == 0


def test_a_sandbox_that_is_no_spec_is_refused() -> None:
    """Before anything is loaded, in one line that names the class."""
    wrong = type("Wrong", (ToolEnv,), {"sandbox": {"limits": 3}})

    with pytest.raises(ConfigError, match=r"Wrong.sandbox must be a SandboxSpec"):
        wrong().sandbox_specs()
