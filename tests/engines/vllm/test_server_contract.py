"""`VllmServerEngine` over vLLM's own server: every answer is the policy's, to the token."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from vllm_engine_kit import (
    CONTEXT,
    EOS,
    EXACT,
    Bench,
    ModelWeights,
    adapted,
    adapter_weights,
    off_by,
    prompt_of,
)
from vllm_kit import POLICY, load, perturbed, weights_of

from agentgym.constraint import Constraint, ConstraintError
from agentgym.engines.base import Generation, Sampling
from agentgym.engines.loading import load_tokenizer
from agentgym.engines.stops import StopStrings, length_until_stop
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.errors import ConfigError, EngineError

pytestmark = pytest.mark.vllm


async def test_logprobs_are_those_of_the_distribution_sampled_from(bench: Bench) -> None:
    """Step-0 invariant of training: eight prompts of all lengths at once, and a temperature."""
    prompts = [prompt_of(seed, 3 + 20 * seed) for seed in range(8)]
    answers = await asyncio.gather(
        *[bench.ask(prompt, session=str(i), seed=i) for i, prompt in enumerate(prompts)]
    )
    warm = await bench.ask(prompts[0], temperature=1.7)
    greedy = await bench.ask(prompts[0], temperature=0.0)
    few = await bench.ask(prompts[0], top_k=1)

    assert max(map(bench.error, prompts, answers)) < EXACT
    assert bench.engine.max_context == CONTEXT
    assert bench.error(prompts[0], greedy) < EXACT
    assert few.token_ids == greedy.token_ids
    assert few.logprobs == pytest.approx([0.0] * 8, abs=1e-6)
    ids = torch.tensor([[*prompts[0], *warm.token_ids]])
    with torch.no_grad():
        logits = bench.model(ids).logits[0, len(prompts[0]) - 1 : -1] / 1.7
    expected = logits.log_softmax(-1).gather(1, torch.tensor(warm.token_ids)[:, None])[:, 0]
    assert warm.logprobs == pytest.approx(expected.tolist(), abs=EXACT)


async def test_a_seed_gives_the_same_tokens_whatever_else_runs(bench: Bench) -> None:
    prompt = prompt_of(1)
    seed = 2**63 - 25
    alone = await bench.ask(prompt, seed=seed, max_tokens=40)

    async def other(index: int) -> Generation:
        await asyncio.sleep(0.01 * (index % 5))
        other_seed = seed ^ (1 << 40 + index)
        return await bench.ask(prompt, seed=other_seed, session=str(index), max_tokens=20 + index)

    others = [asyncio.create_task(other(index)) for index in range(16)]
    again = await bench.ask(prompt, seed=seed, session="again", max_tokens=40)
    firsts = {answer.token_ids[:20] for answer in await asyncio.gather(*others)}

    assert again.token_ids == alone.token_ids
    assert len(firsts | {alone.token_ids[:20]}) == 17


async def test_only_the_turns_own_stop_ids_end_it(bench: Bench) -> None:
    """The model's end token is a token like any other unless the renderer says that it ends."""
    prompts = [prompt_of(seed) for seed in range(16)]
    free = await asyncio.gather(
        *[bench.ask(p, session=str(i), max_tokens=60) for i, p in enumerate(prompts)]
    )
    ended = [answer for answer in free if EOS in answer.token_ids[:-1]]
    stop = free[0].token_ids[5]
    stopped = await bench.ask(prompts[0], max_tokens=60, stop_token_ids=frozenset({stop, EOS}))

    assert ended
    assert {answer.finish_reason for answer in free} == {"length"}
    cut = next(i for i, token in enumerate(free[0].token_ids) if token in (stop, EOS))
    assert stopped.token_ids == free[0].token_ids[: cut + 1]
    assert stopped.finish_reason == "stop"


async def test_the_token_that_completes_a_stop_string_is_the_last(bench: Bench) -> None:
    """As our own rule has it; whole tokens are kept, also where the string lies inside one."""
    tokenizer = load_tokenizer(str(POLICY))
    prompt = prompt_of(2)
    free = await bench.ask(prompt, max_tokens=40)
    text = tokenizer.decode(free.token_ids)
    stops = [text[at : at + size] for at in (3, 11, 20) for size in (1, 4)]
    stopped = await asyncio.gather(
        *[bench.ask(prompt, session=stop, max_tokens=40, stop=("~!~", stop)) for stop in stops]
    )

    for stop, answer in zip(stops, stopped, strict=True):
        kept = length_until_stop(free.token_ids, StopStrings(("~!~", stop), tokenizer.decode))
        assert (answer.token_ids, answer.finish_reason) == (free.token_ids[:kept], "stop_string")
        assert answer.logprobs == pytest.approx(free.logprobs[:kept], abs=EXACT)


async def test_limits_are_kept(bench: Bench) -> None:
    long = await bench.ask(prompt_of(3, CONTEXT - 3), max_tokens=100)
    with pytest.raises(EngineError, match="512 tokens leaves no room in a context of 512"):
        await bench.ask(prompt_of(3, CONTEXT))
    with pytest.raises(EngineError, match="Token id 900 is out of vocabulary"):
        await bench.ask((1, 900))

    assert (len(long.token_ids), long.finish_reason) == (3, "length")


