"""Calls in Python's syntax, `name(key="value", other=[1, 2])`, whose arguments are literals.

Nothing is evaluated and Python's own parser is not asked: it warns, gives up on raw line ends and
on keywords as argument names, and has no bound on depth. JSON's literals are read as well.
"""

import json
import re
from typing import Any, NamedTuple

from agentgym.jsonable import MAX_DEPTH
from agentgym.rendering.dialects.json_calls import finite
from agentgym.rendering.dialects.reading import skip_space

NAME = r"[\w\-][\w.\-]*"
_HEAD = re.compile(rf"({NAME})\s*\(")
_KEY = re.compile(r"([^\W\d]\w*)\s*=")
_STRING = re.compile(
    r"'''((?:[^\\']|\\.|'(?!''))*+)'''"
    r'|"""((?:[^\\"]|\\.|"(?!""))*+)"""'
    r"|'((?:[^\\']|\\.)*+)'"
    r'|"((?:[^\\"]|\\.)*+)"',
    re.DOTALL,
)
_NUMBER = re.compile(
    r"([-+]?)\s*(?:(0[xX][0-9a-fA-F]+)|((?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][-+]?\d+)?))(?![\w.])"
)
_WORD = re.compile(r"[^\W\d]\w*")
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[0-7]{1,3}|.)",
    re.DOTALL,
)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\n": "",
    **{char: char for char in "\\'\""},
}
_BRACKET = re.compile(rf"{_STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_WINDOW = 20_000
"""Characters in which a call that cannot be read is looked through for its end."""


class PythonCall(NamedTuple):
    """A call and where it ends; `reason` says why it is none."""

    name: str
    arguments: dict[str, Any]
    end: int
    reason: str = ""


class _Unreadable(Exception):
    """Why a call cannot be read, for the model."""


def read_python_call(text: str, position: int) -> PythonCall:
    """The call that begins exactly at `position`."""
    head = _HEAD.match(text, position)
    if head is None:
        return PythonCall("", {}, position, "there is no call of the form name(argument=value)")
    reader = _Reader(text, head.end())
    try:
        arguments = reader.arguments()
    except _Unreadable as error:
        return PythonCall(head[1], {}, position, f"the call of {head[1]}: {error}")
    return PythonCall(head[1], arguments, reader.position)


def balanced_end(text: str, start: int) -> int | None:
    """Where the bracket that opens first is closed, if it is so nearby; strings are passed over."""
    depth = 0
    for match in _BRACKET.finditer(text, start, start + _WINDOW):
        if match.group() in "([{":
            depth += 1
        elif match.group() in ")]}":
            depth -= 1
        if depth == 0 or depth > MAX_DEPTH:
            return match.end() if depth == 0 else None
    return None


def written_call(name: str, arguments: dict[str, Any]) -> str:
    """A call as `read_python_call` reads it; keys that are no identifiers go into `**{...}`."""
    plain = [f"{key}={_spell(value)}" for key, value in arguments.items() if _is_plain(key)]
    other = {key: value for key, value in arguments.items() if not _is_plain(key)}
    return f"{name}({', '.join(plain + ([f'**{_spell(other)}'] if other else []))})"


def _is_plain(key: str) -> bool:
    return _WORD.fullmatch(key) is not None


def _spell(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_spell(k)}: {_spell(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_spell, value))}]"
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


class _Reader:
    """Recursive descent over literals; `position` ends behind the spaces after the call."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._move(position)

    def arguments(self) -> dict[str, Any]:
        """Up to and with the closing parenthesis."""
        found: dict[str, Any] = {}
        while not self._takes(")"):
            if self._takes("**"):
                more = self._value(0)
                if not isinstance(more, dict):
                    raise _Unreadable("** needs a dictionary")
            else:
                more = {self._key(): self._value(0)}
            _add(found, more)
            if not self._takes(","):
                self._expect(")")
                break
        return found

    def _key(self) -> str:
        match = _KEY.match(self._text, self.position)
        if match is None:
            raise _Unreadable(f"arguments must be written as name=value {self._where()}")
        self._move(match.end())
        return match[1]

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise _Unreadable("nested too deeply")
        if self._takes("{"):
            return self._dictionary(depth)
        for begin, end in ("[]", "()"):
            if self._takes(begin):
                return self._sequence(end, depth)
        return self._scalar()

    def _sequence(self, close: str, depth: int) -> Any:
        found: list[Any] = []
        while not self._takes(close):
            found.append(self._value(depth + 1))
            if not self._takes(","):
                self._expect(close)
                return found[0] if close == ")" and len(found) == 1 else found
        return found

    def _dictionary(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._takes("}"):
            key = self._value(depth + 1)
            if not isinstance(key, str):
                raise _Unreadable(f"keys of a dictionary must be strings {self._where()}")
            self._expect(":")
            _add(found, {key: self._value(depth + 1)})
            if not self._takes(","):
                self._expect("}")
                break
        return found

    def _scalar(self) -> Any:
        if (match := _STRING.match(self._text, self.position)) is not None:
            return self._strings(match)
        if (match := _NUMBER.match(self._text, self.position)) is not None:
            self._move(match.end())
            return _number(match)
        match = _WORD.match(self._text, self.position)
        if match is None or match.group() not in _WORDS:
            raise _Unreadable(f"values must be literals {self._where()}")
        self._move(match.end())
        return _WORDS[match.group()]

    def _strings(self, first: re.Match[str]) -> str:
        """A string, and those beside it that Python would join to it."""
        match: re.Match[str] | None = first
        parts: list[str] = []
        while match is not None:
            parts.append(_unescaped(match[match.lastindex or 0]))
            self._move(match.end())
            match = _STRING.match(self._text, self.position)
        return "".join(parts)

    def _move(self, position: int) -> None:
        """Go to the next token; the reader always stands at one."""
        self.position = skip_space(self._text, position)

    def _takes(self, mark: str) -> bool:
        if not self._text.startswith(mark, self.position):
            return False
        self._move(self.position + len(mark))
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise _Unreadable(f"expected {mark!r} {self._where()}")

    def _where(self) -> str:
        rest = self._text[self.position : self.position + 20]
        return f"before {rest!r}" if rest else "at the end"


def _add(found: dict[str, Any], more: dict[str, Any]) -> None:
    twice = found.keys() & more.keys()
    if twice:
        raise _Unreadable(f"{min(twice)!a} is given twice")
    found.update(more)


def _number(match: re.Match[str]) -> int | float:
    sign, hexadecimal, decimal = match.groups()
    try:
        if hexadecimal is not None:
            return int(sign + hexadecimal, 16)
        return int(sign + decimal) if decimal.replace("_", "").isdigit() else finite(sign + decimal)
    except ValueError as error:
        raise _Unreadable(f"no number: {error}") from error


def _unescaped(text: str) -> str:
    """What a string means; unknown escapes stay as they are, halves of a pair are joined."""
    plain = _ESCAPE.sub(_one_unescaped, text) if "\\" in text else text
    if any("\ud800" <= char <= "\udfff" for char in plain):
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return plain


def _one_unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPES.get(code, match.group())
