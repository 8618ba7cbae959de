"""Small chat templates with one property each, and renderers over them."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from agentgym.messages import Message
from agentgym.rendering import dialect
from agentgym.rendering.template import TemplateRenderer
from agentgym.testing import CHATML, byte_tokenizer
from agentgym.tokens import Segment, TokenTrace

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GROUPS_RESULTS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user\n{% endif %}"
    "[{{ m.content }}]"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }}</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    + PLAIN
)
SHOWS_REASONING = PLAIN.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}",
)
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@cache
def renderer(template: str = CHATML, **options: Any) -> TemplateRenderer:
    return TemplateRenderer(byte_tokenizer(template=template), dialect("hermes"), **options)


def sampled(
    rendered: TemplateRenderer, prompt: list[int], text: str, *, closed: bool
) -> TokenTrace:
    """A trace whose last turn says `text`, with the end token as sampled or without it."""
    end = [next(iter(rendered.stop_token_ids))] if closed else []
    ids = (*rendered.encode(text), *end)
    return TokenTrace(
        [
            Segment(ids=tuple(prompt), source="template"),
            Segment(ids=ids, source="sampled", logprobs=(-1.0,) * len(ids), policy_version=0),
        ]
    )


def tool(content: str, index: int = 0) -> Message:
    return Message(role="tool", content=content, tool_call_id=f"call_{index}", name="add")


words = st.text(max_size=12)
THOUGHT = Message(role="assistant", content="b", reasoning="r")
THINKING = SHOWS_REASONING.replace(
    "{% if m.reasoning_content %}", "{% if m.reasoning_content and loop.index0 > ns.last %}"
)
KEEPS_WHILE_TOOLS_ANSWER = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ tools | tojson if tools }}" + THINKING
)
