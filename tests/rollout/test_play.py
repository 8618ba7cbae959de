"""One trajectory: exact to the token, and whatever happens ends up in its record."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.engines.scripted import CallableEngine, EngineCall, ScriptedEngine, ScriptedTurn
from agentgym.envs import ToolEnv
from agentgym.errors import ConfigError
from agentgym.messages import Message
from agentgym.rendering import Renderer, renderer_for
from agentgym.rollout import NextTurn, Player, Scheduler, Trajectory, run_trajectory
from agentgym.testing import byte_tokenizer
from agentgym.tools import tool
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason, Turn

MakePlayer = Callable[..., Player]
MakeRequest = Callable[..., RolloutRequest]


async def test_a_tool_call_then_an_answer(
    make_player: MakePlayer, request_for: MakeRequest, call: str
):
    """The usual episode: the model sees the result, and its answer ends it."""
    output = await run_trajectory(request_for(1), make_player([call, "3"]))

    assert output.stop_reason == StopReason.FINAL_ANSWER
    assert [m.role for m in output.messages] == ["user", "assistant", "tool", "assistant"]
    assert output.messages[2].content == "3"
    assert output.rewards == {"correct": 1.0, "short": None}
    assert output.reward == 1.0
    assert output.turn_rewards == (0.0, 1.0)
    assert output.rollout_infos["num_tool_calls"] == 1


turn_texts = st.lists(
    st.sampled_from(
        [
            '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 2}}\n</tool_call>',
            '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>',
            "<tool_call>\n{oops}\n</tool_call>",
            '<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call>\n' * 2,
            "<think>\nhm\n</think>\n\n",
            "",
            "3",
        ]
    ),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=40)
@given(turn_texts, st.integers(20, 400), st.integers(1, 80))
def test_every_prompt_is_the_trace_so_far(
    make_player: MakePlayer,
    request_for: MakeRequest,
    texts: list[str],
    max_context: int,
    max_turn_tokens: int,
):
    """Invariants 1 and 2: ids are what the engine got plus what it sampled, mask = sampled."""
    budget = Budget(max_turns=5, max_turn_tokens=max_turn_tokens)
    player = make_player([*texts, *["3"] * 5], max_context=max_context, budget=budget)

    output = asyncio.run(run_trajectory(request_for(1), player))

    assert isinstance(player.engine, ScriptedEngine)
    position = 0
    sampled: list[int] = []
    for prompt, ids, mask in zip(
        player.engine.prompts("1-0"),
        output.response_token_ids,
        output.response_loss_mask,
        strict=True,
    ):
        position = position or len(output.prompt_token_ids)
        assert list(prompt) == output.token_ids[:position]
        position += len(ids)
        num_sampled = sum(mask)
        assert mask == [1] * num_sampled + [0] * (len(ids) - num_sampled)
        sampled += ids[:num_sampled]
    chosen = zip(output.token_ids, output.loss_mask, strict=True)
    assert [token for token, own in chosen if own] == sampled
    assert len(output.token_ids) <= max(max_context, len(output.prompt_token_ids))
    assert not output.stop_reason.is_failure


@pytest.mark.parametrize(
    ("script", "budget", "reason"),
    [
        (["call"] * 3, Budget(max_turns=2), StopReason.MAX_TURNS),
        (["call"] * 3, Budget(max_tool_calls=1), StopReason.MAX_TOOL_CALLS),
        (["call", "3"], Budget(max_turns=2), StopReason.FINAL_ANSWER),
        (["3" * 50], Budget(max_sampled_tokens=20), StopReason.LENGTH),
        (["3" * 50], Budget(max_turn_tokens=20), StopReason.LENGTH),
        (["3" * 50], Budget(max_total_tokens=300), StopReason.CONTEXT_OVERFLOW),
        (["<tool_call>{</tool_call>"] * 3, Budget(max_parse_errors=1), StopReason.MALFORMED),
        ([""] * 5, Budget(), StopReason.EMPTY),
    ],
)
async def test_limits_end_a_trajectory_with_their_name(
    script: list[str],
    budget: Budget,
    reason: StopReason,
    make_player: MakePlayer,
    request_for: MakeRequest,
    call: str,
):
    """A limit is an outcome: tokens are kept, the named scores are there, nothing failed."""
    if budget.max_total_tokens is not None:
        prompt = (await run_trajectory(request_for(1), make_player(["3"]))).prompt_token_ids
        budget = budget.model_copy(update={"max_total_tokens": len(prompt) + 20})
    turns = [call if text == "call" else text for text in script]

    output = await run_trajectory(request_for(1), make_player(turns, budget=budget))

    assert output.stop_reason == reason
    assert sum(output.loss_mask) > 0
    assert output.rewards.keys() == {"correct", "short"}
    assert output.is_scored
    assert output.error is None


async def test_a_turn_cut_by_length_is_neither_played_nor_an_answer(
    make_player: MakePlayer, request_for: MakeRequest, call: str
):
    """A call or an answer that was cut is not what the policy meant to say."""
    cut = ScriptedTurn(text="3", finish_reason="length")

    output = await run_trajectory(request_for(1), make_player([cut]))

    assert output.stop_reason == StopReason.LENGTH
    assert output.rewards["correct"] == 0.0
    assert output.rollout_infos["num_tool_calls"] == 0


async def test_the_wall_clock_is_a_budget(
    make_player: MakePlayer, request_for: MakeRequest, call: str
):
    """A trajectory that takes too long is cut, not failed."""

    async def slow(engine_call: EngineCall) -> str:
        await asyncio.sleep(60 if engine_call.turn else 0)
        return call

    player = make_player(
        CallableEngine(slow, encode=renderer_for(byte_tokenizer()).encode),
        budget=Budget(max_seconds=0.3),
    )
    output = await run_trajectory(request_for(1), player)

    assert output.stop_reason == StopReason.MAX_TIME
    assert output.reward == 0.0
    assert output.num_turns == 1


async def test_a_first_turn_that_uses_up_the_clock_is_the_policys(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv], call: str
):
    """Else a policy could have itself left out by calling something slow at once."""

    @tool(timeout_s=60)
    async def add(x: int, y: int) -> int:
        """Add, in a minute."""
        await asyncio.sleep(60)
        return x + y

    slow = type("Slow", (add_env,), {"tools": (add,)})
    player = make_player([call], slow, budget=Budget(max_seconds=0.3))
    output = await run_trajectory(request_for(1), player)

    assert output.stop_reason == StopReason.MAX_TIME
    assert output.reward == 0.0


async def test_hooks_come_in_their_order(
    make_player: MakePlayer, request_for: MakeRequest, renderer: Renderer
):
    """Generate, append, on_turn_end, check_finished, then step or the end; the end always."""
    seen: list[str] = []

    class Spy(Scheduler):
        async def on_trajectory_start(self, trajectory: Trajectory) -> None:
            seen.append("start")
            trajectory.messages.append(Message(role="user", content="q"))

        def check_finished(self, trajectory: Trajectory, turn: Turn) -> StopReason | None:
            assert trajectory.messages[-1] == turn.action
            seen.append(f"check {turn.index}")
            return StopReason.TERMINATED if turn.index == 1 else None

        async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
            seen.append("step")
            return NextTurn(messages=(Message(role="user", content="go on"),))

        async def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> None:
            seen.append(f"end {reason}")

    engine = ScriptedEngine(["a", "b"], encode=renderer.encode)
    player = Player(engine=engine, renderer=renderer, scheduler=Spy())

    output = await run_trajectory(request_for(1), player)

    assert seen == ["start", "check 0", "step", "check 1", "end terminated"]
    assert [m.content for m in output.messages] == ["q", "a", "go on", "b"]
    assert output.rewards == {"env": 0.0}


async def test_malformed_and_unknown_calls_come_back_to_the_model(
    make_player: MakePlayer, request_for: MakeRequest, call: str
):
    """Every attempt is answered in order, and counted by kind."""
    turn = f"{call}\n<tool_call>\n{{oops}}\n</tool_call>\n{call.replace('add', 'ad')}"

    output = await run_trajectory(request_for(1), make_player([turn, "3"]))

    results = [m.content for m in output.messages if m.role == "tool"]
    assert len(results) == 3
    assert output.rollout_infos["tool_failures"] == {"malformed": 1, "unknown_tool": 1}
    assert any("not valid JSON" in text for text in results)
    assert any("ad" in text and "add" in text for text in results)


@pytest.mark.parametrize(
    ("answer", "reason"), [("max_turns", StopReason.MAX_TURNS), ("no", StopReason.ENV_ERROR)]
)
async def test_a_scheduler_may_name_a_reason_but_not_invent_one(
    answer: str, reason: StopReason, request_for: MakeRequest, renderer: Renderer
):
    """A plugin's slip costs its trajectories, not the run."""

    class Names(Scheduler):
        async def on_trajectory_start(self, trajectory: Trajectory) -> None:
            trajectory.messages.append(Message(role="user", content="q"))

        def check_finished(self, trajectory: Trajectory, turn: Turn) -> StopReason | None:
            return answer  # type: ignore[return-value]

    engine = ScriptedEngine(["a"], encode=renderer.encode)
    player = Player(engine=engine, renderer=renderer, scheduler=Names())

    assert (await run_trajectory(request_for(1), player)).stop_reason == reason


