"""Chat templates as transformers compiles them, without what it does around each render.

`apply_chat_template` looks for objects of foreign types in everything a template could see, at
every call, which costs more than the render itself. Our conversations are plain JSON values
already. The compiled template, with its sandbox, is transformers' own; where it cannot be had, or
the tokenizer renders in a way of its own, the caller asks the tokenizer.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import meta

Render = Callable[[str, list[Any], list[Any] | None, bool], str]
"""Of template, chat, tools, and whether a generation prompt follows."""


def compiled(
    tokenizer: Any, templates: Iterable[str], template_kwargs: Mapping[str, Any]
) -> dict[str, Render]:
    """Renders by template; empty if the tokenizer has to be asked.

    Args:
        tokenizer: of transformers, or anything with its `apply_chat_template`.
        templates: Jinja sources.
        template_kwargs: handed to every render.
    """
    try:
        from transformers import PreTrainedTokenizerBase
        from transformers.utils.chat_template_utils import _compile_jinja_template
    except ImportError:
        return {}
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return {}
    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        return {}
    variables = {**tokenizer.special_tokens_map, **template_kwargs}
    return {source: _render_of(_compile_jinja_template(source), variables) for source in templates}


def variables_of(templates: Iterable[str]) -> set[str]:
    """Names that the templates read, given by the caller or not; empty if that is not known."""
    try:
        from transformers.utils.chat_template_utils import _compile_jinja_template
    except ImportError:
        return set()
    names: set[str] = set()
    for source in templates:
        environment = _compile_jinja_template(source).environment
        names |= meta.find_undeclared_variables(environment.parse(source))
    return names


def _render_of(template: Any, variables: Mapping[str, Any]) -> Render:
    def render(_: str, chat: list[Any], tools: list[Any] | None, prompt: bool) -> str:
        if not chat:
            raise ValueError("the conversation is empty")
        text: str = template.render(
            messages=chat,
            tools=tools,
            documents=None,
            add_generation_prompt=prompt,
            **variables,
        )
        return text

    return render
