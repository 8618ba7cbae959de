"""Which server answers a trajectory: the same one at every turn, for the prefixes it has cached.

A new trajectory goes to the server with the fewest. One that gave no answer rests, and what was on
it moves.
"""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Place:
    sessions: set[str] = field(default_factory=set)
    rests_until: float = 0.0


class Router:
    """Sessions on servers, which it knows by their numbers."""

    def __init__(self, num_servers: int) -> None:
        self._places = [_Place() for _ in range(num_servers)]

    def server_of(self, session: str) -> int:
        """Its server, chosen at the first turn."""
        now = time.monotonic()
        for number, place in enumerate(self._places):
            if session in place.sessions:
                return number
        number = min(range(len(self._places)), key=lambda number: self._load(number, now))
        self._places[number].sessions.add(session)
        return number

    def release(self, session: str) -> None:
        """The trajectory is over, or moves."""
        for place in self._places:
            place.sessions.discard(session)

    def rest(self, number: int, seconds: float) -> None:
        """Send nobody new there for a while, if there is another."""
        place = self._places[number]
        place.rests_until = max(place.rests_until, time.monotonic() + seconds)

    def wake(self, number: int | None = None) -> None:
        """It does not rest any more; without a number, none does."""
        for place in self._places if number is None else [self._places[number]]:
            place.rests_until = 0.0

    @property
    def loads(self) -> list[int]:
        """Sessions per server."""
        return [len(place.sessions) for place in self._places]

    def _load(self, number: int, now: float) -> tuple[float, int, int]:
        place = self._places[number]
        return max(place.rests_until - now, 0.0), len(place.sessions), number
