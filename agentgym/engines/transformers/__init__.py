"""Samples from the very model object that is being trained: nothing is copied, nothing served.

Import this package late: it needs torch. `transformers_engine` picks the engine for a model.
"""

from agentgym.engines.local import EngineStats
from agentgym.engines.transformers.engine import (
    GenerateEngine,
    TransformersEngine,
    transformers_engine,
)

__all__ = ["EngineStats", "GenerateEngine", "TransformersEngine", "transformers_engine"]
