"""Cuts what is too long for the model in the middle, where it hurts least.

The limit holds for the final text, cut marker included, as the caller's tokenizer counts it. Cuts
fall between characters, never inside one.
"""

from agentgym.tools.context import CountTokens

_MARKERS = ("\n[... {} characters cut ...]\n", " ... ", "…", "")
_MARKER_SHARE = 4
_MAX_CHARACTERS_PER_TOKEN = 16


def cut_middle(text: str, limit: int, count_tokens: CountTokens) -> str:
    """The text if it has at most `limit` tokens, else its head and tail around a cut marker."""
    if len(text) <= limit * _MAX_CHARACTERS_PER_TOKEN and count_tokens(text) <= limit:
        return text
    most = min(len(text) - 1, limit * _MAX_CHARACTERS_PER_TOKEN)
    marker = next(m for m in _MARKERS if count_tokens(m) * _MARKER_SHARE <= limit)
    marked = count_tokens(marker)
    kept = most
    while kept > 0 and (tokens := count_tokens(_ends(text, kept, marker))) > limit:
        kept = min(kept - 1, kept * (limit - marked) // max(tokens - marked, 1))
    return _ends(text, kept, marker)


def _ends(text: str, kept: int, marker: str) -> str:
    head = text[: (kept + 1) // 2]
    tail = text[len(text) - kept // 2 :]
    return head + marker.format(len(text) - kept) + tail
