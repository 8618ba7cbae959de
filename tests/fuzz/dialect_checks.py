"""What holds for any dialect and any text, and what a fuzzer's bytes stand for.

An input is two bytes that choose the circumstances and the dialect, and the text of a turn.
"""

import time
from pathlib import Path
from typing import NamedTuple

from agentgym.messages import Message
from agentgym.rendering import Dialect, ToolSchema
from agentgym.rendering.dialects import DIALECTS

SEEDS = Path(__file__).parent / "seeds"
REPEATED_LENGTH = 20_000
MAX_SECONDS = 4.0
FINISH_REASONS = ("stop", "length", "stop_string", "stop")
SUFFIXES = (
    "",
    "<think>\n",
    "<tool_call>",
    "<|start|>assistant<|channel|>analysis<|message|>",
)
_PROPERTIES = {
    "a": {"type": "string"},
    "n": {"type": "integer"},
    "o": {"type": ["object", "null"]},
    "any": {},
}
TOOLS: tuple[tuple[ToolSchema, ...], ...] = (
    (),
    (
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"type": "object", "properties": _PROPERTIES, "required": ["a"]},
            },
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}},
    ),
)
WORDS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>", "[THINK]"),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", "<arg_key>a</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|channel|>", "<|message|>", "<|start|>assistant", "<|end|>"),
    *("commentary to=functions.f", "analysis", "final", "<|call|>", "<|return|>", "<|constrain|>"),
    *("Thought:", "Action: f", "Action Input:", "Observation:", "Final Answer:", "[TOOL_CALLS]"),
    *("[ARGS]", "<|python_tag|>", "functools[", "f(a=", "**{", '{"name": "f", "arguments": {}}'),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),  # noqa: RUF001
    *("<｜tool▁calls▁end｜>", "```json", "```", "<|tool_calls_section_begin|>", "functions.f:0"),  # noqa: RUF001
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_call|>"),
    *('{"a": "x"}', "{'a': None}", '"\\ud83d"', "<|im_end|>", "<|im_start|>", "</s>", "◁think▷"),
)


class Turn(NamedTuple):
    """What is parsed, and under which circumstances."""

    text: str
    finish_reason: str
    prompt_suffix: str
    tools: tuple[ToolSchema, ...]


def turn_of(data: bytes) -> Turn:
    """The turn that the bytes stand for: choices in the first, the text from the third on."""
    choice = data[0] if data else 0
    text = data[2:].decode("utf-8", errors="surrogateescape")
    if choice & 0xE0 == 0x20 and text:
        text *= max(1, REPEATED_LENGTH // len(text))
    return Turn(text, FINISH_REASONS[choice & 3], SUFFIXES[choice >> 2 & 3], TOOLS[choice >> 4 & 1])


def dialect_of(data: bytes) -> Dialect:
    """The dialect that the second byte chooses."""
    names = sorted(DIALECTS)
    return DIALECTS[names[(data[1] if len(data) > 1 else 0) % len(names)]]


def check(dialect: Dialect, turn: Turn) -> None:
    """What holds for any text.

    Raises:
        AssertionError: it does not.
    """
    start = time.perf_counter()
    action = dialect.parse(
        turn.text,
        finish_reason=turn.finish_reason,
        prompt_suffix=turn.prompt_suffix,
        tools=turn.tools,
    )
    seconds = time.perf_counter() - start
    assert seconds < MAX_SECONDS, f"{dialect.name}: {seconds:.1f} s for {len(turn.text)} characters"
    assert action.raw == turn.text
    assert action.truncated == (turn.finish_reason == "length")
    assert all(call.name and isinstance(call.arguments, dict) for call in action.calls)
    assert all(call.reason for call in action.malformed)
    assert len({call.id for call in (*action.calls, *action.malformed)}) == len(action.calls) + len(
        action.malformed
    )
    assert action.final_answer is None or not (action.calls or action.malformed)
    if not any("\ud800" <= char <= "\udfff" for char in turn.text):
        message = action.to_message(turn=0)
        assert Message.model_validate_json(message.model_dump_json()) == message
