"""Tools: typed functions that a model can call.

Whatever a call does, the model gets a text: the result, or what was wrong and how to put it right.
Only errors that are not the model's (a dead sandbox, a missing package) leave as exceptions.
"""

import inspect
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from pydantic_core import to_jsonable_python

from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.errors import ConfigError, ToolError, boundary
from agentgym.messages import ToolErrorKind, ToolResult
from agentgym.threads import in_thread
from agentgym.tools.context import ToolContext
from agentgym.tools.limits import cut_middle
from agentgym.tools.schema import ArgumentError, Signature, read_signature

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MIN_OUTPUT_TOKENS = 8
_EXITS = (SystemExit, KeyboardInterrupt)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function with what the model is told about it and the limits it runs under."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments, one object."""
    function: Callable[..., Any]
    """Sync (run in a thread of its own) or async."""
    timeout_s: float = 10.0
    """A call that takes longer is answered with an error and left behind."""
    max_output_tokens: int = 1024
    """Longer results lose their middle."""
    parallel: bool = True
    """Whether calls of one turn may run at the same time."""
    signature: Signature = field(repr=False)

    def to_schema(self) -> dict[str, Any]:
        """The tool in OpenAI's function format."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}

    async def call(
        self, arguments: Mapping[str, Any], context: ToolContext | None = None, *, call_id: str = ""
    ) -> ToolResult:
        """Run the tool, if the arguments fit.

        Raises:
            EpisodeError: the tool's surroundings failed, not the call.
            UsageError: the caller has to change something, such as install a package.
        """
        start = time.perf_counter()
        context = context or ToolContext()
        text, error = await self._answer(arguments, context)
        return ToolResult(
            call_id=call_id,
            name=self.name,
            content=cut_middle(text, self.max_output_tokens, context.count_tokens),
            error=error,
            seconds=time.perf_counter() - start,
        )

    async def _answer(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> tuple[str, ToolErrorKind | None]:
        try:
            values = self.signature.validate(arguments)
        except ArgumentError as error:
            return f"tool {self.name!r} was not run: {error}", "bad_arguments"
        if self.signature.context_parameter is not None:
            values[self.signature.context_parameter] = context
        try:
            return await bounded(self._run(values), self.timeout_s, grace_s=0), None
        except SelfCancelledError as error:
            return f"tool {self.name!r} failed: {error}", "tool_error"
        except TimeoutError:
            return f"tool {self.name!r}: timeout after {self.timeout_s:g} s", "timeout"
        except ToolError as error:
            return _clean(str(error)), "tool_error"

    async def _run(self, values: dict[str, Any]) -> str:
        with boundary(ToolError, f"tool {self.name!r} failed", also=_EXITS):
            if inspect.iscoroutinefunction(self.function):
                return to_text(await self.function(**values))
            return await in_thread(lambda: self._run_blocking(values))

    def _run_blocking(self, values: dict[str, Any]) -> str:
        with boundary(ToolError, f"tool {self.name!r} failed", also=(BaseException,)):
            return to_text(self.function(**values))


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout_s: float = 10.0,
    max_output_tokens: int = 1024,
    parallel: bool = True,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    timeout_s: float = 10.0,
    max_output_tokens: int = 1024,
    parallel: bool = True,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function, sync or async, with or without options.

    Name, description and JSON schema come from its signature and Google docstring; a parameter of
    type `ToolContext` is filled in and hidden from the model. The function stays at `.function`.

    Args:
        function: what to call; a bound method is fine.
        name: what the model calls it; the function's name if left out.
        timeout_s: longest a call may take.
        max_output_tokens: longest result, its cut marker included.
        parallel: whether calls of one turn may run at the same time.

    Raises:
        ConfigError: the name, a limit or a parameter cannot be used.
    """

    def build(function: Callable[..., Any]) -> Tool:
        used_name = name or function.__name__
        _check(used_name, timeout_s, max_output_tokens)
        signature = read_signature(function, used_name)
        return Tool(
            name=used_name,
            description=signature.description,
            parameters=signature.json_schema,
            function=function,
            timeout_s=timeout_s,
            max_output_tokens=max_output_tokens,
            parallel=parallel,
            signature=signature,
        )

    return build if function is None else build(function)


def to_text(value: object) -> str:
    """What the model reads of a result: strings as they are, everything else as JSON."""
    jsonable = value if isinstance(value, str) else to_jsonable_python(value, fallback=str)
    return _clean(
        jsonable if isinstance(jsonable, str) else json.dumps(jsonable, ensure_ascii=False)
    )


def _clean(text: str) -> str:
    """Text that UTF-8 can encode: lone halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _check(name: str, timeout_s: float, max_output_tokens: int) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"tool name {name!r} must be 1 to 64 letters, digits, '_' or '-'")
    if not timeout_s > 0:
        raise ConfigError(f"tool {name!r}: timeout_s={timeout_s} must be positive")
    if max_output_tokens < _MIN_OUTPUT_TOKENS:
        raise ConfigError(
            f"tool {name!r}: max_output_tokens={max_output_tokens} must be at least "
            f"{_MIN_OUTPUT_TOKENS}"
        )
