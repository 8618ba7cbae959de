"""The quick way to render says what the tokenizer says."""

from types import ModuleType
from typing import Any

import pytest

from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant, system, user
from agentgym.rendering import dialect
from agentgym.rendering.chat_shape import PROBE_TOOL
from agentgym.rendering.compiled import compiled
from agentgym.rendering.dialects.detect import detect_dialect
from agentgym.rendering.template import TemplateRenderer
from agentgym.testing import CHATML, byte_tokenizer

THOUGHT = Message(role="assistant", content="é 北", reasoning="r\n")
CONVERSATION = [
    system("s <b>&'\""),
    user("a\n\nb"),
    assistant("", ("probe_tool", {"x": "1", "y": [None, True, 1.5]})),
    Message(role="tool", content='{"k": "<|x|>"}', tool_call_id="call_0", name="probe_tool"),
    THOUGHT,
    user("again"),
]


def test_every_template_renders_as_the_tokenizer_does(table: ModuleType):
    """With and without tools, arguments and generation prompt."""
    for name in table.names():
        tokenizer = table.stand_in(name)
        spoken = dialect(detect_dialect(tokenizer.chat_template))
        rendered = TemplateRenderer(tokenizer, spoken, today=table.TODAY)
        for tools in ([], [PROBE_TOOL]):
            chat, listed = rendered.shape.chat(CONVERSATION, tools, spoken)
            template = rendered.template._for(listed)
            quick = rendered.template._compiled[template]
            arguments: tuple[Any, ...] = (template, chat, list(listed) or None)

            for prompt in (True, False):
                assert quick(*arguments, prompt) == rendered.template._by_tokenizer(
                    *arguments, prompt
                ), name


def test_template_arguments_reach_it():
    """As configured, in place of a special token's name if they share one."""
    template = CHATML + "{{ mood }}{{ pad_token }}"
    tokenizer = byte_tokenizer(template=template)
    [render] = compiled(tokenizer, [template], {"mood": "calm"}).values()

    assert render(template, [{"role": "user", "content": "x"}], None, False).endswith("calm<|pad|>")


def test_a_tokenizer_that_renders_its_own_way_is_asked():
    """What it says counts, whatever its template would."""

    class Own(type(byte_tokenizer())):  # type: ignore[misc]
        def apply_chat_template(self, *args: Any, **kwargs: Any) -> str:
            return "mine"

    tokenizer = byte_tokenizer()
    tokenizer.__class__ = Own

    assert compiled(tokenizer, [CHATML], {}) == {}


def test_a_broken_template_is_refused_with_its_error():
    """When it is compiled, in one line."""
    with pytest.raises(ConfigError, match="the chat template of"):
        TemplateRenderer(byte_tokenizer(template="{% if %}"), dialect("hermes"))


def test_an_argument_that_the_template_does_not_read_is_refused():
    """A misspelt `enable_thinking` would silently do nothing."""
    template = CHATML + "{% if enable_thinking %}!{% endif %}"
    tokenizer = byte_tokenizer(template=template)
    spoken = dialect("hermes")
    TemplateRenderer(tokenizer, spoken, template_kwargs={"enable_thinking": True})

    with pytest.raises(ConfigError, match=r"reads no 'enabel_thinking'; .*: enable_thinking"):
        TemplateRenderer(tokenizer, spoken, template_kwargs={"enabel_thinking": True})
