"""Schedulers that change what was said: nothing sampled is lost, nothing else is trained."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentgym.engines.scripted import ScriptedEngine
from agentgym.envs import Episode, Task, TaskSet, TextEnv, ToolEnv
from agentgym.envs.text_env import TextStep
from agentgym.messages import Message, user
from agentgym.rendering import Renderer, renderer_for
from agentgym.rollout import (
    GymScheduler,
    NextTurn,
    Player,
    Playing,
    Scheduler,
    Trajectory,
    TurnResult,
    run_trajectory,
)
from agentgym.rollout.schedulers import MathTipsScheduler, ReActScheduler, ThinkingTipsScheduler
from agentgym.testing import byte_tokenizer
from agentgym.tokens import flat_ids
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason, Turn

MakeRequest = Callable[..., RolloutRequest]

REASONING = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif -%}"
    "{{ m.content }}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
"""Shows whatever reasoning it is given."""


class SumEnv(ToolEnv):
    """Asks for a sum; the answer is the last line."""

    reward_weights = {"correct": 1.0}

    def tasks(self, split: str) -> TaskSet:
        return TaskSet.procedural(lambda i: Task(id=str(i), data={"x": i, "answer": str(i + 2)}))

    def prompt(self, task: Task) -> str:
        return f"{task['x']}+2?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        right = str(episode.task["x"] + 2)
        return {"correct": float((episode.answer or "").endswith(right))}


class AskingEnv(TextEnv):
    """Wants three answers."""

    def start(self, task: Task) -> str:
        self.num_asked = 1
        return "one?"

    def respond(self, text: str) -> TextStep:
        self.num_asked += 1
        return TextStep(f"number {self.num_asked}?", 1.0, self.num_asked > 3)


def play_with(
    scheduler: Scheduler, turns: Sequence[Any], renderer: Renderer, **options: Any
) -> Player:
    engine = ScriptedEngine(list(turns), encode=renderer.encode, decode=renderer.decode).recording()
    return Player(engine=engine, renderer=renderer, scheduler=scheduler, **options)


def engine_of(player: Player) -> ScriptedEngine:
    assert isinstance(player.engine, ScriptedEngine)
    return player.engine


def assert_exact(output: RolloutOutput, player: Player) -> None:
    """Invariants 1 and 2 over all traces: what is trained was sampled after just these ids."""
    asked = Counter(engine_of(player).prompts(output.request_id))
    trained: Counter[tuple[int, ...]] = Counter()
    for trace in output.traces:
        before: list[int] = []
        for segment in trace:
            if segment.is_trained:
                trained[tuple(before)] += 1
            before += segment.ids

    assert trained <= asked, "something is trained that was not sampled there, or twice"


class Wrong(MathTipsScheduler):
    def is_right(self, trajectory: Trajectory, turn: Turn) -> bool | None:
        return turn.action.content.endswith(str(trajectory.request.task["x"] + 2))


async def test_a_wrong_answer_is_cut_and_a_hint_goes_on(
    renderer: Renderer, request_for: MakeRequest
):
    """Before the answer: kept and trained. The hint: seen, not trained. The answer: on record."""
    turns = ["1 and 2.\nThe answer is 4", "so\nThe answer is 3"]
    player = play_with(Wrong(SumEnv), turns, renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    said = [(s.source, renderer.decode(s.ids), s.is_trained) for s in output.segments[1:]]
    assert said == [
        ("sampled", "1 and 2.\nThe ", True),
        ("injected", "But wait, let me check this again.", False),
        ("sampled", "so\nThe answer is 3<|im_end|>", True),
    ]
    [archived] = output.branches
    assert renderer.decode(archived[-1].ids) == "1 and 2.\nThe answer is 4<|im_end|>"
    assert not any(segment.is_trained for segment in archived)
    assert output.reward == 1.0
    assert output.stop_reason == StopReason.FINAL_ANSWER
    assert output.rollout_infos["hinted_turns"] == [0]
    assert [m.content for m in output.messages[1:]] == [
        "1 and 2.\nThe",
        "But wait, let me check this again.",
        "so\nThe answer is 3",
    ]


async def test_there_are_as_many_hints_as_allowed(renderer: Renderer, request_for: MakeRequest):
    """Then the env gets the wrong answer."""
    player = play_with(Wrong(SumEnv), ["The answer is 4"] * 5, renderer)
    output = await run_trajectory(request_for(1), player)

    assert len(engine_of(player).calls) == 2
    assert output.reward == 0.0


class Told(ThinkingTipsScheduler):
    def is_right(self, trajectory: Trajectory, turn: Turn) -> bool | None:
        return turn.action.content.endswith(str(trajectory.request.task["x"] + 2))


async def test_the_history_keeps_the_last_reasoning_only(request_for: MakeRequest):
    """Three turns make three sequences; each turn is trained in the one it was sampled in."""
    renderer = renderer_for(byte_tokenizer(template=REASONING), on_rewrite="keep")
    turns = [f"<think>\nthought {i}\n</think>\n\n{i}" for i in (7, 8, 3)]

    class Patient(Told):
        max_hints = 2

    player = play_with(Patient(SumEnv), turns, renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    prompts = [renderer.decode(ids) for ids in engine_of(player).prompts("1-0")]
    assert [[f"thought {i}" in prompt for i in (7, 8)] for prompt in prompts] == [
        [False, False],
        [True, False],
        [False, True],
    ]
    assert len(output.traces) == 2
    assert output.num_turns == 3
    assert [[renderer.decode(s.ids)[:17] for s in t if s.is_trained] for t in output.traces] == [
        ["<think>\nthought 7", "<think>\nthought 8"],
        ["<think>\nthought 3"],
    ]
    assert output.reward == 1.0


async def test_a_tool_result_goes_on_the_message(request_for: MakeRequest, add_env: Any):
    """One assistant message from the first thought to the answer."""
    renderer = renderer_for(byte_tokenizer(), dialect_name="react", on_rewrite="keep")
    action = 'Thought: add\nAction: add\nAction Input: {"x": 1, "y": 2}\nObservation:'
    turns = [action + " 77", "Thought: ok\nFinal Answer: 3"]
    player = play_with(ReActScheduler(add_env), turns, renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    assert output.error is None
    assert engine_of(player).calls[0].sampling.stop == ("Observation:",)
    said = "".join(renderer.decode(s.ids) for s in output.segments[1:])
    assert said == f"{action} 3\nThought: ok\nFinal Answer: 3<|im_end|>"
    assert [s.source for s in output.segments[1:]] == ["sampled", "injected", "sampled"]
    assert output.branches == ()
    assert output.reward == 1.0


async def test_what_was_sampled_beyond_the_mark_is_taken_back(
    request_for: MakeRequest, add_env: Any
):
    """Without the stop string in time, an invented observation never reaches the prompt."""
    renderer = renderer_for(byte_tokenizer(), dialect_name="react", on_rewrite="keep")
    action = 'Action: add\nAction Input: {"x": 1, "y": 2}\nObservation:'
    turns = [action + " 77", "Final Answer: 3"]
    scheduler = ReActScheduler(add_env)
    scheduler.stop = ()
    player = play_with(scheduler, turns, renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    assert "77" not in renderer.decode(flat_ids(output.segments))
    assert "77" in renderer.decode(flat_ids(output.branches[0]))
    assert output.reward == 1.0


class Editor(GymScheduler):
    """Rewrites every turn's words in a given way."""

    def __init__(self, edits: list[NextTurn]) -> None:
        super().__init__(AskingEnv)
        self._edits = edits

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        return self._edits[turn.index % len(self._edits)]


