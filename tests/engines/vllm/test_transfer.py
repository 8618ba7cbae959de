"""What is sent, how it lies in memory, and what it is held against; no server needed."""

import asyncio
import errno
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm_kit import tiny_model

from agentgym.engines.vllm.broadcast import BroadcastSender, gpu_of
from agentgym.engines.vllm.buffers import fill, lay_out, views
from agentgym.engines.vllm.checkpoint import read_specs
from agentgym.engines.vllm.gloo import GlooCarrier
from agentgym.engines.vllm.line import Carrier, Line, Seat, meeting_place
from agentgym.engines.vllm.nccl import NcclCarrier
from agentgym.engines.vllm.ports import address_towards
from agentgym.engines.vllm.refusals import WeightsRefusedError
from agentgym.engines.vllm.shm import ShmSender, remove_leftovers
from agentgym.engines.vllm.staged import Staging, digest
from agentgym.engines.vllm.transfer import sender_for
from agentgym.engines.weights import TensorSpec
from agentgym.errors import ConfigError, EngineError
from agentgym.threads import in_thread

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8)
shapes = st.lists(st.integers(0, 5), max_size=3)


@given(st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=5))
def test_a_buffer_gives_back_what_was_put_in(kinds: list[tuple[list[int], torch.dtype]]) -> None:
    """Scalars, empty tensors and dtypes of every width, through JSON."""
    tensors = {
        f"t{number}": (torch.rand(shape) * 100).to(dtype)
        for number, (shape, dtype) in enumerate(kinds)
    }
    entries, num_bytes = lay_out(tensors)
    buffer = torch.empty(num_bytes, dtype=torch.uint8)
    fill(buffer, tensors, entries)
    found = views(buffer, json.loads(json.dumps(entries)))

    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert all(found[name].dtype == tensors[name].dtype for name in tensors)


@pytest.mark.parametrize(
    "change", [{"offset": 4}, {"offset": -4}, {"shape": [2]}, {"shape": [-1]}, {"dtype": "nn"}]
)
def test_a_place_outside_the_buffer_is_refused(change: dict[str, Any]) -> None:
    """What comes over the wire is not believed."""
    (entry,), num_bytes = lay_out({"a": torch.zeros(1)})

    with pytest.raises(ValueError, match="a: "):
        views(torch.empty(num_bytes, dtype=torch.uint8), [{**entry, **change}])  # type: ignore[typeddict-item]


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_is_read_without_its_tied_duplicate(tmp_path: Path, tied: bool) -> None:
    from safetensors.torch import load_file, save_file

    path = tiny_model(tmp_path, tied=tied) / "model.safetensors"
    tensors = load_file(path)
    constant = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(2)}
    whole = {**tensors, **constant, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    save_file(whole, path)
    specs = read_specs(tmp_path)

    assert specs["model.norm.weight"] == TensorSpec(shape=(64,), dtype="float32")
    assert len(specs) == (24 if tied else 25)
    assert ("lm_head.weight" in specs) is not tied


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no \*.safetensors"):
        read_specs(tmp_path)


def test_nothing_of_a_bucket_is_staged_if_one_tensor_is_wrong() -> None:
    """And values must be finite in what the engine computes in, not in what was sent."""
    spec = TensorSpec(shape=(1,), dtype="float32")
    staging = Staging({"a": spec, "b": spec}, torch.float16)
    with pytest.raises(WeightsRefusedError, match="not finite: b"):
        staging.add([("a", torch.ones(1)), ("b", torch.full((1,), 1e6))])
    assert not staging.tensors
    staging.add([("a", torch.ones(1))])
    with pytest.raises(WeightsRefusedError, match="sent twice: a"):
        staging.add([("a", torch.ones(1))])
    with pytest.raises(WeightsRefusedError, match="missing: b"):
        staging.complete()


async def test_a_file_in_shared_memory_is_there_only_while_it_is_sent() -> None:
    """However the sending ends."""
    sender = ShmSender()
    seen: list[Path] = []

    async def look(info: dict[str, Any]) -> None:
        seen.append(Path(info["path"]))
        assert seen[-1].stat().st_mode & 0o777 == 0o600
        data = torch.frombuffer(bytearray(seen[-1].read_bytes()), dtype=torch.uint8)
        assert views(data, info["entries"])["a"].tolist() == [1, 2]
        if len(seen) > 1:
            raise EngineError("refused")

    await sender.send({"a": torch.tensor([1, 2])}, look)
    with pytest.raises(EngineError, match="refused"):
        await sender.send({"a": torch.tensor([1, 2])}, look)

    assert not any(path.exists() for path in seen)
    sender.close()
    sender.close()
    assert not seen[0].parent.exists()


def test_what_a_killed_trainer_left_is_removed(tmp_path: Path) -> None:
    """But not what belongs to one that runs."""
    dead, alive = (tmp_path / f"agentgym-weights-{pid}-x" for pid in (2**22 + 1, os.getpid()))
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "0").write_bytes(b"weights")
    remove_leftovers(tmp_path)

    assert (dead.exists(), alive.exists()) == (False, True)


