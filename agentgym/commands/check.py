"""`agentgym check`: can an env be trusted?

Exit code 0 if it passed, 1 if a check failed, 2 for what the caller must change. What the env
prints goes to stderr, so that a program can read the report.
"""

import sys
from contextlib import redirect_stdout
from typing import Any

from pydantic import Field
from rich.console import Console
from rich.text import Text

from agentgym.checking import CheckReport, CheckResult, Status, check_env, check_tool
from agentgym.checking.api import NUM_TASKS, TIMEOUT_S
from agentgym.checking.report import SYMBOLS, lines_of
from agentgym.commands import Command
from agentgym.commands.sandboxes import settle_sandbox
from agentgym.commands.sections import PluginSection, SandboxSection

STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.WARNED: "yellow",
    Status.SKIPPED: "dim",
}
PLAIN_SYMBOLS = str.maketrans({"✓": "+", "✗": "x", SYMBOLS[Status.SKIPPED]: "-"})
"""For a terminal or a file that cannot hold the others."""


class CheckConfig(SandboxSection, PluginSection):
    """Check that an environment can be trusted; needs no model."""

    arguments = ("env",)

    env: str = Field(min_length=1)
    """Name or id of a registered environment; see `agentgym envs`."""
    env_args: dict[str, Any] = {}
    """Arguments of the environment, such as '{"levels": [1, 2]}'."""
    tool: bool = False
    """ENV is the name of a tool; see `agentgym tools`."""
    tasks: int = Field(NUM_TASKS, ge=2)
    """Tasks that are played, half of them held-out ones."""
    seed: int = Field(0, ge=0)
    """Of the first reset."""
    timeout: float = Field(TIMEOUT_S, gt=0, allow_inf_nan=False)
    """Seconds for each check; an env that takes longer fails it."""
    json_: bool = False
    """The report as JSON."""


def check(settings: CheckConfig) -> int:
    """Print the checklist; exit code 1 if a check failed."""
    console = Console(highlight=False)
    out = sys.stdout

    def show(result: CheckResult) -> None:
        if not settings.json_:
            with redirect_stdout(out):
                _print(console, "\n".join(lines_of(result)), STYLES[result.status])

    with redirect_stdout(sys.stderr):
        settings.load_plugins()
        settle_sandbox(settings, ())
        report = _report(settings, show)
    if settings.json_:
        print(report.to_json())
    else:
        _print(console, report.verdict, STYLES[Status.PASSED if report.passed else Status.FAILED])
    return int(not report.passed)


def _report(settings: CheckConfig, show: Any) -> CheckReport:
    if settings.tool:
        report = check_tool(settings.env, timeout_s=settings.timeout)
        for result in report.results:
            show(result)
        return report
    return check_env(
        settings.env,
        env_args=settings.env_args,
        num_tasks=settings.tasks,
        seed=settings.seed,
        timeout_s=settings.timeout,
        on_result=show,
    )


def _print(console: Console, text: str, style: str) -> None:
    """Long lines stay whole: what is cut off may be what to do."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        plain = text.translate(PLAIN_SYMBOLS)
        text = plain.encode(console.encoding, "replace").decode(console.encoding)
    console.print(Text(text, style), soft_wrap=True)


COMMAND = Command(CheckConfig, check)
