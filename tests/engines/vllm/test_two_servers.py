"""Two of vLLM's own servers under one engine: one policy, whatever happens to either of them."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks_kit
from vllm_engine_kit import EXACT, ModelWeights, off_by, prompt_of
from vllm_kit import load, perturbed, weights_of
from vllm_pair_kit import QUICK, Pair, two_running

from agentgym.errors import EngineError
from agentgym.trainer.tiny_policy import PATH

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


ONE_WAY = pytest.mark.parametrize("pair", ["agentgym_shm"], indirect=True)
"""How weights travel makes no difference."""


@pytest.fixture(scope="module", params=["agentgym_shm", "agentgym_gloo"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with two_running(request.param) as running:
        yield running


@ONE_WAY
async def test_a_trajectory_stays_with_its_server(pair: Pair) -> None:
    """Every later turn finds the earlier ones in the cache."""
    over = pair.engine()
    prompts = {f"t{number}": prompt_of(1000 + number, 64) for number in range(8)}
    hits, requests = pair.metric("vllm:prefix_cache_hits_total"), _requests(pair)
    for turn in range(3):
        asked = [over.ask(prompt, name, max_tokens=32) for name, prompt in prompts.items()]
        answers = await asyncio.gather(*asked)
        for (name, prompt), answer in zip(list(prompts.items()), answers, strict=True):
            prompts[name] = (*prompt, *answer.token_ids)
        assert over.engine.loads == [4, 4], turn
    found = [b - a for a, b in zip(hits, pair.metric("vllm:prefix_cache_hits_total"), strict=True)]
    asked_of = [b - a for a, b in zip(requests, _requests(pair), strict=True)]
    await over.close()

    assert asked_of == [12, 12]
    assert found == [4 * (64 + 96)] * 2


def _requests(pair: Pair) -> list[float]:
    return pair.metric("vllm:request_success_total")


async def test_both_get_every_update(pair: Pair) -> None:
    over = pair.engine()
    assert await over.error() < EXACT
    for seed in (1, 2):
        version = await over.update(seed)
        assert pair.labels == [str(version)] * 2
        assert await over.error() < EXACT
        assert {a.policy_version for a in await over.of_each(prompt_of(3))} == {version}
    await over.close()


async def test_turns_on_both_are_overtaken_by_an_update(pair: Pair) -> None:
    over = pair.engine()
    await over.update(3)
    old, new, prompt = pair.model, perturbed(load(PATH), seed=4), prompt_of(6)
    turns = [
        asyncio.create_task(over.ask(prompt, f"s{i}", seed=i, max_tokens=450)) for i in range(4)
    ]
    await asyncio.wait_for(pair.sampling(), 60)
    assert over.engine.loads == [2, 2]
    version = await over.engine.update_weights(ModelWeights(weights_of(new)))
    pair.model = new
    answers = await asyncio.gather(*turns)
    await over.close()

    for answer in answers:
        begins, ids = answer.token_versions.index(version), answer.token_ids
        assert 0 < begins < 450
        assert off_by(old, prompt, ids[:begins], answer.logprobs[:begins]) < EXACT
        late = (*prompt, *ids[:begins])
        assert off_by(pair.model, late, ids[begins:], answer.logprobs[begins:]) < EXACT


async def test_one_that_loses_what_was_staged_is_named_and_nothing_changes(pair: Pair) -> None:
    """Found before anything is swapped: both go on with what they had."""
    over = pair.engine(QUICK)
    version = await over.update(5)
    before = await over.of_each(prompt_of(4))
    two = pair.served[1]

    def interfere() -> None:
        with pytest.raises(Exception, match="weights refused: missing"):
            two.call("/finish_weight_update", {"weight_version": "77"})

    with pytest.raises(EngineError, match=rf"not updated: .*{two.url}.*no update is under way"):
        await over.update(6, at=3, hook=interfere)
    after = await over.of_each(prompt_of(4))
    await over.close()

    assert pair.labels == [str(version)] * 2
    assert after == before


@ONE_WAY
async def test_one_that_refuses_the_swap_is_named_and_nobody_samples(pair: Pair) -> None:
    """The other one has swapped; the next update brings both to one version."""
    over = pair.engine(QUICK)
    await over.update(7)
    one, two = pair.served

    def interfere() -> None:
        two.call("/start_weight_update", {})

    told = rf"new weights at {one.url}, old ones at {two.url}"
    with pytest.raises(EngineError, match=told):
        await over.update(8, hook=interfere)
    with pytest.raises(EngineError, match=told):
        await over.ask(prompt_of(4), "s")
    late = pair.engine(QUICK)
    with pytest.raises(EngineError, match="not of one version"):
        await late.ask(prompt_of(4), "s")
    version = await over.update(9)
    assert pair.labels == [str(version)] * 2
    assert await over.error() < EXACT
    await over.close()
    await late.close()


@ONE_WAY
async def test_a_number_never_stands_for_two_policies(pair: Pair) -> None:
    """Somebody else has given one server weights under the number that is to come."""
    over, other = pair.engine(QUICK), pair.engine(QUICK, only=0)
    await over.update(10)
    theirs = ModelWeights(weights_of(perturbed(load(PATH), seed=11)))
    await other.engine.update_weights(theirs)
    ours = ModelWeights(weights_of(perturbed(load(PATH), seed=12)), version=theirs.version)
    with pytest.raises(EngineError, match=f"{pair.urls[0]} has weights of a version"):
        await over.engine.update_weights(ours)
    assert pair.labels[0] != pair.labels[1]
    version = await over.update(13)
    assert pair.labels == [str(version)] * 2
    assert await over.error() < EXACT
    await over.close()
    await other.close()


@ONE_WAY
async def test_a_rollout_over_both_holds_exactly_what_was_sampled(pair: Pair) -> None:
    """Invariants 1 and 2, over whole trajectories of the calculator."""
    from agentgym.commands.language import load_language
    from agentgym.rollout import Player, collect
    from agentgym.rollout.game import game_of
    from agentgym.rollout.gym_scheduler import GymScheduler
    from agentgym.rollout.sampler import Sampler
    from agentgym.tokens import flat_ids, flat_logprobs, flat_mask
    from agentgym.trajectory import Budget

    over = pair.engine()
    pair.model = load(PATH)
    await over.engine.update_weights(ModelWeights(weights_of(pair.model)))
    language = load_language(str(PATH), dialect_name="auto", template_args={}, on_rewrite="error")
    game = game_of("calculator")
    sampler = Sampler(env=game.name, tasks=game.train, seed=3, group_size=8)
    player = Player(
        engine=over.engine,
        renderer=language.renderer,
        scheduler=GymScheduler(game.make_env),
        budget=Budget(max_turns=4, max_sampled_tokens=120),
    )
    requests = _requests(pair)
    outputs = await collect(sampler.groups([0, 1, 2]), player)
    shares = [b - a for a, b in zip(requests, _requests(pair), strict=True)]
    assert over.engine.loads == [0, 0]
    await over.close()

    assert len(outputs) == 24
    assert sum(output.num_turns > 1 for output in outputs) > 3
    assert min(shares) > 0.3 * sum(shares)
    for output in outputs:
        assert not output.stop_reason.is_failure
        ids, mask = flat_ids(output.segments), flat_mask(output.segments)
        logprobs = flat_logprobs(output.segments)
        expected = _logprobs_of_all(pair.model, ids)
        trained = [position for position, own in enumerate(mask) if own]
        assert trained
        assert max(abs(logprobs[p] - expected[p - 1]) for p in trained) < EXACT


def _logprobs_of_all(model: Any, ids: list[int]) -> list[float]:
    """[T - 1] of every token after the first."""
    from vllm_kit import logprobs_of

    return logprobs_of(model, ids[:1], ids[1:])


async def test_one_that_dies_in_an_update_is_named_and_the_other_keeps_its_weights(
    pair: Pair,
) -> None:
    """While buckets are on their way, within the deadline; back again, it gets the next update."""
    over = pair.engine(QUICK)
    version = await over.update(14)
    before = (await over.of_each(prompt_of(4)))[0]
    started = time.monotonic()
    with pytest.raises(EngineError, match=rf"not updated: .*{pair.urls[1]}"):
        await over.update(15, at=3, hook=lambda: pair.kill(1))
    took = time.monotonic() - started
    alone = [await over.ask(prompt_of(4), f"late-{i}") for i in range(3)]
    again = pair.served[0].call("/weight_info")["weight_version"]
    await asyncio.to_thread(pair.restart, 1)
    latest = await over.update(16)
    assert pair.labels == [str(latest)] * 2
    assert await over.error() < EXACT
    await over.close()
    print(f"\ntold after {took:.1f} s")

    assert took < QUICK.update_s
    assert again == str(version)
    assert alone == [before] * 3


async def test_one_that_dies_in_the_swap_is_named_and_nobody_samples(pair: Pair) -> None:
    over = pair.engine(QUICK)
    await over.update(17)
    one, two = pair.urls
    told = rf"new weights at {one}, old ones at no server, not known at {two}"
    with pytest.raises(EngineError, match=told):
        await over.update(18, hook=lambda: pair.kill(1))
    with pytest.raises(EngineError, match="did not end"):
        await over.ask(prompt_of(4), "s")
    await asyncio.to_thread(pair.restart, 1)
    with pytest.raises(EngineError, match="did not end"):
        await over.ask(prompt_of(4), "s")
    latest = await over.update(19)
    assert pair.labels == [str(latest)] * 2
    assert await over.error() < EXACT
    await over.close()


@ONE_WAY
async def test_one_that_dies_between_windows_stops_the_next_update_in_time(pair: Pair) -> None:
    """Its trajectories move; a server that came back without an update is not sampled from."""
    over = pair.engine(QUICK)
    version = await over.update(20)
    names = [f"s{i}" for i in range(4)]
    before = await asyncio.gather(*[over.ask(prompt_of(5), name) for name in names])
    assert over.engine.loads == [2, 2]
    pair.kill(1)
    during = await asyncio.gather(*[over.ask(prompt_of(5), name) for name in names])
    started = time.monotonic()
    with pytest.raises(EngineError, match=rf"not updated: {pair.urls[1]} was not there"):
        await over.update(21)
    took = time.monotonic() - started
    await asyncio.to_thread(pair.restart, 1)
    more = [await over.ask(prompt_of(5), f"new-{i}") for i in range(6)]
    assert {answer.policy_version for answer in (*during, *more)} == {version}
    latest = await over.update(22)
    assert pair.labels == [str(latest)] * 2
    assert await over.error() < EXACT
    await over.close()

    assert took < QUICK.gone_s + QUICK.resume_s + 10
    assert during == before
    assert {answer.token_ids for answer in more} == {before[0].token_ids}


SCRIPT = """
import asyncio, json, os, sys
import torch
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.engines.vllm.settings import VllmServers
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.tiny_policy import PATH

