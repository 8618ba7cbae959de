"""What the cases of the loop are played with: tools and envs from source, everything else real.

The renderer is a toy in which every character is one token, so that cases can count tokens and a
process can start without a model library.
"""

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from agentgym.engines.base import Engine, Generation, Sampling
from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs import Env, Episode, Task, TaskSet, ToolEnv
from agentgym.messages import Message
from agentgym.rendering import dialect
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rollout import GymScheduler, Player
from agentgym.tokens import TokenTrace
from agentgym.tools import Tool, ToolContext, tool
from agentgym.tools.base import to_text
from agentgym.tools.calculator import calculator
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest

END = 0x110000
"""Ends a turn; all ids below are characters."""
_WHOLE_TURN = 0x200000
"""From here on, one id per scripted turn: its whole text."""
_BLANK = 0x1FFFFF
"""A token without text."""
PLENTY = 1 << 20
_OFFERED = {"tool": tool, "Tool": Tool, "ToolContext": ToolContext}


class CharRenderer:
    """One token per character and no template; tool calls in a real dialect."""

    stop_token_ids = frozenset({END})

    def __init__(self, dialect_name: str = "hermes") -> None:
        self._dialect = dialect(dialect_name)
        self._turns: list[str] = []

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        return self.encode("".join(message.content for message in messages))

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        return self.render(new_messages, tools)

    def rewritten(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, num_new: int
    ) -> list[int] | None:
        return None

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self._text_of, ids))

    def parse(
        self,
        ids: Sequence[int],
        *,
        finish_reason: str,
        tools: Sequence[ToolSchema] = (),
        prefix: str = "",
    ) -> ParsedAction:
        return self._dialect.parse(
            self.decode(ids), finish_reason=finish_reason, prompt_suffix=prefix, tools=tools
        )

    def as_tokens(self, text: str, count: int) -> list[int]:
        """A turn of exactly `count` ids, its end included."""
        self._turns.append(text)
        return [_WHOLE_TURN + len(self._turns) - 1, *[_BLANK] * (count - 2), END][:count]

    def _text_of(self, token: int) -> str:
        if token >= _WHOLE_TURN:
            return self._turns[token - _WHOLE_TURN]
        return "" if token in (END, _BLANK) else chr(token)


@dataclass
class Kept:
    """Tools of a case, and how often they ran."""

    tools: tuple[Tool, ...] = ()
    runs: list[str] = field(default_factory=list)
    """Names, in the order in which the functions were entered."""


def tools_of(
    source: str | None, *, sizes: Sequence[int] = (), only_one: bool = False, **limits: Any
) -> Kept:
    """Tools of a source text, or the bundled calculator.

    Args:
        source: every function in it, and every `Tool`.
        sizes: tokens of the n-th result; longer ones stay, shorter ones are filled up.
        only_one: no two calls of a turn at the same time.
        limits: `timeout_s` and `max_output_tokens`.
    """
    kept = Kept()
    names: dict[str, Any] = dict(_OFFERED)
    exec(compile(source or "", "<tools_py>", "exec"), names)
    found = [v for k, v in names.items() if k not in _OFFERED and not k.startswith("_")]
    made = [v if isinstance(v, Tool) else tool(v) for v in found if _is_tool(v)]
    if source is None:
        made = [calculator]
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if only_one:
        limits["parallel"] = False
    fill = _Filling(list(sizes))
    kept.tools = tuple(
        replace(one, function=_counted(one.function, kept.runs, fill), **limits) for one in made
    )
    return kept


def function_of(source: str) -> Callable[..., Any]:
    """The last function of a source text."""
    names: dict[str, Any] = {}
    exec(compile(source, "<function>", "exec"), names)
    functions = [value for value in names.values() if isinstance(value, FunctionType)]
    return functions[-1]


def _is_tool(value: object) -> bool:
    if isinstance(value, Tool):
        return True
    return isinstance(value, FunctionType) and value.__code__.co_filename == "<tools_py>"


