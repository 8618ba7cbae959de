"""TextArena's games, in their processes."""

import asyncio
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textarena", reason="needs the extra 'textarena'")

from agentgym import envs
from agentgym.envs.adapters.process import HostError, HostProcess
from agentgym.envs.adapters.textarena import TextArenaEnv, known_names
from agentgym.errors import ConfigError, EnvError, NotRegisteredError
from agentgym.threads import in_thread


def pid_of(env: TextArenaEnv) -> int:
    pid = env._host.pid
    assert pid is not None
    return pid


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def guess(env: envs.Env, index: int) -> tuple[list[str], float]:
    """Plays GuessTheNumber by bisection; what was said, and the reward."""
    observation, _ = env.reset(options={"task": env.tasks()[index]})
    said, low, high = [observation[0].content], 1, 20
    while True:
        middle = (low + high) // 2
        observation, reward, terminated, _, info = env.step(str(middle))
        if terminated:
            return [*said, info["report"]["text"]], reward
        said.append(observation[0].content)
        low, high = (middle + 1, high) if "higher" in said[-1] else (low, middle - 1)


def test_a_game_is_what_its_seed_says() -> None:
    """In a used process, in a new one, and whatever the generator of this process does."""
    one, two = envs.make("textarena/GuessTheNumber-v0"), envs.make("textarena/GuessTheNumber-v0")
    random.seed(5)
    before = random.getstate()
    games = [guess(one, index) for index in range(4)]
    again = [guess(two, index) for index in reversed(range(4))][::-1]
    one.close()
    two.close()

    assert games == again
    assert random.getstate() == before
    assert len({len(said) for said, _ in games}) > 1
    assert {reward for _, reward in games} == {1.0}


def test_nothing_is_left_when_an_env_is_closed() -> None:
    """Twice is as good as once."""
    env = TextArenaEnv("GuessTheNumber-v0")
    env.reset(seed=0)
    pid = pid_of(env)
    env.close()
    env.close()

    assert is_gone(pid)


async def test_nothing_is_left_when_an_env_is_closed_while_its_game_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reset that was given up may still be starting the process when the env is closed."""
    env, started = TextArenaEnv("GuessTheNumber-v0"), []

    class LatePopen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(0.2)
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", LatePopen)
    reset = asyncio.create_task(env.areset(seed=0))
    await asyncio.sleep(0.1)
    reset.cancel()
    await asyncio.wait({reset})
    await env.aclose()
    await asyncio.sleep(0.5)

    assert [is_gone(pid) for pid in started] == [True]


async def test_games_side_by_side_do_not_meet() -> None:
    """Interleaved moves of two games give what each gives alone."""
    kinds = [TextArenaEnv("Blackjack-v0") for _ in range(2)]

    async def play(env: TextArenaEnv, index: int) -> list[str]:
        observation, _ = await env.areset(options={"task": env.tasks()[index]})
        said = [observation[0].content]
        for _ in range(4):
            observation, *_ = await env.astep("[stand]")
            said += [message.content for message in observation]
            await asyncio.sleep(0)
        return said

    together = await asyncio.gather(play(kinds[0], 1), play(kinds[1], 2))
    alone = [await play(kinds[0], 1), await play(kinds[0], 2)]
    for env in kinds:
        await env.aclose()

    assert together == alone
    assert alone[0] != alone[1]


async def test_a_game_that_hangs_is_ended() -> None:
    """The step fails in time, and the env can be reset."""
    env = TextArenaEnv("GuessTheNumber-v0", step_timeout_s=0.3)
    await env.areset(seed=0)
    pid = pid_of(env)
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(EnvError, match=r"step took more than 0\.3 s"):
        await env.astep("5")
    assert time.monotonic() - started < 5
    assert is_gone(pid)
    await env.areset(seed=0)
    await env.aclose()


async def test_a_game_that_dies_fails_its_own_episode() -> None:
    """With a line that says where."""
    env = TextArenaEnv("GuessTheNumber-v0")
    await env.areset(seed=0)
    os.kill(pid_of(env), signal.SIGKILL)

    with pytest.raises(EnvError, match=r"textarena: .*step"):
        await env.astep("5")
    await env.aclose()


async def test_a_game_that_died_between_moves_is_not_begun_anew() -> None:
    """A new process knows nothing of the game: its answer would be another game's."""
    env = TextArenaEnv("GuessTheNumber-v0")
    await env.areset(seed=0)
    pid = pid_of(env)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(EnvError, match=r"textarena: .*step: it had ended before"):
        await env.astep("5")
    await env.aclose()


@pytest.mark.slow
async def test_closing_ends_a_call_that_is_waiting() -> None:
    """A loop that gave up on a step need not wait for it."""
    env = TextArenaEnv("GuessTheNumber-v0", step_timeout_s=60)
    await env.areset(seed=0)
    os.kill(pid_of(env), signal.SIGSTOP)
    waiting = asyncio.create_task(
        in_thread(lambda: env._host.call("step", {"text": "5"}, timeout_s=60))
    )
    await asyncio.sleep(0.2)
    await env.aclose()

    with pytest.raises(EnvError, match="died in step"):
        await asyncio.wait_for(waiting, 5)


@pytest.mark.slow
def test_invalid_moves_end_a_game_with_its_own_penalty() -> None:
    """Reward and reason are the game's."""
    env = TextArenaEnv("Sudoku-v0-very-easy")
    env.reset(seed=0)
    for _ in range(20):
        _, reward, terminated, _, info = env.step("[banana]")
        if terminated:
            break
    env.close()

    assert terminated
    assert reward <= 0
    assert info["report"]["is_invalid"]


async def test_a_cut_game_earns_nothing() -> None:
    """The game itself has no score before its end."""
    env = TextArenaEnv("GuessTheNumber-v0")
    await env.areset(seed=0)

    assert await env.acut() == {"score": 0.0}
    assert await env.acut() == {}
    await env.aclose()


def test_splits_share_no_seed() -> None:
    """Held-out games are not those of training."""
    env = TextArenaEnv("GuessTheNumber-v0")
    seeds = [{env.tasks(split)[i]["game"] for i in range(50)} for split in ("train", "eval")]

    assert seeds[0].isdisjoint(seeds[1])


@pytest.mark.parametrize(
    ("name", "options", "error", "complaint"),
    [
        ("Sudoku-v0-eazy", {}, NotRegisteredError, "Did you mean 'Sudoku-v0-easy'"),
        ("Chess-v0", {}, NotRegisteredError, "no single-player game"),
        ("", {}, NotRegisteredError, "no single-player game"),
        ("Sudoku-v0", {"colour": 3}, ConfigError, "cannot be built: TypeError"),
    ],
)
def test_what_cannot_be_played_is_one_line(
    name: str, options: dict[str, int], error: type[Exception], complaint: str
) -> None:
    """Before anything is played."""
    with pytest.raises(error, match=complaint) as caught:
        TextArenaEnv(name, options=options)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_every_game_begins_or_says_why_not() -> None:
    """Word lists and keys that are missing here are named when the env is made."""
    host, begun, refused = HostProcess("textarena"), [], {}
    for name in known_names():
        if name == "Sokoban-v0-medium":  # takes a minute to make its level
            continue
        try:
            text = host.call("reset", {"name": name, "options": {}, "seed": 1}, timeout_s=60)
        except HostError as error:
            refused[name] = str(error)
            continue
        assert text
        begun.append(name)
    host.kill()

    assert len(begun) >= 45
    assert not {"Sudoku-v0", "2048-v0", "GuessTheNumber-v0"} & set(refused)
