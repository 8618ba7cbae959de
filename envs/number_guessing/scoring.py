"""What a number of guesses is worth."""


def speed(guesses: int, *, par: int, tries: int) -> float:
    """1.0 up to `par` guesses, then falling in equal steps; still above 0 on the last of `tries`.

    Halving the range needs `par` guesses at worst, so luck earns no more than method does.
    """
    return min(1.0, (tries + 1 - guesses) / (tries + 1 - par))
