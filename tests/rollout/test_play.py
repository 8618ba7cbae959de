"""One trajectory: exact to the token, and whatever happens ends up in its record."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.scripted import CallableEngine, EngineCall, ScriptedEngine, ScriptedTurn
from agentgym.envs import Episode, ToolEnv
from agentgym.errors import ConfigError, RewardError, ToolError
from agentgym.messages import Message
from agentgym.rendering import Renderer, renderer_for
from agentgym.rollout import NextTurn, Player, Scheduler, Trajectory, run_trajectory
from agentgym.testing import byte_tokenizer
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


@pytest.mark.parametrize("where", ["__init__", "reset", "step", "score", "close"])
async def test_an_env_that_raises_is_recorded(
    where: str, make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Wherever it breaks, the trajectory is a failure without reward, and the env is closed."""

    def boom(*args: object, **kwargs: object) -> None:
        if where == "close":
            add_env.close(args[0])  # type: ignore[arg-type]
        raise RuntimeError("boom")

    broken = type("Broken", (add_env,), {where: boom})

    output = await run_trajectory(request_for(1), make_player(["3"], broken))

    reason = StopReason.REWARD_ERROR if where == "score" else StopReason.ENV_ERROR
    assert output.stop_reason == reason
    assert output.error is not None
    assert "RuntimeError: boom" in output.error
    assert output.reward is None
    assert not output.is_scored


