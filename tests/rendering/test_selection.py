"""Which renderer and which words a model gets."""

from agentgym.messages import user
from agentgym.rendering import renderer_for
from agentgym.testing import byte_tokenizer


def test_a_dialect_that_the_template_does_not_speak_is_told_in_words():
    """A prompt that shows calls in one form while another is read would train nothing."""
    own = renderer_for(byte_tokenizer())
    other = renderer_for(byte_tokenizer(), dialect_name="react")
    schema = {
        "type": "function",
        "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}},
    }
    prompts = [r.decode(r.render([user("x")], [schema])) for r in (own, other)]

    assert ["Action Input:" in prompt for prompt in prompts] == [False, True]
    assert all('"name": "f"' in prompt for prompt in prompts)
