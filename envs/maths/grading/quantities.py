"""Reads one value: a number or formula, perhaps with unit, per cent sign or scale, or words."""

import re

from agentgym.envs.maths.grading.exact import TooBigError, evaluate
from agentgym.envs.maths.grading.normalize import END, TEXT
from agentgym.envs.maths.grading.units import Unit, parse_unit
from agentgym.envs.maths.grading.values import Quantity, Words

_WORDS = re.compile(r"[A-Za-z][A-Za-z'\- ]*[A-Za-z]")
_MATH_WORDS = re.compile(r"pi|sqrt|sin|cos|tan|log|ln|exp|infinity|inf|oo")
_RATIO = re.compile(r"(\d+)\s*:\s*(\d+)")
_PERCENT = re.compile(r"\s*(?:%|per ?cent(?:age points?)?)$", re.IGNORECASE)
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALE = re.compile(rf"(.*\d)\s*({'|'.join(_SCALES)})\b(.*)", re.IGNORECASE)
_MARKED_SCALE = re.compile(rf"{TEXT}\s*({'|'.join(_SCALES)})\s*{END}", re.IGNORECASE)
_MARKED = re.compile(rf"{TEXT}([^{END}]*){END}\s*(\^\{{?\d\}}?)?")
_UNIT = re.compile(
    r"(?P<value>.*?(?:[\d)\]}!]|\\pi|[A-Za-z] ))\s*(?P<unit>\^\\circ ?[CF]?"
    r"|(?:square|cubic|sq) [A-Za-z]{2,}|[A-Za-z]{2,}[A-Za-z/. ]*(?:\^ ?\{?\d\}?)?(?:/[A-Za-z]+)?"
    r"|(?<= )[mgsLlhN](?:\^ ?\{?\d\}?)?(?:/[A-Za-z]+(?:\^ ?\{?\d\}?)?)?)",
    re.DOTALL,
)
_NUMBER_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
_NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBER_NAMES.split())}


def unmark_scales(text: str) -> str:
    """Scale words belong to the number, however they are set."""
    return _MARKED_SCALE.sub(r" \1 ", text)


def plain_text(text: str) -> str:
    """Without the marks around words, and without the full stop."""
    return re.sub(rf"[{TEXT}{END}]", "", text).strip().strip(".")


def read_single(text: str) -> tuple[Quantity | Words, ...]:
    """Readings of a text that is no list, interval or equation."""
    plain = " ".join(plain_text(text).split())
    if plain.lower() in _NUMBER_WORDS:
        plain = text = str(_NUMBER_WORDS[plain.lower()])
    elif (TEXT in text and _WORDS.fullmatch(plain)) or _is_prose(plain):
        return (Words(plain.casefold()),)
    if match := _RATIO.fullmatch(plain):
        return (_quantity(f"{match.group(1)}/({match.group(2)})"),)
    without = _PERCENT.sub("", _plain_percent(text))
    if without != _plain_percent(text):
        return (_quantity(without, percent=True),)
    value, unit, known = _split_unit(text)
    quantity = _quantity(value, unit=unit)
    if known is False and quantity.exact is None:
        return (Quantity(text, None), quantity)
    return (quantity,)


def _is_prose(plain: str) -> bool:
    """Words that no formula is made of: two of them, or a long one."""
    if not _WORDS.fullmatch(plain) or _MATH_WORDS.search(plain):
        return False
    return " " in plain or len(plain) >= 4 or plain.lower() in {"yes", "no"}


def _plain_percent(text: str) -> str:
    return plain_text(text) if _PERCENT.search(plain_text(text)) else text


def _quantity(text: str, *, percent: bool = False, unit: Unit | None = None) -> Quantity:
    scaled = _SCALE.fullmatch(text)
    if scaled and not scaled.group(3).strip():
        text = f"({scaled.group(1)})*{_SCALES[scaled.group(2).lower()]}"
    text = text.strip()
    try:
        return Quantity(text, evaluate(text), percent, unit)
    except TooBigError:
        return Quantity(text, None, percent, unit, is_huge=True)


def _split_unit(text: str) -> tuple[str, Unit | None, bool | None]:
    """Value, unit, and whether the words around it were certainly none of its own.

    Words set as text and known units are; other words behind a number count things.
    """
    marked = _MARKED.search(text)
    if marked is not None:
        rest = _MARKED.sub(" ", text).strip()
        named = " ".join(word + (power or "") for word, power in _MARKED.findall(text))
        plain_unit = parse_unit(re.sub(r"\s*/\s*", "/", named.strip().strip(".")))
        if rest:
            return rest, plain_unit, True
        text = plain_text(text)
    match = _UNIT.fullmatch(text)
    if match is None:
        return text, None, None
    value, name = match.group("value").strip(), match.group("unit").strip()
    if name.startswith("^"):
        return value, parse_unit("degree"), True
    unit = parse_unit(name)
    scale = _SCALE.fullmatch(text)
    if scale:
        tail = scale.group(3).strip()
        return f"({scale.group(1)})*{_SCALES[scale.group(2).lower()]}", parse_unit(tail), True
    if unit is None and _MATH_WORDS.search(name):
        return text, None, None
    return value, unit, unit is not None