out, runs = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
found = {}
for name, urls in runs.items():
    engine = VllmServerEngine(VllmServers(urls=tuple(urls[rank])))
    args = AgentGRPOConfig(
        output_dir=os.path.join(out, name), use_cpu=True, max_steps=2, num_generations=4,
        per_device_train_batch_size=8, max_completion_length=96, learning_rate=1e-3,
        logging_steps=1, save_strategy="no", report_to="none", probe_every=1,
    )
    trainer = AgentGRPOTrainer(str(PATH), args, env="calculator", engine=engine)
    trainer.train()
    weights = torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])
    rows = [row for row in trainer.state.log_history if "step_time" in row]
    found[name] = {
        "rows": rows, "versions": trainer.ranks.gather(engine.policy_version),
        "sums": trainer.ranks.gather((float(weights.sum()), float(weights.abs().max()))),
    }
    asyncio.run(engine.aclose())
if rank == 0:
    open(os.path.join(out, "found.json"), "w").write(json.dumps(found))
trainer.accelerator.wait_for_everyone()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)  # threads of torch.distributed may abort an interpreter that is ending
"""


def test_two_ranks_share_servers_or_have_their_own(pair: Pair, tmp_path: Path) -> None:
    """One policy on both ranks and on all servers, and the engine's opinion is the trainer's."""
    one, two = pair.urls
    runs = {"one": [[one], [one]], "both": [[one, two], [two, one]], "own": [[one], [two]]}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ranks_kit.run([script, tmp_path, json.dumps(runs)]).in_peace()
    found = json.loads((tmp_path / "found.json").read_text())

    for name, figures in found.items():
        assert figures["sums"][0] == figures["sums"][1], name
        assert figures["versions"][0] == figures["versions"][1], name
        assert len(figures["rows"]) == 2, name
        for row in figures["rows"]:
            assert row["sampling/logp_diff_max"] < EXACT, name
            assert row["sync/probe_max"] < EXACT, name
    sums = [figures["sums"][0] for figures in found.values()]
    assert sums[1] == pytest.approx(sums[0], rel=1e-4) == sums[2]
    assert pair.labels == [str(found["own"]["versions"][0])] * 2
