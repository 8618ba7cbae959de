"""The usual episode: a question, some tools, an answer.

A subclass says what is asked and what an answer is worth; calls, mistakes and limits are handled
here, alike for every env.
"""

import inspect
import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.base import Env, Info, Observation, ResetResult, StepResult, weighted_sum
from agentgym.envs.contract import as_messages, as_rewards
from agentgym.errors import ConfigError, EnvError, RewardError, boundary
from agentgym.messages import Message, ToolResult, system, user
from agentgym.threads import in_thread
from agentgym.tools import ToolContext, run_calls
from agentgym.tools.context import approximate_tokens
from agentgym.tools.sandbox.base import Sandbox, SandboxProvider, SandboxSpec
from agentgym.tools.sandbox.lazy import NO_SANDBOX, LazySandbox
from agentgym.trajectory import StopReason, Task

Scores = Mapping[str, float | None]
_EXITS = (SystemExit, KeyboardInterrupt)
_MAX_BLANK_TURNS = 3
_GO_ON = "Your last message was empty. Call a tool or give your answer."


@dataclass(slots=True, kw_only=True)
class Episode:
    """What was said and done in an episode, for scoring."""

    task: Task
    messages: list[Message]
    """The whole conversation, the prompt included."""
    tool_results: list[ToolResult] = field(default_factory=list)
    answer: str | None = None
    """Text of the final answer, stripped; `None` if the episode was cut before there was one."""
    turns: int = 0
    """Messages of the policy."""
    blank_turns: int = 0
    """Those that said nothing."""
    state: dict[str, Any] = field(default_factory=dict)
    """What the tools kept (`ToolContext.state`)."""
    sandbox: LazySandbox = NO_SANDBOX
    """Where the tools ran code, as it is after the last call."""


class ToolEnv(Env):
    """Ends on a message without calls: the answer. Define `tools`, `tasks`, `prompt` and `score`.

    `reset` takes two options: `task`, and `count_tokens`, the tokenizer's measure for the tools'
    output limits.
    """

    system_prompt: str | None = None
    """First message, if `prompt` brings none."""
    sandbox: SandboxSpec | None = None
    """What the sandbox of an episode is opened with; none is before a tool or `score` asks for it.
    """
    sandbox_provider: SandboxProvider | None = None
    """Where it comes from; the one that this process shares if left out."""

    episode: Episode
    """The one being played; `reset` begins it."""

    _tool_context: ToolContext

    def prompt(self, task: Task) -> str | list[Message]:
        """The question, or the messages that ask it."""
        raise NotImplementedError(f"{type(self).__name__} must define prompt(task)")

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """See `Env`.

        Raises:
            ConfigError: `sandbox` is no `SandboxSpec`.
        """
        if not isinstance(self.sandbox, SandboxSpec | None):
            raise ConfigError(
                f"{type(self).__name__}.sandbox must be a SandboxSpec or None, got {self.sandbox!r}"
            )
        shared = self.sandbox_provider is None
        return (self.sandbox,) if shared and self.sandbox is not None else ()

    def score(self, episode: Episode) -> Scores | Awaitable[Scores]:
        """Rewards by name of an episode that has ended, at least one; `None` = unscored.

        A sync one runs in a thread; an async one is awaited. Their weighted sum is the reward of
        the last step.
        """
        raise NotImplementedError(f"{type(self).__name__} must define score(episode)")

    async def prepare_sandbox(self, sandbox: Sandbox, task: Task) -> None:
        """Set up the sandbox of an episode, such as its files, before anything runs in it."""

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Ask the question."""
        await self._sandbox.aclose()
        options = options or {}
        task, asked = await in_thread(lambda: self._ask(options))
        messages = as_messages(asked, "prompt")
        if self.system_prompt is not None and "system" not in {m.role for m in messages[:1]}:
            messages.insert(0, system(self.system_prompt))
        self._sandbox = LazySandbox(
            self.sandbox,
            provider=self.sandbox_provider,
            prepare=lambda sandbox: self.prepare_sandbox(sandbox, task),
        )
        self.episode = Episode(task=task, messages=list(messages), sandbox=self._sandbox)
        self._tool_context = ToolContext(
            rng=random.Random(int(self.np_random.integers(2**63))),
            state=self.episode.state,
            count_tokens=options.get("count_tokens", approximate_tokens),
            sandbox=self._sandbox,
        )
        return messages, {"task_id": task.id}

    def _ask(self, options: Info) -> tuple[Task, str | list[Message]]:
        task = self.pick_task(options)
        return task, self.prompt(task)

    async def astep(self, action: Any) -> StepResult:
        """Run the calls of a message; one without any is the answer."""
        episode = self.episode
        episode.turns += 1
        episode.messages.append(action)
        if action.tool_calls or action.malformed_calls:
            results = await run_calls(self.tools, action, self._tool_context)
            episode.tool_results += results
            return await self._go_on([result.to_message() for result in results], results)
        if action.content.strip():
            episode.answer = action.content.strip()
            return await self._end(StopReason.FINAL_ANSWER)
        episode.blank_turns += 1
        if episode.blank_turns >= _MAX_BLANK_TURNS:
            return await self._end(StopReason.EMPTY)
        return await self._go_on([user(_GO_ON)], [])

    async def acut(self) -> dict[str, float | None]:
        """Score the episode as it stands, without an answer."""
        return await self._scores() if self.end_episode() else {}

    def report(self) -> dict[str, Any]:
        """What is put into the record after each turn, JSON values by name."""
        return self._sandbox.report

    def _reported(self) -> Info:
        report = self.report()
        return {"report": report} if report else {}

    async def _go_on(self, observation: Observation, results: list[ToolResult]) -> StepResult:
        self.episode.messages += observation
        if self.is_last_turn:
            _, reward, terminated, truncated, info = await self._end(StopReason.MAX_TURNS)
            return observation, reward, terminated, truncated, info | {"tool_results": results}
        return observation, 0.0, False, False, {"tool_results": results, **self._reported()}

    async def _end(self, reason: StopReason) -> StepResult:
        rewards = await self._scores()
        total = weighted_sum(rewards, self.reward_weights)
        info: Info = {"tool_results": [], "rewards": rewards, "stop_reason": reason.value}
        info |= self._reported()
        answered = reason is StopReason.FINAL_ANSWER
        return [], 0.0 if total is None else total, answered, not answered, info

    async def _scores(self) -> dict[str, float | None]:
        if inspect.iscoroutinefunction(self.score):
            with boundary(RewardError, "score", also=_EXITS):
                given: Any = await self.score(self.episode)
        else:
            given = await in_thread(self._score_blocking)
        rewards = as_rewards(given)
        if not rewards:
            raise EnvError("score returned no rewards; None by name is unscored")
        return rewards

    def _score_blocking(self) -> Any:
        with boundary(RewardError, "score", also=_EXITS):
            return self.score(self.episode)
