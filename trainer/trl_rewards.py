"""Reward functions written for TRL, and reward models, as further named columns.

TRL's own `_calculate_rewards` calls them, so that their convention (`prompts`, `completions`,
`completion_ids`, the task's columns, `trainer_state`, `log_extra`, `log_metric`) holds to the
letter. What is added here is what TRL lacks: a deadline, and a failure that leaves the column
unscored.
"""

import asyncio
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from torch import nn
from trl.trainer.utils import get_callable_name, get_config_model_id

from agentgym.errors import AgentGymError, ConfigError, EpisodeError, RewardError, boundary
from agentgym.rewards.rubric import ERRORS, Score, as_score, is_async, merge
from agentgym.rollout.background import LoopThread
from agentgym.threads import in_thread
from agentgym.trainer.completions import split_chat
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.trl_contract import GRPOTrainer
from agentgym.trajectory import RolloutOutput, RolloutRequest

_RESERVED = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}

_EMPTY: dict[str, Any] = {
    "prompt": [{"role": "user", "content": ""}],
    "completion": [{"role": "assistant", "content": ""}],
    "completion_ids": [],
}


class GuardedReward:
    """A TRL reward function with a deadline; TRL sees a sync function of the same name."""

    def __init__(self, function: Callable[..., Any], *, timeout_s: float) -> None:
        self.__name__ = get_callable_name(function)
        self.loop: LoopThread | None = None
        self.error: str | None = None
        """What went wrong in the last call."""
        self._refused: AgentGymError | None = None
        self._function = function
        self._timeout_s = timeout_s

    def __call__(self, *, prompts: Sequence[Any], **columns: Any) -> Sequence[Score]:
        assert self.loop is not None, "reward functions run within a rollout session"
        self.error = self._refused = None
        call = functools.partial(self._function, prompts=prompts, **columns)
        try:
            return self._as_many(self.loop.run(self._call(call)), len(prompts))
        except EpisodeError as error:
            self.error = str(error)
        except AgentGymError as error:
            self._refused = error
        return [None] * len(prompts)

    def refuse(self) -> None:
        """Raise what stops the run; not at once, since other ranks wait for this one's rewards."""
        if self._refused is not None:
            raise self._refused

    def _as_many(self, scores: list[Score], count: int) -> list[Score]:
        if len(scores) != count:
            raise ConfigError(
                f"reward function {self.__name__!r} returned {len(scores)} rewards for {count} "
                "trajectories"
            )
        return scores

    async def _call(self, call: Callable[[], Any]) -> list[Score]:
        name = self.__name__
        with boundary(RewardError, name, also=(SystemExit,)):
            try:
                async with asyncio.timeout(self._timeout_s) as deadline:
                    scores = await (call() if is_async(self._function) else in_thread(call))
                    return [as_score(score) for score in scores]
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                raise RewardError(f"{name}: no answer within {self._timeout_s:g} s") from error


class TRLRewards:
    """All reward functions and reward models that came in TRL's convention.

    Args:
        functions: as TRL takes them: one or a list of callables, models and model names.
    """

    def __init__(self, functions: Any, *, timeout_s: float) -> None:
        given = functions if isinstance(functions, list) else [functions]
        self._functions = [
            f if isinstance(f, str | nn.Module) else GuardedReward(f, timeout_s=timeout_s)
            for f in given
            if f is not None
        ]

    @property
    def names(self) -> list[str]:
        """As TRL calls them."""
        return [_name(function) for function in self._functions]

    @contextmanager
    def handed_to(self, args: AgentGRPOConfig, processing_classes: Any) -> Iterator[dict[str, Any]]:
        """Arguments for TRL's constructor.

        It insists on a reward function, so the env's rewards get a stand-in; and it wants weights
        as a list, which ours are not.
        """
        classes = processing_classes if isinstance(processing_classes, list) else None
        classes = classes or [processing_classes] * len(self._functions)
        weights, args.reward_weights = args.reward_weights, None
        try:
            yield {
                "reward_funcs": [*self._functions, _from_env],
                "reward_processing_classes": [*classes, None],
            }
        finally:
            args.reward_weights = weights

    def take_over(self, trainer: GRPOTrainer) -> None:
        """Take the stand-in out again."""
        del trainer.reward_funcs[-1], trainer.reward_func_names[-1]
        del trainer.reward_processing_classes[-1]
        trainer.reward_weights = trainer.reward_weights[:-1]

    def score(
        self,
        trainer: GRPOTrainer,
        requests: Sequence[RolloutRequest],
        outputs: Sequence[RolloutOutput],
        *,
        loop: LoopThread,
        ranks: Ranks,
    ) -> list[tuple[dict[str, Score], dict[str, str]]]:
        """Per trajectory its columns, and what went wrong by name; collective."""
        count = max(ranks.gather(len(outputs)))
        rows = ranks.together(lambda: _rows(requests, outputs, count=count))
        guards = [f for f in self._functions if isinstance(f, GuardedReward)]
        for guard in guards:
            guard.loop = loop
        table = trainer._calculate_rewards(
            rows,
            [row["prompt"] for row in rows],
            [row["completion"] for row in rows],
            [row["completion_ids"] for row in rows],
        )
        ranks.together(lambda: _refuse(guards))
        _keep_logged(trainer, ranks, count=len(outputs))
        start = ranks.index * count
        errors = {g.__name__: g.error for g in guards if g.error is not None}
        return [
            (dict(zip(self.names, map(_as_score, values), strict=True)), errors)
            for values in table[start : start + len(outputs)].tolist()
        ]


