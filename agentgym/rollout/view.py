"""What the policy sees, and how that changes between its turns.

The trace only ever grows at its end. Whatever else a template or a scheduler asks for, another
history or other words in the policy's mouth, makes a new trace; the old one stays on record.
"""

from collections.abc import Sequence

from agentgym.messages import Message, assistant
from agentgym.rollout.forking import num_agreeing, rewritten, taken_back
from agentgym.rollout.limits import room_left
from agentgym.rollout.player import Player
from agentgym.rollout.scheduler import NextTurn
from agentgym.rollout.state import Trajectory
from agentgym.tokens import Segment, Source


class View:
    """The trace of a trajectory; every change says whether an answer to it still fits."""

    def __init__(self, trajectory: Trajectory, player: Player) -> None:
        self.trajectory = trajectory
        self._player = player
        self._renderer = player.renderer

    def begin(self) -> None:
        """Render the first prompt."""
        trajectory = self.trajectory
        prompt = self._renderer.render(trajectory.messages, trajectory.schemas)
        trajectory.trace.append(Segment(ids=tuple(prompt), source="template", message_index=0))
        trajectory.spoken_from = len(trajectory.trace)

    def follow(self, following: NextTurn) -> bool:
        """Put in what the policy sees next."""
        if following.completion is not None and not self._replace_completion(following.completion):
            return False
        if following.continues:
            return self._go_on(following.text or "")
        if following.history is not None:
            return self._show(following.history, following.messages)
        return self._answer(following.messages)

    def spoken(self, end: int) -> str:
        """Text of the assistant's message up to the trace's id `end`, where a turn goes on."""
        ids = self.trajectory.trace.ids[self.trajectory.spoken_from : end]
        return self._renderer.decode(ids) if ids else ""

    def _answer(self, new: tuple[Message, ...]) -> bool:
        """Say something to the policy; a template that shows history anew forks the trace."""
        trajectory, renderer = self.trajectory, self._renderer
        index = len(trajectory.messages)
        trajectory.messages += new
        ids = renderer.rewritten(trajectory.messages, trajectory.schemas, num_new=len(new))
        if ids is not None:
            return self._see(ids)
        return self._append(
            renderer.bridge(trajectory.trace, new, tools=trajectory.schemas), "env", index
        )

    def _show(self, history: tuple[Message, ...], new: tuple[Message, ...]) -> bool:
        """Let the policy see another conversation."""
        messages = [*history, *new]
        if not self._see(self._renderer.render(messages, self.trajectory.schemas)):
            return False
        self.trajectory.messages = messages
        return True

    def _see(self, prompt: Sequence[int]) -> bool:
        """Go on from a prompt rendered as a whole, if an answer fits; forks where it must."""
        trajectory, old = self.trajectory, self.trajectory.trace
        if list(prompt[: len(old)]) == list(old.ids):
            return self._append(prompt[len(old) :], "env", len(trajectory.messages) - 1)
        if len(prompt) - len(old) >= room_left(trajectory, self._player):
            return False
        trajectory.branches.append(old.segments)
        trajectory.trace = rewritten(old, prompt)
        trajectory.spoken_from = len(trajectory.trace)
        return True

    def _append(self, ids: Sequence[int], source: Source, message_index: int) -> bool:
        """Add ids that the policy is to answer, if an answer still fits."""
        trajectory = self.trajectory
        if len(ids) >= room_left(trajectory, self._player):
            return False
        trajectory.trace.append(Segment(ids=tuple(ids), source=source, message_index=message_index))
        if source == "env":
            trajectory.spoken_from = len(trajectory.trace)
        return True

    def _go_on(self, text: str) -> bool:
        """Leave the policy's message open, with `text` at its end."""
        trajectory, renderer = self.trajectory, self._renderer
        last = trajectory.trace.segments[-1]
        if last.source == "sampled" and last.ids[-1] in renderer.stop_token_ids:
            self._take_back(len(last.ids) - 1)
        index = len(trajectory.messages)
        if text:
            said = assistant(text).model_copy(update={"continues": True})
            trajectory.messages.append(said)
        return self._append(renderer.encode(text), "injected", index)

    def _replace_completion(self, completion: str) -> bool:
        """The policy is to have said something else: the sampled ids that agree with it stay."""
        trajectory, renderer = self.trajectory, self._renderer
        sampled = trajectory.trace.segments[-1].ids
        kept = num_agreeing(sampled, completion, renderer.decode)
        rest = completion[len(renderer.decode(sampled[:kept])) :]
        spoken = self.spoken(len(trajectory.trace) - len(sampled))
        self._take_back(kept)
        fits = self._append(renderer.encode(rest), "injected", len(trajectory.messages) - 1)
        parsed = renderer.parse(
            renderer.encode(completion),
            finish_reason="stop",
            tools=trajectory.schemas,
            prefix=spoken,
        )
        edited = parsed.to_message(turn=len(trajectory.turns) - 1)
        trajectory.messages[-1] = edited.model_copy(update={"continues": bool(spoken)})
        return fits

    def _take_back(self, num_kept: int) -> None:
        """Cut what was sampled last to its first ids; the whole stays in the record."""
        trajectory = self.trajectory
        if num_kept == len(trajectory.trace.segments[-1].ids):
            return
        archived, trajectory.trace = taken_back(trajectory.trace, num_kept)
        trajectory.branches.append(archived)
