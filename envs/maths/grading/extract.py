"""Where the answer stands in a text: the last box or `<answer>`, else what follows "answer".

The last one counts, so that naming many values pays for none of them but the last. A box or tag
that was opened and never closed was cut, and a cut answer is none.
"""

import re

_THINK_END, _THINK = "</think>", "<think>"
_BOX = re.compile(r"(?:\\(?:boxed|fbox|framebox)|(?<![\\A-Za-z])boxed(?=\s*\{))\s*(\{|(?=[^\s{]))")
_TAG = re.compile(r"<answer>", re.IGNORECASE)
_TAG_END = re.compile(r"</answer>", re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]+)")
_MARKER = re.compile(
    r"\bans(?:wer)?\b(?:\*\*|[^\S\n]|\b(?:to|the|this|problem|question|for|of|a)\b){0,12}"
    r"(?:(?:is|are|:|=)(?:\*\*|[:\s])*|(?:\*\*)?\s*\n\s*)([^\n]*)",
    re.IGNORECASE,
)
_SPAN = re.compile(
    r"\$\$(.{1,500}?)\$\$|\$(.{1,500}?)\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]", re.DOTALL
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_DISPLAY = re.compile(r"(\\\[|\\\()\s*\n\s*|(?<=\$\$)\s*\n\s*(?=[^$\n]+\n\s*\$\$)")
_OPTION = re.compile(
    r"\b(?:option|choice)\s*(?:is\b|:)?[\s*:]*(\(?[A-H]\)?)(?![A-Za-z'])", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.;!?](?:\s|$)|,?\s(?:since|because|which)\s|,\snot\s")
_PROSE = re.compile(r"(?<![\\{A-Za-z])[A-Za-z']{2,}(?:[\s,]+[A-Za-z']+){2,}")
_LEAD = re.compile(
    r"(?:the|she|he|it|there|they|we|you|this|that|so|thus|therefore|hence|then)\b[A-Za-z',:\s]*"
    r"(?=[-+\u2212$*\\\d])",
    re.IGNORECASE,
)
"""How a sentence begins that goes on with a number or a formula."""
_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?\s?[$\u20ac\u00a3]?(?:\d+\s+\d+/\d+|\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
    r"(?:\s*/\s*\d+)?|\.\d+)\s*(?:\\?%)?",
    re.IGNORECASE,
)
_MAX_DEPTH = 5
_MAX_SEARCHED = 4_000
"""Characters searched for a formula or number that nothing announces."""


def extract(text: str) -> str | None:
    """The answer of a text, not yet simplified; `None` if it was cut or there is none."""
    spoken = _without_reasoning(text)
    return None if spoken is None else _extract(spoken, _MAX_DEPTH)


def _without_reasoning(text: str) -> str | None:
    if _THINK_END in text:
        return text.rpartition(_THINK_END)[2]
    return None if _THINK in text else text


def _extract(text: str, depth: int) -> str | None:
    box = max((match.start() for match in _BOX.finditer(text)), default=-1)
    tag = max((match.start() for match in _TAG.finditer(text)), default=-1)
    if box < 0 and tag < 0:
        return _unmarked(text)
    if depth == 0:
        return None
    if tag > box or _tag_around(text, tag, box):
        return _inside_tag(text, tag, depth)
    content = _inside_box(text, box)
    if content is None or not _BOX.search(content):
        return content
    return _extract(content, depth - 1)


def _tag_around(text: str, tag: int, box: int) -> bool:
    end = _TAG_END.search(text, tag) if tag >= 0 else None
    return end is not None and box < end.start()


def _inside_tag(text: str, tag: int, depth: int) -> str | None:
    start = tag + len("<answer>")
    end = _TAG_END.search(text, start)
    return None if end is None else _extract(text[start : end.start()], depth - 1)


def _inside_box(text: str, start: int) -> str | None:
    opened = _BOX.match(text, start)
    assert opened is not None
    if not opened.group(1):
        word = re.compile(r"[^\s$.,;]+").match(text, opened.end())
        return word.group() if word else None
    depth = 1
    for position in range(opened.end(), len(text)):
        if text[position - 1] == "\\" and text[position - 2 : position] != "\\\\":
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opened.end() : position]
    return None


def _unmarked(text: str) -> str:
    text = _DISPLAY.sub(lambda match: match.group(1) or "", text)
    if hashes := _HASHES.findall(text):
        return str(hashes[-1]).strip()
    announced = [match for match in _MARKER.finditer(text) if match.group(1).strip(" *")]
    if announced:
        return _first_sentence(announced[-1].group(1)[:_MAX_SEARCHED])
    return _whole_or_last(text.strip())


def _first_sentence(text: str) -> str:
    text = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    spans = _spans(text)
    if len(spans) == 1 and _PROSE.search(_SPAN.sub(" ", text)):
        return spans[0]
    return text if not _PROSE.search(_SPAN.sub(" ", text)) or spans else _after_number(text)


def _after_number(text: str) -> str:
    """From the first number of a sentence on: "Tom has 5 apples" is 5 apples."""
    number = _NUMBER.search(text)
    return text[number.start() :] if number else text


def _whole_or_last(text: str) -> str:
    is_short = len(text) <= _MAX_SEARCHED and "\n" not in text
    if is_short and not _PROSE.search(_SPAN.sub(" ", text)):
        return _without_lead(text)
    text = text[-_MAX_SEARCHED:]
    if spans := _spans(text):
        return spans[-1]
    if bold := _BOLD.findall(text):
        return str(bold[-1])
    numbers = _NUMBER.findall(text)
    if not numbers and (options := _OPTION.findall(text)):
        return str(options[-1])
    return str(numbers[-1]) if numbers else text


def _without_lead(text: str) -> str:
    """What a short sentence says: "I choose option (C)" is (C), "it is 24 cm" is 24 cm."""
    options = _OPTION.findall(text)
    if options and not _NUMBER.search(text):
        return str(options[-1])
    lead = _LEAD.match(text)
    return text if lead is None else text[lead.end() :]


def _spans(text: str) -> list[str]:
    return [next(filter(None, groups)) for groups in _SPAN.findall(text)]
