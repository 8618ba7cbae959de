"""One turn of any dialect, read; serves every `toolparse/...` area."""

import time
from collections.abc import Mapping
from typing import Any

from agentgym.rendering import ParsedAction, dialect


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the dialect makes of the text, under the names of the contract."""
    reader = dialect(case["dialect"])
    text = _text(case)
    options = {
        "finish_reason": case.get("finish_reason", "stop"),
        "prompt_suffix": case.get("prompt_suffix") or "",
        "tools": [_plain(tool) for tool in case.get("tools") or ()],
    }
    start = time.perf_counter()
    read = reader.parse(text, **options)
    seconds = time.perf_counter() - start
    assert read.raw == text
    return {**_said(read), "seconds": seconds}


def _text(case: Mapping[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    parts = case["text_gen"]
    return str(parts.get("prefix", "") + parts["unit"] * parts["count"] + parts.get("suffix", ""))


def _plain(value: Any) -> Any:
    """Schemas as the ordinary dictionaries that a tool would give."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _said(read: ParsedAction) -> dict[str, Any]:
    attempted = bool(read.calls or read.malformed)
    answer = read.content if read.final_answer is None else read.final_answer
    return {
        "calls": [{"name": call.name, "arguments": call.arguments} for call in read.calls],
        "content": read.content.strip(),
        "reasoning": (read.reasoning or "").strip() or None,
        "malformed": len(read.malformed),
        "error": "\n".join(call.reason for call in read.malformed),
        "truncated": read.truncated,
        "final_answer": read.final_answer and read.final_answer.strip(),
        "is_final": not attempted and not read.truncated and bool(answer.strip()),
        "tool_turn": attempted,
    }
