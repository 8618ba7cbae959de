"""Servers and the engine that all tests here share."""

from vllm_engine_kit import bench, ground
from vllm_kit import served, served_gloo, tiny
from vllm_local_kit import alone, local, local_is_closed

__all__ = [
    "alone",
    "bench",
    "ground",
    "local",
    "local_is_closed",
    "served",
    "served_gloo",
    "tiny",
]
