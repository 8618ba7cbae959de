"""Problems of a file: one JSON object per line, with a question and its answer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym.envs.levels import SPLITS, split_of
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError


class Columns(NamedTuple):
    """Names of the columns that are read."""

    question: str
    answer: str


def read_rows(path: str, columns: Columns) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file.

    Raises:
        ConfigError: it cannot be read, or a row lacks a column.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"file {path!r} cannot be read: {error}") from error
    rows = [_row(line, f"{path}:{n}", columns) for n, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise ConfigError(f"file {path!r} holds no problems; give one JSON object per line")
    return rows


def _row(line: str, where: str, columns: Columns) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no JSON object: {line[:60]!r}")
    check_columns(row, where, columns)
    return row


def check_columns(row: Mapping[str, Any], where: str, columns: Columns) -> None:
    """Refuse a row without question or answer.

    Raises:
        ConfigError: names what it has instead.
    """
    for role, name in columns._asdict().items():
        if name not in row:
            raise ConfigError(
                f"{where} has no column {name!r}; it has {', '.join(map(str, row)) or 'none'}: "
                f"name the column with {role}="
            )


def rows_of_split(rows: Sequence[Mapping[str, Any]], split: str, columns: Columns) -> TaskSet:
    """One row in five is held out, by a hash of its question.

    Raises:
        ConfigError: the split is neither "train" nor "eval".
    """
    if split not in SPLITS:
        raise ConfigError(f"split must be one of {list(SPLITS)}, got {split!r}")
    chosen = [row for row in rows if split_of(str(row[columns.question])) == split]
    return TaskSet.from_rows(chosen)
