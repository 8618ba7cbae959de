"""One env that is another one for each task, so that a run trains on many.

The part is chosen by the task, built when its episode begins, and closed with it. Rewards carry the
part's label, so that parts keep their own weights and metrics.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property, lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym.envs.base import Env, Info, ResetResult, StepResult
from agentgym.envs.building import build
from agentgym.envs.mixture.tasks import MixedTasks
from agentgym.envs.oracle import HasOracle
from agentgym.envs.registration import make
from agentgym.errors import ConfigError
from agentgym.messages import Message
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.trajectory import Task

DEFAULT_PARTS = ("calculator", "number-guessing")
"""What the embedded policy can begin to play."""


class Part(BaseModel):
    """One env of the mixture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str | None = None
    """Registered name; by default the part's label."""
    args: dict[str, Any] = {}
    """Of the env."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Share of the tasks, relative to the others."""


class MixtureEnv(Env):
    """Plays each task in the part it belongs to.

    Args:
        parts: by label: `{"calculator": {"weight": 2}, "easy": {"env": "lookup", "args": {...}}}`,
            or names of envs with equal shares.

    Raises:
        ConfigError: there is no part, a label holds a slash, or a part is malformed.
        NotRegisteredError: a part names no env.
    """

    def __init__(
        self, parts: Mapping[str, Mapping[str, Any]] | Sequence[str] = DEFAULT_PARTS
    ) -> None:
        named = parts if isinstance(parts, Mapping) else {name: {} for name in parts}
        if not named:
            raise ConfigError('a mixture needs parts: --env-args \'{"parts": ["calculator"]}\'')
        self._parts = {label: _part(label, given) for label, given in named.items()}
        self._playing: Env | None = None
        self._label = ""

    @cached_property
    def reward_weights(self) -> Mapping[str, float]:  # type: ignore[override]
        """Those of the parts, under `label/name`."""
        return {
            f"{label}/{name}": weight
            for label, part in self._parts.items()
            for name, weight in _weights_of(part.env or label, json.dumps(part.args)).items()
        }

    def tasks(self, split: str = "train") -> MixedTasks:
        """Tasks of all parts, by weight."""
        sets = {}
        for label in self._parts:
            with closing(self._build(label)) as probe:
                sets[label] = probe.tasks(split)
        weights = {label: part.weight for label, part in self._parts.items()}
        return MixedTasks(sets, weights, once=split == "eval")

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """Those of all parts."""
        specs: list[SandboxSpec] = []
        for label in self._parts:
            with closing(self._build(label)) as probe:
                inner = probe.unwrapped
                specs += inner.sandbox_specs() if isinstance(inner, Env) else ()
        return tuple(dict.fromkeys(specs))

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin an episode of the part that the task names."""
        task = self.pick_task(options)
        label, inner = _unpacked(task, self._parts)
        await self._close_part()
        self._playing, self._label = await build(lambda: self._build(label)), label
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        options = {**(options or {}), "task": inner}
        observation, info = await self._playing.areset(seed=seed, options=options)
        self.tools = tuple(self._playing.tools)
        return observation, info

    async def astep(self, action: Any) -> StepResult:
        """Step the part."""
        assert self._playing is not None
        observation, reward, terminated, truncated, info = await self._playing.astep(action)
        if "rewards" in info:
            info = {**info, "rewards": self._labelled(info["rewards"])}
        return observation, reward, terminated, truncated, info

    async def acut(self) -> dict[str, float | None]:
        """Score the part's episode as it stands."""
        self.end_episode()
        return {} if self._playing is None else self._labelled(await self._playing.acut())

    async def aclose(self) -> None:
        """Close the part."""
        await self._close_part()

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What the part's oracle would say.

        Raises:
            ConfigError: the part has none.
        """
        label, inner = _unpacked(task, self._parts)
        with closing(self._build(label)) as probe:
            if not isinstance(probe.unwrapped, HasOracle):
                raise ConfigError(f"part {label!r} of the mixture has no oracle")
            return probe.unwrapped.oracle(inner, list(messages))

    def _labelled(self, rewards: Mapping[str, float | None]) -> dict[str, float | None]:
        return {f"{self._label}/{name}": value for name, value in rewards.items()}

    def _build(self, label: str) -> Env:
        part = self._parts[label]
        return make(part.env or label, **part.args)

    async def _close_part(self) -> None:
        part, self._playing = self._playing, None
        if part is not None:
            await part.aclose()


@lru_cache(maxsize=256)
def _weights_of(env: str, args: str) -> Mapping[str, float]:
    """An env's own weights; remembered, since every trajectory has an env of its own."""
    with closing(make(env, **json.loads(args))) as probe:
        return dict(probe.reward_weights)


def _part(label: str, given: Any) -> Part:
    if "/" in label:
        raise ConfigError(
            f"part {label!r} of the mixture: a label holds no slash; "
            f'give the env\'s name inside, as {{"some-label": {{"env": "{label}"}}}}'
        )
    try:
        return Part.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise ConfigError(
            f"part {label!r} of the mixture: {where or given!r}: {problem['msg']}"
        ) from error


def _unpacked(task: Task, parts: Mapping[str, Part]) -> tuple[str, Task]:
    label, inner = str(task.data.get("part")), task.data.get("task")
    if label not in parts or inner is None:
        raise ConfigError(f"task {task.id!r} belongs to no part of the mixture: {list(parts)}")
    return label, Task.model_validate(inner)
