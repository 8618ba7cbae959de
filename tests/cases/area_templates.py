"""What chat templates make of conversations, and what the renderer makes of the templates."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from agentgym.errors import ConfigError
from agentgym.messages import Message, ToolCall
from agentgym.rendering import audit_history, audit_template
from agentgym.rendering.chat_template import ChatTemplate
from agentgym.rendering.dialects import dialect
from agentgym.rendering.template import TemplateRenderer
from agentgym.testing import byte_tokenizer
from agentgym.tokens import Segment, TokenTrace

_TAG = re.compile(r"<[^<>{}%\s'\"]+>")
_ROLES = ("<system>", "<user>", "<assistant>", "<tool>", "<E>")
_KWARGS = ("fixed_kwargs", "template_kwargs", "chat_template_kwargs", "kwargs")
_FIRST_DAY, _OTHER_DAY = date(2026, 1, 2), date(2027, 3, 4)


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Renders, and what the audits and the renderer say."""
    kwargs = {key: _plain(value) for name in _KWARGS for key, value in case.get(name, {}).items()}
    tokenizer = _tokenizer(case)
    template = ChatTemplate(tokenizer, template_kwargs=kwargs, today=_FIRST_DAY)
    messages = [_message(entry) for entry in case["messages"]]
    appended = [_message(entry) for entry in case.get("appended", [])]
    tools = _plain(case.get("tools") or [])
    chat = [message.to_chat() for message in messages]
    prompted = case.get("add_generation_prompt", True)
    found: dict[str, Any] = {"rendered": template.text(chat, tools, prompt=prompted)}
    found["same_for_rollout_train_eval"] = _same(tokenizer, kwargs, chat, template)
    if appended:
        audit = audit_history(template, messages, appended, tools=tools)
        found["prefix_preserving"] = audit.prefix_preserving
        found["renders_sampled_text_verbatim"] = audit.verbatim
        found["suffix_text"] = audit.suffix
        try:
            found |= _played(tokenizer, kwargs, messages, appended, tools, audit.suffix)
        except ConfigError as error:
            found["refused"] = str(error)
    whole = audit_template(tokenizer, template_kwargs=kwargs)
    found |= {"outcome": whole.outcome, "reason": "; ".join(whole.reasons)}
    return found


def _played(
    tokenizer: Any,
    kwargs: Mapping[str, Any],
    messages: Sequence[Message],
    appended: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    suffix: str | None,
) -> dict[str, Any]:
    """The next prompt as the loop makes it after a turn that was sampled as it stands."""
    renderer = TemplateRenderer(
        tokenizer, dialect("hermes"), template_kwargs=kwargs, on_rewrite="keep"
    )
    if not messages or messages[-1].role != "assistant":
        return {"next_prompt": renderer.decode(renderer.render([*messages, *appended], tools))}
    prompt = renderer.render(messages[:-1], tools)
    end = min(renderer.stop_token_ids)
    ids = (*renderer.encode(messages[-1].content), end)
    trace = TokenTrace([Segment(ids=tuple(prompt), source="template")])
    trace.append(Segment(ids=ids, source="sampled", logprobs=(-1.0,) * len(ids), policy_version=0))
    added = renderer.bridge(trace, appended, tools=tools)
    text = renderer.decode(added)
    if suffix is not None and not (renderer.decode([end]) + text).endswith(suffix):
        raise AssertionError(f"the renderer adds {text!r}, the template {suffix!r}")
    following = [*trace.ids, *added]
    return {
        "next_prompt": renderer.decode(following),
        "next_prompt_ids_start_with_sampled_ids": following[: len(trace)] == [*prompt, *ids],
    }


def _same(
    tokenizer: Any,
    kwargs: Mapping[str, Any],
    chat: Sequence[Mapping[str, Any]],
    first: ChatTemplate,
) -> bool:
    """Whether a run renders alike on another day: the date of its start is in its config."""
    later = ChatTemplate(tokenizer, template_kwargs=kwargs, today=first.today)
    texts = {t.text(chat, [], prompt=True) for t in (first, later) for _ in range(3)}
    if len(texts) > 1:
        return False
    other = ChatTemplate(tokenizer, template_kwargs=kwargs, today=_OTHER_DAY)
    return first.reads_clock or other.text(chat, [], prompt=True) in texts


def _tokenizer(case: Mapping[str, Any]) -> Any:
    template = case["chat_template"]
    special = dict.fromkeys(["<pad>", *_ROLES, *_TAG.findall(template)])
    special = [token for token in special if token not in ("<think>", "</think>")]
    special += case.get("extra_special", [])
    return byte_tokenizer(template=template, specials=special, eos=case.get("eos_token", "<E>"))


def _message(entry: Mapping[str, Any]) -> Message:
    calls = [
        ToolCall(
            id=call.get("id", f"call_{index}"),
            name=_function(call)["name"],
            arguments=_arguments(_function(call)["arguments"]),
        )
        for index, call in enumerate(entry.get("tool_calls") or [])
    ]
    dict(entry)
    for call in entry.get("tool_calls") or []:
        call.get("type")
    return Message(
        role=entry["role"],
        content=_text(entry.get("content")),
        reasoning=entry.get("reasoning_content", entry.get("reasoning")),
        tool_calls=tuple(calls),
        tool_call_id=entry.get("tool_call_id"),
        name=entry.get("name"),
    )


def _text(content: Any) -> str:
    """Content as one text, however it came: parts of text are put together."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if part["type"] == "text")
    return content or ""


def _plain(value: Any) -> Any:
    """What a template may print or not, as ordinary dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function: Mapping[str, Any] = call.get("function", call)
    return function


def _arguments(given: Any) -> dict[str, Any]:
    """History holds arguments as a mapping, however they came."""
    return dict(json.loads(given) if isinstance(given, str) else given)
