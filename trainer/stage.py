"""Where trajectories are produced and judged: everything of a trainer that is not learning."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from agentgym.engines.base import Engine
from agentgym.engines.weights import KeepsWeights, WeightsLostError
from agentgym.errors import ConfigError
from agentgym.rendering.base import Renderer
from agentgym.rewards.rubric import Rubric
from agentgym.rollout.game import Game, weights_by_name
from agentgym.rollout.player import Player
from agentgym.rollout.scheduler import Scheduler
from agentgym.trainer.ahead import Ahead, RequestsOf
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.episodes import Episode
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.rollouts import Played, Rollouts, Source
from agentgym.trainer.setup import Rewards, named_rewards
from agentgym.trainer.trl_contract import GRPOTrainer
from agentgym.trainer.trl_rewards import TRLRewards, with_columns
from agentgym.trajectory import RolloutOutput, RolloutRequest

logger = logging.getLogger(__name__)


class Judges:
    """All that gives rewards: the env, functions of trajectories, functions and models for TRL."""

    def __init__(
        self, game: Game, rewards: Rewards | None, trl: TRLRewards, args: AgentGRPOConfig
    ) -> None:
        functions = named_rewards(rewards)
        self.trl = trl
        self.weights = weights_by_name(
            game.reward_weights, [*functions, *trl.names], args.reward_weights
        )
        self.rubric = Rubric(functions, self.weights, timeout_s=args.reward_timeout_s)
        self._unseen = self.weights.keys() - game.reward_weights.keys() - {*functions, *trl.names}

    def refuse_unseen(self, episodes: Sequence[Episode]) -> None:
        """Hold weights that nobody declared a reward for against the rewards that were given.

        Raises:
            ConfigError: some trajectory was scored, and none has a reward of that name.
        """
        seen = {name for episode in episodes for name in episode.rewards}
        if seen and self._unseen - seen:
            raise ConfigError(
                f"reward_weights names {min(self._unseen - seen)!r}, but the rewards are "
                f"{', '.join(sorted(seen))}"
            )
        self._unseen -= seen


class Stage:
    """Plays requests and returns them judged.

    Args:
        judges: what gives rewards.
        args: limits, and how many at once.
        renderer: between messages and tokens.
        scheduler: referee of the trajectories.
        source: of the engine that samples from the policy.
    """

    def __init__(
        self,
        judges: Judges,
        args: AgentGRPOConfig,
        *,
        renderer: Renderer,
        scheduler: Scheduler,
        source: Source,
    ) -> None:
        refuse_shared_weights(source.given, args.staleness)
        self.judges = judges
        self.renderer = renderer
        self.scheduler = scheduler
        self._args = args
        max_age = args.staleness * args.steps_per_window
        self._rollouts = Rollouts(source, self._player, max_age=max_age)
        self._ahead = Ahead(self._rollouts, staleness=args.staleness, max_age=max_age)
        self._callbacks: list[AgentCallback] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the engine and its caches for the time of the block."""
        with self._rollouts.session():
            yield

    def weights_changed(self) -> None:
        """What the engine computed so far is of a policy that is gone."""
        self._rollouts.weights_changed()

    def sync(self, ranks: Ranks) -> float:
        """Bring the engine to the current weights; seconds it took. Collective, in a session.

        What is being played goes on under the new weights.

        Raises:
            UsageError: they cannot be those of the engine's model.
            EngineError: they did not arrive.
        """
        ranks.together(self._rollouts.prepare)
        return self._rollouts.sync()

    def play(
        self,
        requests: Sequence[RolloutRequest],
        trainer: GRPOTrainer,
        ranks: Ranks,
        *,
        temperature: float,
    ) -> Played:
        """This rank's trajectories under the current weights, with all rewards; collective.

        Raises:
            TooManyFailuresError: more failed than is tolerated, on any rank.
            UsageError: the caller must change something.
        """
        rollouts = self._rollouts

        def play() -> Played:
            return rollouts.finish(rollouts.begin(requests, temperature=temperature))

        def synced() -> Played:
            self.sync(ranks)
            return self._rested(play, ranks)

        self._callbacks = agent_callbacks(trainer)
        with rollouts.session():
            return self._judged(self.insist(synced, ranks), trainer, ranks)

    def window(
        self,
        number: int,
        trainer: GRPOTrainer,
        ranks: Ranks,
        *,
        num_windows: int,
        requests_of: RequestsOf,
    ) -> Played:
        """This rank's trajectories of a window, with all rewards; collective.

        Up to `staleness` windows after it are on their way afterwards.

        Raises:
            TooManyFailuresError: more failed than is tolerated, on any rank.
            UsageError: the caller must change something.
        """

        def take() -> Played:
            return self._ahead.take(
                number,
                num_windows=num_windows,
                requests_of=requests_of,
                temperature=self._args.temperature,
            )

        self._callbacks = agent_callbacks(trainer)
        with self._rollouts.session():
            return self._judged(self._rested(take, ranks), trainer, ranks)

    def insist(self, play: Callable[[], Played], ranks: Ranks) -> Played:
        """What `play` gives; once more if the engine was started anew meanwhile.

        Args:
            play: brings the engine to the current weights first.
            ranks: of several, none knows whether the others can play again.

        Raises:
            WeightsLostError: it was started anew twice, or there are several processes.
        """
        try:
            return play()
        except WeightsLostError as error:
            if ranks.count > 1:
                raise
            logger.warning("%s; they are sent again, and what was played is played anew", error)
        self.drop()
        self.weights_changed()
        return play()

    def drop(self) -> None:
        """Give up windows that are on their way."""
        self._ahead.drop()

    def _rested(self, play: Callable[[], Played], ranks: Ranks) -> Played:
        """What is played, and the engine's memory free for training afterwards."""

        def work() -> Played:
            played = play()
            self._rollouts.rest()
            return played

        return ranks.together(work)

    def _judged(self, played: Played, trainer: GRPOTrainer, ranks: Ranks) -> Played:
        """With the rewards that are given on the main thread, all ranks at once."""
        trl = self.judges.trl
        if not trl.names:
            return played
        with self._rollouts.session() as loop:
            columns = trl.score(trainer, played.requests, played.outputs, loop=loop, ranks=ranks)
        played.outputs[:] = [
            with_columns(output, scores, errors, weights=self.judges.weights)
            for output, (scores, errors) in zip(played.outputs, columns, strict=True)
        ]
        return played

    def _player(self, engine: Engine) -> Player:
        return Player(
            engine=engine,
            renderer=self.renderer,
            scheduler=self.scheduler,
            budget=self._args.budget,
            score=self.judges.rubric.score_one,
            on_output=self._tell if self._callbacks else None,
            concurrency=self._args.concurrency,
            env_timeout_s=self._args.env_timeout_s,
            engine_timeout_s=self._args.engine_timeout_s,
            max_attempts=self._args.max_attempts,
            max_failed_fraction=self._args.max_failed_fraction,
        )

    def _tell(self, output: RolloutOutput) -> None:
        for callback in self._callbacks:
            callback.on_trajectory(output)


def agent_callbacks(trainer: GRPOTrainer) -> list[AgentCallback]:
    """Those of the trainer's callbacks that are told about trajectories."""
    return [c for c in trainer.callback_handler.callbacks if isinstance(c, AgentCallback)]


def tell_callbacks(
    trainer: GRPOTrainer, ranks: Ranks, tell: Callable[[AgentCallback], None]
) -> None:
    """Tell each of them something; collective, so that what one raises stops all ranks."""

    def tell_all() -> None:
        for callback in agent_callbacks(trainer):
            tell(callback)

    ranks.together(tell_all)


def refuse_shared_weights(engine: Engine | None, staleness: int) -> None:
    """Raise a `ConfigError` if windows cannot be played while the weights change."""
    if staleness and engine is not None and not isinstance(engine, KeepsWeights):
        raise ConfigError(
            f"staleness={staleness} plays while the weights change, and "
            f"{type(engine).__name__} has none of its own: hand in an engine with a copy of them "
            "(VllmServerEngine, VllmEngine, CopyEngine), none at all, or set staleness=0"
        )
