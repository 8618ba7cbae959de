"""Streams are kept in bounded memory, head and tail."""

from hypothesis import given
from hypothesis import strategies as st

from agentgym.tools.sandbox.inside.output import Output

LIMIT = 40


def _output(*parts: bytes) -> Output:
    output = Output(LIMIT)
    for part in parts:
        output.add(part)
    return output


@given(st.text(max_size=60), st.integers(1, 7))
def test_head_and_tail_are_those_of_the_text(text: str, step: int) -> None:
    """Whatever the chunks, and never half a character."""
    data = text.encode()
    parts = _output(*(data[i : i + step] for i in range(0, len(data), step))).read()

    assert sum(len(part.encode()) for part in parts) <= LIMIT
    if len(data) <= LIMIT:
        assert parts == [text]
    else:
        head, tail = parts
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head.encode()) >= LIMIT // 2 - 3
        assert len(tail.encode()) >= LIMIT // 2 - 3


@given(st.binary(max_size=100))
def test_bytes_that_are_no_text_do_no_harm(data: bytes) -> None:
    """They are replaced, and the result can be encoded."""
    for part in _output(data).read():
        part.encode()


def test_a_flood_takes_no_memory() -> None:
    """The total is counted all the same."""
    output = Output(100)
    for _ in range(1000):
        output.add(b"x" * 1000)
    output.add(b"THE END")

    assert output.total == 1_000_007
    assert output.read()[1].endswith("THE END")
