"""From the model that is trained to the engines that sample: weights, and proof that they arrived.

Engines that sample from the trained model itself only drop their caches. All others are given the
weights under the names of the model's checkpoint; gathering them is collective and happens on the
main thread, delivering them on the event loop of the rollouts.
"""

from agentgym.trainer.sync.probe import Prober, ProbeSettings
from agentgym.trainer.sync.push import SyncFigures, SyncSettings, WeightSync

__all__ = ["ProbeSettings", "Prober", "SyncFigures", "SyncSettings", "WeightSync"]
