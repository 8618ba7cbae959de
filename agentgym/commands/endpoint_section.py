"""Settings for somebody else's server: how much it may be asked, and how long it is waited for."""

from pydantic import Field

from agentgym.config import Config
from agentgym.engines.http import Patience, longest_call_s


class EndpointSection(Config):
    """An OpenAI-compatible endpoint (--policy openai:URL#MODEL)"""

    endpoint_concurrency: int = Field(64, ge=1)
    """Requests at once."""
    requests_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Requests to begin in a minute, retries included. (default: no limit)"""
    max_retries: int = Field(5, ge=0)
    """How often a request is tried again that a busy or broken server did not answer."""
    endpoint_timeout: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds to wait for one answer."""
    endpoint_context: int | None = Field(None, ge=2)
    """Tokens of prompt and completion that the model there takes: what would not fit ends the
    trajectory, and is not sent. (default: no limit; the endpoint's refusal fails it)"""
    endpoint_key_variable: str = Field("OPENAI_API_KEY", min_length=1)
    """Environment variable that holds the API key."""

    @property
    def patience(self) -> Patience:
        """Of the requests."""
        return Patience(
            timeout_s=self.endpoint_timeout,
            max_retries=self.max_retries,
            concurrency=self.endpoint_concurrency,
            requests_per_minute=self.requests_per_minute,
        )

    def turn_timeout_s(self, concurrency: int) -> float:
        """Longest that one of so many turns may take, its wait for the others included."""
        return longest_call_s(self.patience, concurrency)
