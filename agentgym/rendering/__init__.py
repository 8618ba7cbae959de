"""Messages and tools to token ids, and sampled ids back to what they say."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from agentgym.rendering.audit import HistoryAudit, TemplateAudit, audit_history, audit_template
from agentgym.rendering.base import Dialect, ParsedAction, Renderer, ToolSchema
from agentgym.rendering.dialects import dialect
from agentgym.rendering.dialects.detect import AUTO, resolve_dialect
from agentgym.rendering.history import OnRewrite
from agentgym.rendering.template import TemplateRenderer

__all__ = [
    "AUTO",
    "Dialect",
    "HistoryAudit",
    "OnRewrite",
    "ParsedAction",
    "Renderer",
    "TemplateAudit",
    "ToolSchema",
    "audit_history",
    "audit_template",
    "dialect",
    "renderer_for",
    "resolve_dialect",
]


def renderer_for(
    tokenizer: Any,
    *,
    dialect_name: str = AUTO,
    template_kwargs: Mapping[str, Any] | None = None,
    stop_token_ids: Sequence[int] = (),
    on_rewrite: OnRewrite = "fork",
    today: date | None = None,
) -> Renderer:
    """The renderer of a model: hand-written where its family is known, else its chat template.

    A family that its renderer cannot serve, such as for want of a download, is served by the
    template too.

    Args:
        tokenizer: a Hugging Face tokenizer; its `name_or_path` decides.
        dialect_name: how the model writes tool calls; `auto` asks its chat template. Where that
            writes them otherwise, tools are told in the dialect's own words.
        template_kwargs: handed to the template at every render.
        stop_token_ids: ids that end a turn beside those found.
        on_rewrite: what to do about a template that shows earlier turns otherwise when new messages
            come: `fork` the trajectory there, `keep` what was sampled, or `refuse` it.
        today: the date that a template is told if it asks; today if left out.

    Raises:
        ConfigError: the template cannot be used; says why.
        NotRegisteredError: there is no such dialect.
    """
    spoken = dialect(resolve_dialect(dialect_name, tokenizer.chat_template))
    if dialect_name == AUTO and not Path(tokenizer.name_or_path).exists():
        from agentgym.rendering.known import FamilyUnusableError, KnownRenderer, is_known

        if is_known(tokenizer.name_or_path):
            arguments = dict(template_kwargs or {})
            with suppress(FamilyUnusableError):
                return KnownRenderer(
                    tokenizer, spoken, template_kwargs=arguments, on_rewrite=on_rewrite
                )
    return TemplateRenderer(
        tokenizer,
        spoken,
        template_kwargs=template_kwargs,
        stop_token_ids=stop_token_ids,
        on_rewrite=on_rewrite,
        today=today,
    )