class _Filling:
    """Makes results as long as a case says."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def __call__(self, result: object) -> object:
        if not self._sizes:
            return result
        return to_text(result).ljust(self._sizes.pop(0), "x")


def _counted(function: Callable[..., Any], runs: list[str], fill: _Filling) -> Any:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waiting(**arguments: Any) -> object:
            runs.append(function.__name__)
            return fill(await function(**arguments))

        return waiting

    @functools.wraps(function)
    def blocking(**arguments: Any) -> object:
        runs.append(function.__name__)
        return fill(function(**arguments))

    return blocking


class Question(ToolEnv):
    """Asks something, with the tools of a case."""

    def __init__(
        self, kept: Kept, prompt: str = "Question?", *, judge: Callable[..., Any] | None = None
    ) -> None:
        self.tools = kept.tools
        self.closed = False
        self._prompt = prompt
        self._judge = judge

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def prompt(self, task: Task) -> str:
        return self._prompt

    def score(self, episode: Episode) -> dict[str, float | None]:
        if self._judge is None:
            return {"answered": float(episode.answer is not None)}
        index, answer = episode.task["index"], episode.answer
        offered = {"i": index, "index": index, "episode": episode, "messages": episode.messages}
        offered |= dict.fromkeys(("answer", "text", "completion", "response"), answer)
        return {"judge": _with(self._judge, **offered)}

    def close(self) -> None:
        self.closed = True


class Sourced(Env):
    """An env whose source a case gives: a function `step(i, action)` or a class `Env`."""

    def __init__(self, source: str, num_turns: int = 2) -> None:
        self._source = source
        self._num_turns = num_turns
        self.closed = False
        self.inner: Any = None
        self.state: list[Any] = []
        """What was said to this env, and to no other."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        index = int((options or {})["task"]["index"])
        names: dict[str, Any] = {}
        exec(compile(self._source, "<env_py>", "exec"), names)
        self.inner = names["Env"]() if "Env" in names else _Steps(index, names)
        return _said(_with(self.inner.reset, seed=seed)), {}

    def step(self, action: Message) -> Any:
        self.state.append(action.content)
        given = self.inner.step(action.content)
        values = given if isinstance(given, tuple) else (given,)
        if len(values) == 5:
            return (_said(values[0]), *values[1:])
        reward = float(values[1]) if len(values) > 1 else 1.0
        done = bool(values[2]) if len(values) > 2 else len(self.state) >= self._num_turns
        return _said(values[0]), reward, done, False, {}

    def close(self) -> None:
        self.closed = True
        if "close" in dir(self.inner):
            self.inner.close()


@dataclass
class _Steps:
    """Plain functions `reset(i)` and `step(i, action)` as an env."""

    index: int
    names: Mapping[str, Any]

    def reset(self) -> Any:
        return self.names["reset"](self.index) if "reset" in self.names else "begin"

    def step(self, action: str) -> Any:
        return self.names["step"](self.index, action)


def _with(function: Callable[..., Any], **offered: Any) -> Any:
    """Call it with what it takes of the offered."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in offered.items() if name in taken})


def _said(value: Any) -> Any:
    first = value[0] if isinstance(value, tuple) else value
    return first if isinstance(first, list) else str(first)


class Recorder(CallableEngine):
    """A scripted engine that remembers what it gave."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.recording()
        self.given: list[Generation] = []

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        generation = await super().generate(prompt_ids, sampling, session=session)
        self.given.append(generation)
        return generation


def engine_of(
    turns: Sequence[Any], renderer: Any, *, latency_s: float = 0.0, max_context: int = 2 * PLENTY
) -> Recorder:
    """Plays the same turns in every session; past the last one it fails."""

    async def policy(call: EngineCall) -> Any:
        await asyncio.sleep(latency_s)
        return turns[call.turn]

    return Recorder(
        policy,
        encode=renderer.encode,
        decode=renderer.decode,
        stop_token_id=END if isinstance(renderer, CharRenderer) else None,
        max_context=max_context,
    )


def player_for(
    engine: Engine, renderer: Any, make_env: Callable[[], Env], **options: Any
) -> Player:
    """A player with room for everything that a case does not limit."""
    limits = {"max_sampled_tokens": PLENTY, **options.pop("budget", {})}
    budget = Budget(**{name: limit for name, limit in limits.items() if limit is not None})
    scheduler = GymScheduler(make_env, count_tokens=lambda text: len(renderer.encode(text)))
    given = {name: option for name, option in options.items() if option is not None}
    return Player(
        engine=engine,
        renderer=renderer,
        scheduler=scheduler,
        budget=budget,
        **{"max_failed_fraction": 1.0, **given},
    )


def request(index: int = 0) -> RolloutRequest:
    """The only member of a group of its own."""
    return RolloutRequest(
        request_id=f"r{index}",
        group_id=f"g{index}",
        env="case",
        task=Task(id=f"t{index}", data={"index": index}),
        seed=index,
        sampling_seed=index,
    )


@contextmanager
def stopwatch(said: dict[str, Any]) -> Iterator[None]:
    """Seconds of what is inside, without what a case needs to be set up."""
    started = time.perf_counter()
    try:
        yield
    finally:
        said["seconds"] = said["wall_seconds"] = time.perf_counter() - started


async def with_heartbeat(work: Awaitable[Any]) -> tuple[Any, float]:
    """A result, and the longest time for which a ticker of 20 ms on the same loop stood still."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.02)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticker = asyncio.create_task(tick())
    try:
        return await work, max(gaps, default=0.0)
    finally:
        ticker.cancel()


def observations(output: RolloutOutput) -> list[str]:
    """What tools, or the loop in their place, said."""
    return [message.content for message in output.messages if message.role == "tool"]


def final_answer(output: RolloutOutput) -> str | None:
    """The last thing the policy said, if it was an answer."""
    if output.stop_reason != "final_answer":
        return None
    return output.messages[-1].content if output.messages[-1].role == "assistant" else None
