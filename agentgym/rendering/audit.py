"""What a chat template does to a conversation that goes on, for people and for `agentgym check`.

Two questions: what comes of training with it, and what it makes of one given conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from agentgym.errors import ConfigError
from agentgym.messages import Message, merged
from agentgym.rendering.base import ToolSchema
from agentgym.rendering.chat_shape import ChatShape
from agentgym.rendering.chat_template import ChatTemplate, Tokenizer
from agentgym.rendering.dialects import dialect
from agentgym.rendering.dialects.detect import AUTO, resolve_dialect
from agentgym.rendering.template import TemplateRenderer


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAudit:
    """What comes of training with a chat template."""

    outcome: Literal["exact", "forks", "refused"]
    """`exact`: every prompt extends the last one. `forks`: on some occasions the template shows
    earlier turns otherwise, and the trajectory goes on in a trace of its own. `refused`: it cannot
    be used."""
    reasons: tuple[str, ...] = ()
    """The occasions, or why it is refused; empty for `exact`."""
    shape: ChatShape | None = None
    """The form of conversation it understands; `None` if refused."""
    turn_ends: tuple[str, ...] = ()
    """Tokens that end a turn, sorted."""
    reads_clock: bool = False
    """It prints the date, which is that of the run's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAudit:
    """What a template makes of one conversation and its continuation."""

    prefix_preserving: bool
    """The render of the conversation is a prefix of the render with the new messages."""
    verbatim: bool | None
    """The last message, an assistant's, stands after its generation prompt exactly as it was said;
    `None` if the last one is of another role."""
    suffix: str | None
    """What the new messages add, generation prompt included; `None` if history changes."""


def audit_template(
    tokenizer: Tokenizer,
    *,
    dialect_name: str = AUTO,
    template_kwargs: Mapping[str, Any] | None = None,
    today: date | None = None,
) -> TemplateAudit:
    """What comes of training with the tokenizer's chat template.

    Args:
        tokenizer: needs no more than what `TemplateRenderer` uses of it.
        dialect_name: how the model writes calls; `auto` asks the template.
        template_kwargs: handed to the template at every render.
        today: what a template is told that asks for the date.
    """
    try:
        renderer = TemplateRenderer(
            tokenizer,
            dialect(resolve_dialect(dialect_name, tokenizer.chat_template)),
            template_kwargs=template_kwargs,
            on_rewrite="fork",
            today=today,
        )
    except ConfigError as error:
        return TemplateAudit(outcome="refused", reasons=(str(error),))
    return TemplateAudit(
        outcome="forks" if renderer.rewrites else "exact",
        reasons=renderer.rewrites,
        shape=renderer.shape,
        turn_ends=tuple(sorted(map(renderer.decode, ([id_] for id_ in renderer.stop_token_ids)))),
        reads_clock=renderer.template.reads_clock,
    )


def audit_history(
    template: ChatTemplate,
    messages: Sequence[Message],
    appended: Sequence[Message],
    *,
    tools: Sequence[ToolSchema] = (),
) -> HistoryAudit:
    """What the template itself, with nothing done for it, makes of a conversation.

    Args:
        template: of the model.
        messages: the conversation so far.
        appended: what comes next.
        tools: listed in every render.

    Raises:
        ConfigError: the template refuses the conversation.
    """
    chat, new = ([m.to_chat() for m in merged(part)] for part in (messages, appended))
    before = template.text(chat, tools, prompt=False)
    kept = template.text([*chat, *new], tools, prompt=False).startswith(before)
    after = template.text([*chat, *new], tools, prompt=True)
    verbatim = None
    if messages and messages[-1].role == "assistant":
        prompt = template.text(chat[:-1], tools, prompt=True)
        verbatim = before.startswith(prompt + messages[-1].content)
    return HistoryAudit(
        prefix_preserving=kept,
        verbatim=verbatim,
        suffix=after.removeprefix(before) if kept and after.startswith(before) else None,
    )
