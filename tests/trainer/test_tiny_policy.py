"""The policy that ships: it loads, its template keeps history, and there is something to learn."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.envs.calculator import CalculatorEnv, oracle
from agentgym.messages import Message, ToolCall, assistant, system, user
from agentgym.rendering import renderer_for
from agentgym.tokens import Segment, TokenTrace
from agentgym.trainer.tiny_policy import PATH
from agentgym.trainer.tiny_policy.tokenizer import SPECIAL_TOKENS
from agentgym.trainer.tiny_policy.warm_start import Recipe, warm_start

TOOLS: list[dict[str, Any]] = [tool.to_schema() for tool in CalculatorEnv().tools]
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
arguments = st.dictionaries(words, st.one_of(words, st.integers(), st.booleans()), max_size=2)
calls = st.lists(st.tuples(st.sampled_from(["calculator", "search"]), arguments), max_size=3)


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(PATH, local_files_only=True)


@cache
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(
        PATH, local_files_only=True, dtype=torch.float32
    ).eval()


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Turns of an assistant, each answered by its tools or by the user."""
    messages = [system(draw(words))] * draw(st.integers(0, 1)) + [user(draw(words))]
    for _ in range(draw(st.integers(1, 4))):
        turn = assistant(draw(words), *draw(calls))
        messages += [turn, *(answer(call, draw(words)) for call in turn.tool_calls)]
        if not turn.tool_calls or draw(st.booleans()):
            messages.append(user(draw(words)))
    return messages


def answer(call: ToolCall, content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id=call.id, name=call.name)


def render(messages: list[Message], tools: list[dict[str, Any]] | None, **options: Any) -> str:
    text = tokenizer().apply_chat_template(
        [message.to_chat() for message in messages], tools=tools, tokenize=False, **options
    )
    assert isinstance(text, str)
    return text