async def test_a_constraint_is_kept_to(bench: Bench) -> None:
    stops = frozenset({EOS})
    shape = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    number, value = await asyncio.gather(
        bench.ask(prompt_of(4), constraint=Constraint(regex="[0-9]{4}"), stop_token_ids=stops),
        bench.ask(
            prompt_of(4),
            session="json",
            max_tokens=60,
            constraint=Constraint(json_schema=shape),
            stop_token_ids=stops,
        ),
    )
    decode = load_tokenizer(str(POLICY)).decode

    assert decode(number.token_ids[:-1]).isdigit()
    assert (number.token_ids[-1], number.finish_reason) == (EOS, "stop")
    assert json.loads(decode(value.token_ids[:-1]))["n"] in (1, 2)
    wrong = Constraint(regex="(?=a)b")
    with pytest.raises(ConstraintError, match=r"vLLM cannot enforce regex='\(\?=a\)b': .*[Ll]ook"):
        await bench.ask(prompt_of(4), constraint=wrong)
    with pytest.raises(EngineError, match="Token id 900 is out of vocabulary") as caught:
        await bench.ask((1, 900), constraint=Constraint(regex="[0-9]{4}"))
    assert not isinstance(caught.value, ConstraintError)


async def test_cancelled_and_released_turns_end_at_the_server(bench: Bench) -> None:
    turns = [
        asyncio.create_task(bench.ask(prompt_of(i), session=str(i), max_tokens=400))
        for i in range(12)
    ]
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(lambda: bench.running) == 12
    for turn in turns[:6]:
        turn.cancel()
    for i in range(6, 12):
        bench.engine.release(str(i))
    outcomes = await asyncio.gather(*turns, return_exceptions=True)
    await bench.comes_to_rest()

    assert [type(outcome) for outcome in outcomes[:6]] == [asyncio.CancelledError] * 6
    assert all(isinstance(outcome, EngineError) for outcome in outcomes[6:])


async def test_a_full_queue_is_waited_for(bench: Bench) -> None:
    """The server takes 24 and answers others with 503."""
    answers = await asyncio.gather(
        *[bench.ask(prompt_of(i), session=str(i), max_tokens=16) for i in range(80)]
    )

    assert all(len(answer.token_ids) == 16 for answer in answers)


async def test_more_prompts_than_one_step_takes_are_sampled_by_their_seeds(bench: Bench) -> None:
    """vLLM 0.32 on a CPU dies of a seeded prompt that it computes in parts."""
    prompts = [prompt_of(100 + i, 450) for i in range(20)]
    alone = await bench.ask(prompts[-1], seed=9)
    answers = await asyncio.gather(
        *[bench.ask(prompt, session=str(i), seed=9) for i, prompt in enumerate(prompts)]
    )

    assert answers[-1].token_ids == alone.token_ids
    assert max(map(bench.error, prompts, answers)) < EXACT


async def test_an_update_overtakes_turns_and_every_token_says_whose_it_is(bench: Bench) -> None:
    """What comes before is the old model's, what comes after the new one's; nothing is mixed."""
    old, new = bench.model, perturbed(load(POLICY), seed=5)
    prompt = prompt_of(6, 100)
    warm = await bench.ask(prompt, max_tokens=2)
    await bench.cached_tokens(prompt)
    assert await bench.cached_tokens(prompt) == 96
    turns = [
        asyncio.create_task(bench.ask(prompt, session=str(i), seed=i, max_tokens=300))
        for i in range(4)
    ]
    await asyncio.sleep(0.6)
    version = await bench.update(new)
    answers = await asyncio.gather(*turns)
    cached = await bench.cached_tokens(prompt)
    after = await bench.ask(prompt)

    assert warm.policy_version != version == after.policy_version
    assert cached == 0
    assert bench.error(prompt, after) < EXACT
    for answer in answers:
        begins = answer.token_versions.index(version)
        ids = answer.token_ids
        assert 0 < begins < 300
        assert off_by(old, prompt, ids[:begins], answer.logprobs[:begins]) < EXACT
        late = (*prompt, *ids[:begins])
        assert off_by(new, late, ids[begins:], answer.logprobs[begins:]) < EXACT
        assert off_by(old, late, ids[begins:], answer.logprobs[begins:]) > 0.1


