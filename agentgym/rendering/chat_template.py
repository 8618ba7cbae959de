"""A tokenizer's chat template as a function of messages alone.

What a template could read besides is pinned: its arguments are configuration, and its clock stands
still at the day the run began, so that a prompt is the same when it is sampled and when it is
trained, today and after a resume.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any, Protocol

from jinja2 import TemplateError

from agentgym.errors import ConfigError
from agentgym.rendering.base import ToolSchema
from agentgym.rendering.compiled import compiled, variables_of
from agentgym.rendering.dialects.detect import detect_dialect

_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a template can raise on a conversation it was not written for."""
_CLOCK = "strftime_now"
_READING = re.compile(_CLOCK + r"""\(\s*(["'])(.*?)\1\s*\)""")
"""A look at the clock with the format written out, as all known templates have it."""
_OWN = {
    *("messages", "tools", "documents", "add_generation_prompt", "raise_exception", "namespace"),
    *("bos_token", "eos_token", "pad_token", "unk_token", "strftime_now", "range", "dict"),
}
"""What a template reads that is not for the user to give."""
_BY_TOOLS = "tool_use"
"""Name of the template for conversations with tools, where a tokenizer has several."""


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer."""

    chat_template: str | dict[str, str] | None
    name_or_path: str
    eos_token_id: int | None
    bos_token_id: int | None
    added_tokens_decoder: Mapping[int, Any]

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: list[int], **kwargs: Any) -> str: ...
    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


class ChatTemplate:
    """Renders wire-format conversations to text.

    Args:
        tokenizer: has a chat template.
        template_kwargs: handed to the template at every render, as `enable_thinking`.
        today: what a template is told that asks for the date; today if left out.

    Raises:
        ConfigError: there is no template, or it renders differently each time.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, template_kwargs: Mapping[str, Any], today: date | None
    ) -> None:
        self.name = tokenizer.name_or_path
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer of {self.name!r} has no chat template")
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs)
        self.today = today or date.today()
        given = tokenizer.chat_template
        self.dialect = detect_dialect(given)
        """Name of the dialect that its marks tell."""
        by_name = given if isinstance(given, dict) else {"default": given}
        self.reads_clock = any(_CLOCK in text for text in by_name.values())
        """Whether the template may ask for the date."""
        self._by_name = {name: self._stop_clock(text) for name, text in by_name.items()}
        with self._failing():
            self._compiled = compiled(tokenizer, self._by_name.values(), self._kwargs)
        self._refuse_unread(set(self._kwargs))

    def _refuse_unread(self, given: set[str]) -> None:
        """A template argument that no template reads is a mistake: nothing would come of it."""
        known = variables_of(self._by_name.values()) if given else set()
        if known and given - known:
            own = sorted(known - _OWN)
            raise ConfigError(
                f"the chat template of {self.name!r} reads no {min(given - known)!r}; template "
                f"arguments that it reads: {', '.join(own) or 'none'}"
            )

    def _stop_clock(self, text: str) -> str:
        """The template with the date in place of its looks at the clock."""
        stopped = _READING.sub(lambda found: json.dumps(self.today.strftime(found[2])), text)
        if _CLOCK + "(" in stopped:
            raise ConfigError(
                f"the chat template of {self.name!r} reads the clock in a way that cannot be "
                "stopped, so its prompts would differ between sampling and training"
            )
        return stopped

    def _for(self, tools: Sequence[ToolSchema]) -> str:
        if tools and _BY_TOOLS in self._by_name:
            return self._by_name[_BY_TOOLS]
        if "default" not in self._by_name:
            names = ", ".join(self._by_name)
            raise ConfigError(f"{self.name!r} has chat templates {names}, but no default one")
        return self._by_name["default"]

    def text(
        self, chat: Sequence[Mapping[str, Any]], tools: Sequence[ToolSchema], *, prompt: bool
    ) -> str:
        """The conversation as the model sees it, with or without a generation prompt.

        Raises:
            ConfigError: the template refuses the conversation; says what it said.
        """
        template = self._for(tools)
        render = self._compiled.get(template, self._by_tokenizer)
        with self._failing():
            return render(template, list(chat), list(tools) or None, prompt)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise ConfigError(f"the chat template of {self.name!r} failed: {error}") from error

    def _by_tokenizer(
        self, template: str, chat: list[Any], tools: list[Any] | None, prompt: bool
    ) -> str:
        text = self._tokenizer.apply_chat_template(
            chat,
            tools=tools,
            add_generation_prompt=prompt,
            tokenize=False,
            chat_template=template,
            **self._kwargs,
        )
        assert isinstance(text, str)
        return text
