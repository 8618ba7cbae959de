"""A model's tokenizer and how to speak it: everything of a model but its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from agentgym.engines.loading import load_tokenizer
from agentgym.messages import Message, assistant
from agentgym.rendering import OnRewrite, Renderer, dialect, renderer_for, resolve_dialect


@dataclass(frozen=True, kw_only=True)
class Language:
    """A model's tokenizer and how to speak it."""

    name: str
    """Folder or hub id."""
    tokenizer: Any
    renderer: Renderer
    dialect: str

    @property
    def stop_token_id(self) -> int:
        """What ends a turn."""
        stops = self.renderer.stop_token_ids
        eos = self.tokenizer.eos_token_id
        return eos if eos in stops else min(stops)

    @property
    def has_special_words(self) -> bool:
        """Whether a policy's message may hold special tokens before the one that ends it."""
        message = assistant("answer", ("tool", {})).model_copy(update={"reasoning": "why"})
        return not {*self.encode(self.write(message))}.isdisjoint(self.tokenizer.all_special_ids)

    @property
    def has_special_start(self) -> bool:
        """Whether the tokenizer begins texts with a token of its own."""
        plain: list[int] = self.tokenizer.encode("x")
        return plain != self.encode("x")

    def encode(self, text: str) -> list[int]:
        """Ids of a policy's words: special tokens in the text are special tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def write(self, message: Message) -> str:
        """An assistant message as a policy would write it."""
        calls = [dialect(self.dialect).format_call(call) for call in message.tool_calls]
        thought = "" if message.reasoning is None else f"<think>\n{message.reasoning}\n</think>\n"
        return thought + "\n".join(filter(None, [message.content, *calls]))


def load_language(
    name: str,
    *,
    dialect_name: str,
    template_args: Mapping[str, Any],
    on_rewrite: OnRewrite,
    today: date | None = None,
) -> Language:
    """The language of a model, without its weights.

    Raises:
        ConfigError: there is no such model, or its chat template cannot be used.
        NotRegisteredError: there is no such dialect.
    """
    tokenizer = load_tokenizer(name)
    spoken = dialect(resolve_dialect(dialect_name, tokenizer.chat_template)).name
    renderer = renderer_for(
        tokenizer,
        dialect_name=spoken,
        template_kwargs=template_args,
        on_rewrite=on_rewrite,
        today=today,
    )
    return Language(name=name, tokenizer=tokenizer, renderer=renderer, dialect=spoken)