words = st.sampled_from(["", "a", "ab", "abc", "ä€", "abd", "x\n", "<|im_end|>"])
edits = st.one_of(
    st.builds(NextTurn, messages=st.just((user("next"),)), completion=st.none() | words),
    st.builds(NextTurn, text=words, completion=st.none() | words),
    st.builds(NextTurn, history=st.lists(words.map(user), min_size=1, max_size=2).map(tuple)),
)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(
    st.lists(edits, min_size=1, max_size=4),
    st.lists(st.sampled_from(["abc", "ä€x", "ab", "<think>r</think>abc"]), min_size=1, max_size=3),
    st.integers(30, 400),
)
@example(
    edits=[NextTurn(messages=(user("next"),), completion="<|im_end|>")], texts=["abc"], context=30
)
async def test_whatever_is_edited_the_traces_stay_exact(
    renderer: Renderer,
    request_for: MakeRequest,
    edits: list[NextTurn],
    texts: list[str],
    context: int,
):
    """No edit trains a token that was not sampled there, or one token twice."""
    player = play_with(
        Editor(edits),
        (texts * 10)[:10],
        renderer,
        budget=Budget(max_turns=6, max_total_tokens=context),
    )
    output = await run_trajectory(request_for(1), player)

    assert not output.stop_reason.is_failure, output.error
    assert_exact(output, player)
    assert RolloutOutput.from_json(output.to_json()) == output
    for trace in output.traces:
        assert len(flat_ids(trace)) <= context
    sampled = sum(len(s.ids) for s in output.sampled)
    assert sampled <= sum(len(renderer.encode(text)) + 1 for text in (texts * 10)[:10])


class TwoSpeakers(Scheduler):
    """Two parts played by one policy, each with its own view of what was said."""

    async def run(self, playing: Playing) -> StopReason:
        await playing.start()
        trajectory = playing.trajectory
        for _ in range(3):
            if (reason := await playing.turn()) is not None:
                return reason
            heard = trajectory.turns[-1].action.content
            view = (user(f"the other said: {heard}"),)
            if (reason := await playing.follow(NextTurn(history=view))) is not None:
                return reason
        return StopReason.TERMINATED

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        trajectory.messages.append(user("begin"))

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        return TurnResult(reward=1.0)


async def test_a_scheduler_can_take_over_the_whole_run(
    renderer: Renderer, request_for: MakeRequest
):
    """Who speaks next and what they see is the scheduler's; the record is as exact as ever."""
    player = play_with(TwoSpeakers(), ["one", "two", "three"], renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    assert output.stop_reason == StopReason.TERMINATED
    assert output.num_turns == 3
    assert output.reward == 3.0
    assert "the other said: two" in renderer.decode(engine_of(player).prompts("1-0")[2])


class Simulated(TextEnv):
    """The user is simulated by something slow that is awaited."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return [user("hello")], {}

    async def astep(self, action: Message) -> Any:
        said = f"you said {action.content}"
        return [user(said)], 0.0, "bye" in action.content, False, {}


async def test_a_simulated_user_decides_how_long_it_takes(
    renderer: Renderer, request_for: MakeRequest
):
    """The number of turns is nobody's setting."""
    player = play_with(GymScheduler(Simulated), ["a", "b", "c", "bye"], renderer)
    output = await run_trajectory(request_for(1), player)

    assert_exact(output, player)
    assert output.stop_reason == StopReason.TERMINATED
    assert output.num_turns == 4


def test_a_next_turn_that_cannot_be_said_is_refused():
    """Text to continue leaves no room for an answer to it, and nothing cannot be answered."""
    with pytest.raises(ValueError, match="at least one message"):
        NextTurn(history=())
    with pytest.raises(ValueError, match="nothing follows"):
        NextTurn(text="a", messages=(user("b"),))
