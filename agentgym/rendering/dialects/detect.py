"""Which dialect a model was trained on, as its chat template tells.

A template has to write earlier calls down, so it holds the marks of the model's own dialect. They
are looked for in its source: rendering it would need tools of the right shape, and could fail.
"""

import re
from collections.abc import Mapping

AUTO = "auto"
FALLBACK = "hermes"
_SIGNS = (
    ("harmony", r"<\|channel\|>\w+<\|message\|>"),
    ("deepseek_v3", r"<｜tool▁calls▁begin｜>(?s:.)*```json"),  # noqa: RUF001
    ("deepseek_v31", "<｜tool▁calls▁begin｜>"),  # noqa: RUF001
    ("kimi", r"<\|tool_calls_section_begin\|>"),
    ("glm", "<arg_key>"),
    ("qwen3_coder", "<function="),
    ("mistral", r"\[TOOL_CALLS\]"),
    ("phi4", r"<\|tool_call\|>|functools\[|<\|tool\|>"),
    ("llama_pythonic", r"<\|tool_(?:call|list)_start\|>|func_name1\(params"),
    ("hermes", "<tool_call>"),
    ("llama3", r"<\|python_(?:tag|start)\|>|\"parameters\": dictionary of argument"),
    ("react", "Action Input:"),
)
"""The first that fits counts: the more particular ones come first."""


def detect_dialect(chat_template: str | Mapping[str, str] | None) -> str:
    """Name of the dialect that a chat template writes calls in; Hermes if it says nothing.

    Args:
        chat_template: as a tokenizer has it; of several, the one for tools counts.
    """
    if isinstance(chat_template, Mapping):
        sources = [chat_template.get(name) for name in ("tool_use", "default")]
        chat_template = next(filter(None, [*sources, *chat_template.values()]), None)
    if not chat_template:
        return FALLBACK
    return next((name for name, sign in _SIGNS if re.search(sign, chat_template)), FALLBACK)


def resolve_dialect(name: str, chat_template: str | Mapping[str, str] | None) -> str:
    """`name`, or what the chat template tells if it is `auto`."""
    return detect_dialect(chat_template) if name == AUTO else name
