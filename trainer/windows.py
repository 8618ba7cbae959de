"""From requests to a window: what is played, judged and told about before it is trained on.

Everything here is collective and runs on the main thread; only the playing itself does not, and
waits for nobody.
"""

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from agentgym.rollout.curriculum import Tried
from agentgym.trainer.ages import Staleness
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.completions import fill_table
from agentgym.trainer.episodes import Episode
from agentgym.trainer.metrics import (
    CONSTRAINED_FRACTION,
    failing_rewards,
    groups_of_different_starts,
    window_metrics,
)
from agentgym.trainer.rollouts import Played
from agentgym.trainer.scorer import Scorer
from agentgym.trainer.setup import must_pad
from agentgym.trainer.stage import tell_callbacks
from agentgym.trainer.window import Window, make_window
from agentgym.trajectory import RolloutOutput, RolloutRequest

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer

logger = logging.getLogger(__name__)


class Windows:
    """The windows of a trainer's run, by number."""

    def __init__(self, trainer: "AgentGRPOTrainer", scorer: Scorer) -> None:
        self._trainer = trainer
        self._scorer = scorer
        self.must_pad = must_pad(trainer.policy)
        """Packed rows would be wrong for the model."""
        self.old_logprob_seconds = 0.0
        """Spent on the last window's log-probabilities."""
        self._told: set[str] = set()

    def make(self, number: int) -> Window:
        """Play and plan the run's window `number`, from 0."""
        trainer = self._trainer
        with trainer.stage.session():
            played = trainer.stage.insist(lambda: self._played(number), trainer.ranks)
        episodes = self.everyones_episodes(played.outputs)
        advantages = self._advantages(episodes)
        window = make_window(
            played.outputs,
            advantages,
            trainer.args.plan_settings(padding=self.must_pad),
            trainer.ranks,
        )
        self._learn_of(episodes)
        self._log_times(played)
        self._tell(window)
        started = time.perf_counter()
        self._scorer.fill_old_logprobs(window)
        self.old_logprob_seconds = time.perf_counter() - started
        return window

    def _played(self, number: int) -> Played:
        """A window under the current weights."""
        trainer = self._trainer
        self.sync()
        played = trainer.stage.window(
            number,
            trainer,
            trainer.ranks,
            num_windows=trainer.state.max_steps // trainer.args.steps_per_window,
            requests_of=self.requests,
        )
        trainer.ranks.together(lambda: self._scorer.refuse_unknown(played.outputs))
        return played

    def sync(self) -> None:
        """Bring the engine to the current weights; collective, within a session of the stage."""
        trainer = self._trainer
        trainer.policy.train(False)
        seconds = trainer.stage.sync(trainer.ranks)
        trainer.log_train({"time/sync": seconds, **trainer.engine_sync.metrics})

    def requests(self, number: int) -> list[RolloutRequest]:
        """What this rank plays for the window `number`."""
        ranks, per_rank = self._trainer.ranks, self._trainer.args.groups_per_rank
        first = (number * ranks.count + ranks.index) * per_rank
        return self._trainer.sampler.groups(range(first, first + per_rank))

    def play(self, requests: Sequence[RolloutRequest], *, temperature: float) -> Played:
        """This rank's trajectories under the current weights, judged."""
        trainer = self._trainer
        trainer.policy.train(False)
        return trainer.stage.play(requests, trainer, trainer.ranks, temperature=temperature)

    def everyones_episodes(self, outputs: Sequence[RolloutOutput]) -> list[Episode]:
        """Those of all ranks, in the same order on every rank."""
        trainer = self._trainer
        episodes = trainer.ranks.gather_all([Episode.of(output) for output in outputs])
        trainer.stage.judges.refuse_unseen(episodes)
        return episodes

    def _advantages(self, episodes: Sequence[Episode]) -> list[float]:
        """This rank's."""
        rewards = torch.tensor([_number(e.reward) for e in episodes], dtype=torch.float64)
        groups = [episode.group for episode in episodes]
        everyones = self._trainer.compute_advantages(rewards, groups)
        return self._trainer.ranks.own(everyones.tolist())

    def _learn_of(self, episodes: Sequence[Episode]) -> None:
        trainer = self._trainer
        for group in groups_of_different_starts(episodes)[:1]:
            logger.warning("group %s began in different states: is reset seeded?", group)
        if trainer.curriculum is not None:
            trainer.curriculum.observe(Tried(e.group, e.task, e.reward) for e in episodes)
            trainer.log_train(trainer.curriculum.figures())
        trainer.count_tokens(sum(episode.num_tokens for episode in episodes))
        figures = window_metrics(episodes)
        trainer.log_train(figures)
        if figures.get(CONSTRAINED_FRACTION) == 1.0:
            self._warn("every turn was constrained, so there was nothing to train: no step")
        for name, error in failing_rewards(episodes).items():
            self._warn(f"reward {name!r} failed on every trajectory and counts for none", error)

    def _warn(self, message: str, detail: str = "") -> None:
        """Once in a run."""
        if message not in self._told:
            self._told.add(message)
            logger.warning("%s%s", message, detail and f": {detail}")

    def _log_times(self, played: Played) -> None:
        """How long the trainer waited, and how old what it got is."""
        trainer = self._trainer
        everyones = trainer.ranks.gather(played.staleness)
        trainer.log_train(
            {
                "time/rollout": played.seconds,
                "time/rollout_span": played.span_seconds,
                **Staleness.metrics(everyones),
            }
        )

    def _tell(self, window: Window) -> None:
        trainer = self._trainer
        if trainer.args.log_completions:
            fill_table(trainer._logs, window.outputs, window.advantages, trainer.ranks)

        def tell(callback: AgentCallback) -> None:
            callback.on_window(
                trainer.args,
                trainer.state,
                trainer.control,
                outputs=window.outputs,
                advantages=window.advantages,
            )

        tell_callbacks(trainer, trainer.ranks, tell)


def _number(reward: float | None) -> float:
    return float("nan") if reward is None else reward