def _refuse(guards: Sequence[GuardedReward]) -> None:
    for guard in guards:
        guard.refuse()


def _keep_logged(trainer: GRPOTrainer, ranks: Ranks, *, count: int) -> None:
    """What reward functions said through `log_metric` and `log_extra`; collective."""
    means: dict[str, list[float]] = {}
    for theirs in ranks.gather(dict(trainer._pending_metrics)):
        for name, values in theirs.items():
            means.setdefault(name, []).extend(values)
    for name, values in means.items():
        trainer._metrics["train"][name].append(fmean(values))
    logs: Any = trainer._logs
    pending: dict[str, list[Any]] = dict(trainer._pending_extra_logs)
    extras = ranks.gather({name: values[:count] for name, values in pending.items()})
    for name in sorted({name for theirs in extras for name in theirs}):
        for theirs in extras:
            logs["extra"][name].extend(theirs.get(name, [None] * count))
    trainer._pending_metrics.clear()
    trainer._pending_extra_logs.clear()


def _name(function: Any) -> str:
    if isinstance(function, str):
        return function.split("/")[-1]
    if isinstance(function, nn.Module):
        model: Any = function
        model_id: str = get_config_model_id(model.config)
        return model_id.split("/")[-1]
    name: str = get_callable_name(function)
    return name


def _from_env(**_: Any) -> list[None]:
    raise AssertionError("the stand-in for the env's rewards is never called")


def _as_score(value: float) -> Score:
    return value if math.isfinite(value) else None


def _rows(
    requests: Sequence[RolloutRequest], outputs: Sequence[RolloutOutput], *, count: int
) -> list[dict[str, Any]]:
    """`count` rows of prompt, completion, ids and columns.

    Failed trajectories become empty conversations, and empty rows fill up: TRL gathers over ranks
    and wants as many of every one.
    """
    rows = [_row(request, output) for request, output in zip(requests, outputs, strict=True)]
    names = {name for row in rows for name in row}
    rows += [{} for _ in range(count - len(rows))]
    return [{**dict.fromkeys(names), **_EMPTY, **row} for row in rows]


def _row(request: RolloutRequest, output: RolloutOutput) -> dict[str, Any]:
    columns = {**request.task.data, "task_id": request.task.id, "env": request.env}
    if taken := sorted(_RESERVED & columns.keys()):
        raise ConfigError(f"TRL reward functions cannot be given the task's column {taken[0]!r}")
    return columns | ({} if output.stop_reason.is_failure else _conversation(output))


def _conversation(output: RolloutOutput) -> dict[str, Any]:
    prompt, completion = split_chat(output)
    ids = [token for turn in output.response_token_ids for token in turn]
    return {"prompt": prompt, "completion": completion, "completion_ids": ids}


def with_columns(
    output: RolloutOutput,
    scores: Mapping[str, Score],
    errors: Mapping[str, str],
    *,
    weights: Mapping[str, float],
) -> RolloutOutput:
    """The trajectory with TRL's columns; a failed one as it is."""
    if output.stop_reason.is_failure:
        return output
    merged = merge(output, scores, weights)
    if not errors:
        return merged
    infos = merged.rollout_infos
    known = {**infos.get(ERRORS, {}), **errors}
    return merged.model_copy(update={"rollout_infos": {**infos, ERRORS: known}})
