"""The flags of a config class, by argparse.

Two rules read every value: a mapping is written as YAML or JSON, everything else goes to pydantic
as the text that was typed. Of the libraries that derive flags from pydantic models, the one tried
(pydantic-settings) splits list items at commas and turns `a=[1]` into the text "[1]".
"""

import argparse
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from agentgym.config import Config, did_you_mean, flag_of, near, parse_yaml, sections
from agentgym.errors import ConfigError


class Flags(NamedTuple):
    """What was typed."""

    files: list[Path]
    """Config files, in order."""
    values: dict[str, Any]
    """By field; only the flags that were given."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30)


def parse_flags(config_class: type[Config], argv: Sequence[str], *, prog: str) -> Flags:
    """Config files and flags of a command line.

    Raises:
        ConfigError: an unknown flag, or a flag without its value.
    """
    parser = build_parser(config_class, prog)
    own, passed_on = _split(config_class, argv)
    namespace, unknown = parser.parse_known_intermixed_args([_kebab(item) for item in own])
    fields = config_class.model_fields
    if unknown:
        flag = unknown[0].split("=")[0]
        bare = {flag_of(name): f"give {name.upper()} without it" for name in config_class.arguments}
        elsewhere = {**bare, **config_class.elsewhere}.get(flag)
        known = [
            flag_of(n) for n in fields if n != config_class.passed_on and flag_of(n) not in bare
        ]
        rest = config_class.without_flag
        hint = _near_flag(flag, known, rest) if elsewhere is None else f": {elsewhere}"
        raise ConfigError(f"unknown flag {flag!r}{_after_dashes(config_class)}{hint}")
    typed = vars(namespace)
    files = [Path(file) for file in typed.pop("files", [])]
    values = {name: _decode(name, raw, fields[name]) for name, raw in typed.items()}
    return Flags(files, values | passed_on)


def _split(config_class: type[Config], argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The command's own words, and the field with those after `--`, if it has one."""
    words = list(argv)
    if config_class.passed_on is None or "--" not in words:
        return words, {}
    at = words.index("--")
    return words[:at], {config_class.passed_on: words[at + 1 :]}


def build_parser(config_class: type[Config], prog: str) -> argparse.ArgumentParser:
    """A parser with one group of flags for each section (base class) of the config."""
    parser = _Parser(
        prog=prog,
        usage=f"{prog} {_positional(config_class)} [--flag value ...]{_rest(config_class)}",
        description=inspect.cleandoc(config_class.__doc__ or ""),
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    for name in config_class.arguments:
        parser.add_argument(
            name,
            nargs="?",
            metavar=name.upper(),
            default=argparse.SUPPRESS,
            help=_help(config_class.model_fields[name]),
        )
    if not config_class.arguments:
        parser.add_argument("files", nargs="*", metavar="FILE.yaml", help="settings; flags win")
    _add_flags(parser, config_class)
    return parser


def _positional(config_class: type[Config]) -> str:
    return " ".join(name.upper() for name in config_class.arguments) or "[FILE.yaml ...]"


def _rest(config_class: type[Config]) -> str:
    return f" [-- {config_class.passed_on.upper()} ...]" if config_class.passed_on else ""


def _add_flags(parser: argparse.ArgumentParser, config_class: type[Config]) -> None:
    no_flags = {*config_class.arguments, config_class.passed_on}
    for title, names in sections(config_class):
        flags = [name for name in names if name not in no_flags]
        group = parser.add_argument_group(title) if flags else None
        for name in flags:
            _add_flag(group, name, config_class.model_fields[name])


def _add_flag(group: Any, name: str, field: FieldInfo) -> None:
    kind, _ = _kind(field)
    options: dict[str, Any] = {"metavar": _metavar(field)}
    if kind is bool:
        options = {"action": "store_true"}
        no = {"action": "store_false", "help": argparse.SUPPRESS}
        group.add_argument(f"--no-{flag_of(name)[2:]}", dest=name, default=argparse.SUPPRESS, **no)
    if kind in (list, tuple):
        options |= {"nargs": "*", "action": "extend"}
    group.add_argument(
        flag_of(name), dest=name, default=argparse.SUPPRESS, help=_help(field), **options
    )


def _kind(field: FieldInfo) -> tuple[Any, bool]:
    """The type without its parameters, and whether it may be `None`."""
    annotation, optional = field.annotation, False
    if get_origin(annotation) in (Union, UnionType):
        members = get_args(annotation)
        others = [member for member in members if member is not NoneType]
        optional = len(others) < len(members)
        annotation = others[0] if len(others) == 1 else object
    return get_origin(annotation) or annotation, optional


_METAVARS = {int: "INT", float: "NUM", Path: "PATH", dict: "YAML", str: "TEXT"}


def _metavar(field: FieldInfo) -> str:
    kind, _ = _kind(field)
    if kind is Literal:
        literal = next((a for a in get_args(field.annotation) if get_origin(a)), field.annotation)
        return "{" + ",".join(str(choice) for choice in get_args(literal)) + "}"
    return _METAVARS.get(kind, "VALUE")


def _help(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split("\n\n")[0].split())
    default = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        return text.replace("%", "%%")
    if default is not None and default is not False and default not in ((), {}, "", []):
        text += f" (default: {default})"
    return text.replace("%", "%%")


def _decode(name: str, raw: Any, field: FieldInfo) -> Any:
    kind, optional = _kind(field)
    if optional and raw == "null":
        return None
    if kind is not dict:
        return raw
    value = parse_yaml(raw, flag_of(name))
    if not isinstance(value, dict):
        hint = "a mapping as YAML or JSON, such as '{\"key\": 1}'"
        raise ConfigError(f"{flag_of(name)} {raw!r}: should be {hint}")
    return value


def _kebab(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    is_flag = flag.startswith("--") and len(flag) > 2
    return re.sub("[._]", "-", flag) + equals + value if is_flag else argument


def _after_dashes(config_class: type[Config]) -> str:
    field = config_class.passed_on
    if field is None:
        return ""
    what = (config_class.model_fields[field].description or field).rstrip(".")
    return f"; {what[0].lower()}{what[1:]} come after `--`"


def _near_flag(flag: str, known: Sequence[str], rest: str | None) -> str:
    if not flag.startswith("-"):
        return "; settings are given as --name value, or in a .yaml file"
    if rest is None:
        return did_you_mean(flag, known)
    setting = flag.lstrip("-").replace("-", "_")
    other = f"a setting without a flag is given as {flag_of(rest)} '{{\"{setting}\": ...}}'"
    return f"{near(flag, known) or ';'} {other}"
