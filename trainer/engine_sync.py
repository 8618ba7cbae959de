"""What happens when an engine gets the trainer's weights: they travel, and are proved to be there.

The proof is for engines with weights of their own; one that samples from the trained model itself
cannot have others.
"""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.engines.base import Engine
from agentgym.engines.weights import KeepsWeights
from agentgym.rollout.background import LoopThread
from agentgym.trainer.metrics import Metrics
from agentgym.trainer.scorer import Scorer
from agentgym.trainer.sync import Prober, SyncFigures, WeightSync

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer

logger = logging.getLogger(__name__)

FILE = "engine.json"
"""In a checkpoint."""


class EngineSync:
    """The way of a trainer's weights to its engine.

    Args:
        trainer: whose they are.
        scorer: computes what is compared.
        padding: packed rows would be wrong.
    """

    def __init__(self, trainer: "AgentGRPOTrainer", scorer: Scorer, *, padding: bool) -> None:
        args = trainer.args
        self._trainer = trainer
        self._has_learned = False
        self._ranks = trainer.ranks
        self._temperature = args.temperature
        self._weights = WeightSync(trainer.policy, settings=args.sync_settings, ranks=trainer.ranks)
        self._prober = Prober(
            args.probe_settings,
            renderer=trainer.renderer,
            score=scorer.policy,
            dtype=_dtype_of(trainer),
            device=trainer.accelerator.device.type,
            padding=padding,
        )
        self.metrics: Metrics = {}
        """Of the last update."""

    def save(self, folder: Path) -> None:
        """Write into a checkpoint how far versions have come."""
        content = {"policy_version": self._weights.version}
        (folder / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Go on with the versions of a checkpoint: a run gives each of its policies one of its own.

        Without this, an engine that was started anew would call a later policy as it called an
        earlier one.
        """
        path = folder / FILE
        if path.exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            self._weights.go_on_from(saved["policy_version"])

    def next_version(self) -> int:
        """What an engine that is made now over the trained model itself calls its weights."""
        return self._weights.next_version()

    def learned(self) -> None:
        """The weights are about to be changed: an engine that gets the same again is told of."""
        self._has_learned = True

    def push(self, engine: Engine, loop: LoopThread) -> int:
        """Bring the engine to the trained weights; collective, on the main thread.

        Returns:
            The engine's policy version.

        Raises:
            UsageError: the weights cannot be the engine's, or it samples from others afterwards.
            EngineError: they did not arrive.
        """
        version = self._weights.push(engine, loop)
        figures = self._weights.figures
        assert figures is not None
        self.metrics = {"sync/version": float(version), "sync/bytes": float(figures.num_bytes)}
        if isinstance(engine, KeepsWeights):
            self._look_at(figures)
            found = self._prober.after_update(
                engine, loop, self._ranks, temperature=self._temperature
            )
            if found is not None:
                self.metrics["sync/probe_max"] = found.max_abs
                self.metrics["sync/probe_mean"] = found.mean_abs
        return version

    def _look_at(self, figures: SyncFigures) -> None:
        """A step too small for the weights' precision is no error, but nothing is learned by it."""
        self.metrics["sync/changed"] = float(figures.num_changed)
        if self._has_learned and figures.complaint and self._ranks.index == 0:
            logger.warning("%s", figures.complaint)
        self._has_learned = False


def _dtype_of(trainer: "AgentGRPOTrainer") -> str:
    """What a forward pass computes in: that of autocast, else of the weights."""
    if trainer.args.bf16:
        return "bfloat16"
    return "float16" if trainer.args.fp16 else str(trainer.policy.dtype).removeprefix("torch.")
