"""New weights for one server and for several: all of them, or none, or nothing is sampled."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    Fault,
    TestWeights,
    ask,
    cut,
    engine_over,
    fake,
    running,
    silence,
    status,
    two_servers,
)

from agentgym.engines.vllm import updating
from agentgym.engines.vllm.shm import ShmSender
from agentgym.engines.weights import WeightsLostError
from agentgym.errors import ConfigError, EngineError

__all__ = ["fake"]
FINISH, UPDATE, PAUSE = "/finish_weight_update", "/update_weights", "/pause"
CHANGES = {PAUSE, "/reset_prefix_cache", "/start_weight_update", UPDATE, FINISH, "/resume"}


def order(server: FakeVllm) -> list[str]:
    """What an update asked for."""
    return [path for path, _ in server.seen if path in CHANGES]


async def test_an_update_pauses_stages_swaps_and_goes_on(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        before = await ask(engine)
        assert await engine.update_weights(TestWeights(3)) == engine.policy_version == 3
        after = await ask(engine)
        await engine.update_weights(TestWeights(4))

    update = [PAUSE, "/reset_prefix_cache", "/start_weight_update", UPDATE, UPDATE, FINISH]
    assert order(fake) == [*update, "/resume"] * 2
    assert fake.num("/init_weight_transfer_engine") == 1
    assert fake.weights == ["a", "b"]
    assert (before.policy_version, after.policy_version) == (0, 3)
    assert before.token_ids != after.token_ids


async def test_prefixes_of_other_weights_cannot_be_used(fake: FakeVllm) -> None:
    """Even by a server that forgets to forget: the version is part of what a prefix is known by."""
    async with engine_over(fake) as engine:
        await ask(engine)
        await engine.update_weights(TestWeights(3))
        await ask(engine)

    assert [turn["cache_salt"] for turn in fake.turns] == ["0", "3"]


async def test_a_turn_under_way_goes_on_and_says_which_token_is_whose(fake: FakeVllm) -> None:
    fake.token_s = 0.05
    async with engine_over(fake) as engine:
        turn = asyncio.create_task(ask(engine, max_tokens=12))
        await asyncio.sleep(0.3)
        await engine.update_weights(TestWeights(1))
        answer = await turn

    versions = answer.token_versions
    assert list(versions) == sorted(versions)
    assert set(versions) == {0, 1}
    assert answer.policy_version == 0


async def test_weights_must_be_given(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        with pytest.raises(ConfigError, match="hand over"):
            await engine.update_weights()


@pytest.mark.parametrize("path", [PAUSE, "/start_weight_update", UPDATE, FINISH])
async def test_weights_that_are_not_the_models_are_refused(fake: FakeVllm, path: str) -> None:
    fake.faults[path].append(status(500, "failed: weights refused: missing: model.norm.weight"))
    async with engine_over(fake) as engine:
        first = await ask(engine)
        with pytest.raises(ConfigError, match=r"^weights refused: missing: model.norm.weight$"):
            await engine.update_weights(TestWeights(1))
        assert await ask(engine) == first
        await engine.update_weights(TestWeights(1))

    assert not fake.is_paused
    assert fake.num("/init_weight_transfer_engine") == 2


@pytest.mark.parametrize("fault", [cut, status(500, "boom"), silence])
@pytest.mark.parametrize("path", [PAUSE, UPDATE])
async def test_a_failed_transfer_leaves_the_old_weights(path: str, fault: Fault) -> None:
    """At one of two servers; both go on, and the next update brings both to one version."""
    deadlines = replace(SHORT, update_s=0.6)
    async with running(FakeVllm()) as one, running(FakeVllm()) as two:
        two.faults[path].append(fault)
        async with engine_over(one, two, deadlines=deadlines) as engine:
            first = await ask(engine)
            with pytest.raises(EngineError, match=r"weights were not updated.*had"):
                await engine.update_weights(TestWeights(1))
            again = [await ask(engine, session=str(i)) for i in range(2)]
            await engine.update_weights(TestWeights(2))

    assert again == [first] * 2
    assert (one.is_paused, two.is_paused) == (False, False)
    assert (one.label, two.label) == ("2", "2")


async def test_servers_of_different_versions_are_not_sampled_from() -> None:
    """One has swapped, the other broke: nobody knows whose token would be next."""
    async with two_servers() as (one, two, engine):
        two.faults[FINISH].append(status(500, "boom"))
        with pytest.raises(EngineError, match=rf"new weights at {one.url}.*not known at {two.url}"):
            await engine.update_weights(TestWeights(1))
        with pytest.raises(EngineError, match="did not end"):
            await ask(engine)
        two.faults[UPDATE].append(status(500, "weights refused: again"))
        with pytest.raises(ConfigError):
            await engine.update_weights(TestWeights(2))
        with pytest.raises(EngineError, match="did not end"):
            await ask(engine)
        await engine.update_weights(TestWeights(2))
        answer = await ask(engine)

    assert (one.is_paused, two.is_paused) == (False, False)
    assert answer.policy_version == 2


async def test_a_swap_whose_answer_is_lost_has_come_through(fake: FakeVllm) -> None:
    fake.after_swap = cut
    async with engine_over(fake) as engine:
        assert await engine.update_weights(TestWeights(1)) == 1
        assert (await ask(engine)).policy_version == 1


async def test_a_swap_of_which_nothing_is_heard_is_not_trusted(fake: FakeVllm) -> None:
    fake.faults[FINISH].append(cut)
    async with engine_over(fake) as engine:
        started = time.monotonic()
        with pytest.raises(EngineError, match="not known at"):
            await engine.update_weights(TestWeights(1))
        with pytest.raises(EngineError, match="did not end"):
            await ask(engine)

    assert time.monotonic() - started < 3


async def test_a_server_that_is_not_there_fails_the_update_in_time() -> None:
    async with two_servers() as (one, two, engine):
        await engine.connect()
        two.always |= dict.fromkeys([*CHANGES, "/health", "/weight_info"], cut)
        started = time.monotonic()
        with pytest.raises(EngineError, match=f"not updated: {two.url} was not there"):
            await engine.update_weights(TestWeights(1))

    assert time.monotonic() - started < SHORT.gone_s + SHORT.resume_s + 2
    assert not one.is_paused


class Gate:
    """Holds a thread up, for at most 5 s, and says that it has come."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def pass_(self) -> None:
        self._reached.set()
        self._opened.wait(5)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 20)

    def open(self) -> None:
        self._opened.set()


