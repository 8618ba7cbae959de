"""What a failure of the service means: which of them to repeat, and which the code may have caused.

The SDK raises one `TimeoutException` for code that ran too long, a request that got no answer and a
machine that is gone, and lets errors of the transport through raw. So no decision hangs on the
class alone: machines are asked whether they run, and the time limits are this package's own.
"""

from enum import Enum

from agentgym.errors import AgentGymError, SandboxError, UsageError


class ServiceError(AgentGymError):
    """Anything that the SDK raised; the cause tells what."""


class Kind(Enum):
    """What to do about a failure."""

    CALLER = "caller"
    """The key, the template or an argument is wrong: repeating it is no use."""
    BUSY = "busy"
    """The service is overloaded: later."""
    GONE = "gone"
    """The machine, or the interpreter in it, is no longer there."""
    UNCLEAR = "unclear"
    """Ask the machine whether it runs."""


_OVERLOADED = (408, 409, 425, 429)


def kind_of(error: BaseException | None) -> Kind:
    """What an exception of the SDK, of its transport, or of reading its answer means."""
    import e2b

    if isinstance(error, e2b.AuthenticationException | e2b.InvalidArgumentException):
        return Kind.CALLER
    if isinstance(error, e2b.TemplateException):
        return Kind.CALLER
    if isinstance(error, e2b.RateLimitException | e2b.ServiceBusyException):
        return Kind.BUSY
    if isinstance(error, e2b.SandboxNotRunningException | e2b.NotFoundException):
        return Kind.GONE
    if isinstance(error, e2b.SandboxException) and error.status_code is not None:
        return _kind_of_status(error.status_code)
    return Kind.UNCLEAR


def _kind_of_status(status: int) -> Kind:
    if status in _OVERLOADED or status >= 500:
        return Kind.BUSY
    return Kind.CALLER if status >= 400 else Kind.UNCLEAR


def told(error: ServiceError, doing: str) -> UsageError:
    """A failure that the caller must act on, in one line."""
    import e2b

    cause = error.__cause__
    if isinstance(cause, e2b.AuthenticationException):
        return UsageError(f"E2B refused the key while {doing}: check E2B_API_KEY ({cause})")
    return UsageError(f"E2B refused {doing}: {cause}")


def gave_up(doing: str, attempts: int, last: BaseException | None) -> SandboxError:
    """The end of all repeating."""
    why = f"{type(last).__name__}: {last}" if last is not None else "no answer"
    return SandboxError(f"E2B: {doing} failed {attempts} times; last: {why}")