async def test_weights_of_another_model_are_refused_and_the_old_ones_serve(bench: Bench) -> None:
    prompt = prompt_of(7)
    before = await bench.ask(prompt)
    turn = asyncio.create_task(bench.ask(prompt, session="t", max_tokens=200))
    await asyncio.sleep(0.2)
    good = weights_of(perturbed(load(POLICY), seed=8))
    name = "model.norm.weight"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({k: v for k, v in good.items() if k != name}, f"missing: {name}"),
        (good | {"model.extra": good[name]}, "no such tensor in the model: model.extra"),
        (good | {name: good[name][:5]}, rf"{name} is \[5\] float32, the model's \[128\]"),
        (good | {name: good[name] / 0}, f"not finite: {name}"),
    ]
    for tensors, message in wrong:
        with pytest.raises(ConfigError, match=f"weights refused: .*{message}"):
            await bench.engine.update_weights(ModelWeights(tensors))
        again = await bench.ask(prompt)
        assert (again.token_ids, again.policy_version) == (before.token_ids, before.policy_version)
    answer = await turn

    assert answer.token_versions == ()
    assert bench.error(prompt, answer) < EXACT


async def test_an_adapter_is_the_policy(bench: Bench) -> None:
    """Its logprobs are PEFT's; a turn that began with the one before ends with it."""
    prompt, base = prompt_of(9), bench.model
    await bench.update(base)  # an adapter is not put on what an earlier run has left
    tuned = [adapted(base, seed=seed) for seed in range(2)]
    first = await bench.engine.update_weights(adapter_weights(tuned[0]))
    turn = asyncio.create_task(bench.ask(prompt, session="t", max_tokens=150))
    await asyncio.sleep(0.3)
    second = await bench.engine.update_weights(adapter_weights(tuned[1]))
    after = await bench.ask(prompt, max_tokens=20)
    overtaken = await turn

    for model, answer, version in [(tuned[0], overtaken, first), (tuned[1], after, second)]:
        error = off_by(model, prompt, answer.token_ids, answer.logprobs)
        assert (error < EXACT, answer.policy_version) == (True, version)
        assert answer.token_versions == ()
    assert bench.error(prompt, after) > 0.1
    too_wide = adapter_weights(adapted(base, seed=0, rank=32))
    with pytest.raises(ConfigError, match="rank 32 is greater than"):
        await bench.engine.update_weights(too_wide)
    assert (await bench.ask(prompt, max_tokens=20)).token_ids == after.token_ids


@dataclass
class _Recorded:
    """An engine that remembers what it was asked and what it answered."""

    inner: VllmServerEngine
    calls: dict[str, list[tuple[tuple[int, ...], Generation]]] = field(default_factory=dict)

    @property
    def max_context(self) -> int:
        return self.inner.max_context

    @property
    def policy_version(self) -> int:
        return self.inner.policy_version

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        answer = await self.inner.generate(prompt_ids, sampling, session=session)
        self.calls.setdefault(session, []).append((prompt_ids, answer))
        return answer

    def release(self, session: str) -> None:
        self.inner.release(session)

    async def update_weights(self, weights: Any = None) -> int:
        return await self.inner.update_weights(weights)

    async def aclose(self) -> None:
        """The bench closes it."""


async def test_a_rollout_holds_exactly_what_was_asked_and_sampled(bench: Bench) -> None:
    """Invariants 1 and 2, over whole trajectories of the calculator with the embedded policy."""
    from agentgym.commands.language import load_language
    from agentgym.rollout import Player, collect
    from agentgym.rollout.game import game_of
    from agentgym.rollout.gym_scheduler import GymScheduler
    from agentgym.rollout.sampler import Sampler
    from agentgym.tokens import flat_ids, flat_logprobs, flat_mask
    from agentgym.trajectory import Budget

    await bench.update(load(POLICY))
    language = load_language(str(POLICY), dialect_name="auto", template_args={}, on_rewrite="error")
    game = game_of("calculator")
    sampler = Sampler(env=game.name, tasks=game.train, seed=3, group_size=8)
    engine = _Recorded(bench.engine)
    player = Player(
        engine=engine,
        renderer=language.renderer,
        scheduler=GymScheduler(game.make_env),
        budget=Budget(max_turns=4, max_sampled_tokens=120),
    )
    outputs = await collect(sampler.groups([0, 1, 2]), player)
    await bench.comes_to_rest()

    assert len(outputs) == len(engine.calls) == 24
    assert sum(output.num_turns > 1 for output in outputs) > 3
    for output, calls in zip(outputs, _in_order(engine, outputs), strict=True):
        assert not output.stop_reason.is_failure
        ids, mask = flat_ids(output.segments), flat_mask(output.segments)
        logprobs = flat_logprobs(output.segments)
        for prompt, answer in calls:
            end = len(prompt) + len(answer.token_ids)
            assert tuple(ids[:end]) == (*prompt, *answer.token_ids)
            assert all(mask[len(prompt) : end])
            assert tuple(logprobs[len(prompt) : end]) == answer.logprobs
            assert bench.error(prompt, answer) < EXACT
        assert sum(mask) == sum(len(answer.token_ids) for _, answer in calls)
    assert bench.engine.loads == [0]


def _in_order(engine: _Recorded, outputs: Any) -> list[Any]:
    """Calls of each trajectory; the first attempt's name is the request's."""
    found = []
    for output in outputs:
        names = [name for name in engine.calls if name.split("/")[0] == output.request_id]
        found.append(engine.calls[names[0] if names else output.request_id])
    return found
