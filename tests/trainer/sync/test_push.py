"""Weights reach an engine as a whole or not at all, and nobody waits for ever."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import Qwen3ForCausalLM
from vllm_protocol_kit import FakeVllm, ask, engine_over, fake

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import TransformersEngine
from agentgym.engines.transformers.copying import CopyEngine
from agentgym.engines.weights import TensorSpec, Weights
from agentgym.errors import ConfigError, EngineError, UsageError
from agentgym.rollout.background import LoopThread
from agentgym.threads import in_thread
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync import SyncSettings, WeightSync
from agentgym.trainer.sync.gather import Contents
from agentgym.trainer.sync.handover import HandedOver
from agentgym.trainer.sync.push import senders

__all__ = ["fake"]
Make = Callable[[], Qwen3ForCausalLM]
T = TypeVar("T")
PROMPT = (70, 71, 72, 73)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture
def model(make_model: Make) -> Qwen3ForCausalLM:
    return make_model()


@pytest.fixture
def engine(model: Qwen3ForCausalLM, loop: LoopThread) -> Iterator[CopyEngine]:
    engine = CopyEngine(model)
    yield engine
    loop.run(engine.aclose())


def sync_of(model: torch.nn.Module, **settings: Any) -> WeightSync:
    return WeightSync(model, settings=SyncSettings(**settings), ranks=Ranks(Accelerator(cpu=True)))


def sampled(engine: Any, loop: LoopThread, seed: int = 0) -> Generation:
    answer = engine.generate(PROMPT, Sampling(max_tokens=12, seed=seed), session="s")
    return loop.run(answer)  # type: ignore[no-any-return]


def change(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)


def test_an_engine_with_weights_of_its_own_samples_from_the_new_ones(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    """Before the update it does not see the training, afterwards it agrees with the model."""
    old = sampled(engine, loop)
    change(model)
    assert sampled(engine, loop) == old

    version = sync_of(model).push(engine, loop)

    new, own = sampled(engine, loop), TransformersEngine(model)
    expected = sampled(own, loop)
    loop.run(own.aclose())
    assert new.token_ids == expected.token_ids
    assert new.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert (version, new.policy_version, engine.policy_version) == (1, 1, 1)
    assert old.logprobs != new.logprobs


def test_versions_rise_also_for_a_new_run_over_an_engine_that_served_another(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    """Two states of the weights never share a number."""
    versions = [sync_of(model).push(engine, loop) for _ in range(3)]

    assert versions == [1, 2, 3]


def test_an_update_that_changes_nothing_is_known_as_one(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    """Otherwise sampling stays on the old policy and everything looks fine."""
    sync = sync_of(model)
    complaints = []
    for _ in range(2):
        sync.push(engine, loop)
        assert sync.figures is not None
        complaints.append(sync.figures.complaint)
    assert complaints[0] is None
    assert "weight update 2: none of the tensors has changed" in str(complaints[1])

    change(model)
    sync.push(engine, loop)
    assert sync.figures.complaint is None
    assert sync.figures.num_changed == len(dict(model.named_parameters()))
    assert sync.figures.num_bytes == sum(p.nbytes for p in model.parameters())


def test_weights_of_another_model_are_refused_and_the_old_ones_serve(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    before = sampled(engine, loop)
    other = Qwen3ForCausalLM(type(model.config)(**{**model.config.to_dict(), "hidden_size": 48}))
    fewer = Qwen3ForCausalLM(
        type(model.config)(
            **{**model.config.to_dict(), "num_hidden_layers": 1, "layer_types": None}
        )
    )

    with pytest.raises(ConfigError, match=r"has the shape .*\(\d+, 48\)"):
        sync_of(other).push(engine, loop)
    with pytest.raises(ConfigError, match=r"missing names.*layers\.1"):
        sync_of(fewer).push(engine, loop)
    assert sampled(engine, loop) == before


def test_weights_that_are_not_finite_leave_the_old_ones_serving(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    """The last bucket is the bad one: what came before it must not serve either."""
    before = sampled(engine, loop)
    change(model)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")

    with pytest.raises(UsageError, match=r"model\.norm\.weight are not finite"):
        sync_of(model, bucket_bytes=1).push(engine, loop)
    assert sampled(engine, loop) == before


class Deaf:
    """Takes weights as it is told to."""

    keeps_weights: Literal[True] = True
    is_shared = False
    policy_version = 0
    max_context = 64

    def __init__(self, behaviour: Callable[[Weights], Any]) -> None:
        self._behaviour = behaviour

    async def update_weights(self, weights: Weights | None = None) -> int:
        assert weights is not None
        answer = self._behaviour(weights)
        return int(await answer if asyncio.iscoroutine(answer) else answer)

    async def follow(self, version: int) -> None:
        """Nothing to follow."""


def fails_at_once(weights: Weights) -> int:
    raise EngineError("the server is gone")


def fails_after_one_bucket(weights: Weights) -> int:
    next(weights.buckets())
    raise EngineError("the connection was cut")


async def never_answers(weights: Weights) -> int:
    await asyncio.sleep(3600)
    return 0


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (fails_at_once, "the server is gone"),
        (fails_after_one_bucket, "the connection was cut"),
        (never_answers, "no weight update within 0.5 s"),
        (lambda weights: 17, "at policy version 17, not at 1"),
    ],
)
def test_a_failing_engine_is_one_error_within_the_deadline(
    model: Qwen3ForCausalLM, loop: LoopThread, behaviour: Callable[[Weights], Any], said: str
):
    """The gathering goes on to its end, for the ranks that take part in it; nobody hangs."""
    sync = sync_of(model, bucket_bytes=1, timeout_s=0.5)
    engine: Any = Deaf(behaviour)
    outcome: list[BaseException] = []

    def push() -> None:
        try:
            sync.push(engine, loop)
        except EngineError as error:
            outcome.append(error)

    thread = threading.Thread(target=push, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert said in str(outcome[0])


def test_specs_are_known_before_the_first_tensor_is(model: Qwen3ForCausalLM, loop: LoopThread):
    """A server can refuse before anything is sent."""
    seen: dict[str, TensorSpec] = {}

    def look(weights: Weights) -> int:
        seen.update(weights.specs)
        sent = {name for bucket in weights.buckets() for name in bucket}
        assert sent == seen.keys()
        return weights.version

    engine: Any = Deaf(look)
    sync_of(model).push(engine, loop)
    assert seen["model.norm.weight"] == TensorSpec(shape=(32,), dtype="float32")


def test_two_buckets_are_in_memory_and_no_more(loop: LoopThread):
    """One on its way, and the one that is gathered meanwhile: each may be large."""

    class Tensors(dict[str, Any]):
        """Can be looked for."""

    made: list[weakref.ref[Tensors]] = []
    counts: list[int] = []

    def gathered() -> Iterator[Tensors]:
        for number in range(5):
            bucket = Tensors(number=number)
            made.append(weakref.ref(bucket))
            counts.append(sum(known() is not None for known in made))
            yield bucket
            del bucket

    def deliver() -> list[int]:
        return [(bucket["number"], time.sleep(0.02))[0] for bucket in weights.buckets()]

    ends = time.perf_counter() + 20
    weights = HandedOver(Contents("full", (), {}), 1, ends=ends)
    delivery = loop.start(in_thread(deliver))
    weights.feed(gathered(), delivery)
    assert delivery.result() == [0, 1, 2, 3, 4]
    assert max(counts) == 2


def test_an_interrupt_while_a_bucket_waits_is_an_interrupt():
    """The delivery of the one before is what takes long, so that is when Ctrl-C comes."""
    weights = HandedOver(Contents("full", (), {}), 1, ends=time.perf_counter() + 20)

    class Interrupted:
        @property
        def is_over(self) -> bool:
            if weights._queue.full():
                raise KeyboardInterrupt
            return False

    delivery: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        weights.feed([{}], delivery)
    with pytest.raises(EngineError, match="the weights were not gathered"):
        next(weights.buckets())


def test_an_update_that_failed_is_none_to_compare_with(
    model: Qwen3ForCausalLM, engine: CopyEngine, loop: LoopThread
):
    """The engine still has what it had before it, and its number is not given to others."""
    sync = sync_of(model)
    sync.push(engine, loop)
    change(model)
    broken: Any = Deaf(fails_after_one_bucket)
    with pytest.raises(EngineError, match="cut"):
        sync.push(broken, loop)

    sync.push(engine, loop)
    assert engine.policy_version == 3
    assert sync.figures is not None
    assert sync.figures.num_changed > 0


def test_a_copy_of_a_model_that_is_being_trained_has_a_forward_pass_of_its_own(
    make_trainer: Callable[..., AgentGRPOTrainer], loop: LoopThread
):
    """Accelerate's wrapper goes with a copy, and computes with the weights of the original."""
    trainer = make_trainer()
    engine = CopyEngine(trainer.policy)
    before = sampled(engine, loop)
    change(trainer.policy)
    after = sampled(engine, loop)
    loop.run(engine.aclose())

    assert after == before


