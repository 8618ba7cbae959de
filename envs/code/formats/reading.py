"""Problems from rows and files; which format a row is in shows by its keys."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agentgym.envs.code.formats.asserted import from_humaneval, from_mbpp
from agentgym.envs.code.formats.pairs import (
    from_apps,
    from_contests,
    from_livecodebench,
    from_tests,
    from_verifiable,
)
from agentgym.envs.code.formats.problem import CodeProblem
from agentgym.errors import ConfigError

Reader = Callable[[dict[str, Any], int], CodeProblem]
FORMATS: dict[str, tuple[frozenset[str], Reader]] = {
    "livecodebench": (frozenset({"question_content", "public_test_cases"}), from_livecodebench),
    "verifiable": (frozenset({"verification_info"}), from_verifiable),
    "humaneval": (frozenset({"prompt", "test", "entry_point"}), from_humaneval),
    "mbpp": (frozenset({"test_list"}), from_mbpp),
    "apps": (frozenset({"input_output"}), from_apps),
    "code_contests": (frozenset({"description", "public_tests", "private_tests"}), from_contests),
    "inputs_outputs": (frozenset({"inputs", "outputs"}), from_apps),
    "tests": (frozenset({"tests"}), from_tests),
    "test_cases": (frozenset({"test_cases"}), from_tests),
    "hidden_tests": (frozenset({"hidden_tests"}), from_tests),
    "test": (frozenset({"test"}), from_tests),
    "one_pair": (frozenset({"stdin", "expected"}), from_tests),
}
"""By name: the keys a row of the format has, and what reads it; the first that fits is taken."""


def problem_of(row: Mapping[str, Any], *, index: int = 0, format: str | None = None) -> CodeProblem:
    """The problem of a row.

    Args:
        row: of a data set.
        index: its id, if it has none.
        format: a name of `FORMATS`; found by the keys if left out.

    Raises:
        ConfigError: the format is not known, or the row breaks it; says which row.
    """
    name = format or _format_of(row)
    if name not in FORMATS:
        raise ConfigError(f"format {name!r} is not known; known: {', '.join(FORMATS)}")
    try:
        problem = FORMATS[name][1](dict(row), index)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: " if not isinstance(error, ConfigError) else ""
        raise ConfigError(f"row {index} (format {name}): {said}{error}") from error
    if not problem.hidden_tests:
        raise ConfigError(f"row {index} (format {name}): problem {problem.id!r} has no tests")
    return problem


def _format_of(row: Mapping[str, Any]) -> str:
    filled = {key for key, value in row.items() if value is not None}
    for name, (keys, _) in FORMATS.items():
        if keys <= filled:
            return name
    raise ConfigError(
        f"a row with the keys {', '.join(map(repr, row)) or 'none'} is in no known format; "
        f"known: {', '.join(FORMATS)}"
    )


def problems_of(
    rows: Iterable[Mapping[str, Any]], *, format: str | None = None
) -> list[CodeProblem]:
    """Problems of rows, such as of a `datasets.Dataset`.

    Raises:
        ConfigError: a row has no known form, or two problems share an id.
    """
    problems = [problem_of(row, index=i, format=format) for i, row in enumerate(rows)]
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ConfigError(f"two problems have the id {problem.id!r}")
        seen.add(problem.id)
    return problems


def read_file(path: str | Path, *, format: str | None = None) -> list[CodeProblem]:
    """Problems of a local `.jsonl`, `.json` or `.parquet` file.

    Raises:
        ConfigError: there is no such file, or it cannot be read; says where.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}")
    readers = {".jsonl": _read_jsonl, ".json": _read_json, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ConfigError(f"{path.name}: a file of problems ends in {', '.join(readers)}")
    return problems_of(readers[path.suffix](path), format=format)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            rows.append(_row(line, f"{path.name}:{number}"))
    return rows


def _row(text: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is a {type(row).__name__}, not an object")
    return row


def _read_json(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(_text(path))
    except ValueError as error:
        raise ConfigError(f"{path.name} is no JSON: {error}") from error
    rows = rows.get("data", [rows]) if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path.name} holds no list of objects")
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    from pyarrow import ArrowException, parquet

    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise ConfigError(f"{path.name} is no parquet file: {error}") from error
    return rows
