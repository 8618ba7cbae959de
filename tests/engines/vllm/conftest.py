"""Servers that all tests here share."""

from vllm_engine_kit import bench, ground
from vllm_kit import served, served_gloo, tiny

__all__ = ["bench", "ground", "served", "served_gloo", "tiny"]
