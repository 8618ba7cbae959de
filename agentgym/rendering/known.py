"""Model families that the `renderers` package writes out by hand, behind our contract."""

from collections.abc import Sequence
from typing import Any

from renderers import AutoRendererConfig, create_renderer
from renderers.base import MODEL_RENDERER_MAP

from agentgym.errors import ConfigError, boundary
from agentgym.messages import Message, assistant, merged, user
from agentgym.rendering.base import Dialect, ParsedAction, ToolSchema
from agentgym.rendering.chat_shape import with_malformed
from agentgym.rendering.history import OnRewrite, shown_otherwise
from agentgym.rendering.special import SpecialTokens
from agentgym.rendering.turn_end import stand_in
from agentgym.tokens import TokenTrace


class FamilyUnusableError(ConfigError):
    """The package cannot render with this tokenizer, or lacks a file that it would download."""


def is_known(name_or_path: str) -> bool:
    """Whether the package has a renderer for exactly this model."""
    return name_or_path in MODEL_RENDERER_MAP


class KnownRenderer:
    """A hand-written renderer of the `renderers` package.

    Turns are bridged by one that keeps reasoning, whole prompts are rendered by one that does as
    the model's template does; `rewritten` finds out where the two part. Turns are read by our own
    dialects: the package's parsers raise on deep nesting, end a call at a closing tag inside a
    string, and know nothing of turns that were cut.

    Args:
        tokenizer: its `name_or_path` names a known model.
        dialect: reads tool calls.
        template_kwargs: as `enable_thinking`.
        on_rewrite: what to do about a template that drops reasoning when new messages come.

    Raises:
        FamilyUnusableError: the package cannot serve the tokenizer.
        ConfigError: `refuse`, and the model's template does so.
    """

    def __init__(
        self,
        tokenizer: Any,
        dialect: Dialect,
        *,
        template_kwargs: dict[str, Any],
        on_rewrite: OnRewrite = "fork",
    ) -> None:
        self._dialect = dialect
        self._special = SpecialTokens(tokenizer)
        self._tokenizer = _ShieldedTokenizer(tokenizer, self._special)
        self._template = self._create(template_kwargs, keep=False)
        self._keeping = self._create(template_kwargs, keep=True)
        self._on_rewrite = on_rewrite
        self._prompt_suffix = self._find_prompt_suffix()
        if on_rewrite == "refuse" and any(self._is_rewritten(*probe, ()) for probe in _probes()):
            raise ConfigError(
                f"{tokenizer.name_or_path!r} drops the reasoning of earlier turns when the user "
                "speaks again; --on-history-rewrite fork trains on what its template shows, keep "
                "goes on with the tokens as they were sampled"
            )

    def _create(self, template_kwargs: dict[str, Any], *, keep: bool) -> Any:
        config = AutoRendererConfig(thinking_retention="all" if keep else None)
        with boundary(FamilyUnusableError, "the renderers package"):
            return create_renderer(
                self._tokenizer, config, chat_template_kwargs=template_kwargs or None
            )

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """As the model family ends a turn."""
        return frozenset(self._template.get_stop_token_ids())

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """The first prompt, generation prompt included."""
        return self._ids(messages, tools, prompt=True)

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        """See `Renderer.bridge`.

        Raises:
            ConfigError: the family cannot go on with these messages after any turn.
        """
        before, sampled = _split_last_turn(trace)
        added = self._bridged(before, sampled, new_messages, tools)
        if added is None:
            added = self._bridged_from_stand_in(new_messages, tools)
            closed = trace.ids[-1] in self.stop_token_ids
            return added[1:] if closed else added
        return added

    def rewritten(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, num_new: int
    ) -> list[int] | None:
        """See `Renderer.rewritten`."""
        split = len(messages) - num_new
        before, new = list(messages[:split]), list(messages[split:])
        if self._on_rewrite != "fork" or not self._is_rewritten(before, new, tools):
            return None
        return self.render(messages, tools)

    def _bridged(
        self,
        before: list[int],
        sampled: list[int],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        rendered = self._keeping.bridge_to_next_turn(
            before, sampled, self._chat(new_messages), tools=_specs(tools)
        )
        whole = before + sampled
        if rendered is None or rendered.token_ids[: len(whole)] != whole:
            return None
        return list(rendered.token_ids[len(whole) :])

    def _bridged_from_stand_in(
        self, new_messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> list[int]:
        """From the end token on, as after a turn that the family would have sampled."""
        question = [user("x")]
        prompt = self.render(question, tools)
        whole = self._ids([*question, stand_in(new_messages, "y")], tools, prompt=False)
        stops = [index for index, token in enumerate(whole) if token in self.stop_token_ids]
        turn = whole[len(prompt) : stops[-1] + 1]
        added = self._bridged(prompt, turn, new_messages, tools)
        if added is None:
            raise ConfigError(
                f"{self._tokenizer.name_or_path!r} cannot go on with the roles "
                f"{', '.join(message.role for message in new_messages)} after a turn"
            )
        return [turn[-1], *added]

    def _is_rewritten(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> bool:
        """Whether the last turn's words are shown otherwise once `new` is there."""
        if not before or before[-1].role != "assistant" or not new:
            return False
        first = self._ids(before, tools, prompt=False)
        while first and first[-1] in self.stop_token_ids:
            first.pop()
        whole = self._ids([*before, *new], tools, prompt=False)
        return shown_otherwise(self.decode(first), self.decode(whole))

    def _ids(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, prompt: bool
    ) -> list[int]:
        ids: list[int] = self._template.render_ids(
            self._chat(messages), tools=_specs(tools), add_generation_prompt=prompt
        )
        return ids

    def encode(self, text: str) -> list[int]:
        """Ids of content; special tokens in the text stay text."""
        return self._special.encode(self._special.shield_text(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def parse(
        self,
        ids: Sequence[int],
        *,
        finish_reason: str,
        tools: Sequence[ToolSchema] = (),
        prefix: str = "",
    ) -> ParsedAction:
        """What the sampled turn says, read by the dialect."""
        body = ids[:-1] if ids and ids[-1] in self.stop_token_ids else ids
        return self._dialect.parse(
            self.decode(body),
            finish_reason=finish_reason,
            prompt_suffix=self._prompt_suffix + prefix,
            tools=tools,
        )

    def _find_prompt_suffix(self) -> str:
        """The generation prompt: what stands in an assistant message before it is sampled."""
        prompt, bare = (self._ids([user("x")], (), prompt=given) for given in (True, False))
        return self.decode(prompt[len(bare) :] if prompt[: len(bare)] == bare else prompt)

    def _chat(self, messages: Sequence[Message]) -> list[Any]:
        whole = [with_malformed(message) for message in merged(messages)]
        return [message.to_chat() for message in self._special.shield(whole)]


def _probes() -> list[tuple[list[Message], list[Message]]]:
    """What a family may show otherwise: (before, what comes next)."""
    reasoned = Message(role="assistant", content="b", reasoning="r")
    return [([user("a"), turn], [user("c")]) for turn in (assistant("b"), reasoned)]


class _ShieldedTokenizer:
    """What the package uses of a tokenizer; marks in the text are encoded as plain text."""

    def __init__(self, tokenizer: Any, special: SpecialTokens) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self.name_or_path: str = tokenizer.name_or_path
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.unk_token_id: int | None = tokenizer.unk_token_id

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        assert not add_special_tokens
        return self._special.encode(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text: str = self._tokenizer.decode(
            list(token_ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        return text

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._tokenizer.convert_tokens_to_ids(tokens)


def _specs(tools: Sequence[ToolSchema]) -> list[Any] | None:
    return [tool["function"] for tool in tools] or None


def _split_last_turn(trace: TokenTrace) -> tuple[list[int], list[int]]:
    """Ids before the last sampled segment, and from it on."""
    after = 0
    for segment in reversed(trace.segments):
        after += len(segment.ids)
        if segment.source == "sampled":
            break
    border = len(trace) - after
    return list(trace.ids[:border]), list(trace.ids[border:])
