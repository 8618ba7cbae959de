"""Multi-turn, tool-using tasks and a trainer for the language models that play them."""
