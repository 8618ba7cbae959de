"""Differential rendering: the next prompt extends the last one, whatever was said."""

from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from template_kit import ADD, DEFAULT_SYSTEM, GROUPS_RESULTS, PLAIN, renderer, sampled, tool, words
from tokenizers import processors

from agentgym.messages import Message, assistant, system, user
from agentgym.rendering import dialect
from agentgym.rendering.template import TemplateRenderer
from agentgym.testing import CHATML, byte_tokenizer
from agentgym.tokens import Segment, TokenTrace


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(words, words, st.booleans())
def test_the_next_prompt_is_the_render_of_the_whole_conversation(
    said: str, heard: str, closed: bool
):
    """For plain words, bridging gives what rendering everything anew would give."""
    rendered = renderer()
    history = [system("s"), user("q")]
    trace = sampled(rendered, rendered.render(history, []), said, closed=closed)

    ids = [*trace.ids, *rendered.bridge(trace, [user(heard)], tools=[])]

    whole = [*history, Message(role="assistant", content=said), user(heard)]
    if not said.endswith("\n"):
        assert rendered.decode(ids) == rendered.decode(rendered.render(whole, []))
    assert ids[: len(trace)] == list(trace.ids)


def test_parallel_results_are_rendered_as_one_block():
    """Two results of one turn share a user message where the template groups them."""
    rendered = renderer(GROUPS_RESULTS)
    trace = sampled(rendered, rendered.render([user("q")], []), "x", closed=True)

    added = rendered.decode(rendered.bridge(trace, [tool("1"), tool("2", 1)], tools=[ADD]))

    assert added == "\n<|im_start|>user\n[1][2]<|im_end|>\n<|im_start|>assistant\n"


def test_a_default_system_message_is_not_repeated():
    """The suffix is a difference of two renders, not a render of the new messages alone."""
    rendered = renderer(DEFAULT_SYSTEM)
    trace = sampled(rendered, rendered.render([user("q")], []), "x", closed=True)

    assert "Be kind" not in rendered.decode(rendered.bridge(trace, [user("c")], tools=[]))


def test_a_turn_that_was_not_closed_is_closed_by_the_template():
    """The end token that the loop adds was never sampled, so it belongs to the suffix."""
    rendered = renderer()
    prompt = rendered.render([user("q")], [])
    open_turn = sampled(rendered, prompt, "x", closed=False)
    closed_turn = sampled(rendered, prompt, "x", closed=True)

    added = [
        rendered.decode(rendered.bridge(t, [user("c")], tools=[])) for t in (open_turn, closed_turn)
    ]

    assert added[0] == "<|im_end|>" + added[1]


def test_tools_reach_a_model_whose_template_knows_none():
    """They are described in the system message, and results come as a user message."""
    rendered = renderer(PLAIN)
    prompt = rendered.render([system("s"), user("q")], [ADD])
    trace = sampled(rendered, prompt, "x", closed=True)

    added = rendered.decode(rendered.bridge(trace, [tool("7")], tools=[ADD]))

    assert '"name": "add"' in rendered.decode(prompt).split("<|im_end|>")[0]
    assert "<|im_start|>user\n<tool_response>\n7\n</tool_response>" in added
    assert "<|im_start|>tool" not in added


def test_the_generation_prompt_may_open_the_reasoning():
    """The parser knows that the turn begins inside a thought."""
    rendered = renderer(
        PLAIN.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"),
    )

    parsed = rendered.parse(rendered.encode("hmm</think>\n\n42"), finish_reason="stop")

    assert (parsed.reasoning, parsed.content) == ("hmm", "42")


def test_earlier_calls_in_a_prompt_are_rendered():
    """Few-shot demonstrations with calls go through the template."""
    text = renderer().decode(
        renderer().render([user("q"), assistant("", ("add", {"x": 1}))], [ADD])
    )

    assert '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>' in text


DATED = "{{ strftime_now('%d %b %Y') }}\n" + PLAIN
OPENS_NEXT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|return|>")
ENDS_THE_END = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}" + (
    "{% if add_generation_prompt %}<|assistant|>{% else %}<|return|>{% endif %}"
)