def test_of_ranks_that_share_servers_one_brings_the_weights():
    a, b, both = frozenset("a"), frozenset("b"), frozenset("ab")

    assert senders([both, both]) == {0}
    assert senders([a, b]) == {0, 1}
    assert senders([a, b, a, b]) == {0, 1}
    with pytest.raises(ConfigError, match="samples from a, b, another one from a: give all"):
        senders([both, a])


class Threads(Ranks):
    """Ranks that are threads of one process."""

    def __init__(self, index: int, told: dict[int, Any], barrier: threading.Barrier) -> None:
        self.index, self.count = index, barrier.parties
        self._told, self._barrier = told, barrier

    def gather(self, value: T) -> list[T]:
        self._told[self.index] = value
        self._barrier.wait(10)
        return [self._told[rank] for rank in range(self.count)]

    def together(self, work: Callable[[], T]) -> T:
        outcome = work()
        self._barrier.wait(10)
        return outcome


async def test_ranks_that_follow_sample_from_the_adapter_of_their_run(
    model: Qwen3ForCausalLM, loop: LoopThread, fake: FakeVllm
):
    """Its name is not to be guessed: other runs may have adapters on the same server."""
    settings = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapted, barrier = get_peft_model(model, settings), threading.Barrier(2)
    async with engine_over(fake) as first, engine_over(fake) as second:

        def push(rank: int) -> int:
            ranks = Threads(rank, told, barrier)
            sync = WeightSync(adapted, settings=SyncSettings(kind="lora"), ranks=ranks)
            return sync.push((first, second)[rank], loop)

        told: dict[int, Any] = {}
        with ThreadPoolExecutor(2) as pool:
            running = [asyncio.wrap_future(pool.submit(push, rank)) for rank in range(2)]
            versions = await asyncio.gather(*running)
        answers = [await ask(first), await ask(second)]
        adapters = set(fake.adapters)

    assert versions == [1, 1]
    assert [turn["model"] for turn in fake.turns] == [*adapters] * 2
    assert answers[0] == answers[1]
