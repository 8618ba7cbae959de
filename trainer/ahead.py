"""Windows that are played while an earlier one is trained on.

What a window plays follows from its number alone, so it is the same however far ahead it begins.
Nothing of this is in a checkpoint: a resumed run plays the windows anew that were on their way,
under the weights it resumes with.
"""

from collections.abc import Callable, Sequence

from agentgym.trainer.rollouts import Played, Playing, Rollouts
from agentgym.trajectory import RolloutRequest

RequestsOf = Callable[[int], Sequence[RolloutRequest]]
"""What this rank plays for a window, by its number."""


class Ahead:
    """Windows by number, each begun up to `staleness` windows before it is needed.

    Args:
        rollouts: plays them.
        staleness: how many are on their way while one is trained on.
        max_age: updates of the weights that so many windows amount to.
    """

    def __init__(self, rollouts: Rollouts, *, staleness: int, max_age: int) -> None:
        self._rollouts = rollouts
        self._staleness = staleness
        self._max_age = max_age
        self._playing: dict[int, Playing] = {}

    def take(
        self, number: int, *, num_windows: int, requests_of: RequestsOf, temperature: float
    ) -> Played:
        """The window `number`, once it was played; those after it are begun first.

        Args:
            number: from 0; in ascending order.
            num_windows: of the whole run; none beyond it is begun.
            requests_of: what to play.
            temperature: 0.0 is greedy.

        Raises:
            TooManyFailuresError: too much of this window failed.
            UsageError: the caller must change something.
        """
        end = min(number + self._staleness + 1, max(num_windows, number + 1))
        for ahead in range(number, end):
            if ahead not in self._playing:
                self._playing[ahead] = self._rollouts.begin(
                    requests_of(ahead), temperature=temperature, is_ahead=True
                )
        return self._rollouts.finish(self._playing.pop(number), max_age=self._max_age)

    def drop(self) -> None:
        """Give up what is on its way; every env of it is closed."""
        self._playing.clear()
        self._rollouts.drop()
