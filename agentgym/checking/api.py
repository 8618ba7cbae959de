"""Checks an env or a tool and returns the report; what `agentgym check` and tests call."""

import time
from collections.abc import Callable
from typing import Any

from agentgym.checking.checklist import ENV_CHECKS
from agentgym.checking.origins import origin_of
from agentgym.checking.report import CheckReport, CheckResult, Findings
from agentgym.checking.runner import run_checks
from agentgym.checking.schemas import schema_findings, tool_answers
from agentgym.checking.subject import Subject, build_registered
from agentgym.deadlines import bounded
from agentgym.envs import Env, spec
from agentgym.errors import ConfigError
from agentgym.threads import run_coroutine
from agentgym.tools import TOOLS, Tool

TIMEOUT_S = 60.0
NUM_TASKS = 12


def _ignore(_: CheckResult) -> None:
    """Nobody watches."""


def check_env(
    env: str | Callable[..., Env],
    *,
    env_args: dict[str, Any] | None = None,
    num_tasks: int = NUM_TASKS,
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
    on_result: Callable[[CheckResult], None] = _ignore,
) -> CheckReport:
    """Whether an env can be trusted; needs no model.

    Args:
        env: registered name, or a class (or function) that builds one.
        env_args: of every env that is built.
        num_tasks: tasks that are played, half of them held-out ones.
        seed: of the first reset.
        timeout_s: of each check; one that takes longer fails it, and the rest is skipped.
        on_result: called with each line of the report as it is known.

    Raises:
        NotRegisteredError: there is no such env.
        ConfigError: `num_tasks` or `timeout_s` is too small.
    """
    subject = subject_of(
        env, env_args=env_args, num_tasks=num_tasks, seed=seed, timeout_s=timeout_s
    )
    return run_checks(subject, ENV_CHECKS, on_result=on_result)


def subject_of(
    env: str | Callable[..., Env],
    *,
    env_args: dict[str, Any] | None = None,
    num_tasks: int = NUM_TASKS,
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Subject:
    """What `check_env` checks; its arguments and errors."""
    if num_tasks < 2 or not timeout_s > 0:
        raise ConfigError(f"need num_tasks >= 2 and timeout_s > 0, got {num_tasks} and {timeout_s}")
    arguments = dict(env_args or {})
    return Subject(
        name=env if isinstance(env, str) else _name_of(env),
        build=_builder(env, arguments),
        origin=origin_of(env, arguments),
        is_registered=isinstance(env, str),
        env_args=arguments,
        num_tasks=num_tasks,
        seed=seed,
        timeout_s=timeout_s,
    )


def check_tool(tool: Tool | str, *, timeout_s: float = TIMEOUT_S) -> CheckReport:
    """Whether a model can know how to call a tool, and is answered whatever it calls it with.

    Args:
        tool: the tool, or its registered name.
        timeout_s: of each call, over the tool's own limit.

    Raises:
        NotRegisteredError: there is no such tool.
    """
    found: Tool = TOOLS.get(tool) if isinstance(tool, str) else tool
    if not isinstance(found, Tool):
        raise ConfigError(f"{found!r} is no Tool: decorate the function with @tool")
    started = time.monotonic()
    schema = schema_findings(found)
    results = [CheckResult.of("schema", "a model can know how to call it", schema, _since(started))]
    answers = Findings(skipped="needs 'schema'")
    started = time.monotonic()
    if not schema.faults:
        answers = run_coroutine(bounded(tool_answers(found, timeout_s=timeout_s), 8 * timeout_s))
    title = "calls are answered, fitting or not"
    results.append(CheckResult.of("answers", title, answers, _since(started)))
    return CheckReport(f"tool {found.name}", tuple(results))


def _since(started: float) -> float:
    return time.monotonic() - started


def _builder(env: str | Callable[..., Env], arguments: dict[str, Any]) -> Callable[[], Env]:
    if isinstance(env, str):
        spec(env)
        return build_registered(env, arguments)
    return lambda: env(**arguments)


def _name_of(env: Callable[..., Env]) -> str:
    return env.__name__ if isinstance(env, type) else repr(env)
