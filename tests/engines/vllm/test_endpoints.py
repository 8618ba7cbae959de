"""`OpenAIEngine` over the text endpoints of vLLM's own server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from vllm_engine_kit import Bench, Ground, prompt_of
from vllm_kit import load

from agentgym.cli import main
from agentgym.commands.language import Language, load_language
from agentgym.commands.policies import openai_engine
from agentgym.constraint import Constraint, ConstraintError
from agentgym.engines.base import Generation, Sampling
from agentgym.engines.http import Patience
from agentgym.engines.openai import Endpoint, OpenAIEngine
from agentgym.errors import ConfigError
from agentgym.messages import user
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import read_jsonl

pytestmark = pytest.mark.vllm
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}
QUESTION = "What is 3 + 4?"


@pytest.fixture(scope="module")
def language() -> Language:
    return load_language(str(PATH), dialect_name="auto", template_args={}, on_rewrite="fork")


def engine_at(
    url: str, language: Language, *, chat: bool = False, model: str = str(PATH), **patience: Any
) -> OpenAIEngine:
    settings = Patience(**{"timeout_s": 60, "max_retries": 2, **patience})
    endpoint = Endpoint(url=f"{url}/v1", model=model, patience=settings)
    asked = [{"role": "user", "content": QUESTION}]
    engine = openai_engine(endpoint, language, (lambda session: asked) if chat else None)
    assert isinstance(engine, OpenAIEngine)
    return engine


@pytest.fixture(params=[False, True], ids=["completions", "chat"])
async def engine(
    request: pytest.FixtureRequest, ground: Ground, language: Language
) -> AsyncIterator[OpenAIEngine]:
    """Of both kinds; the server has the policy's own weights or others, whatever ran before."""
    assert ground.served is not None
    engine = engine_at(ground.served.url, language, chat=request.param)
    yield engine
    await engine.aclose()


async def ask(engine: OpenAIEngine, language: Language, **how: Any) -> Generation:
    prompt = language.renderer.render([user(QUESTION)], ())
    settings = Sampling(**{"max_tokens": 60, "seed": 1, "temperature": 0.0, **how})
    return await engine.generate(tuple(prompt), settings, session="s")


async def test_a_turn_has_the_reason_and_the_counts_of_the_server(
    engine: OpenAIEngine, language: Language
) -> None:
    """Greedy, so that the free turn begins with what the cut one said."""
    cut = await ask(engine, language, max_tokens=3)
    free = await ask(engine, language)

    assert (cut.finish_reason, len(cut.token_ids)) == ("length", 3)
    assert free.token_ids[:3] == cut.token_ids
    assert engine.usage.requests == 2
    assert engine.usage.prompt_tokens > 2 * 5
    assert engine.usage.completion_tokens == len(cut.token_ids) + len(free.token_ids)


async def test_a_stop_string_is_the_end_of_the_turn(
    engine: OpenAIEngine, language: Language
) -> None:
    free = await ask(engine, language)
    text = language.renderer.decode(free.token_ids)
    stop = text[4:6]
    stopped = await ask(engine, language, stop=("~!~", stop))

    assert stopped.finish_reason == "stop_string"
    assert language.renderer.decode(stopped.token_ids) == text[: text.index(stop) + len(stop)]


async def test_constraints_are_kept_or_the_envs_failure(
    engine: OpenAIEngine, language: Language
) -> None:
    number = await ask(engine, language, constraint=Constraint(regex="[0-9]{4}"))
    value = await ask(engine, language, constraint=Constraint(json_schema=SCHEMA))
    decode = language.renderer.decode

    assert decode(number.token_ids[:-1]).isdigit()
    assert (number.finish_reason, len(decode(number.token_ids[:-1]))) == ("stop", 4)
    assert json.loads(decode(value.token_ids[:-1]))["n"] in (1, 2)
    for wrong in (
        Constraint(regex="(?=a)b"),
        Constraint(json_schema={"type": "array", "uniqueItems": True}),
    ):
        with pytest.raises(ConstraintError) as caught:
            await ask(engine, language, constraint=wrong)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


async def test_no_more_requests_run_at_the_server_than_are_allowed(
    bench: Bench, language: Language
) -> None:
    engine = engine_at(bench.served.url, language, concurrency=2)
    settings = Sampling(max_tokens=60, seed=1, temperature=2.0)
    turns = [
        asyncio.create_task(engine.generate(prompt_of(i), settings, session=str(i)))
        for i in range(6)
    ]
    seen = []
    while not all(turn.done() for turn in turns):
        seen.append(await asyncio.to_thread(lambda: bench.running))
    await asyncio.gather(*turns)
    await engine.aclose()

    assert max(seen) == 2
    assert engine.usage.requests == 6


async def test_another_model_is_one_line(ground: Ground, language: Language) -> None:
    assert ground.served is not None
    engine = engine_at(ground.served.url, language, model="another")
    with pytest.raises(ConfigError, match=r"there is no model 'another', or no such path"):
        await ask(engine, language)
    await engine.aclose()


async def play(*flags: str) -> int:
    """Exit code of a rollout, beside which the server is reached."""
    plays = ["rollout", "--env", "calculator", "--max-tokens", "128", "--show", "0"]
    return await asyncio.to_thread(main, [*plays, *flags])


@pytest.mark.parametrize("kind", ["openai", "openai-chat"])
async def test_the_policy_plays_the_calculator_as_text(
    kind: str,
    bench: Bench,
    language: Language,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As token by token, where it completes the same prompts; and what it says of tools arrives,
    though it writes them with special tokens."""
    await bench.update(load(PATH))
    text, tokens, free = (tmp_path / name for name in ("text", "tokens", "free"))
    greedily = ["--n", "8", "--temperature", "0"]
    policy = ["--policy", f"{kind}:{bench.served.url}/v1", "--endpoint-context", "256"]

    assert await play(*policy, "--n", "24", "--out", str(free)) == 0
    outputs = list(read_jsonl(free))
    assert not any(output.stop_reason.is_failure for output in outputs)
    turns = sum(output.num_turns for output in outputs)
    assert f"the endpoint answered {turns} requests: " in capsys.readouterr().out
    sampled = {token for output in outputs for segment in output.sampled for token in segment.ids}
    assert set(language.encode("<tool_call></tool_call>")) <= sampled
    if kind == "openai":
        assert await play(*policy, *greedily, "--out", str(text)) == 0
        assert await play("--server-url", bench.served.url, *greedily, "--out", str(tokens)) == 0
        by_text, by_tokens = ([o.token_ids for o in read_jsonl(p)] for p in (text, tokens))
        assert sorted(by_text) == sorted(by_tokens)
