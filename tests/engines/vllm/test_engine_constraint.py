"""Constrained turns of vLLM in this process: kept to, or the env's failure if they cannot be."""

import asyncio
import json
import re

import jsonschema
import pytest
from vllm_engine_kit import prompt_of
from vllm_kit import POLICY
from vllm_local_kit import Local

from agentgym.constraint import Constraint, ConstraintError
from agentgym.engines.loading import load_tokenizer
from agentgym.engines.vllm.engine import VllmEngine
from agentgym.envs import TextEnv
from agentgym.envs.base import Info, ResetResult
from agentgym.envs.text_env import TextStep
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, run_trajectory
from agentgym.trajectory import RolloutOutput, RolloutRequest, StopReason, Task

pytestmark = pytest.mark.vllm
PROMPT = prompt_of(4)
TOKENIZER = load_tokenizer(str(POLICY))
STOPS = frozenset({TOKENIZER.eos_token_id})
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}, "colour": {"enum": ["red", "blue"]}},
    "required": ["n", "colour"],
    "additionalProperties": False,
}


async def test_turns_match_their_regex_and_their_schema(local: Local) -> None:
    """In one batch, and with a free turn that does not notice."""
    alone = await local.ask(PROMPT, max_tokens=20)
    how = {"stop_token_ids": STOPS, "max_tokens": 100}
    number, value, free = await asyncio.gather(
        local.ask(PROMPT, constraint=Constraint(regex="[0-9]{4}"), session="n", **how),
        local.ask(PROMPT, constraint=Constraint(json_schema=SCHEMA), session="v", **how),
        local.ask(PROMPT, max_tokens=20, session="f"),
    )
    decode = TOKENIZER.decode

    assert re.fullmatch("[0-9]{4}", decode(number.token_ids[:-1]))
    jsonschema.validate(json.loads(decode(value.token_ids[:-1])), SCHEMA)
    assert [answer.finish_reason for answer in (number, value)] == ["stop", "stop"]
    assert free.token_ids == alone.token_ids


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(regex="(?=a)b"),
        Constraint(json_schema={"type": "array", "uniqueItems": True}),
        Constraint(json_schema={"$ref": "#/nowhere"}),
    ],
    ids=["look-around", "keyword", "reference"],
)
async def test_what_vllm_cannot_enforce_is_the_envs_failure(
    local: Local, constraint: Constraint
) -> None:
    """Of its trajectory; turns beside and after it go on."""
    fine = asyncio.create_task(local.ask(PROMPT, max_tokens=20))
    with pytest.raises(ConstraintError) as caught:
        await local.ask(PROMPT, constraint=constraint, stop_token_ids=STOPS, session="bad")
    output = await _played(local.engine, constraint)

    assert str(caught.value).startswith(f"vLLM cannot enforce {constraint}: ")
    assert "\n" not in str(caught.value)
    assert output.stop_reason == StopReason.ENV_ERROR
    assert len((await fine).token_ids) == 20
    assert len((await local.ask(PROMPT)).token_ids) == 8


class _Asking(TextEnv):
    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint

    def start(self, task: Task) -> str:
        return "?"

    def respond(self, text: str) -> TextStep:
        return TextStep("", 1.0, True)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        observation, info = super().reset(seed=seed, options=options)
        return observation, info | {"constraint": self._constraint}


async def _played(engine: VllmEngine, constraint: Constraint) -> RolloutOutput:
    request = RolloutRequest(
        request_id="r", group_id="g", env="e", task=Task(id="t"), seed=0, sampling_seed=0
    )
    player = Player(
        engine=engine,
        renderer=renderer_for(TOKENIZER),
        scheduler=GymScheduler(lambda: _Asking(constraint)),
    )
    return await run_trajectory(request, player)
