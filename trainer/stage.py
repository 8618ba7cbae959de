"""Where trajectories are produced and judged: everything of a trainer that is not learning."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trl.trainer.grpo_trainer import GRPOTrainer

from agentgym.engines.base import Engine
from agentgym.errors import ConfigError
from agentgym.rendering.base import Renderer
from agentgym.rewards.rubric import Rubric
from agentgym.rollout.game import Game, weights_by_name
from agentgym.rollout.player import Player
from agentgym.rollout.scheduler import Scheduler
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.episodes import Episode
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.rollouts import Played, Rollouts
from agentgym.trainer.setup import Rewards, named_rewards
from agentgym.trainer.trl_rewards import TRLRewards, with_columns
from agentgym.trajectory import RolloutOutput, RolloutRequest


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
        make_engine: samples from the policy; made for each session.
        engine: use this one instead; it stays open.
    """

    def __init__(
        self,
        judges: Judges,
        args: AgentGRPOConfig,
        *,
        renderer: Renderer,
        scheduler: Scheduler,
        make_engine: Callable[[], Engine],
        engine: Engine | None,
    ) -> None:
        self.judges = judges
        self.renderer = renderer
        self.scheduler = scheduler
        self._args = args
        self._rollouts = Rollouts(make_engine, self._player, engine=engine)
        self._callbacks: list[AgentCallback] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the engine and its caches for the time of the block."""
        with self._rollouts.session():
            yield

    def weights_changed(self) -> None:
        """What the engine computed so far is of a policy that is gone."""
        self._rollouts.weights_changed()

    def play(
        self,
        requests: Sequence[RolloutRequest],
        trainer: GRPOTrainer,
        ranks: Ranks,
        *,
        temperature: float,
    ) -> Played:
        """This rank's trajectories with all their rewards; collective.

        Raises:
            TooManyFailuresError: more failed than is tolerated, on any rank.
            UsageError: the caller must change something.
        """
        self._callbacks = agent_callbacks(trainer)
        with self._rollouts.session() as loop:
            played = ranks.together(lambda: self._rollouts.play(requests, temperature=temperature))
            if not self.judges.trl.names:
                return played
            columns = self.judges.trl.score(
                trainer, requests, played.outputs, loop=loop, ranks=ranks
            )
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