@pytest.mark.parametrize("where", ["areset", "astep", "aclose", "prompt"])
async def test_an_env_that_exits_is_recorded(
    where: str, make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """`sys.exit` in an env is its failure, not the end of the run."""

    def leave(*args: object, **kwargs: object) -> None:
        if where == "aclose":
            add_env.close(args[0])  # type: ignore[arg-type]
        raise SystemExit(0)

    async def aleave(*args: object, **kwargs: object) -> None:
        leave(*args)

    exits = type("Exits", (add_env,), {where: leave if where == "prompt" else aleave})

    output = await run_trajectory(request_for(1), make_player(["3"], exits))

    assert output.stop_reason == StopReason.ENV_ERROR
    assert output.error is not None
    assert "SystemExit: 0" in output.error


async def test_an_env_that_hangs_times_out(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Every await of foreign code has a deadline."""

    class Hangs(add_env):  # type: ignore[misc,valid-type]
        async def score(self, episode: Episode) -> dict[str, float | None]:
            await asyncio.sleep(60)
            return {}

    output = await run_trajectory(request_for(1), make_player(["3"], Hangs, env_timeout_s=0.2))

    assert output.stop_reason == StopReason.TIMEOUT_ENV
    assert output.error is not None
    assert "0.2 s" in output.error


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


async def test_an_engine_that_never_answers_says_nothing_of_the_policy(
    make_player: MakePlayer, request_for: MakeRequest
):
    """No turn came to an end: there is nothing to score, whichever clock ran out."""

    async def hang(engine_call: object) -> str:
        await asyncio.sleep(60)
        return "3"

    engines = [CallableEngine(hang) for _ in range(2)]
    by_budget = make_player(engines[0], budget=Budget(max_seconds=0.1), max_attempts=1)
    by_engine = make_player(engines[1], engine_timeout_s=0.1, max_attempts=1)
    outputs = [await run_trajectory(request_for(1), p) for p in (by_budget, by_engine)]

    assert [o.stop_reason for o in outputs] == [StopReason.INFRA_ERROR, StopReason.API_ERROR]
    assert [o.reward for o in outputs] == [None, None]


async def test_what_the_infrastructure_failed_is_played_again(
    make_player: MakePlayer, request_for: MakeRequest
):
    """A fresh attempt with an id of its own; the record says what became of the first."""

    def breaks_once(call: EngineCall) -> str:
        if call.session == "1-0":
            raise ConnectionError("gone")
        return "3"

    engine = CallableEngine(breaks_once, encode=renderer_for(byte_tokenizer()).encode).recording()
    output = await run_trajectory(request_for(1), make_player(engine))

    assert [call.session for call in engine.calls] == ["1-0", "1-0~1"]
    assert engine.calls[0].sampling.seed == engine.calls[1].sampling.seed
    assert output.request_id == "1-0"
    assert output.reward == 1.0
    [failure] = output.rollout_infos["failed_attempts"]
    assert "api_error" in failure
    assert "gone" in failure


async def test_what_an_env_raises_is_final(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """The same env would raise again; the attempts would only cost time."""
    resets = []

    class Broken(add_env):  # type: ignore[misc, valid-type]
        def prompt(self, task: object) -> str:
            resets.append(task)
            raise RuntimeError("no")

    output = await run_trajectory(request_for(1), make_player(["3"], Broken))

    assert output.stop_reason == StopReason.ENV_ERROR
    assert len(resets) == 1


class _LyingEngine(CallableEngine):
    """Reports one logprob too few."""

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        return Generation(
            token_ids=(1, 2), logprobs=(-1.0,), finish_reason="stop", policy_version=0
        )


async def test_an_engine_that_lies_fails_the_trajectory(
    make_player: MakePlayer, request_for: MakeRequest
):
    """A missing logprob is never padded."""
    output = await run_trajectory(request_for(1), make_player(_LyingEngine(lambda call: "")))

    assert output.stop_reason == StopReason.API_ERROR
    assert output.error is not None
    assert "2 tokens needs 2 logprobs, got 1" in output.error


async def test_a_reward_that_raises_is_unscored(make_player: MakePlayer, request_for: MakeRequest):
    """A failed grader is never a reward of zero."""

    async def grade(output: RolloutOutput) -> RolloutOutput:
        raise RewardError("no judge")

    output = await run_trajectory(request_for(1), make_player(["3"], score=grade))

    assert output.stop_reason == StopReason.REWARD_ERROR
    assert output.reward is None


async def test_a_mistake_of_the_caller_leaves_the_loop(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """A wrong configuration is not a bad trajectory: it stops the run, and the env is closed."""

    class Misconfigured(add_env):  # type: ignore[misc,valid-type]
        def prompt(self, task: object) -> str:
            raise ConfigError("no such level")

    with pytest.raises(ConfigError, match="no such level"):
        await run_trajectory(request_for(1), make_player(["3"], Misconfigured))


async def test_a_cancelled_trajectory_closes_its_env(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """Ctrl-C in the middle of a turn leaves nothing open; the fixture counts."""
    started = asyncio.Event()

    async def wait(call: object) -> str:
        started.set()
        await asyncio.sleep(60)
        return "3"

    task = asyncio.create_task(run_trajectory(request_for(1), make_player(CallableEngine(wait))))
    await started.wait()
    assert add_env.num_open == 1  # type: ignore[attr-defined]
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


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


class _Stubborn:
    """Work that does not let itself be cancelled, until it is told."""

    def __init__(self) -> None:
        self.over = False

    async def run(self, *args: object, **kwargs: object) -> None:
        while not self.over:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue


async def test_an_env_that_will_not_be_cancelled_is_left_behind(
    make_player: MakePlayer,
    request_for: MakeRequest,
    add_env: type[ToolEnv],
    monkeypatch: pytest.MonkeyPatch,
):
    """The deadline holds even against code that swallows cancellation."""
    monkeypatch.setattr("agentgym.deadlines.GRACE_S", 0.1)
    stubborn = _Stubborn()
    env = type("Stubborn", (add_env,), {"astep": stubborn.run})

    output = await run_trajectory(request_for(1), make_player(["3"], env, env_timeout_s=0.2))
    stubborn.over = True

    assert output.stop_reason == StopReason.TIMEOUT_ENV


async def _cancels_itself(*args: object, **kwargs: object) -> None:
    raise asyncio.CancelledError


async def _raises_tool_error(*args: object, **kwargs: object) -> None:
    raise ToolError("meant for the model")


@pytest.mark.parametrize("where", ["areset", "astep"])
@pytest.mark.parametrize("raises", [_cancels_itself, _raises_tool_error])
async def test_what_is_no_failure_of_ours_is_the_env_s(
    where: str,
    raises: object,
    make_player: MakePlayer,
    request_for: MakeRequest,
    add_env: type[ToolEnv],
):
    """A cancellation nobody asked for, an error meant for the model: this trajectory's, no more."""
    env = type("Odd", (add_env,), {where: raises})

    output = await run_trajectory(request_for(1), make_player(["3"], env))

    assert output.stop_reason == StopReason.ENV_ERROR


async def test_a_score_that_raises_a_tool_error_is_unscored(
    make_player: MakePlayer, request_for: MakeRequest, add_env: type[ToolEnv]
):
    """As one does that evaluates the answer with a tool's function."""

    class Scores(add_env):  # type: ignore[misc,valid-type]
        def score(self, episode: Episode) -> dict[str, float | None]:
            raise ToolError("unknown name")

    output = await run_trajectory(request_for(1), make_player(["3"], Scores))

    assert output.stop_reason == StopReason.REWARD_ERROR


@pytest.mark.parametrize(
    "info",
    [
        {"rewards": {"a": 1e308, "b": 1e308}},
        {"tool_results": [1, 2]},
        {"stop_reason": "no such"},
    ],
)
async def test_an_env_that_reports_nonsense_fails_alone(
    info: dict[str, object],
    make_player: MakePlayer,
    request_for: MakeRequest,
    add_env: type[ToolEnv],
):
    """Nothing an env returns can leave the loop as an exception."""

    class Reports(add_env):  # type: ignore[misc,valid-type]
        async def astep(self, action: object) -> object:
            *rest, given = await super().astep(action)
            return (*rest, {**given, **info})

    output = await run_trajectory(request_for(1), make_player(["3"], Reports))

    assert output.stop_reason == StopReason.ENV_ERROR
    assert RolloutOutput.from_json(output.to_json()) == output


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
