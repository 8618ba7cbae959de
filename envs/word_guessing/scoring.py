"""What a sequence of guesses is worth."""

from collections.abc import Iterable

from agentgym.envs.word_guessing.feedback import PLACED, feedback


def letters(guesses: Iterable[str], secret: str) -> float:
    """Largest share of letters in place in any one guess, from 0 to 1."""
    shares = (feedback(guess, secret).count(PLACED) / len(secret) for guess in guesses)
    return max(shares, default=0.0)
