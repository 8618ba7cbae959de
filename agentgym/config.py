"""One frozen class is a command's Python API, YAML schema, flags and help.

Values are layered as plain mappings (defaults, then files, then flags) and validated once by
pydantic, so that YAML, flags and Python obey the same rules. What a layer contributed is remembered
only to name the file or the flag in an error.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from agentgym.errors import ConfigError

_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+")


class Config(BaseModel):
    """Settings. A field's docstring is its help, a class's docstring the heading of its fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        ser_json_inf_nan="constants",
    )

    rivals: ClassVar[tuple[str, ...]] = ()
    """Fields that say the same in different ways: one that is given replaces those beneath it."""

    arguments: ClassVar[tuple[str, ...]] = ()
    """Fields given by position, in this order, in place of config files."""

    passed_on: ClassVar[str | None] = None
    """Field that takes the words after `--` as they are."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Flags that only other commands have, and what to do here instead."""

    without_flag: ClassVar[str | None] = None
    """Field whose mapping takes settings that have no flag of their own."""

    @classmethod
    def beneath(cls, given: Mapping[str, Any]) -> list[Path]:  # noqa: ARG003 (for subclasses)
        """Config files that lie under what files and flags have `given`."""
        return []

    @classmethod
    def replaced_by(cls, given: Mapping[str, Any]) -> Iterable[str]:
        """Fields that lose what lies beneath one layer of settings, `given`."""
        is_rival = any(given.get(name) is not None for name in cls.rivals)
        return cls.rivals if is_rival else ()


C = TypeVar("C", bound=Config)


class _Loader(yaml.SafeLoader):
    """YAML that reads `1e-4` as a number and refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                problem = f"the key {key.value!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the strings that `_Loader` would read as numbers."""


for _yaml_class in (_Loader, _Dumper):
    _yaml_class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, source: str) -> Any:
    """The value of a YAML (or JSON) text; `source` is what an error names.

    Raises:
        ConfigError: the text is no YAML.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: no valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: no valid YAML: {' '.join(str(error).split())}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a file; an empty file has none.

    Raises:
        ConfigError: the file cannot be read or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError as error:
        raise ConfigError(f"the config file {str(path)!r} is a folder{_of_run(path)}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"cannot read the config file {str(path)!r}: {reason}") from error
    values = parse_yaml(text, str(path)) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected 'key: value' lines, got {type(values).__name__}")
    return {str(key): value for key, value in values.items()}


def _of_run(folder: Path) -> str:
    if not (folder / "config.yaml").is_file():
        return ""
    return f"; `agentgym train --resume --run-dir {quote(str(folder))}` goes on with its run"


def sections(config_class: type[Config]) -> list[tuple[str, list[str]]]:
    """Headings and their fields: those of each base class, then the class's own."""
    bases = [base for base in config_class.__mro__[1:] if issubclass(base, Config)]
    return [
        (
            inspect.cleandoc(section.__doc__ or "").split("\n")[0].rstrip("."),
            [name for name in section.__annotations__ if name in config_class.model_fields],
        )
        for section in (*bases, config_class)
    ]


def to_yaml(config: Config) -> str:
    """The resolved settings, usable as a config file again."""
    dumped = config.model_dump(mode="json")
    values = {name: dumped[name] for _, names in sections(type(config)) for name in names}
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=100)


def load(config_class: type[C], argv: Sequence[str], *, prog: str = "agentgym") -> C:
    """Settings from config files and flags; `--help` prints and exits.

    Raises:
        ConfigError: one line that names the file or flag, the value and what is allowed.
    """
    from agentgym.flags import parse_flags

    flags = parse_flags(config_class, argv, prog=prog)
    layers = {**_files(config_class, flags.files), "": flags.values}
    given = _merged(config_class, layers)
    return validate(config_class, {**_files(config_class, config_class.beneath(given)), **layers})


def _files(config_class: type[Config], paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Settings by file."""
    layers = {str(path): read_yaml(path) for path in paths}
    for source, values in layers.items():
        refuse_unknown(values, config_class.model_fields, source)
    return layers


def refuse_unknown(values: Mapping[str, Any], known: Mapping[str, Any], source: str) -> None:
    """Raise a `ConfigError` that names the first key not in `known` and its nearest name."""
    for key in values:
        if key not in known:
            raise ConfigError(f"{source}: unknown key {key!r}{did_you_mean(key, list(known))}")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The end of an error message."""
    return near(name, known) or f"; known: {', '.join(known)}"


def near(name: str, known: Sequence[str]) -> str:
    """The end of an error message, if one of the known names is like this one."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def flag_of(field: str) -> str:
    """`--run-dir` of `run_dir`; a last underscore only keeps a field's name clear of pydantic's."""
    return "--" + field.rstrip("_").replace("_", "-")


def validate(config_class: type[C], layers: Mapping[str, Mapping[str, Any]]) -> C:
    """Settings from layers, the later one wins; a layer's key is its file, `""` for flags."""
    origin = {name: source for source, values in layers.items() for name in values}
    try:
        return config_class.model_validate(_merged(config_class, layers))
    except ValidationError as error:
        first, *others = error.errors()
        more = f" (and {len(others)} more)" if others else ""
        raise ConfigError(_describe(first, origin, config_class.arguments) + more) from error


def _merged(config_class: type[Config], layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for values in layers.values():
        replaced = config_class.replaced_by(values)
        kept = {name: value for name, value in merged.items() if name not in replaced}
        merged = {**kept, **values}
    return merged


def _typed_as(field: str, arguments: Sequence[str]) -> str:
    return field.upper() if field in arguments else flag_of(field)


def _describe(error: ErrorDetails, origin: Mapping[str, str], arguments: Sequence[str]) -> str:
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not error["loc"]:
        return message
    field, *inner = (str(part) for part in error["loc"])
    source = origin.get(field, "")
    where = f"{source}: {field}" if source else _typed_as(field, arguments)
    if error["type"] == "missing":
        return f"{where} is required"
    path = "".join(f".{part}" for part in inner if not part.endswith("]"))
    return f"{where}{path} {_short(error['input'])}: {message}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