async def test_a_cancelled_update_leaves_every_server_going(fake: FakeVllm) -> None:
    """Such as by Ctrl-C while the trainer gathers the next bucket."""
    gathering = Gate()
    async with engine_over(fake) as engine:
        first = await ask(engine)
        weights = TestWeights(1, before_second=gathering.pass_)
        update = asyncio.create_task(engine.update_weights(weights))
        await gathering.reached()
        assert fake.is_paused
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        assert not fake.is_paused
        assert await ask(engine) == first
        gathering.open()


class LingeringSender(ShmSender):
    """Like one over a network whose workers hang: ends when `linger` has."""

    def __init__(self, linger: Callable[[], object]) -> None:
        super().__init__()
        self._linger = linger

    def close(self) -> None:
        self._linger()
        super().close()


async def test_a_transfer_that_is_slow_to_end_holds_nothing_else_up(
    fake: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after a failed update nor when the engine is closed."""
    threads: list[threading.Thread] = []

    def linger() -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(updating, "sender_for", lambda *_, **__: LingeringSender(linger))
    fake.faults[UPDATE].append(status(500, "boom"))
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match="boom"):
            await engine.update_weights(TestWeights(1))
        num_failed = len(threads)
        await engine.update_weights(TestWeights(2))

    assert 1 <= num_failed < len(threads)
    assert threading.current_thread() not in threads


async def test_an_update_that_is_cancelled_twice_leaves_the_server_going(
    fake: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time while the transfer is ended."""
    gathering, ending = Gate(), Gate()
    monkeypatch.setattr(updating, "sender_for", lambda *_, **__: LingeringSender(ending.pass_))
    async with engine_over(fake) as engine:
        weights = TestWeights(1, before_second=gathering.pass_)
        update = asyncio.create_task(engine.update_weights(weights))
        for gate in (gathering, ending):
            await gate.reached()
            assert fake.is_paused
            update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        assert not fake.is_paused
        gathering.open()
        ending.open()


async def test_an_update_that_is_cancelled_at_its_end_leaves_the_server_going(
    fake: FakeVllm,
) -> None:
    """A server whose connection is closed before it has read the request does nothing."""
    asked = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.sleep(0.1)
        return await fake.answer(request)

    fake.faults["/resume"].append(late)
    async with engine_over(fake) as engine:
        update = asyncio.create_task(engine.update_weights(TestWeights(1)))
        await asked.wait()
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update

    assert not fake.is_paused


async def test_the_trainers_own_errors_pass(fake: FakeVllm) -> None:
    def fail() -> None:
        raise ConfigError("lm_head.weight is not finite")

    async with engine_over(fake) as engine:
        with pytest.raises(ConfigError, match="lm_head"):
            await engine.update_weights(TestWeights(1, before_second=fail))

    assert not fake.is_paused


async def test_a_restarted_server_is_brought_up_to_date() -> None:
    server = FakeVllm()
    async with running(server), engine_over(server) as engine:
        await engine.update_weights(TestWeights(1))
        server.label = "default"
        with pytest.raises(WeightsLostError, match="restarted"):
            await ask(engine)
        await engine.update_weights(TestWeights(2))
        answer = await ask(engine)

    assert answer.policy_version == 2
    assert server.num("/init_weight_transfer_engine") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "bfloat16"}, "anew with dtype bfloat16 instead of float32"),
        ({"model": "other"}, "anew with model other instead of policy"),
        ({"context": 32}, "anew with context 32 instead of 64"),
        ({"backend": None}, "do not all take weights in one way"),
    ],
)
async def test_a_server_that_was_started_anew_otherwise_is_looked_at_again(
    fake: FakeVllm, change: dict[str, Any], message: str
) -> None:
    """What was read from the one before it says nothing about this one."""
    async with engine_over(fake) as engine:
        await engine.update_weights(TestWeights(1))
        for name, value in ({"label": "default"} | change).items():
            setattr(fake, name, value)
        with pytest.raises(ConfigError, match=message):
            await engine.update_weights(TestWeights(2))

    assert fake.label == "default"