def test_memory_that_takes_no_folder_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("agentgym.engines.vllm.shm._MEMORY", tmp_path / "file")
    with pytest.raises(EngineError, match=r"cannot put weights into .*file"):
        ShmSender()


def test_a_trainer_in_another_container_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may share the memory, and do not see each other's processes."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: 2**22 + 1)
        sender = ShmSender()
    remove_leftovers(sender._folder.parent)
    assert sender._folder.exists()
    sender.close()
    assert not sender._folder.exists()


def test_file_systems_that_lock_no_folders_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder for temporary files may be on a network, where there is no shared memory."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / f"agentgym-weights-{2**22 + 1}-x").mkdir()
    remove_leftovers(tmp_path)
    sender = ShmSender()
    sender.close()

    assert not sender._folder.exists()


def member(info: dict[str, Any], carrier: Carrier | None = None) -> Line:
    """One worker of a server, told what `init_info` says."""
    timeout_s = info["timeout_s"]
    seat = Seat(
        host=info["host"],
        rank=info["rank_offset"],
        world_size=info["world_size"],
        timeout_s=timeout_s,
    )
    store = meeting_place(info["host"], info["port"], is_host=False, timeout_s=timeout_s)
    return Line(store, seat, carrier or GlooCarrier())


async def receive(
    info: dict[str, Any], num_bytes: int, buckets: int, *, carrier: Carrier | None = None
) -> list[torch.Tensor]:
    """What one worker of a server gets."""

    def join_and_take() -> list[torch.Tensor]:
        line = member(info, carrier)
        line.join()
        taken = [torch.empty(num_bytes, dtype=torch.uint8) for _ in range(buckets)]
        for buffer in taken:
            line.broadcast(buffer)
        return taken

    return await in_thread(join_and_take)


async def test_gloo_reaches_the_workers_of_all_servers() -> None:
    """Without a default process group."""
    sender = sender_for("agentgym_gloo", workers=(1, 1), timeout_s=30)
    workers = [asyncio.create_task(receive(sender.init_info(n), 8, 2)) for n in (0, 1)]

    async def post(info: dict[str, Any]) -> None:
        assert info["num_bytes"] == 8

    for number in (1, 2):
        await sender.send({"a": torch.tensor([number])}, post)
    got = [[int(buffer.view(torch.int64)) for buffer in await worker] for worker in workers]
    sender.close()

    assert got == [[1, 2], [1, 2]]
    assert not torch.distributed.is_initialized()


async def test_a_server_that_never_joins_is_an_error() -> None:
    """In time, and not a hang."""
    sender = sender_for("agentgym_gloo", timeout_s=1)
    sender.init_info()

    async def post(info: dict[str, Any]) -> None: ...

    with pytest.raises(EngineError, match="did not join"):
        await asyncio.wait_for(sender.send({"a": torch.zeros(1)}, post), 30)
    sender.close()


async def test_a_server_that_refuses_is_heard() -> None:
    """Its words, not those of the cut line; and nobody waits for the bytes to be taken."""
    sender = sender_for("agentgym_gloo", timeout_s=30)
    worker = asyncio.create_task(receive(sender.init_info(), 4, 0))

    async def post(info: dict[str, Any]) -> None:
        raise EngineError("weights refused: missing: a")

    with pytest.raises(EngineError, match="weights refused: missing: a"):
        await asyncio.wait_for(sender.send({"a": torch.zeros(1)}, post), 10)
    await worker
    sender.close()


class Deaf:
    """Like NCCL between GPUs of one machine: members neither hear of an abort nor have deadlines.

    Its transfers are gloo's.
    """

    on_gpu = False
    groups: ClassVar[list[Any]] = []
    """Whose end would be heard."""

    def join(self, store: Any, seat: Seat) -> Any:
        self.groups.append(GlooCarrier().join(store, replace(seat, timeout_s=60)))
        return _NeverAborted(self.groups[-1])


class _NeverAborted:
    def __init__(self, group: Any) -> None:
        self.broadcast = group.broadcast

    def abort(self) -> None: ...


