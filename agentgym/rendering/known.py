"""Model families that the `renderers` package writes out by hand, behind our contract."""

from collections.abc import Sequence
from typing import Any

from renderers import AutoRendererConfig, create_renderer
from renderers.base import MODEL_RENDERER_MAP, ParsedToolCall, ToolCallParseStatus

from agentgym.errors import ConfigError
from agentgym.messages import MalformedCall, Message, ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.special import SpecialTokens
from agentgym.tokens import TokenTrace


def is_known(name_or_path: str) -> bool:
    """Whether the package has a renderer for exactly this model."""
    return name_or_path in MODEL_RENDERER_MAP


class KnownRenderer:
    """A hand-written renderer of the `renderers` package.

    Args:
        tokenizer: its `name_or_path` names a known model.
        template_kwargs: as `enable_thinking`.
        keep_history: keep reasoning that the model's template would drop at a new user turn.
    """

    def __init__(
        self, tokenizer: Any, *, template_kwargs: dict[str, Any], keep_history: bool
    ) -> None:
        config = AutoRendererConfig(thinking_retention="all" if keep_history else None)
        self._special = SpecialTokens(tokenizer)
        self._tokenizer = _ShieldedTokenizer(tokenizer, self._special)
        self._renderer = create_renderer(
            self._tokenizer, config, chat_template_kwargs=template_kwargs or None
        )

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """As the model family ends a turn."""
        return frozenset(self._renderer.get_stop_token_ids())

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """The first prompt, generation prompt included."""
        ids: list[int] = self._renderer.render_ids(
            self._chat(messages), tools=_specs(tools), add_generation_prompt=True
        )
        return ids

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        """See `Renderer.bridge`.

        Raises:
            ConfigError: the model's template would rewrite history here.
        """
        before, sampled = _split_last_turn(trace)
        rendered = self._renderer.bridge_to_next_turn(
            before, sampled, self._chat(new_messages), tools=_specs(tools)
        )
        whole = before + sampled
        if rendered is None or rendered.token_ids[: len(whole)] != whole:
            raise ConfigError(
                f"{self._tokenizer.name_or_path!r} rewrites earlier turns when new messages come; "
                "--on-history-rewrite keep goes on with the tokens as they were sampled"
            )
        return list(rendered.token_ids[len(whole) :])

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
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def parse(
        self,
        ids: Sequence[int],
        *,
        finish_reason: str,
        tools: Sequence[ToolSchema] = (),
        prefix: str = "",
    ) -> ParsedAction:
        """What the sampled turn says."""
        response = self._renderer.parse_response(list(ids), tools=_specs(tools))
        calls = list(enumerate(response.tool_calls))
        return ParsedAction(
            content=response.content.strip(),
            reasoning=response.reasoning_content,
            calls=tuple(_call(i, call) for i, call in calls if _is_usable(call)),
            malformed=tuple(_malformed(i, call) for i, call in calls if not _is_usable(call)),
            truncated=finish_reason == "length",
            raw=self.decode(ids),
        )

    def _chat(self, messages: Sequence[Message]) -> list[Any]:
        return [message.to_chat() for message in self._special.shield(messages)]


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


def _is_usable(call: ParsedToolCall) -> bool:
    return call.status is ToolCallParseStatus.OK and isinstance(call.arguments, dict)


def _call(index: int, call: ParsedToolCall) -> ToolCall:
    assert call.name is not None
    assert isinstance(call.arguments, dict)
    return ToolCall(id=f"call_{index}", name=call.name, arguments=call.arguments)


def _malformed(index: int, call: ParsedToolCall) -> MalformedCall:
    reason = str(call.status).replace("_", " ")
    return MalformedCall(id=f"call_{index}", text=call.raw, reason=reason)
