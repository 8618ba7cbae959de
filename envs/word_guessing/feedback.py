"""What a guess tells about the hidden word, letter by letter."""

PLACED, ELSEWHERE, ABSENT = "G", "Y", "-"
MARKS = PLACED + ELSEWHERE + ABSENT


def feedback(guess: str, secret: str) -> str:
    """One mark per letter of the guess.

    `G` where the letter is in place. Of the other letters of the secret, each is matched by at most
    one letter of the guess, from the left: those get `Y`, all others `-`.
    """
    unmatched = [s for g, s in zip(guess, secret, strict=True) if g != s]
    marks = []
    for letter, hidden in zip(guess, secret, strict=True):
        if letter == hidden:
            marks.append(PLACED)
        elif letter in unmatched:
            unmatched.remove(letter)
            marks.append(ELSEWHERE)
        else:
            marks.append(ABSENT)
    return "".join(marks)
