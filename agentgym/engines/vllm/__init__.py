"""vLLM as the engine: its own servers over HTTP, or in this process."""
