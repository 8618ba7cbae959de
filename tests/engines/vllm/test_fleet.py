"""Several servers are one policy: one number for it everywhere, and one precision to expect."""

import socket

import pytest
from vllm_protocol_kit import (
    FakeVllm,
    TestWeights,
    ask,
    engine_over,
    fake,
    running,
    status,
    two_servers,
)

from agentgym.engines.vllm.fleet import coarsest
from agentgym.engines.vllm.ports import place_of
from agentgym.errors import EngineError

__all__ = ["fake"]


async def test_a_number_that_a_server_has_for_other_weights_is_refused() -> None:
    """Such as by another run; otherwise a swap that failed would pass for one that came through."""
    async with two_servers() as (one, two, engine):
        await engine.update_weights(TestWeights(1))
        two.label = "2"
        with pytest.raises(EngineError, match=f"{two.url} has weights of a version 2 .*own"):
            await engine.update_weights(TestWeights(2))
        assert (one.label, two.label) == ("1", "2")
        await engine.update_weights(TestWeights(3))
        answer = await ask(engine)

    assert (one.label, two.label, answer.policy_version) == ("3", "3", 3)


async def test_after_a_half_update_the_next_number_is_new_to_all() -> None:
    """Also for a run that goes on in another process."""
    async with two_servers() as (one, two, engine):
        two.faults["/finish_weight_update"].append(status(500, "weights refused: gone"))
        with pytest.raises(EngineError, match="new weights at"):
            await engine.update_weights(TestWeights(4))
        async with engine_over(one, two) as later:
            await later.connect()
            assert later.policy_version == 4
            await later.update_weights(TestWeights(later.policy_version + 1))
            assert (await ask(later)).policy_version == 5

    assert (one.label, two.label) == ("5", "5")


async def test_the_coarsest_precision_counts() -> None:
    async with (
        running(FakeVllm(dtype="torch.float32")) as one,
        running(FakeVllm(dtype="torch.bfloat16")) as two,
        engine_over(one, two) as engine,
    ):
        await engine.connect()
        assert engine.dtype() == "bfloat16"

    assert coarsest(["float32", "float32"]) == "float32"
    assert coarsest(["bfloat16", "float16", "float32"]) == "bfloat16"
    assert coarsest(["float8_e4m3fn", "bfloat16"]) == "float8_e4m3fn"


async def test_loopback_is_another_server_on_every_machine(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        assert engine.places() == {f"{fake.url} of {socket.gethostname()}"}

    assert place_of("http://gpu-7:8000") == "http://gpu-7:8000"
    assert socket.gethostname() in place_of("http://[::1]:8000")
    assert socket.gethostname() in place_of("http://127.0.0.2:8000")


def test_a_server_is_one_place_however_its_url_is_written() -> None:
    """Else two ranks that write it differently would both bring it weights, at the same time."""
    names = ["localhost:8000", "127.0.0.1:8000", "LocalHost:8000/", "[::1]:8000"]

    assert len({place_of(f"http://{name}") for name in names}) == 1
    assert place_of("http://GPU-7/") == place_of("HTTP://gpu-7:80")
    assert place_of("https://gpu-7") == place_of("https://gpu-7:443/")
    apart = ["http://gpu-7", "https://gpu-7", "http://gpu-7:81", "http://gpu-7/a", "http://gpu-8"]
    assert len(set(map(place_of, apart))) == len(apart)
