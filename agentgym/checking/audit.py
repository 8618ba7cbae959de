"""Checks of what training would get: tokens, masks and messages of real trajectories.

Everything here holds by construction of the loop; it is held against an env all the same, because
this record is all that the trainer ever sees.
"""

from collections.abc import Iterator, Sequence

from agentgym.checking.looped import LOGPROB, Played, play_in_loop, renderer, write
from agentgym.checking.policies import FLOOR
from agentgym.checking.report import Findings
from agentgym.checking.subject import Subject
from agentgym.messages import Message
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput

_PLAYERS = ("random calls", "several calls", "echo", "special tokens")


async def loop(subject: Subject) -> Findings:
    """Invariants 1 and 2 on trajectories of several policies."""
    found, num_tokens, num_turns = Findings(), 0, 0
    policies = (*subject.oracle, *(policy for policy in FLOOR if policy.name in _PLAYERS))
    for number, policy in enumerate(policies):
        task = subject.tasks[number % len(subject.tasks)]
        played = await play_in_loop(subject, task, policy)
        if played.output.stop_reason.is_failure:
            found.faults.append(f"task {task.id!r} played by {policy.name!r}: {_failure(played)}")
            continue
        num_tokens += len(played.output.token_ids)
        num_turns += played.output.num_turns
        where = f"task {task.id!r} played by {policy.name!r}: "
        found.faults += [where + fault for fault in faults_of(played)]
    found.note = f"{num_turns} turns, {num_tokens} tokens"
    return found


def _failure(played: Played) -> str:
    return f"{played.output.stop_reason}: {played.output.error}"


def faults_of(played: Played) -> Iterator[str]:
    """What is wrong with a record."""
    yield from _lengths(played.output)
    yield from _masks(played.output.segments)
    yield from _prefixes(played)
    yield from _words(played.output)
    yield from _round_trip(played.output)


def _lengths(output: RolloutOutput) -> Iterator[str]:
    sizes = (len(output.token_ids), len(output.loss_mask), len(output.logprobs))
    if len(set(sizes)) > 1:
        yield f"ids, mask and logprobs have the lengths {sizes}"


def _masks(segments: Sequence[Segment]) -> Iterator[str]:
    """Invariant 2: the mask is 1 exactly on sampled tokens, with a logprob for each."""
    for number, segment in enumerate(segments):
        expected = {LOGPROB} if segment.source == "sampled" else set()
        if set(segment.logprobs) != expected:
            yield f"segment {number} ({segment.source}) has logprobs {set(segment.logprobs)}"


def _prefixes(played: Played) -> Iterator[str]:
    """Invariant 1: what the engine got at a turn is all that stands before that turn."""
    ids: list[int] = []
    turn = 0
    for segment in played.output.segments:
        if segment.source == "sampled":
            if turn < len(played.prompts) and tuple(ids) != played.prompts[turn]:
                yield f"turn {turn + 1}: the prompt is not what was recorded before it"
            turn += 1
        ids += segment.ids
    if turn != len(played.prompts):
        yield f"{len(played.prompts)} turns were sampled and {turn} recorded"


def _round_trip(output: RolloutOutput) -> Iterator[str]:
    try:
        again = RolloutOutput.from_json(output.to_json())
    except ValueError as error:
        yield f"the record cannot be read back from JSON: {error}"
        return
    if again != output:
        yield "the record comes back from JSON as another one"


def _words(output: RolloutOutput) -> Iterator[str]:
    """Every message stands in the segments, in its order."""
    position = 0
    text = renderer().decode(output.token_ids)
    for index, message in enumerate(output.messages[:-1]):
        said = _said(message)
        at = text.find(said, position)
        if at < 0:
            yield f"message {index} ({message.role}) is not among the tokens: {said[:60]!r}"
            return
        position = at + len(said)


def _said(message: Message) -> str:
    return message.content.strip() if message.role != "assistant" else write(message)[:20]