def test_the_path_is_known_without_torch():
    """The command line names the default model before it loads anything heavy."""
    code = (
        "import sys; from agentgym.trainer.tiny_policy import PATH; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "False"


def test_the_files_are_small_enough_to_ship():
    assert sum(file.stat().st_size for file in PATH.iterdir()) <= 4_000_000


def test_the_checkpoint_loads_with_the_auto_classes():
    assert model().config.model_type == "qwen3"
    assert sum(p.numel() for p in model().parameters()) < 700_000
    assert model().config.vocab_size == len(tokenizer()) == 512
    assert model().config.eos_token_id == tokenizer().eos_token_id
    assert tokenizer().padding_side == "left"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_the_tokenizer(text: str):
    ids = tokenizer().encode(text, add_special_tokens=False)

    assert tokenizer().decode(ids) == text


def test_digits_and_special_tokens_stand_alone():
    """A number is copied digit by digit, and a tag can never be half sampled."""
    for text in (*SPECIAL_TOKENS, *"0123456789"):
        assert len(tokenizer().encode(text)) == 1
    assert len(tokenizer().encode("1234567890")) == 10


@given(conversations(), st.booleans())
def test_the_template_keeps_history(messages: list[Message], with_tools: bool):
    """What was rendered when the policy spoke is a prefix of every later render."""
    tools = TOOLS if with_tools else None
    whole = render(messages, tools)
    for index, message in enumerate(messages):
        if message.role == "assistant":
            prompt = render(messages[:index], tools, add_generation_prompt=True)
            turn = render(messages[: index + 1], tools)

            assert turn.startswith(prompt)
            assert whole.startswith(turn)


def test_a_call_and_its_results_look_as_they_are_sampled():
    turn = assistant("", ("calculator", {"expression": "12+30"}), ("calculator", {"x": "é\n"}))
    results = [answer(call, text) for call, text in zip(turn.tool_calls, "47", strict=True)]

    assert render([user("Hi"), turn, *results], None, add_generation_prompt=True) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12+30"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "calculator", "arguments": {"x": "é\\n"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n4\n</tool_response>\n"
        "<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_listed_in_the_system_turn():
    listed = "Tools: calculator(expression)"

    assert render([user("Hi")], TOOLS).startswith(f"<|im_start|>system\n{listed}<|im_end|>\n")
    assert render([system("Be."), user("Hi")], TOOLS).startswith(
        f"<|im_start|>system\nBe.\n{listed}<|im_end|>\n"
    )


@given(conversations())
def test_generation_markers_enclose_what_the_assistant_said(messages: list[Message]):
    encoded = tokenizer().apply_chat_template(
        [message.to_chat() for message in messages],
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids, mask = encoded["input_ids"], encoded["assistant_masks"]
    said = tokenizer().decode([i for i, own in zip(ids, mask, strict=True) if own])
    texts = [
        render(messages[: index + 1], None).removeprefix(
            render(messages[:index], None, add_generation_prompt=True)
        )
        for index, message in enumerate(messages)
        if message.role == "assistant"
    ]

    assert said == "".join(text.removesuffix("\n") for text in texts)


async def test_rendering_turn_by_turn_equals_rendering_at_once():
    """The tokens the engine sees are those the template would write for the whole conversation."""
    renderer, env = renderer_for(tokenizer()), CalculatorEnv()
    task = env.tasks("eval")[2]
    messages, _ = await env.areset(options={"task": task})
    trace = TokenTrace([template(renderer.render(messages, TOOLS))])
    for _ in range(3):
        messages.append(oracle(task, messages))
        text = render([user("x"), messages[-1]], None).partition("<|im_start|>assistant\n")[2]
        ids = tokenizer().encode(text.removesuffix("\n"))
        trace.append(sampled(ids))
        observation, *_ = await env.astep(messages[-1])
        messages += observation
        trace.append(template(renderer.bridge(trace, observation, tools=TOOLS)))

    assert list(trace.ids) == renderer.render(messages, TOOLS)
    assert len(trace) < 300


def template(ids: list[int]) -> Segment:
    return Segment(ids=tuple(ids), source="template")


def sampled(ids: list[int]) -> Segment:
    zeros = (0.0,) * len(ids)
    return Segment(ids=tuple(ids), source="sampled", logprobs=zeros, policy_version=0)


async def sampled_reward(num_tasks: int) -> float:
    """Mean return on held-out tasks at temperature 1, through the real loop and engine."""
    from agentgym.engines.transformers import transformers_engine
    from agentgym.rollout import GymScheduler, Player, collect
    from agentgym.trajectory import Budget, RolloutRequest

    engine = transformers_engine(model())
    player = Player(
        engine=engine,
        renderer=renderer_for(tokenizer()),
        scheduler=GymScheduler(CalculatorEnv),
        budget=Budget(max_turns=6, max_turn_tokens=64),
    )
    tasks = CalculatorEnv().tasks("eval")
    names = [f"g{i}" for i in range(num_tasks)]
    requests = [
        RolloutRequest(
            request_id=name,
            group_id=name,
            env="calculator",
            task=tasks[i],
            seed=i,
            sampling_seed=i,
        )
        for i, name in enumerate(names)
    ]
    outputs = await collect(requests, player)
    await engine.aclose()
    rewards = [output.reward for output in outputs]
    return sum(reward for reward in rewards if reward is not None) / len(rewards)


@pytest.mark.slow
async def test_the_policy_starts_with_something_to_learn():
    """Sometimes right, so that groups differ, and mostly wrong, so that training shows."""
    assert 0.1 <= await sampled_reward(64) <= 0.5


@pytest.mark.slow
async def test_the_same_recipe_gives_the_same_files(tmp_path: Path):
    recipe = Recipe(clean_batches=2, noisy_batches=1, batch_size=4, tokenizer_conversations=300)
    for name in ("first", "second"):
        await warm_start(tmp_path / name, recipe)

    files = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert files == sorted(file.name for file in PATH.iterdir())
    for name in files:
        first, second = tmp_path / "first" / name, tmp_path / "second" / name
        assert first.read_bytes() == second.read_bytes()
