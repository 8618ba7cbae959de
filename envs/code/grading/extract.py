"""Finds the program in a message, whether it is fenced or stands there alone."""

import ast

from agentgym.envs.code.answers import LANGUAGES, program_of
from agentgym.errors import ConfigError

_MAX_UNFENCED = 100_000
_THINKING_ENDS = "</think>"
_BYTE_ORDER_MARK = "\ufeff"


def extract_program(message: str | None, *, language: str = "python") -> str | None:
    """The last fenced block of a language, or the whole message if it has no fence and is Python.

    Reasoning before `</think>` is left out. A fence without a name counts for any language where
    none has the right name, one with another language's name never; a block that is not closed was
    cut off, and is none.

    Args:
        message: what the policy said.
        language: of the program.

    Raises:
        ConfigError: programs of this language cannot be run.
    """
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ConfigError(f"language {language!r} cannot be run; known: {known}")
    text = (message or "").rpartition(_THINKING_ENDS)[2].removeprefix(_BYTE_ORDER_MARK)
    if "<think>" in text:
        return None
    if "```" in text or "~~~" in text:
        return program_of(text, language)
    return text if _is_program(text) else None


def _is_program(text: str) -> bool:
    """Whether a text is Python that does something; many a sentence of one word parses as well.

    Indented lines may be the body of a function that is to be completed.
    """
    if len(text) > _MAX_UNFENCED:
        return False
    is_body = text.lstrip("\r\n")[:1] in (" ", "\t")
    try:
        body = ast.parse(f"if True:\n{text}" if is_body else text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(_does_something(statement) for statement in body)


def _does_something(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant):
        return any(map(_does_something, statement.body))
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return not isinstance(statement, ast.AnnAssign) or statement.value is not None
