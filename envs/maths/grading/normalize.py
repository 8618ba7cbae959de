"""One spelling for what can be written in many ways: Unicode, LaTeX layout, markdown.

Text inside `\\text{}` is kept between two marks, because `5 m` in roman type is metres while `5m`
in italics is a product.
"""

import re
import unicodedata

TEXT, END = "\ue000", "\ue001"
"""Around what was set as text."""

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+", strict=True))
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_SIGNS = {
    "\u2212": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2010": "-",
    "\u2011": "-",
    "\u00d7": r" \times ",
    "⋅": r" \cdot ",
    "·": r" \cdot ",
    "∙": r" \cdot ",
    "÷": "/",
    "\u2044": "/",
    "\u2215": "/",
    "π": r" \pi ",
    "∞": r" \infty ",
    "≤": r" \le ",
    "≥": r" \ge ",
    "≠": r" \ne ",
    "±": r" \pm ",
    "\u222a": r" \cup ",
    "∩": r" \cap ",
    "∈": r" \in ",
    "∅": r" \emptyset ",
    "\u211d": r"\mathbb{R}",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "\u200b": "",
    "\u2019": "'",
}
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z])?")
_FONT = r"mathrm|mathbf|mathit|mathsf|boldsymbol|operatorname\*?|bm"
_TEXT_MACRO = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|hbox)\s*\{([^{}]*)\}")
_FONT_MACRO = re.compile(rf"\\(?:{_FONT})\s*\{{([^{{}}]*)\}}")
_SPACES = re.compile(r"(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~|\\thinspace|\\(?:rm|bf)(?![A-Za-z])")
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?|\\(?:display|text)style(?![A-Za-z])"
    r"|\\(?:limits|phantom\{[^{}]*\})"
)
_ANGLE = re.compile(
    r"\\(sin|cos|tan|cot|sec|csc)\s*(?:\(\s*(\d+)\s*\^\\circ\s*\)|\{?\s*(\d+)\s*\^\\circ\s*\}?)"
)
"""The function of an angle in degrees."""
_MACROS = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\leq?(?:slant)?(?![A-Za-z])|<="), r"\\le "),
    (re.compile(r"\\geq?(?:slant)?(?![A-Za-z])|>="), r"\\ge "),
    (re.compile(r"\\neq?(?![A-Za-z])|!="), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\(?:varnothing)(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\frac\s*(\d)\s*([\dA-Za-z])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"(\\frac\{[^{}]*\})\s*([\dA-Za-z])"), r"\1{\2}"),
    (re.compile(r"\\log\s*_\s*(?:\{\s*e\s*\}|e(?![A-Za-z]))"), r"\\ln "),
    (re.compile(r"\\sqrt\s*(\d|[A-Za-z])(?![A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\^\s*\{?\s*(?:\\circ|\\degree)\s*\}?|\\degree(?![A-Za-z])"), r"^\\circ "),
    (_ANGLE, r"\\\1(\\frac{\2\3\\pi}{180})"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)"), r" \\times "),
    (re.compile(r"\\+$"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"^__(\w.*\w|\w)__$"), r"\1"),
    (re.compile(r"\*\*(?=\s|$)|^\*\*|(?<=\s)\*\*(?=\S+\*\*)"), " "),
)
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{(\d+)\}")
_EDGE = " \t\n.,;:`*"


def normalize(text: str) -> str:
    """The text in the spelling that `read` understands."""
    text = _currency(_unicode(text))
    text = re.sub(r"(?<!\\)\\[\[\]()]", " ", text)
    text = _SPACES.sub(lambda match: "" if match.group() in {r"\!", r"\,"} else " ", text)
    text = _TEXT_MACRO.sub(rf" {TEXT}\1{END} ", text)
    text = _FONT_MACRO.sub(r"\1", text)
    text = _LAYOUT.sub("", text)
    for pattern, replacement in _MACROS:
        text = pattern.sub(replacement, text)
    text = _REPEATING.sub(_repeating, text)
    return _strip(re.sub(r"\s+", " ", text))


def _repeating(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction: all digits less the first ones, over nines and zeros."""
    whole, first, again = match.groups()
    nines = "9" * len(again) + "0" * len(first)
    return rf"\frac{{{whole}{first}{again}-{whole or 0}{first}}}{{{nines}}}"


def _unicode(text: str) -> str:
    text = re.sub("[⁰¹²³⁴-⁹⁺⁻]+", _superscript, text)
    text = _VULGAR.sub(_vulgar, text)
    text = _ROOT.sub(lambda m: rf"\sqrt{{{m.group(1)}}}" if m.group(1) else r"\sqrt", text)
    text = "".join(_SIGNS.get(char, char) for char in text)
    return unicodedata.normalize("NFKC", text)


def _superscript(match: re.Match[str]) -> str:
    return "^{" + "".join(_SUPERSCRIPTS[char] for char in match.group()) + "}"


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match.group()).partition("\u2044")
    return rf"\frac{{{top}}}{{{bottom}}}"


def _currency(text: str) -> str:
    """Dollars of money as a word; those of mathematics go."""
    text = text.replace(r"\$", f"{TEXT}dollars{END}")
    if text.count("$") % 2 and re.search(r"\$\s?\d", text):
        text = re.sub(r"\$(?=\s?\d)", f"{TEXT}dollars{END}", text, count=1)
    for sign, word in (("€", "euros"), ("£", "pounds"), ("¥", "yen")):
        text = text.replace(sign, f"{TEXT}{word}{END}")
    return text.replace("$", " ")


def _strip(text: str) -> str:
    stripped = text.strip(_EDGE).removeprefix("=").strip(_EDGE)
    if text.lstrip().startswith(".") and re.match(r"\d", stripped):
        stripped = "." + stripped
    return stripped


def key(text: str) -> str:
    """For comparing spellings: without spaces, marks and braces around one character.

    Spaces between digits stay, because `1 1/6` is not `11/6`.
    """
    text = re.sub(r"(?<=\d)\s+(?=\d)", "_", text)
    text = re.sub(rf"[\s{TEXT}{END}]", "", text)
    return re.sub(r"\{(\w)\}", r"\1", text)
