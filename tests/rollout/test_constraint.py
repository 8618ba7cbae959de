"""Constrained turns within a trajectory: whose constraint counts, for how long, and what trains."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentgym.constraint import Constraint
from agentgym.engines.transformers import TransformersEngine
from agentgym.envs import Env
from agentgym.envs.base import Info, ResetResult, StepResult
from agentgym.errors import ConfigError
from agentgym.messages import user
from agentgym.rendering import Renderer
from agentgym.rollout import GymScheduler, NextTurn, Player, Trajectory, run_trajectory
from agentgym.rollout.forking import rewritten
from agentgym.testing import byte_tokenizer
from agentgym.tokens import TokenTrace
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason, Turn

MakeRequest = Callable[..., RolloutRequest]
DIGITS = {"regex": "[0-9]{3}"}
YES_OR_NO = Constraint(regex="yes|no")


class Quiz(Env):
    """Three questions; says what each answer must look like."""

    def __init__(self, constraints: Sequence[object]) -> None:
        self._constraints = constraints

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        self._num_answers = 0
        return [user("?")], self._info()

    def step(self, action: Any) -> StepResult:
        self._num_answers += 1
        is_over = self._num_answers == 3
        return ([] if is_over else [user("?")]), 1.0, is_over, False, self._info()

    def _info(self) -> Info:
        wanted = [*self._constraints, None, None, None][self._num_answers]
        return {} if wanted is None else {"constraint": wanted}


class Insisting(GymScheduler):
    """Wants yes or no in the second turn, whatever the env wants."""

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        following = await super().step(trajectory, turn)
        wanted = YES_OR_NO if turn.index == 0 else None
        return NextTurn(messages=following.messages, constraint=wanted)


@pytest.fixture(scope="module")
def policy() -> Qwen3ForCausalLM:
    """Says something short."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    vocabulary = len(byte_tokenizer())
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=vocabulary, eos_token_id=None, **shape, **heads)
    )
    end = torch.zeros(vocabulary)
    end[byte_tokenizer().eos_token_id] = 5.0
    model.lm_head.register_forward_hook(lambda module, given, logits: logits + end)
    return model


@pytest.fixture
async def engine(policy: Qwen3ForCausalLM) -> AsyncIterator[TransformersEngine]:
    engine = TransformersEngine(policy, tokenizer=byte_tokenizer())
    yield engine
    await engine.aclose()


@pytest.fixture
def play(
    engine: TransformersEngine, renderer: Renderer, request_for: MakeRequest
) -> Callable[..., Any]:
    """One trajectory of a quiz."""

    async def play(
        *constraints: object, kind: type[GymScheduler] = GymScheduler, **options: Any
    ) -> RolloutOutput:
        player = Player(
            engine=options.pop("engine", engine),
            renderer=renderer,
            scheduler=kind(lambda: Quiz(constraints)),
            budget=Budget(max_turn_tokens=60, max_blank_turns=4),
            **options,
        )
        return await run_trajectory(request_for(1), player)

    return play


def said(output: RolloutOutput) -> list[str]:
    return [message.content for message in output.messages if message.role == "assistant"]


def trained(output: RolloutOutput) -> list[bool]:
    return [segment.is_trained for segment in output.segments if segment.source == "sampled"]


async def test_only_free_turns_are_trained(play: Callable[..., Any]) -> None:
    """A constrained one is in the record, with the probabilities it was sampled with."""
    output = await play(None, DIGITS, None)

    assert output.stop_reason == StopReason.TERMINATED
    assert len(said(output)) == 3
    assert re.fullmatch("[0-9]{3}", said(output)[1])
    assert not re.fullmatch("[0-9]{3}", said(output)[2])
    assert trained(output) == [True, False, True]
    [_, constrained, _] = [s for s in output.segments if s.source == "sampled"]
    assert len(constrained.logprobs) == len(constrained.ids) == 4
    assert constrained.logprobs[-1] == pytest.approx(0.0, abs=1e-6)


async def test_the_first_turn_is_constrained_by_reset(play: Callable[..., Any]) -> None:
    output = await play(DIGITS)

    assert re.fullmatch("[0-9]{3}", said(output)[0])
    assert trained(output) == [False, True, True]


async def test_what_the_scheduler_says_of_the_next_turn_counts(play: Callable[..., Any]) -> None:
    """Over the env's word, and for that turn alone."""
    output = await play(DIGITS, DIGITS, None, kind=Insisting)

    assert re.fullmatch("[0-9]{3}", said(output)[0])
    assert said(output)[1] in {"yes", "no"}
    assert trained(output) == [False, False, True]


async def test_a_schema_is_enough(play: Callable[..., Any]) -> None:
    schema = {"enum": [{"colour": "red"}, {"colour": "blue"}]}
    output = await play(None, {"json_schema": schema})

    assert json.loads(said(output)[1]) in schema["enum"]


async def test_a_constrained_turn_that_is_cut_is_recorded_as_cut(play: Callable[..., Any]) -> None:
    output = await play(None, {"regex": "[ab]{99}"})

    assert output.stop_reason == StopReason.LENGTH
    assert re.fullmatch("[ab]{60}", said(output)[1])
    assert trained(output) == [True, False]


async def test_a_constrained_turn_counts_and_counts_once(play: Callable[..., Any]) -> None:
    """Also where a history that is rewritten shows it a second time."""
    output = await play(None, DIGITS, None)
    trace = TokenTrace(output.segments)
    fork = rewritten(trace, [*trace.ids, 1, 2])
    forked = output.model_copy(update={"branches": (trace.segments,), "segments": fork.segments})

    assert [output.num_turns, forked.num_turns] == [3, 3]
    assert [segment.constrained for segment in forked.spoken] == [False, True, False]
    assert len(forked.sampled) == 2


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"regex": "(a"}, r"regex='\(a'"),
        ({"json_schema": {"type": "text"}}, "'text'"),
        ("[0-9]", "not a str"),
        ({"regex": "a", "json_schema": {}}, "give one of them"),
        ({"regex": "(?=a)b"}, "cannot be enforced: .*look-around"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "cannot be enforced"),
    ],
)
@pytest.mark.parametrize("before", [(), (None,)], ids=["reset", "step"])
async def test_a_wrong_constraint_is_the_envs_failure(
    play: Callable[..., Any], before: tuple[None, ...], wrong: object, reason: str
) -> None:
    """Of this trajectory, and it is not played again."""
    output = await play(*before, wrong)

    assert output.stop_reason == StopReason.ENV_ERROR
    assert re.search(reason, output.error)
    assert len(output.error) < 500
    assert "failed_attempts" not in output.rollout_infos


async def test_an_engine_that_cannot_constrain_stops_the_run(
    play: Callable[..., Any], policy: Qwen3ForCausalLM
) -> None:
    engine = TransformersEngine(policy)
    with pytest.raises(ConfigError, match="without `tokenizer`"):
        await play(DIGITS, engine=engine)
    await engine.aclose()