async def test_waiting_for_weights_is_not_the_turns_fault(fake: FakeVllm) -> None:
    """A turn may take a second, and the update takes two; no server is held to hang meanwhile."""
    fake.token_s = 0.05
    deadlines = replace(SHORT, turn_s=1.0)
    async with engine_over(fake, deadlines=deadlines) as engine:
        turn = asyncio.create_task(ask(engine, max_tokens=10))
        await asyncio.sleep(0.2)
        await engine.update_weights(TestWeights(1, before_second=lambda: time.sleep(2)))
        answer = await turn

    assert len(answer.token_ids) == 10


async def test_another_process_may_have_updated(fake: FakeVllm) -> None:
    """Ranks share servers and one of them updates; turns of the others may end before they hear."""
    fake.token_s = 0.05
    async with engine_over(fake) as first, engine_over(fake) as second:
        turn = asyncio.create_task(ask(second, max_tokens=8))
        await asyncio.sleep(0.2)
        await first.update_weights(TestWeights(1))
        await asyncio.sleep(0.3)
        await second.follow(1)
        answer = await turn
        with pytest.raises(EngineError, match="not version 9"):
            await second.follow(9)

    assert set(answer.token_versions) == {0, 1}
    assert second.policy_version == 1


async def test_servers_that_differ_at_the_beginning_need_an_update() -> None:
    async with two_servers() as (one, _, engine):
        one.label = "3"
        with pytest.raises(EngineError, match="'3', 'default'"):
            await ask(engine)
        await engine.update_weights(TestWeights(4))
        answer = await ask(engine)

    assert answer.policy_version == 4
