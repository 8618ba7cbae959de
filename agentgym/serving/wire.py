"""What an env says and hears, in the JSON of the OpenEnv protocol.

An action is an assistant message: its text, its tool calls, or both. An observation is the env's
new messages, and at the start the tools; `reward` and `done` stand beside it, as OpenEnv has them.
Source: the routes and messages of openenv 0.10 (`env_server/types.py`).
"""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym.jsonable import as_json
from agentgym.messages import MalformedCall, Message, ToolCall
from agentgym.trajectory import Task

ErrorCode = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CallData(_Wire):
    """A tool call of the policy."""

    id: str | None = Field(None, description="Repeated in the tool's answer; numbered if left out.")
    name: str
    arguments: dict[str, Any] = {}


class ActionData(_Wire):
    """What the policy says."""

    content: str = Field("", description="Text of the assistant's message.")
    reasoning: str | None = None
    tool_calls: list[CallData] = []
    malformed_calls: list[MalformedCall] = Field([], description="Attempts that are no calls.")
    metadata: dict[str, Any] = Field({}, description="Ignored.")

    def to_message(self) -> Message:
        """As the env gets it."""
        calls = [
            ToolCall(id=call.id or f"call_{index}", name=call.name, arguments=call.arguments)
            for index, call in enumerate(self.tool_calls)
        ]
        return Message(
            role="assistant",
            content=self.content,
            reasoning=self.reasoning,
            tool_calls=tuple(calls),
            malformed_calls=tuple(self.malformed_calls),
        )


class MessageData(_Wire):
    """A message of the env, in the chat format."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str | None = None
    name: str | None = None


class ObservationData(_Wire):
    """What the env says."""

    messages: list[MessageData]
    tools: list[dict[str, Any]] = Field([], description="Schemas, after a reset only.")
    metadata: dict[str, Any] = {}


class ResetData(BaseModel):
    """How to begin an episode; what is not known here is ignored, as OpenEnv does."""

    model_config = ConfigDict(extra="ignore")

    seed: int | None = Field(None, ge=0)
    episode_id: str | None = Field(None, max_length=255)
    task: Task | None = Field(None, description="The task to play, whole.")
    task_split: str = Field("train", description="Where to look for `task_index`.")
    task_index: int | None = Field(None, ge=0, description="Number of the task to play.")


class StateData(_Wire):
    """Where an episode stands."""

    episode_id: str | None = None
    step_count: int = 0
    task_id: str | None = None


def said(messages: Iterable[Message], tools: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """An observation."""
    told = [
        MessageData(role=m.role, content=m.content, tool_call_id=m.tool_call_id, name=m.name)
        for m in messages
    ]
    return ObservationData(messages=told, tools=list(tools)).model_dump()


def answer(
    observation: dict[str, Any], *, reward: float | None, done: bool, metadata: dict[str, Any]
) -> dict[str, Any]:
    """Data of a reset or step."""
    told = as_json(metadata)
    inner = {**observation, "metadata": told}
    return {"observation": inner, "reward": reward, "done": done, "metadata": told}


def problem(code: ErrorCode, text: str, **more: Any) -> dict[str, Any]:
    """A message that something went wrong."""
    return {"type": "error", "data": {"message": text, "code": code, **more}}


def explained(error: ValidationError) -> str:
    """The first mistake of a message, in one line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def schemas() -> dict[str, Any]:
    """Answer of `/schema`."""
    return {
        "action": ActionData.model_json_schema(),
        "observation": ObservationData.model_json_schema(),
        "reset_observation": ObservationData.model_json_schema(),
        "state": StateData.model_json_schema(),
    }
