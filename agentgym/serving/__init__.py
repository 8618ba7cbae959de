"""Environments over HTTP and WebSocket, for trainers and tools that are not this package."""
