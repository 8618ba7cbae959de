"""Differential rendering: any chat template, exact over tool turns.

The ids that follow a sampled turn are what the template writes after a stand-in for it, so nothing
that was sampled is rendered again. Where a template shows earlier turns otherwise once new messages
come, that is found by rendering whole conversations, and the next prompt is the template's own.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant, user
from agentgym.rendering.base import Dialect, ParsedAction, ToolSchema
from agentgym.rendering.chat_shape import PROBE_TOOL, find_shape
from agentgym.rendering.chat_template import ChatTemplate, Tokenizer
from agentgym.rendering.history import OnRewrite, shown_otherwise, without_open_thought
from agentgym.rendering.special import SpecialTokens
from agentgym.rendering.turn_end import TurnEnds
from agentgym.tokens import TokenTrace

_MARK = "\ue0ff"
"""Stands for an assistant's reasoning; private use, so no template knows it."""


class TemplateRenderer:
    """Renders with the tokenizer's own chat template.

    Args:
        tokenizer: has a chat template.
        dialect: reads tool calls, and writes them where the template cannot.
        template_kwargs: handed to the template at every render, as `enable_thinking`.
        stop_token_ids: ids that end a turn beside the template's own and the tokenizer's `eos`.
        on_rewrite: what to do about a template that shows earlier turns otherwise when new messages
            come: `fork` shows them as the template does, in a trace of their own; `keep` goes on
            with what was sampled; `refuse` raises.
        today: the date that the template is told if it asks; today if left out.

    Raises:
        ConfigError: no chat template; it fails on a plain conversation; it ends no turn.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        dialect: Dialect,
        *,
        template_kwargs: Mapping[str, Any] | None = None,
        stop_token_ids: Sequence[int] = (),
        on_rewrite: OnRewrite = "fork",
        today: date | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._dialect = dialect
        self.template = ChatTemplate(tokenizer, template_kwargs=template_kwargs or {}, today=today)
        self._special = SpecialTokens(tokenizer)
        self.shape = find_shape(self.template, dialect)
        self._refuse_chance()
        eos = tokenizer.eos_token_id
        known = {*stop_token_ids} | ({eos} if eos is not None else set())
        self._ends = TurnEnds(
            self._text,
            self._special,
            name=tokenizer.name_or_path,
            shape=self.shape,
            known=frozenset(token for token, id_ in self._special.ids.items() if id_ in known),
        )
        self._stop_token_ids = frozenset(known | {self._special.ids[t] for t in self._ends.tokens})
        self._prompt_suffix = self._find_prompt_suffix()
        self._on_rewrite = on_rewrite
        self.rewrites = tuple(self._find_rewrites())
        """How the template shows earlier turns otherwise, in words; empty if it never does."""
        if on_rewrite == "refuse" and self.rewrites:
            raise ConfigError(_rewrites(tokenizer.name_or_path, self.rewrites))

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """The tokenizer's `eos`, what the template ends a turn with, and what was given."""
        return self._stop_token_ids

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """The first prompt, generation prompt included; exactly one BOS if the tokenizer has it."""
        shielded = self._special.shield_all(messages)
        text = self._text(shielded, self._special.shield_tools(tools), prompt=True)
        return self._with_one_bos(self._special.encode(text, start=True))

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        """Ids between the sampled turn and the next; see `Renderer.bridge`."""
        new = self._special.shield(new_messages)
        ids = self._special.encode(self._ends.following(new, self._special.shield_tools(tools)))
        end, last = self._ends.answering(new), trace.ids[-1]
        if last not in self._stop_token_ids or end.opens:
            return ids[1:] if ids[:1] == [last] else ids
        end_id = self._special.ids[end.token]
        return ids[ids.index(end_id) + 1 :] if end_id in ids else ids

    def rewritten(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, num_new: int
    ) -> list[int] | None:
        """See `Renderer.rewritten`; `None` also where the template cannot show the whole."""
        if self._on_rewrite != "fork" or not self.rewrites:
            return None
        shielded = self._special.shield_all(messages)
        split = len(messages) - num_new
        try:
            if self._rewrite(shielded[:split], shielded[split:], tools) is None:
                return None
            return self.render(messages, tools)
        except ConfigError:
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

    def _text(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, prompt: bool
    ) -> str:
        chat, listed = self.shape.chat(messages, tools, self._dialect)
        return self.template.text(chat, listed, prompt=prompt)

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        bos = self._tokenizer.bos_token_id
        if bos is None:
            return ids
        start = 0
        while ids[start : start + 1] == [bos]:
            start += 1
        adds = self._tokenizer.encode("x", add_special_tokens=True)[:1] == [bos]
        return [bos, *ids[start:]] if start or adds else ids

    def _refuse_chance(self) -> None:
        conversation = [user("x"), assistant("y"), user("z")]
        renders = {self._text(conversation, (), prompt=True) for _ in range(3)}
        if len(renders) > 1:
            raise ConfigError(
                f"the chat template of {self.template.name!r} renders the same conversation "
                "otherwise each time, so no prompt could be shown again"
            )

    def _find_prompt_suffix(self) -> str:
        """The generation prompt: what stands in an assistant message before it is sampled."""
        prompt, bare = (
            self._text([user("x")], (), prompt=with_prompt) for with_prompt in (True, False)
        )
        return _suffix(prompt, bare, self._special.find)

    def _rewrite(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> str | None:
        """How `new` makes the template show `before` otherwise, if it does."""
        if not before or before[-1].role != "assistant" or not new:
            return None
        whole = self._text([*before, *new], tools, prompt=False)
        old = self._ends.without_end(self._text(before, tools, prompt=False))
        if shown_otherwise(old, whole):
            return "shows the turn otherwise"
        if before[-1].reasoning and not self._still_thought(before, new, tools):
            return "drops its reasoning"
        end = self._ends.of_calls if before[-1].tool_calls else self._ends.of_words
        return f"ends it with {end.token} in place of {end.last}" if end.changes else None

    def _still_thought(
        self, before: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> bool:
        *history, last = before
        marked = last.model_copy(update={"reasoning": _MARK})
        return _MARK in self._text([*history, marked, *new], tools, prompt=False)

    def _find_rewrites(self) -> list[str]:
        tools = [PROBE_TOOL]
        found = []
        for occasion, before, new in _probes():
            how = self._rewrite(before, new, tools) or self._header(before, tools)
            if how is not None:
                found.append(f"{occasion}, it {how}")
        return found

    def _header(self, before: Sequence[Message], tools: Sequence[ToolSchema]) -> str | None:
        """A turn has to begin in the history as its generation prompt began it."""
        prompt = without_open_thought(self._text(before[:-1], tools, prompt=True))
        shown = self._text(before, tools, prompt=False)
        return "begins it otherwise" if shown_otherwise(prompt, shown) else None


def _suffix(prompt: str, bare: str, find: Callable[[str], list[Any]]) -> str:
    """What `prompt` has more than `bare`, from a border between special tokens and text on."""
    borders = sorted({0, len(prompt)} | {b for match in find(prompt) for b in match.span()})
    shared = max(border for border in borders if bare.startswith(prompt[:border]))
    if prompt.startswith(bare):
        shared = max(shared, len(bare))
    return prompt[shared:]


def _rewrites(name: str, how: Sequence[str]) -> str:
    return (
        f"the chat template of {name!r} rewrites earlier turns: {'; '.join(how)}; give a template "
        "that keeps them, or --on-history-rewrite fork to train on what the template shows, or "
        "keep to go on with the tokens as they were sampled"
    )


def _probes() -> list[tuple[str, list[Message], list[Message]]]:
    """Conversations whose history a template is known to change: when, before, what comes next."""
    call = assistant("", ("probe_tool", {"x": "1"}))
    result = Message(role="tool", content="1", tool_call_id="call_0", name="probe_tool")
    reasoned = Message(role="assistant", content="b", reasoning="r")
    thoughtful = call.model_copy(update={"reasoning": "r"})
    wordy = call.model_copy(update={"content": "b"})
    ask, again = user("a"), user("c")
    return [
        ("when the user speaks again", [ask, assistant("b")], [again]),
        ("when the user speaks after reasoning", [ask, reasoned], [again]),
        ("when a tool answers", [ask, call], [result]),
        ("when a tool answers after reasoning", [ask, thoughtful], [result]),
        ("when a tool answers words with a call", [ask, wordy], [result]),
        ("when the user speaks after tools", [ask, call, result, assistant("b")], [again]),
        (
            "when the user speaks after reasoning about tools",
            [ask, thoughtful, result, reasoned],
            [again],
        ),
    ]
