"""Templates that rewrite what was said: refused with the reason, overruled, or forked."""

import pytest
from template_kit import (
    ADD,
    DEFAULT_SYSTEM,
    GROUPS_RESULTS,
    KEEPS_WHILE_TOOLS_ANSWER,
    PLAIN,
    SHOWS_REASONING,
    THOUGHT,
    renderer,
    sampled,
    tool,
)

from agentgym.errors import ConfigError
from agentgym.messages import assistant, user
from agentgym.testing import CHATML

DROPS_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHANGES_THE_LAST_END = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if loop.last and m.role == 'assistant' %}<|pad|>{% else %}<|im_end|>{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (DROPS_THINKING, "rewrites earlier turns"),
        (CHANGES_THE_LAST_END, "rewrites earlier turns"),
        (NO_END, "no end token"),
        ("{{ raise_exception('no') }}", "failed: no"),
        ("", "has no chat template"),
    ],
)
def test_a_template_that_cannot_be_exact_is_refused_with_the_reason(template: str, words: str):
    """Found at start-up from the tokenizer alone, before any weights are loaded."""
    with pytest.raises(ConfigError, match=words):
        renderer(template, on_rewrite="refuse")


@pytest.mark.parametrize(
    "template", [CHATML, PLAIN, GROUPS_RESULTS, DEFAULT_SYSTEM, SHOWS_REASONING]
)
def test_a_template_that_keeps_history_is_accepted(template: str):
    """A check that always says no would be useless."""
    assert renderer(template).stop_token_ids


def test_rewriting_can_be_overruled():
    """Going on with the sampled tokens is the caller's decision, by name."""
    rendered = renderer(DROPS_THINKING, on_rewrite="keep")
    trace = sampled(rendered, rendered.render([user("q")], []), "<think>r</think>b", closed=True)

    assert rendered.bridge(trace, [user("c")], tools=[])


def test_reasoning_that_the_template_drops_forks():
    """The next prompt is the template's own if the user speaks, and bridged while tools answer."""
    rendered = renderer(KEEPS_WHILE_TOOLS_ANSWER)
    asked = [user("a"), THOUGHT, user("c")]

    assert rendered.rewrites
    assert rendered.rewritten(asked, [ADD], num_new=1) == rendered.render(asked, [ADD])
    assert rendered.rewritten([user("a"), THOUGHT, tool("1")], [ADD], num_new=1) is None
    assert rendered.rewritten([user("a"), assistant("b"), user("c")], [ADD], num_new=1) is None


@pytest.mark.parametrize("template", [CHATML, PLAIN, DEFAULT_SYSTEM, SHOWS_REASONING])
def test_a_template_that_keeps_history_never_forks(template: str):
    """Neither does one that trims or spells calls anew: what was sampled stays."""
    history = [user("a"), assistant(" b\n", ("add", {"x": 1})), tool("1"), THOUGHT, user("c")]

    assert renderer(template).rewritten(history, [ADD], num_new=1) is None
    trimming = renderer(template.replace("{{ m.content }}", "{{ m.content | trim }}"))
    assert trimming.rewritten(history, [ADD], num_new=1) is None


def test_what_was_sampled_can_be_kept():
    """The caller's decision, by name: one sample per trajectory."""
    rendered = renderer(KEEPS_WHILE_TOOLS_ANSWER, on_rewrite="keep")

    assert rendered.rewritten([user("a"), THOUGHT, user("c")], [ADD], num_new=1) is None


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ strftime_now(form or '%Y') }}" + PLAIN, "reads the clock"),
        (PLAIN + "{{ range(1000) | random }}", "otherwise each time"),
    ],
)
def test_a_template_with_a_state_of_its_own_is_refused(template: str, words: str):
    """Its prompts could not be shown again."""
    with pytest.raises(ConfigError, match=words):
        renderer(template)


ALWAYS_DROPS_THINKING = PLAIN.replace(
    "{{ m.content }}", "{{ m.content.split('</think>')[-1] if m.content else '' }}"
).replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")


def test_reasoning_that_the_template_never_shows_forks():
    """DeepSeek's templates drop it from the last turn too, so no two renders differ."""
    rendered = renderer(ALWAYS_DROPS_THINKING)
    asked = [user("a"), THOUGHT, user("c")]

    assert rendered.rewritten(asked, [], num_new=1) == rendered.render(asked, [])
    assert rendered.rewritten([user("a"), assistant("b"), user("c")], [], num_new=1) is None
