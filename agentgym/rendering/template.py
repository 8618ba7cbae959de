"""Differential rendering: any chat template, exact over tool turns.

The ids that follow a sampled turn are the difference of two renders of a small stand-in
conversation, so nothing that was sampled is rendered again and nothing of the history is needed.
The start-up check refuses templates for which that difference does not exist.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from jinja2 import TemplateError

from agentgym.errors import ConfigError
from agentgym.messages import Message, ToolCall, assistant, user
from agentgym.rendering.base import Dialect, ParsedAction, ToolSchema
from agentgym.rendering.plain_tools import without_tools
from agentgym.rendering.special import SpecialTokens
from agentgym.tokens import TokenTrace

OnRewrite = Literal["refuse", "keep"]
_MARK = "\ue0f0"
"""Stands for an assistant's words; private use, so no template knows it."""


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer."""

    chat_template: str | dict[str, str] | None
    name_or_path: str
    eos_token_id: int | None
    added_tokens_decoder: Mapping[int, Any]

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: list[int], **kwargs: Any) -> str: ...
    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


class TemplateRenderer:
    """Renders with the tokenizer's own chat template.

    Args:
        tokenizer: has a chat template.
        dialect: reads tool calls, and writes them where the template cannot.
        template_kwargs: handed to the template at every render, as `enable_thinking`.
        stop_token_ids: ids that end a turn beside the template's own and the tokenizer's `eos`.
        on_rewrite: what to do about a template that changes earlier turns when new ones come.

    Raises:
        ConfigError: no chat template; it fails on a plain conversation; it rewrites history.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        dialect: Dialect,
        *,
        template_kwargs: Mapping[str, Any] | None = None,
        stop_token_ids: Sequence[int] = (),
        on_rewrite: OnRewrite = "refuse",
    ) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path!r} has no chat template")
        self._tokenizer = tokenizer
        self._dialect = dialect
        self._kwargs = dict(template_kwargs or {})
        self._special = SpecialTokens(tokenizer)
        self._knows_tools = self._template_knows_tools()
        self._prompt_suffix = self._text([user("x")], ()).removeprefix(
            self._text([user("x")], (), prompt=False)
        )
        self._turn_end_ids = self._find_turn_end()
        stops = {*stop_token_ids, self._turn_end_ids[0]}
        if tokenizer.eos_token_id is not None:
            stops.add(tokenizer.eos_token_id)
        self._stop_token_ids = frozenset(stops)
        if on_rewrite == "refuse":
            self._refuse_rewriting()

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """The tokenizer's `eos`, what the template ends a turn with, and what was given."""
        return self._stop_token_ids

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """The first prompt, generation prompt included."""
        return self._special.encode(self._text(self._special.shield(messages), tools))

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        """Ids between the sampled turn and the next; see `Renderer.bridge`."""
        end = self._turn_end_ids
        closing = end[1:] if trace.ids[-1] in self._stop_token_ids else end
        return closing + self._suffix_ids(tuple(new_messages), tools)

    def rewritten(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, num_new: int
    ) -> list[int] | None:
        """See `Renderer.rewritten`."""
        return None

    def encode(self, text: str) -> list[int]:
        """Ids of content; special tokens in the text stay text."""
        return self._special.encode(self._special.shield_text(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        return self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    def parse(
        self,
        ids: Sequence[int],
        *,
        finish_reason: str,
        tools: Sequence[ToolSchema] = (),
        prefix: str = "",
    ) -> ParsedAction:
        """What the sampled turn says, read by the dialect."""
        body = ids[:-1] if ids and ids[-1] in self._stop_token_ids else ids
        return self._dialect.parse(
            self.decode(body),
            finish_reason=finish_reason,
            prompt_suffix=self._prompt_suffix + prefix,
            tools=tools,
        )

    def _suffix_ids(self, new: tuple[Message, ...], tools: Sequence[ToolSchema]) -> list[int]:
        shielded = self._special.shield(new)
        before = [user("x"), _stand_in(new)]
        return self._special.encode(self._difference(before, shielded, tools))

    def _difference(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> str:
        """Text that `new` adds after `before`, generation prompt included."""
        first = self._text(before, tools, prompt=False)
        both = self._text([*before, *new], tools)
        if not both.startswith(first):
            raise ConfigError(_rewrites(self._tokenizer.name_or_path))
        return both[len(first) :]

    def _encode_text(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _text(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, prompt: bool = True
    ) -> str:
        if not self._knows_tools:
            messages, tools = without_tools(messages, tools, self._dialect), ()
        try:
            text = self._tokenizer.apply_chat_template(
                [message.to_chat() for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=prompt,
                tokenize=False,
                **self._kwargs,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            name = self._tokenizer.name_or_path
            raise ConfigError(f"the chat template of {name!r} failed: {error}") from error
        assert isinstance(text, str)
        return text

    def _template_knows_tools(self) -> bool:
        self._knows_tools = True
        probe = {"type": "function", "function": {"name": "probe_tool", "parameters": {}}}
        return "probe_tool" in self._text([user("x")], [probe])

    def _find_turn_end(self) -> list[int]:
        """What the template writes after an assistant's words: its end token, then layout."""
        text = self._text([user("x"), assistant(_MARK)], (), prompt=False)
        end = self._encode_text(text.rpartition(_MARK)[2].lstrip("\n"))
        if not end or end[0] not in self._tokenizer.added_tokens_decoder:
            raise ConfigError(
                f"the chat template of {self._tokenizer.name_or_path!r} puts no end token after an "
                "assistant's message, so a sampled turn could not be closed"
            )
        return end

    def _refuse_rewriting(self) -> None:
        for before, new in _probes():
            opened = self._text(before[:-1], ())
            first = self._text(before, (), prompt=False)
            whole = self._text([*before, *new], (), prompt=False)
            said = before[-1].content if before[-1].reasoning is None else ""
            begins_as_sampled = re.match(re.escape(opened) + r"\s*" + re.escape(said), first)
            if not (begins_as_sampled and whole.startswith(first)):
                raise ConfigError(_rewrites(self._tokenizer.name_or_path))


def _rewrites(name: str) -> str:
    return (
        f"the chat template of {name!r} rewrites earlier turns when new messages come, so the "
        "model would be trained on prompts that it does not see in use; give a template that keeps "
        "them, or --on-history-rewrite keep to go on with the tokens as they were sampled"
    )


def _stand_in(new: Sequence[Message]) -> Message:
    """An assistant message that `new` can answer: it made the calls that are answered."""
    calls = [
        ToolCall(id=message.tool_call_id or "call_0", name=message.name or "tool", arguments={})
        for message in new
        if message.role == "tool"
    ]
    return Message(role="assistant", content="" if calls else "x", tool_calls=tuple(calls))


def _probes() -> list[tuple[list[Message], list[Message]]]:
    """Conversations whose history a template is known to change: (before, what comes next)."""
    thinking = Message(role="assistant", content="<think>\nr\n</think>\n\nb")
    reasoned = Message(role="assistant", content="b", reasoning="r")
    calling = assistant("", ("f", {"x": 1}))
    result = Message(role="tool", content="1", tool_call_id="call_0", name="f")
    return [
        ([user("a"), assistant("b")], [user("c")]),
        ([user("a"), thinking], [user("c")]),
        ([user("a"), reasoned], [user("c")]),
        ([user("a"), calling], [result]),
        ([user("a"), calling], [result, assistant("b"), user("c")]),
    ]