def deaf_sender(timeout_s: float) -> BroadcastSender:
    return BroadcastSender("deaf", Deaf(), workers=(1,), host="127.0.0.1", timeout_s=timeout_s)


async def test_workers_do_not_wait_for_a_trainer_that_has_left() -> None:
    """Though nothing tells them through the group, and its deadline is far."""
    sender = deaf_sender(30)
    worker = asyncio.create_task(receive(sender.init_info(), 8, 2, carrier=Deaf()))

    async def post(info: dict[str, Any]) -> None: ...

    await sender.send({"a": torch.tensor([1])}, post)
    await asyncio.to_thread(sender.close)
    started = time.monotonic()
    with pytest.raises(EngineError, match="the trainer has left"):
        await worker
    assert time.monotonic() - started < 5


async def test_workers_do_not_wait_for_others_that_never_join() -> None:
    """Once the trainer has given up."""
    sender = sender_for("agentgym_gloo", workers=(1, 1), timeout_s=30)
    worker = asyncio.create_task(receive(sender.init_info(), 8, 1))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(sender.close)

    with pytest.raises(EngineError, match=r"did not join the transfer: the trainer has left"):
        await asyncio.wait_for(worker, 5)


class Clinging:
    """Like gloo in a broadcast that nobody ends: a group is gone only after its deadline."""

    on_gpu = False

    def __init__(self) -> None:
        self.deadline = threading.Event()

    def join(self, store: Any, seat: Seat) -> Any:
        return _GoneLate(self.deadline)


class _GoneLate:
    def __init__(self, deadline: threading.Event) -> None:
        self.deadline = deadline

    def abort(self) -> None: ...

    def __del__(self) -> None:
        self.deadline.wait(20)


def test_nobody_waits_for_the_end_of_a_group_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server that another one's death has left in a broadcast would be silent for long."""
    monkeypatch.setattr("agentgym.engines.vllm.line._ABORT_S", 0.1)
    carrier = Clinging()
    store = meeting_place("127.0.0.1", 0, is_host=True, timeout_s=5)
    line = Line(store, Seat(host="127.0.0.1", rank=0, world_size=1, timeout_s=5), carrier)
    line.join()
    started = time.monotonic()
    line.cut()
    waited = time.monotonic() - started
    carrier.deadline.set()

    assert 0.1 <= waited < 10


async def test_a_worker_that_takes_nothing_is_not_waited_for_longer_than_told() -> None:
    sender = deaf_sender(1)
    worker = asyncio.create_task(receive(sender.init_info(), 8, 0, carrier=Deaf()))

    async def post(info: dict[str, Any]) -> None:
        await asyncio.sleep(20)

    with pytest.raises(EngineError, match="did not get through to the servers within 1 s"):
        await asyncio.wait_for(sender.send({"a": torch.tensor([1])}, post), 10)
    await worker
    with pytest.raises(EngineError, match="cut"):
        await asyncio.wait_for(sender.send({"a": torch.tensor([1])}, post), 10)
    sender.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nccl_without_a_gpu_is_refused_in_one_line() -> None:
    """Before the servers are told anything; and by a worker, should it come to that."""
    with pytest.raises(
        ConfigError, match="go from GPU to GPU, and this process has none"
    ) as caught:
        sender_for("agentgym_nccl")
    with pytest.raises(ConfigError, match="go from GPU to GPU"):
        NcclCarrier().join(None, Seat(host="127.0.0.1", rank=0, world_size=2, timeout_s=1))

    assert "\n" not in str(caught.value)


def test_what_is_in_the_hosts_memory_is_sent_from_the_ranks_own_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads begin with the first one, which two members of a line cannot share."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    gpus = []
    for rank in ("0", "3", "6", "-1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        gpus.append(gpu_of({"a": torch.zeros(1)}).index)

    assert gpus == [0, 3, 2, 0]


def test_servers_of_this_machine_are_told_loopback() -> None:
    """And a server that cannot be found is named."""
    assert address_towards(["http://127.0.0.1:1", "http://localhost:2"]) == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"no way from this machine to no\.such\.host"):
        address_towards(["http://no.such.host:1"])


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from(DTYPES[:3]))
def test_a_checksum_tells_bits_apart(values: list[float], dtype: torch.dtype) -> None:
    """Wherever the tensor lies in memory, infinities and nans included."""
    tensor = torch.tensor(values).to(dtype)
    changed = tensor.clone()
    changed.view(torch.uint8)[0] ^= 1
    strided = torch.stack([tensor, changed], dim=1)[:, 0]

    assert digest(strided) == digest(tensor)
    assert digest(changed) != digest(tensor)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="no transfer backend 'x'; there are agentgym_shm"):
        sender_for("x")
