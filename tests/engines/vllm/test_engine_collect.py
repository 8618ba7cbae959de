"""Whole trajectories of an env through vLLM in this process: what the loop promises, holds."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from vllm_engine_kit import EXACT, ModelWeights, off_by
from vllm_kit import IS_OWN, POLICY, load, weights_of
from vllm_local_kit import Local

from agentgym.engines.base import Engine, Generation, Sampling
from agentgym.engines.loading import load_tokenizer
from agentgym.envs.calculator import CalculatorEnv
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason

pytestmark = pytest.mark.vllm


class CountedEnv(CalculatorEnv):
    """Knows how many of its kind are open, and dies on some tasks."""

    num_open = 0
    dies_on: ClassVar[set[int]] = set()

    group: int | None = None

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.group is None:
            type(self).num_open += 1
        self.group = seed
        return await super().areset(seed=seed, options=options)

    async def astep(self, action: Any) -> Any:
        if self.group in self.dies_on:
            raise RuntimeError("the env died")
        return await super().astep(action)

    async def aclose(self) -> None:
        if self.group is not None:
            type(self).num_open -= 1
        self.group = None
        await super().aclose()


@dataclass
class Recorder:
    """An engine that remembers what it was asked, and what it gave."""

    engine: Any
    turns: dict[str, list[tuple[tuple[int, ...], Generation]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        answer = await self.engine.generate(prompt_ids, sampling, session=session)
        self.turns[session].append((prompt_ids, answer))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.fixture(autouse=True)
def no_env_is_left_open() -> Iterator[None]:
    CountedEnv.num_open, CountedEnv.dies_on = 0, set()
    yield
    assert CountedEnv.num_open == 0


def requests(num_groups: int, members: int) -> list[RolloutRequest]:
    tasks = CalculatorEnv().tasks("train")
    return [
        RolloutRequest(
            request_id=f"{group}-{member}",
            group_id=str(group),
            env="calculator",
            task=tasks[group],
            seed=group,
            sampling_seed=100 * group + member,
        )
        for group in range(num_groups)
        for member in range(members)
    ]


async def play(engine: Engine, num_groups: int = 6, members: int = 3) -> list[RolloutOutput]:
    player = Player(
        engine=engine,
        renderer=renderer_for(load_tokenizer(str(POLICY))),
        scheduler=GymScheduler(CountedEnv),
        budget=Budget(max_turns=5, max_turn_tokens=64),
    )
    return await collect(requests(num_groups, members), player)


async def test_trajectories_are_what_vllm_was_asked_and_gave(local: Local) -> None:
    """Invariants 1 to 3 and 7: ids, mask and logprobs, and the trainer's opinion of them."""
    await local.engine.update_weights(ModelWeights(weights_of(load(POLICY))))
    local.model = load(POLICY)
    recorder = Recorder(local.engine)
    outputs = await play(recorder)  # type: ignore[arg-type]

    if IS_OWN:
        assert sum(output.num_turns for output in outputs) > len(outputs)
        assert len({output.reward for output in outputs}) > 1
    for output in outputs:
        turns = next(own for name, own in recorder.turns.items() if output.request_id in name)
        gave = [token for _, answer in turns for token in answer.token_ids]
        trained = zip(output.token_ids, output.loss_mask, strict=True)
        assert [token for token, own in trained if own] == gave
        assert all(list(asked) == output.token_ids[: len(asked)] for asked, _ in turns)
        logprobs = [p for _, answer in turns for p in answer.logprobs]
        assert [p for turn in output.rollout_logprobs for p in _sampled(turn)] == logprobs
        for asked, answer in turns:
            assert local.error(asked, answer) < EXACT
        assert output.policy_versions == [local.engine.policy_version]


def _sampled(logprobs: list[float]) -> list[float]:
    return [p for p in logprobs if p != 0.0]


@pytest.mark.skipif(not IS_OWN, reason="another policy may end before its env can fail")
async def test_a_failing_env_changes_no_other_record(local: Local) -> None:
    """Invariant 8; and the tasks of a group begin alike, with seeds of their own (6)."""
    whole = await play(local.engine)
    CountedEnv.dies_on = {2}
    broken = await play(local.engine)

    for one, other in zip(whole, broken, strict=True):
        if other.group_id == "2":
            assert (other.stop_reason, other.reward) == (StopReason.ENV_ERROR, None)
        else:
            assert (one.token_ids, one.rewards) == (other.token_ids, other.rewards)
    groups = [whole[start : start + 3] for start in range(0, len(whole), 3)]
    assert all(len({tuple(m.prompt_token_ids) for m in group}) == 1 for group in groups)
    assert any(len({tuple(m.token_ids) for m in group}) > 1 for group in groups)


async def test_weights_that_change_within_trajectories_are_stamped(local: Local) -> None:
    """Every token of every trajectory is exact under the weights it is stamped with."""
    models = {await local.update(seed=8): local.model}
    playing = asyncio.create_task(play(local.engine))
    await local.steps(10)
    version = await local.update(seed=9)
    models[version] = local.model
    outputs = await playing

    seen = set()
    for output in outputs:
        position = 0
        for segment in output.segments:
            start, position = position, position + len(segment.ids)
            if segment.source != "sampled":
                continue
            stamps = segment.token_versions or (segment.policy_version,) * len(segment.ids)
            for index, (version, logprob) in enumerate(zip(stamps, segment.logprobs, strict=True)):
                assert version is not None
                at = start + index
                ids, token = output.token_ids[:at], output.token_ids[at]
                seen.add(version)
                if index % 8 == 0:
                    assert off_by(models[version], ids, [token], [logprob]) < EXACT
    assert seen == set(models)
