"""Programs as a reward: what the `code` env pays, for any env whose tasks carry tests.

The program is run in a fresh sandbox and judged outside of it. Where the sandbox fails, so does the
trajectory: no policy is paid or punished for a machine.
"""

from dataclasses import dataclass, field

from agentgym.envs.code.answers import program_of
from agentgym.envs.code.challenge import Challenge, challenge_of
from agentgym.envs.code.formats.pairs import STATEMENTS
from agentgym.envs.code.grading import extract_program, grade
from agentgym.envs.code.scoring import verdict_on
from agentgym.errors import ConfigError
from agentgym.messages import merged
from agentgym.rewards.rubric import Score
from agentgym.tools.sandbox.base import SandboxProvider, SandboxSpec
from agentgym.tools.sandbox.limits import Limits
from agentgym.trajectory import RolloutOutput, Task

__all__ = ["CodeReward", "code", "extract_program", "grade", "program_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReward:
    """Share of the task's tests that the last program of the last message passes.

    The task's data are in any format of `agentgym.envs.code.formats`: stdin and stdout, calls,
    asserts, `verification_info`. No program is 0.0. This is the `external_code_reward` of ms-swift,
    which gives 0.0 where its service fails; here the trajectory is left out.
    """

    partial: bool = True
    """Else 1.0 for all tests, or 0.0."""
    packages: tuple[str, ...] = ()
    """Distributions that programs may import."""
    limits: Limits = field(default_factory=lambda: Limits(cpu_s=1.0))
    """Of one test."""
    provider: SandboxProvider | None = None
    """Where sandboxes come from; the one this process shares if left out."""

    async def __call__(self, output: RolloutOutput, task: Task) -> Score:
        """Grade what was said last.

        Raises:
            SandboxError: the infrastructure failed.
            ConfigError: the task has no tests, or some that cannot be run.
        """
        challenge = _tests_of(task)
        program = extract_program(_last_words(output))
        if program is None:
            return 0.0
        verdict = await verdict_on(program, challenge, await self._provider(), self._spec)
        return verdict.rewards(partial=self.partial)["passed"]

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """For the checks before a run."""
        return (self._spec,) if self.provider is None else ()

    @property
    def _spec(self) -> SandboxSpec:
        return SandboxSpec(limits=self.limits, packages=self.packages)

    async def _provider(self) -> SandboxProvider:
        if self.provider is not None:
            return self.provider
        from agentgym.tools.sandbox.shared import shared_provider

        return await shared_provider()


code = CodeReward()


def _tests_of(task: Task) -> Challenge:
    """What is tested; the question may be put in words of the env's own."""
    if not task.data.keys() & set(STATEMENTS):
        task = task.model_copy(update={"data": {"statement": "?", **task.data}})
    try:
        return challenge_of(task)
    except ConfigError as error:
        raise ConfigError(f"reward 'code': task {task.id!r}: {error}") from error


def _last_words(output: RolloutOutput) -> str | None:
    said = [m.content for m in merged(output.messages) if m.role == "assistant"]
    return said[-1] if said else None