@pytest.mark.parametrize(
    "arguments",
    ['{"x": "\\ud83d", "y": 2}', '{"x": NaN, "y": 2}', '{"x": 1e999, "y": 2}', '{"x": %s1%s}'],
)
async def test_a_call_that_could_not_be_written_down_is_malformed(
    arguments: str, make_player: MakePlayer, request_for: MakeRequest
):
    """One sampled string must not end a run when its record is written."""
    if "%s" in arguments:
        arguments %= ("[" * 300, "]" * 300)
    text = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'

    output = await run_trajectory(request_for(1), make_player([text, "3"]))

    assert output.rollout_infos["tool_failures"] == {"malformed": 1}
    assert RolloutOutput.from_json(output.to_json()) == output


async def test_what_an_env_reports_reaches_the_record(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Whatever number type it uses; what is no JSON at all fails the trajectory alone."""
    numpy = pytest.importorskip("numpy")

    def reporting(report: object) -> type[ToolEnv]:
        class Reports(add_env):  # type: ignore[misc,valid-type]
            async def astep(self, action: object) -> object:
                *rest, info = await super().astep(action)
                return (*rest, {**info, "report": report})

        return Reports

    fine = await run_trajectory(
        request_for(1), make_player(["3"], reporting({"x": numpy.float32(1.5)}))
    )
    bad = await run_trajectory(request_for(1), make_player(["3"], reporting({"x": "\ud83d"})))

    assert fine.rollout_infos["x"] == 1.5
    assert bad.stop_reason == StopReason.ENV_ERROR


@pytest.mark.parametrize("name", ["on_turn_ended", "check_finish", "steps"])
def test_a_misspelt_hook_is_refused(name: str):
    """An override that is never called would be a silent mistake."""
    with pytest.raises(ConfigError, match=f"{name} would never be called"):
        type("Typo", (Scheduler,), {name: lambda self: None})


async def test_half_a_character_in_a_name_or_a_message_never_reaches_a_record(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Sampled, it is a malformed call; said by an env, it is the env's failure."""
    call = '<tool_call>\n{"name": "add\\ud800", "arguments": {}}\n</tool_call>'

    class Says(add_env):  # type: ignore[misc,valid-type]
        def prompt(self, task: object) -> str:
            return "\ud800?"

    sampled = await run_trajectory(request_for(1), make_player([call, "3"]))
    said = await run_trajectory(request_for(1), make_player(["3"], Says))

    assert sampled.rollout_infos["tool_failures"] == {"malformed": 1}
    assert said.stop_reason == StopReason.ENV_ERROR
    for output in (sampled, said):
        assert RolloutOutput.from_json(output.to_json()) == output
