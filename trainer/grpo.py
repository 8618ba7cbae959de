"""TRL's GRPO trainer with another data path: whole agent episodes instead of completions.

TRL keeps what it does well: model, PEFT, reference and reward models, the Hugging Face loop with
its callbacks, logging and checkpoints. Replaced are the sampler, generation, buffering, padding,
the forward pass and the loss. One call of `training_step` in Hugging Face's loop makes one whole
optimizer step, in as many micro-batches as the token budget asks for.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from agentgym.engines.base import Engine
from agentgym.engines.transformers import transformers_engine
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError, UsageError
from agentgym.rendering import renderer_for
from agentgym.rendering.base import Renderer
from agentgym.rollout.curriculum import curriculum_over
from agentgym.rollout.game import MakeEnv, Rows, game_of
from agentgym.rollout.referee import scheduler_for
from agentgym.rollout.sampler import Tasks
from agentgym.rollout.scheduler import Scheduler
from agentgym.trainer.advantages import compute_advantages
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.engine_sync import EngineSync
from agentgym.trainer.evaluation import play_held_out
from agentgym.trainer.logprobs import TokenLogprobs, token_logprobs
from agentgym.trainer.metrics import Metrics
from agentgym.trainer.packing import PackedBatch
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.resuming import OwnState, checkpoint_of
from agentgym.trainer.rollouts import Source
from agentgym.trainer.scorer import Scorer
from agentgym.trainer.setup import (
    Rewards,
    placeholder,
    refuse_endless,
    refuse_given,
    refuse_model,
    sampler_of,
    steps_per_epoch,
    tokenizer_of,
)
from agentgym.trainer.slots import slot_loader
from agentgym.trainer.stage import Judges, Stage
from agentgym.trainer.trl_contract import GRPOTrainer
from agentgym.trainer.trl_rewards import TRLRewards
from agentgym.trainer.update import Update
from agentgym.trainer.window import Window
from agentgym.trainer.windows import Windows


class AgentGRPOTrainer(GRPOTrainer):
    """Trains a policy on an env by GRPO over multi-turn trajectories.

    Args:
        model: path, hub id, or a causal language model.
        args: settings.
        env: registered id, or a factory of envs.
        env_kwargs: for a registered env.
        rewards: functions of the whole trajectory, beside the env's own rewards.
        reward_funcs: functions in TRL's convention, and reward models.
        scheduler: referee instead of the env's; an instance, a class or a registered name.
        engine: samples instead of the model that is trained; the caller closes it.
        renderer: between messages and tokens; by default the tokenizer's.
        processing_class: tokenizer; by default the model's.
        train_dataset: its rows are the tasks, instead of the env's own.
        eval_dataset: the same for evaluation.

    Raises:
        UsageError: something cannot work; known before the model is loaded wherever possible.
    """

    _tag_names = ["trl", "grpo", "agentgym"]
    args: AgentGRPOConfig
    window: Window | None = None

    def __init__(  # noqa: PLR0913 (TRL's signature)
        self,
        model: str | PreTrainedModel,
        args: AgentGRPOConfig | None = None,
        *,
        env: str | MakeEnv,
        env_kwargs: Mapping[str, Any] | None = None,
        rewards: Rewards | None = None,
        reward_funcs: Any = None,
        scheduler: Scheduler | str | type[Scheduler] | None = None,
        engine: Engine | None = None,
        renderer: Renderer | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_processing_classes: Any = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
    ) -> None:
        args = args if args is not None else AgentGRPOConfig()
        refuse_given(model, args, engine=engine, peft_config=peft_config)
        tokenizer = tokenizer_of(model, processing_class, args)
        self.renderer = renderer if renderer is not None else renderer_for(tokenizer)
        self.game = game_of(env, env_kwargs, train_rows=train_dataset, eval_rows=eval_dataset)
        refuse_endless(self.game, args)
        trl_rewards = TRLRewards(reward_funcs, timeout_s=args.reward_timeout_s)
        judges = Judges(self.game, rewards, trl_rewards, args)
        self.stage = self._make_stage(args, judges, scheduler=scheduler, engine=engine)
        self.curriculum = curriculum_over(self.game.train, args.seed) if args.curriculum else None
        self.sampler = sampler_of(self.game, args, self.curriculum)
        self._scorer = Scorer(self)
        self._computed_tokens = 0
        with trl_rewards.handed_to(args, reward_processing_classes) as for_trl:
            super().__init__(
                model=model,
                args=args,
                train_dataset=placeholder(),
                eval_dataset=placeholder(),
                processing_class=tokenizer,
                callbacks=callbacks,
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
                **for_trl,
            )
        trl_rewards.take_over(self)
        refuse_model(self, has_engine=engine is not None)
        self._set_up_loop()

    def _make_stage(
        self,
        args: AgentGRPOConfig,
        judges: Judges,
        *,
        scheduler: Scheduler | str | type[Scheduler] | None,
        engine: Engine | None,
    ) -> Stage:
        source = Source(
            make=self._make_engine,
            push=lambda engine, loop: self.engine_sync.push(engine, loop),
            given=engine,
        )
        referee = scheduler_for(scheduler, self.game, self.renderer)
        return Stage(judges, args, renderer=self.renderer, scheduler=referee, source=source)

    def _set_up_loop(self) -> None:
        """What the loop needs of a trainer that has its model."""
        self.ranks = Ranks(self.accelerator)
        self.windows = Windows(self, self._scorer)
        self.engine_sync = EngineSync(self, self._scorer, padding=self.windows.must_pad)
        self._own_state = OwnState(self)

    @property
    def policy(self) -> PreTrainedModel:
        """The model that is trained."""
        model: Any = self.model
        return cast(PreTrainedModel, model)

    # --- extension points

    def compute_logprobs(
        self, model: nn.Module, batch: PackedBatch, *, with_entropy: bool = False
    ) -> TokenLogprobs:
        """Log-probabilities of the trained tokens under any model: policy, old or reference."""
        temperature = self.args.temperature
        with self.accelerator.autocast():
            return token_logprobs(model, batch, temperature=temperature, with_entropy=with_entropy)

    def compute_advantages(self, rewards: Tensor, group_ids: Sequence[str]) -> Tensor:
        """[B] advantages of all ranks' trajectories from their rewards; NaN = unscored."""
        return compute_advantages(
            rewards,
            group_ids,
            estimator=self.args.advantage_estimator,
            scale=self.args.scale_rewards,
        )

    # --- Hugging Face's loop

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train; on every way out no env, connection or thread of the rollout is left.

        Args:
            resume_from_checkpoint: to go on from; `True` is the newest complete one in
                `output_dir`.
        """
        checkpoint = checkpoint_of(resume_from_checkpoint, self.args.output_dir)
        self.window = None
        if checkpoint is not None:
            self._own_state.load(Path(checkpoint))
        self.stage.weights_changed()
        with self.stage.session():
            try:
                return super().train(checkpoint, *args, **kwargs)
            finally:
                self.stage.drop()

    def get_train_dataloader(self) -> "DataLoader[Any]":
        """Counts micro-steps; tasks and seeds follow from the optimizer step."""
        num_steps = steps_per_epoch(self.game, self.args)
        return slot_loader(num_steps * self.args.gradient_accumulation_steps)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """None once the run is over: a finished run that is resumed would make one more step."""
        if self.state.global_step >= self.state.max_steps:
            return [], None
        return super().get_batch_samples(*args, **kwargs)

    def num_examples(self, dataloader: "DataLoader[Any]") -> int:
        """Trajectories of an epoch."""
        return len(dataloader) * self.args.per_device_train_batch_size * self.ranks.count

    def floating_point_ops(self, inputs: Any) -> int:
        """Of this rank's last optimizer step."""
        tokens, self._computed_tokens = self._computed_tokens, 0
        return int(6 * tokens * self.policy.num_parameters(exclude_embeddings=True))

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        """The whole optimizer step in the last of its micro-steps; the others do nothing."""
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.accelerator.device)
        started = time.perf_counter()
        position = self.state.global_step % self.args.steps_per_window
        if position == 0:
            number = self.state.global_step // self.args.steps_per_window
            self.window = self.windows.make(number)
        elif self.args.sync_every == "step":
            self.windows.sync()
        if self.window is None:
            raise ConfigError(
                f"step {self.state.global_step} lies inside a window of "
                f"{self.args.steps_per_window} optimizer steps: resume from a multiple of it"
            )
        loss = self._update(model, self.window, position)
        self.log_train({"step_time": time.perf_counter() - started})
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not math.isfinite(norm):
            raise UsageError(
                f"the gradient of step {self.state.global_step + 1} is not finite: lower "
                "learning_rate, or look at the last trajectories"
            )
        if norm > 0 and self._get_learning_rate() > 0:
            self.engine_sync.learned()
        return norm

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """What is ours first: a checkpoint that was begun and not completed is none."""
        if self.is_world_process_zero():
            folder = Path(self.args.output_dir or ".") / f"checkpoint-{self.state.global_step}"
            self._own_state.save(folder)
        super()._save_checkpoint(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self.stage.weights_changed()

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """Not used: the loss is a function in `agentgym.registry.LOSSES`."""
        raise NotImplementedError(
            "register a loss in agentgym.registry.LOSSES and set loss_type, or override "
            "compute_logprobs or compute_advantages"
        )

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Rows | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Play held-out tasks and log the result as `eval_reward` and so on."""
        tasks = None if eval_dataset is None else TaskSet.from_rows(eval_dataset)
        started = time.perf_counter()
        figures = self.evaluate_env(
            tasks=tasks, name=f"{metric_key_prefix}-{self.state.global_step}"
        )
        figures["runtime"] = time.perf_counter() - started
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in figures.items()}
        self.policy.train(False)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def evaluate_env(
        self,
        *,
        num_tasks: int | None = None,
        temperature: float | None = None,
        tasks: Tasks | None = None,
        name: str = "eval",
    ) -> Metrics:
        """Play held-out tasks; the same tasks and seeds on every call. Collective.

        Args:
            num_tasks: by default `args.num_eval_tasks`.
            temperature: by default `args.eval_temperature`, else the training temperature.
            tasks: by default the env's held-out ones.
            name: what callbacks are told.

        Returns:
            The figures of `evaluation_metrics`.
        """
        args = self.args
        default = args.temperature if args.eval_temperature is None else args.eval_temperature
        return play_held_out(
            self,
            self.game.held_out() if tasks is None else tasks,
            num_tasks=args.num_eval_tasks if num_tasks is None else num_tasks,
            temperature=default if temperature is None else temperature,
            name=name,
        )

    # --- one optimizer step

    def _update(self, model: nn.Module, window: Window, position: int) -> Tensor:
        model.train()
        started = time.perf_counter()
        part = window.take(position)
        update = Update(
            self.accelerator,
            self.args.loss_settings,
            forward=lambda batch: self.compute_logprobs(model, batch, with_entropy=True),
            reference=self._scorer.reference if self.args.beta else None,
            correction=self.args.correction_settings,
        )
        loss = update.run(model, part)
        self.ranks.together(update.refuse_failure)
        self.stage.weights_changed()
        seconds = time.perf_counter() - started
        self._computed_tokens = update.metrics.num_computed
        self.log_train(
            {
                **update.metrics.over(self.ranks),
                "time/update": seconds - update.logprob_seconds,
                "time/logprob": update.logprob_seconds + self.windows.old_logprob_seconds,
                "skipped_update": float(part.is_empty),
            }
        )
        self.windows.old_logprob_seconds = 0.0
        return loss

    # --- small things

    def _make_engine(self) -> Engine:
        """Samples from the policy itself, or from a copy where the policy changes meanwhile."""
        rows, decode = self.args.concurrency, self.renderer.decode
        spoken = cast(PreTrainedTokenizerBase, self.processing_class)
        if self.args.staleness:
            from agentgym.engines.transformers.copying import CopyEngine

            return CopyEngine(self.policy, max_rows=rows, decode=decode, tokenizer=spoken)
        own = transformers_engine(self.policy, max_rows=rows, decode=decode, tokenizer=spoken)
        own.count_from(self.engine_sync.next_version())
        return own

    def count_tokens(self, num_tokens: int) -> None:
        """Add to what all ranks have seen so far."""
        self.state.num_input_tokens_seen += num_tokens
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]

    def log_train(self, metrics: Mapping[str, float]) -> None:
        """Figures of the optimizer step that is made, for its line in the log."""
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _send_telemetry(self) -> None:
        """TRL reports to its hub which trainer is used; this one does not."""
