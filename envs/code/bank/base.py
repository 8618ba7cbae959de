"""What a bundled problem is made of, and how one of its variants is drawn.

A sketch is a template: constants are drawn by seed, so that one sketch is many tasks and some of
them can be held out. What is expected is worked out here, on the host, by the sketch's own
solution, which is part of this package; nothing of it ever enters a sandbox.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from string import Template
from types import SimpleNamespace
from typing import Any, Literal

from agentgym.errors import ConfigError

Kind = Literal["function", "program", "class"]
Inputs = Callable[[Random, Any], Sequence[Any]]
NUM_PUBLIC = 3
_LEAST_HIDDEN, _MOST_HIDDEN = 5, 12
MAIN = "\n\nimport sys\n\nprint(solve(sys.stdin.read()))\n"
"""What makes a program of `solve(text) -> text`."""


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """One problem; every text is a template of `$f`, its entry point, and of its constants."""

    name: str
    """Unique in the bank."""
    level: int
    kind: Kind = "function"
    """A function of JSON values, a program from stdin to stdout, or a class with methods."""
    statement: str
    solution: str
    """Source; of a program, a function `solve(text) -> text`."""
    wrong: str
    """A likely mistake; of a program, likewise."""
    hack: str | None = None
    """A short cut that knows the question and does not solve it."""
    inputs: Inputs
    """Draws, with the generator and the constants, what to try: arguments of a call; the text of
    stdin; or `[arguments of the class, [[method, *arguments], ...]]`. The first are public."""
    entries: tuple[str, ...] = ("solve",)
    """Names for the function or class; one is drawn."""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What each constant may be."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A sketch whose constants are drawn."""

    sketch: Sketch
    entry: str
    statement: str
    solution: str
    """Source of a whole answer, as are the next two."""
    wrong: str
    hack: str | None
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    """One per input: a JSON value, of a program the text of stdout."""
    identity: str
    """Equal for variants that are the same problem."""


def vary(sketch: Sketch, rng: Random) -> Variant:
    """Draw the constants, the name and the inputs.

    Raises:
        ConfigError: the sketch is at fault; names it.
    """
    constants = {key: rng.choice(choices) for key, choices in sketch.values.items()}
    entry = rng.choice(sketch.entries)
    names = {**constants, "f": entry}

    def fill(template: str) -> str:
        try:
            return Template(template).substitute(names).strip("\n")
        except (KeyError, ValueError) as error:
            raise ConfigError(f"problem {sketch.name!r}: bad template: {error}") from error

    def answer(template: str) -> str:
        return fill(template) + (MAIN if sketch.kind == "program" else "\n")

    inputs = _checked_inputs(sketch, sketch.inputs(rng, SimpleNamespace(**constants)))
    core = fill(sketch.solution)
    return Variant(
        sketch=sketch,
        entry=entry,
        statement=fill(sketch.statement),
        solution=answer(sketch.solution),
        wrong=answer(sketch.wrong),
        hack=None if sketch.hack is None else answer(sketch.hack),
        inputs=inputs,
        expected=tuple(run_trusted(sketch.kind, core, entry, given) for given in inputs),
        identity=f"p {sketch.name}{sorted(constants.items())}",
    )


def _checked_inputs(sketch: Sketch, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Each once, public ones first."""
    distinct = list({repr(given): given for given in inputs}.values())[: NUM_PUBLIC + _MOST_HIDDEN]
    if len(distinct) < NUM_PUBLIC + _LEAST_HIDDEN:
        raise ConfigError(
            f"problem {sketch.name!r}: {len(distinct)} different inputs, at least "
            f"{NUM_PUBLIC + _LEAST_HIDDEN} are needed"
        )
    return tuple(distinct)


def run_trusted(kind: Kind, source: str, entry: str, given: Any) -> Any:
    """What a source of this package makes of an input; never for anybody else's code."""
    names = _loaded(source)
    if kind == "program":
        return f"{names['solve'](given)}\n"
    if kind == "function":
        return names[entry](*given)
    arguments, calls = given
    made = names[entry](*arguments)
    return [getattr(made, method)(*rest) for method, *rest in calls]


@lru_cache(maxsize=1024)
def _loaded(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, "<solution>", "exec"), names)
    return names
