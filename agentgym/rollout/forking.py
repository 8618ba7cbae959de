"""What becomes of a trace when the history it shows is changed after the fact.

Nothing that was sampled is overwritten: the old trace stays in the record, the new one shares what
still matches. A sampled token is trained in one of them only; in the other it is frozen.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from agentgym.tokens import Segment, TokenTrace


def rewritten(trace: TokenTrace, ids: Sequence[int]) -> TokenTrace:
    """The trace of a prompt rendered anew; `trace` goes on training what it sampled.

    Args:
        trace: what the policy saw so far.
        ids: [T] the whole next prompt.
    """
    shared = _num_shared(trace.ids, ids)
    fork = TokenTrace(_head(trace.segments, shared))
    fork.append(Segment(ids=tuple(ids[shared:]), source="template", message_index=0))
    return fork


def taken_back(trace: TokenTrace, num_kept: int) -> tuple[tuple[Segment, ...], TokenTrace]:
    """Cut the last segment, a sampled one, to its first `num_kept` ids.

    Returns:
        The old trace, of which nothing is trained any more, and the one that takes its place.
    """
    *before, last = trace.segments
    assert last.source == "sampled"
    archived = tuple(segment.head(len(segment.ids), frozen=True) for segment in trace.segments)
    return archived, TokenTrace([*before, last.head(num_kept)])


def num_agreeing(ids: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> int:
    """How many of the first `ids` say a beginning of `text`."""
    agreeing = _num_shared(decode(ids), text)
    longest = bisect_right(range(1, len(ids) + 1), agreeing, key=lambda n: len(decode(ids[:n])))
    return next(n for n in range(longest, -1, -1) if text.startswith(decode(ids[:n])))


def _num_shared(old: Sequence[object], new: Sequence[object]) -> int:
    for index, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return index
    return min(len(old), len(new))


def _head(segments: Sequence[Segment], length: int) -> list[Segment]:
    """The first `length` ids; what was sampled is trained elsewhere."""
    kept: list[Segment] = []
    for segment in segments:
        if length <= 0:
            break
        kept.append(segment.head(length, frozen=True))
        length -= len(segment.ids)
    return kept
