"""Ids of calls reach the template in the family's form, the same in call and result."""

from agentgym.messages import Message, ToolCall, user
from agentgym.rendering import renderer_for
from agentgym.rendering.call_ids import call_id_for
from agentgym.testing import byte_tokenizer

TEMPLATE = (
    "{%- for tool in tools or [] %}{{ tool.function | tojson }}{% endfor -%}"
    "{%- for m in messages %}<|im_start|>{{ m.role }} {{ m.tool_call_id }}\n{{ m.content }}"
    "{%- for call in m.tool_calls or [] %}"
    "{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}"
    "[TOOL_CALLS]{{ call.function.name }}[CALL_ID]{{ call.id }}"
    "[ARGS]{{ call.function.arguments | tojson }}{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
"""Refuses other ids, as Mistral's do."""


def test_a_template_that_wants_nine_characters_gets_them():
    """And the result names the call it answers."""
    renderer = renderer_for(byte_tokenizer(template=TEMPLATE), on_rewrite="keep")
    call = ToolCall(id="call_0_turn_3", name="f", arguments={"x": 1})
    history = [
        user("a"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="7", tool_call_id=call.id, name="f"),
    ]
    schema = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

    text = renderer.decode(renderer.render(history, [schema]))
    written = text.partition("[CALL_ID]")[2].partition("[ARGS]")[0]

    assert len(written) == 9
    assert f"<|im_start|>tool {written}\n7" in text


def test_kimi_reads_the_name_from_the_id():
    """Its templates show a call's id and nothing else of the name."""
    assert call_id_for("kimi", "call_1_turn_3", "search") == "functions.search:1"
    assert call_id_for("hermes", "call_1_turn_3", "search") == "call_1_turn_3"
