"""What a stream said, head and tail, in bounded memory."""


class Output:
    """Keeps the first and the last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    @property
    def _half(self) -> int:
        return self._room // 2

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self.total += len(data)
        taken = self._half - len(self._head)
        self._head += data[:taken]
        self._tail += data[taken:] if taken < len(data) else b""
        if len(self._tail) > 2 * self._room:
            del self._tail[: -self._room]

    def read(self) -> list[str]:
        """The whole text; or its head and its tail, without halves of characters."""
        if self.total <= self._room:
            return [(self._head + self._tail).decode(errors="replace")]
        tail = bytes(self._tail[len(self._tail) - self._half :])
        return [_cut_end(bytes(self._head)), _cut_start(tail)]


def _cut_end(data: bytes) -> str:
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode()
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace")


def _cut_start(data: bytes) -> str:
    cut = 0
    while cut < min(3, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:].decode(errors="replace")
