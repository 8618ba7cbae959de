"""One window: planned once, consumed exactly."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.messages import assistant, user
from agentgym.rollout.sampler import Sampler, held_out
from agentgym.tokens import Segment
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.window import PartCounts, PlanSettings, Window, make_window
from agentgym.trajectory import RolloutOutput, StopReason, Task


class OneRank(Ranks):
    def __init__(self) -> None:
        self.index, self.count = 0, 1


class TwinRank(Ranks):
    """One of two ranks; the other says what it was told to say."""

    def __init__(self, others: list[object]) -> None:
        self.index, self.count = 0, 2
        self._others = others

    def gather(self, value: object) -> list[object]:  # type: ignore[override]
        return [value, self._others.pop(0)]


def trajectory(
    index: int, *, group: str = "g", sampled: int = 3, stop: StopReason = StopReason.FINAL_ANSWER
) -> RolloutOutput:
    segments = [Segment(ids=(1, 2, 3, 4), source="template")]
    if sampled:
        ids = tuple(5 + (index + i) % 7 for i in range(sampled))
        segments.append(
            Segment(ids=ids, source="sampled", logprobs=(-1.0,) * sampled, policy_version=0)
        )
    return RolloutOutput(
        request_id=str(index),
        group_id=group,
        task_id="t",
        env="e",
        seed=0,
        messages=(user("?"), assistant("!")),
        segments=tuple(segments),
        reward=None if stop.is_failure else 1.0,
        stop_reason=stop,
    )


def settings(**changes: object) -> PlanSettings:
    defaults = {"num_parts": 1, "num_iterations": 1, "token_budget": 64}
    return PlanSettings(**{**defaults, **changes})  # type: ignore[arg-type]


def plan(outputs: list[RolloutOutput], advantages: list[float], **changes: object) -> Window:
    return make_window(outputs, advantages, settings(**changes), OneRank())


def trained(window: Window, part: int = 0) -> set[int]:
    batches = (micro.batch for micro in window.parts[part].micro_batches)
    return {index for batch in batches for index in batch.sample_indices.tolist()}


@given(parts=st.integers(1, 4), size=st.integers(1, 5), iterations=st.integers(1, 3))
def test_every_trajectory_is_consumed_exactly_num_iterations_times(
    parts: int, size: int, iterations: int
):
    """Invariant 5: neither half a window forgotten nor a part trained twice."""
    outputs = [trajectory(i, sampled=1 + i % 4) for i in range(parts * size)]
    window = plan(outputs, [1.0] * len(outputs), num_parts=parts, num_iterations=iterations)

    seen: Counter[int] = Counter()
    for step in range(window.num_steps):
        part = window.take(step)
        for micro in part.micro_batches:
            seen.update(micro.batch.sample_indices.tolist())
    assert seen == Counter(dict.fromkeys(range(len(outputs)), iterations))
    assert window.consumed == seen


def test_a_window_that_was_not_used_up_is_noticed():
    """A loop that skips a step must fail, not learn from half of the data."""
    window = plan([trajectory(i) for i in range(4)], [1.0] * 4, num_parts=2)
    window.take(0)

    window.consumed.clear()
    with pytest.raises(AssertionError, match=r"were used \[0, 1\] times"):
        window.take(1)


def test_zero_advantage_is_not_computed_but_counted():
    """Leaving it out of the denominator would make the step larger than without the saving."""
    outputs = [trajectory(0, sampled=3), trajectory(1, sampled=5)]
    window = plan(outputs, [0.0, 1.0])

    assert trained(window) == {1}
    assert window.parts[0].normalizer == Normalizer(8, 2)
    assert trained(plan(outputs, [0.0, 1.0], skip_zero_advantage=False)) == {0, 1}


@pytest.mark.parametrize("stop", [StopReason.ENV_ERROR, StopReason.INFRA_ERROR])
def test_failed_trajectories_are_neither_trained_nor_counted(stop: StopReason):
    """They are not evidence about the policy."""
    window = plan([trajectory(0, stop=stop), trajectory(1)], [0.0, 1.0], skip_zero_advantage=False)

    assert trained(window) == {1}
    assert window.parts[0].normalizer == Normalizer(3, 1)


def test_masked_truncated_trajectories_leave_the_denominator_too():
    """Otherwise truncation makes the step smaller (TRL issue 4976)."""
    outputs = [trajectory(0, sampled=30, stop=StopReason.LENGTH), trajectory(1)]

    assert plan(outputs, [1.0, 1.0]).parts[0].normalizer == Normalizer(33, 2)
    window = plan(outputs, [1.0, 1.0], mask_truncated=True)
    assert trained(window) == {1}
    assert window.parts[0].normalizer == Normalizer(3, 1)


def test_without_a_trained_token_there_is_nothing_to_do():
    """All truncated and masked: no forward, no backward, no step."""
    outputs = [trajectory(i, stop=StopReason.LENGTH) for i in range(2)]
    part = plan(outputs, [1.0, -1.0], mask_truncated=True).parts[0]

    assert part.is_empty
    assert part.micro_batches == []


def test_a_step_of_zero_advantages_is_a_step():
    """Its gradient is exactly 0, which the optimizer's momentum must see."""
    part = plan([trajectory(0), trajectory(1)], [0.0, 0.0]).parts[0]

    assert not part.is_empty
    assert [micro.batch.num_tokens for micro in part.micro_batches] == [0]


