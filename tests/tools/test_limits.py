"""Cutting text by tokens."""

from hypothesis import given
from hypothesis import strategies as st

from agentgym.tools.context import approximate_tokens
from agentgym.tools.limits import cut_middle


def _words(text: str) -> int:
    """A tokenizer whose tokens are of very different lengths."""
    return len(text.split()) + text.count("\n")


@given(
    st.text(max_size=400)
    | st.lists(st.sampled_from(["ab", " ", "\n", "ä" * 30, "字"])).map("".join),
    st.integers(8, 60),
    st.sampled_from([len, approximate_tokens, _words, lambda text: len(text.encode())]),
)
def test_the_limit_holds_whatever_the_tokenizer(text, limit, count_tokens) -> None:  # type: ignore[no-untyped-def]
    """Head and tail come from the text, the marker counts, and short text is left alone."""
    cut = cut_middle(text, limit, count_tokens)

    assert count_tokens(cut) <= limit
    if count_tokens(text) <= limit and len(text) <= 16 * limit:
        assert cut == text
    if cut != text:
        head = next(n for n in range(len(cut), -1, -1) if text.startswith(cut[:n]))
        tail = next(n for n in range(len(cut), -1, -1) if text.endswith(cut[len(cut) - n :]))
        assert head + tail >= len(cut) - len("\n[... 400 characters cut ...]\n")
        assert head > 0
        assert tail > 0


def test_most_of_the_limit_is_used() -> None:
    """Cutting far too much would blind the model."""
    cut = cut_middle("line of text\n" * 10_000, 1024, approximate_tokens)

    assert 1000 <= approximate_tokens(cut) <= 1024
    assert " characters cut ...]" in cut


def test_huge_output_is_cut_fast() -> None:
    """A tool that prints without end costs its limit, not its output."""
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return approximate_tokens(text)

    cut_middle("x" * 50_000_000, 256, count)
    assert counted < 20_000
