"""Who must act on a failure decides its class.

The caller (`UsageError`: the run stops with one line), whoever keeps the servers (`OutageError`:
the run stops, to go on later), this trajectory (`EpisodeError`: recorded on it, the run goes on),
or the model (`ToolError`: shown to it as the tool's result). Foreign code raises ordinary
exceptions; `boundary` is the one place that turns them into these.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class AgentGymError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(AgentGymError):
    """The caller must change code or configuration; the command line exits with 2."""


class ConfigError(UsageError, ValueError):
    """A setting is unknown, malformed, or cannot work with another one."""


class NotRegisteredError(UsageError, LookupError):
    """No factory is registered under the requested name."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."
        super().__init__(f"no {kind} is registered as {name!r}. {hint}")


class EpisodeOverError(UsageError):
    """`step` was called on an episode that has ended."""


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is needed for the requested feature."""

    def __init__(self, feature: str, extra: str) -> None:
        where = "; for CPUs: make vllm-env" if extra == "vllm" else ""
        super().__init__(
            f"{feature} needs the extra {extra!r}: pip install 'agentgym-rl[{extra}]' (in a clone, "
            f"pip install -e '.[{extra}]'{where})"
        )


class EpisodeError(AgentGymError):
    """One trajectory failed: recorded on it, left out of group statistics, counted."""


class EnvError(EpisodeError):
    """The environment raised in `reset`, `step` or `close`, or broke its contract."""


class EngineError(EpisodeError):
    """The engine could not sample."""


class RewardError(EpisodeError):
    """A reward function raised or returned something that is no reward."""


class SandboxError(EpisodeError):
    """The sandbox failed, as opposed to the code inside it."""


class BudgetError(EpisodeError):
    """A limit of the trajectory was passed before anything could be sampled."""


class OutageError(AgentGymError):
    """What every trajectory needs is gone, such as the engine's servers: the run stops.

    It is nobody's mistake, and what could still be played would be a biased part.
    """


class WrongServerError(ConfigError):
    """A server is not what is needed: it is to be changed, and what was begun can go on then."""


class ToolError(AgentGymError):
    """Shown to the model as the tool's result; raise it in a tool to say what went wrong."""


@contextmanager
def boundary(
    kind: type[AgentGymError], action: str, *, also: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Run foreign code; whatever it raises becomes a `kind` that names the action.

    Errors of the caller and of a trajectory pass unchanged, and so do outages, those of `kind`,
    cancellation and the interpreter's exits.

    Args:
        kind: class of the error raised instead.
        action: what was being done, first in the message.
        also: exits to treat like any other exception, such as `SystemExit`.
    """
    foreign: tuple[type[BaseException], ...] = (Exception, *also)
    try:
        yield
    except (UsageError, EpisodeError, OutageError, kind):
        raise
    except foreign as error:
        raise kind(f"{action}: {type(error).__name__}: {error}") from error