def test_every_rank_computes_equally_many_micro_batches():
    """Otherwise gradient synchronisation hangs; the shorter rank computes empty ones."""
    outputs = [trajectory(i, sampled=20) for i in range(2)]
    others = TwinRank([[PartCounts(100, 5, 4)]])
    window = make_window(outputs, [1.0, 1.0], settings(token_budget=24), others)

    part = window.parts[0]
    assert [micro.batch.num_tokens for micro in part.micro_batches] == [20, 20, 0, 0]
    assert part.normalizer == Normalizer(140, 7)


class TaskList:
    def __init__(self, size: int | None) -> None:
        self.size = size

    def __getitem__(self, index: int) -> Task:
        return Task(id=str(index))


def sampler(size: int | None, **changes: object) -> Sampler:
    defaults = {"env": "e", "tasks": TaskList(size), "seed": 1, "group_size": 3}
    return Sampler(**{**defaults, **changes})  # type: ignore[arg-type]


def test_members_share_task_and_env_seed_and_nothing_else():
    """Invariant 6: comparable, and not copies of each other."""
    members = sampler(None).groups([7])

    assert len({(m.group_id, m.task.id, m.seed) for m in members}) == 1
    assert len({m.sampling_seed for m in members}) == 3
    assert len({m.request_id for m in members}) == 3


@given(st.lists(st.integers(0, 10_000), unique=True, min_size=2, max_size=20))
def test_groups_depend_on_their_number_only(numbers: list[int]):
    """However they are dealt to ranks and windows, a resumed run plays the same ones."""
    together = sampler(11).groups(numbers)
    one_by_one = [request for number in numbers for request in sampler(11).groups([number])]

    assert together == one_by_one
    assert len({request.sampling_seed for request in together}) == len(together)


def test_a_finite_task_set_is_used_up_before_it_repeats():
    """In a new order every time."""
    tasks = [request.task.id for request in sampler(10, group_size=1).groups(range(30))]

    passes = [tasks[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(one) == sorted(map(str, range(10))) for one in passes)
    assert passes[0] != passes[1] != passes[2]
    plain = sampler(10, group_size=1, shuffle=False).groups(range(10))
    assert [request.task.id for request in plain] == list(map(str, range(10)))


def test_runs_with_different_seeds_play_different_things():
    """And equal seeds the same."""
    one, same, other = (sampler(None, seed=seed).groups([0]) for seed in (1, 1, 2))

    assert one == same
    assert not {r.sampling_seed for r in one} & {r.sampling_seed for r in other}


def test_held_out_tasks_are_the_same_on_every_call():
    """Before and after training must be comparable task by task."""
    requests = held_out("e", TaskList(5), num_tasks=9, group_size=2, seed=3)

    assert requests == held_out("e", TaskList(5), num_tasks=9, group_size=2, seed=3)
    assert len(requests) == 10
    assert not {r.sampling_seed for r in requests} & {
        r.sampling_seed for r in sampler(None, seed=3).groups(range(5))
    }


def forked(index: int) -> RolloutOutput:
    """Two traces: the second shows the first turn again, without training it."""
    first = trajectory(index, sampled=3)
    prompt, sampled = first.segments
    again = sampled.head(len(sampled.ids), frozen=True)
    last = sampled.head(1)
    seen = Segment(ids=(9,), source="env")
    return first.model_copy(
        update={"branches": (first.segments,), "segments": (prompt, again, seen, last)}
    )


def test_a_forked_trajectory_is_trained_once_with_one_advantage():
    """Every sampled token in one trace only, each with the trajectory's advantage."""
    window = plan([forked(0), trajectory(1, sampled=2)], [0.5, -0.5])
    batches = [micro.batch for micro in window.parts[0].micro_batches]
    advantages = torch.cat([batch.advantages for batch in batches])

    assert window.parts[0].normalizer == Normalizer(num_tokens=3 + 1 + 2, num_sequences=2)
    assert sorted(advantages.tolist()) == [-0.5] * 2 + [0.5] * 4


def test_its_loss_is_a_mean_over_all_its_traces():
    """The trajectory weighs 1 in the per-sequence mean, as one that never forked."""
    window = plan([forked(0), trajectory(1, sampled=2)], [2.0, -1.0])
    total = 0.0
    for micro in window.parts[0].micro_batches:
        tokens = FlatTokens(
            logprobs=micro.batch.old_logprobs.clone().requires_grad_(),
            old_logprobs=micro.batch.old_logprobs,
            advantages=micro.batch.advantages,
            sequence_ids=micro.batch.sequence_ids,
        )
        part = policy_loss(tokens, LossSettings(loss_type="grpo"), window.parts[0].normalizer)
        total += part.loss.item()

    assert total == pytest.approx(-(2.0 - 1.0) / 2)