def special(template: str, specials: tuple[str, ...], **options: Any) -> TemplateRenderer:
    tokenizer = byte_tokenizer(template=template, specials=("<pad>", *specials), eos="<pad>")
    return TemplateRenderer(tokenizer, dialect("hermes"), **options)


@pytest.mark.parametrize(
    ("ended_by", "added"),
    [
        ("<|user|>", "c<|assistant|>"),
        ("<pad>", "<|user|>c<|assistant|>"),
        (None, "<|user|>c<|assistant|>"),
    ],
)
def test_a_turn_may_end_with_the_token_that_opens_the_next(ended_by: str | None, added: str):
    """GLM samples `<|user|>`; it is not written twice, and written where something else ended."""
    rendered = special(OPENS_NEXT, ROLES)
    prompt = Segment(ids=tuple(rendered.render([user("q")], [])), source="template")
    ids = (*rendered.encode("x"), *(rendered._special.ids[e] for e in [ended_by] if e))
    turn = Segment(ids=ids, source="sampled", logprobs=(-1.0,) * len(ids), policy_version=0)

    text = rendered.decode(rendered.bridge(TokenTrace([prompt, turn]), [user("c")], tools=[]))

    assert text == added
    assert rendered.rewrites == ()


def test_an_end_of_the_whole_conversation_is_no_end_of_a_turn():
    """Phi-3 adds one to a finished conversation; the policy never sees it in a prompt."""
    rendered = special(ENDS_THE_END, ROLES)

    assert rendered.rewrites == ()
    assert sorted(map(rendered.decode, ([i] for i in rendered.stop_token_ids))) == [
        "<pad>",
        "<|end|>",
    ]


def test_the_clock_stands_still_at_the_start_of_the_run():
    """Else a prompt would change between sampling and training, and after a resume."""
    text, again = (
        renderer(DATED, today=date(2026, 3, 4)).decode(
            renderer(DATED, today=date(2026, 3, 4)).render([user("q")], [])
        )
        for _ in range(2)
    )

    assert text.startswith("04 Mar 2026\n")
    assert text == again
    assert renderer(DATED).template.today == date.today()


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_prompt_has_exactly_one_bos(written: int):
    """Whether the template writes it, the tokenizer adds it, or both do."""
    tokenizer = byte_tokenizer(
        template="<s>" * written + CHATML, specials=("<pad>", "<s>", "<|im_start|>", "<|im_end|>")
    )
    tokenizer.bos_token = "<s>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    rendered = TemplateRenderer(tokenizer, dialect("hermes"))
    ids = rendered.render([user("q")], [])

    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize(
    ("guard", "shown"),
    [
        ("{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}", "user\ns\n\nq"),
        (
            "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}"
            "{% endif %}",
            "user\ns\n\nq\n\nr",
        ),
        ("{% set m = m if m.content is not string else {} %}", "system\ns"),
    ],
)
def test_a_conversation_takes_the_form_that_the_template_shows(guard: str, shown: str):
    """Nothing that an env says is lost, and nothing it may say is refused."""
    loop = "{% for m in messages %}"
    template = PLAIN.replace(loop, loop + guard).replace(
        "{{ m.content }}", "{{ m.content if m.content is string else m.content[0].text }}"
    )
    template = template.replace("{{ m.role }}", "{{ m.role or 'user' }}")

    text = renderer(template).decode(
        renderer(template).render([system("s"), user("q"), user("r")], [])
    )

    assert shown in text
    assert text.index("s") < text.index("q") < text.rindex("r")


def test_template_arguments_reach_every_render():
    """They are configuration: the first prompt, what follows a turn, and what is shown anew."""
    template = PLAIN.replace(
        "assistant\n{% endif %}", "assistant\n{{ '<think>\n\n</think>\n\n' if quiet }}{% endif %}"
    )
    quiet = {"quiet": True}
    tokenizer = byte_tokenizer(template=template)
    rendered = TemplateRenderer(tokenizer, dialect("hermes"), template_kwargs=quiet)
    prompt = rendered.render([user("q")], [])
    trace = sampled(rendered, prompt, "x", closed=True)

    added = rendered.bridge(trace, [user("c")], tools=[])

    assert all(rendered.decode(ids).endswith("</think>\n\n") for ids in (prompt, added))
    assert "think" not in renderer(template).decode(renderer(template).render([user("q")], []))
