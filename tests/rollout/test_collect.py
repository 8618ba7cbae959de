"""Many trajectories: isolated, in order, bounded, and all closed."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs import ToolEnv
from agentgym.errors import ConfigError
from agentgym.rollout import Player, TooManyFailuresError, collect
from agentgym.trajectory import RolloutOutput, RolloutRequest, StopReason

MakePlayer = Callable[..., Player]
MakeRequest = Callable[..., RolloutRequest]


def without_times(output: RolloutOutput) -> RolloutOutput:
    infos = {**output.rollout_infos, "tool_seconds": 0}
    return output.model_copy(update={"timings": {}, "rollout_infos": infos})


def dies_on(add_env: type[ToolEnv], indices: set[int]) -> type[ToolEnv]:
    class Dies(add_env):  # type: ignore[misc,valid-type]
        def prompt(self, task: object) -> str:
            if task["x"] in indices:  # type: ignore[index]
                raise RuntimeError("env died")
            return "q"

    return Dies


async def test_one_failure_changes_no_other_record(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv], call: str
):
    """Invariant 8: the other seven are what they are without the one that died."""
    requests = [request_for(i) for i in range(8)]
    script = [call, "5"]

    whole = await collect(requests, make_player(script, dies_on(add_env, set())))
    broken = await collect(requests, make_player(script, dies_on(add_env, {3})))

    assert broken[3].stop_reason == StopReason.ENV_ERROR
    assert broken[3].reward is None
    for index in set(range(8)) - {3}:
        assert without_times(broken[index]) == without_times(whole[index])


async def test_too_many_failures_stop_the_run_with_the_reasons(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Training on nothing is worse than stopping; the records are not lost."""
    player = make_player(["3"], dies_on(add_env, set(range(8))), max_failed_fraction=0.5)

    with pytest.raises(TooManyFailuresError, match=r"8/8 .*env_error 8.*env died") as caught:
        await collect([request_for(i) for i in range(8)], player)
    assert len(caught.value.outputs) == 8


async def test_concurrency_is_bounded_and_used(make_player: MakePlayer, request_for: MakeRequest):
    """Twenty trajectories, four at a time."""
    running, peak = 0, 0

    async def policy(call: EngineCall) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "3"

    engine = CallableEngine(policy, encode=lambda text: [ord(c) for c in text]).recording()
    outputs = await collect([request_for(i) for i in range(20)], make_player(engine, concurrency=4))

    assert len(outputs) == 20
    assert 3 <= peak <= 4


async def test_a_blocking_env_does_not_hold_up_the_others(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Sync code runs off the event loop: all eight wait at one barrier at the same time."""
    barrier = threading.Barrier(8)

    class Waits(add_env):  # type: ignore[misc,valid-type]
        def score(self, episode: object) -> dict[str, float | None]:
            barrier.wait(timeout=20)
            return {"correct": 1.0}

    outputs = await collect([request_for(i) for i in range(8)], make_player(["3"], Waits))

    assert not any(output.stop_reason.is_failure for output in outputs)


async def test_a_group_starts_in_one_state_and_samples_with_different_seeds(
    make_player: MakePlayer, request_for: MakeRequest
):
    """Invariant 6."""
    player = make_player(["3"])
    requests = [request_for(1, member=m) for m in range(4)] + [request_for(2)]

    outputs = await collect(requests, player)

    hashes = [output.rollout_infos["initial_state_hash"] for output in outputs]
    assert len(set(hashes[:4])) == 1
    assert hashes[4] != hashes[0]
    assert isinstance(player.engine, CallableEngine)
    assert len({call.sampling.seed for call in player.engine.calls}) == 5


async def test_the_caller_s_mistake_cancels_and_closes_everything(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Invariant 7 on the path where the run stops; the fixture counts open envs."""

    class Misconfigured(add_env):  # type: ignore[misc,valid-type]
        def prompt(self, task: object) -> str:
            if task["x"] == 3:  # type: ignore[index]
                raise ConfigError("no such level")
            return "q"

    async def wait(call: EngineCall) -> str:
        await asyncio.sleep(60)
        return "3"

    with pytest.raises(ConfigError, match="no such level"):
        await collect(
            [request_for(i) for i in range(8)], make_player(CallableEngine(wait), Misconfigured)
        )


async def test_outputs_are_reported_as_they_end(make_player: MakePlayer, request_for: MakeRequest):
    """A long rollout can be written line by line."""
    seen: list[str] = []
    player = make_player(["3"], on_output=lambda output: seen.append(output.request_id))

    outputs = await collect([request_for(i) for i in range(3)], player)

    assert sorted(seen) == [output.request_id for output in outputs]


def test_one_player_serves_several_event_loops(make_player: MakePlayer, request_for: MakeRequest):
    """Nothing is bound to the first loop."""
    player = make_player(["3"])

    for _ in range(2):
        assert len(asyncio.run(collect([request_for(i) for i in range(4)], player))) == 4
