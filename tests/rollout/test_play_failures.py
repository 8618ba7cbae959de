"""Whatever breaks, hangs or lies in a trajectory fails that trajectory alone, with its reason."""

import asyncio
from collections.abc import Callable

import pytest

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs import Episode, ToolEnv
from agentgym.errors import ConfigError, RewardError, ToolError
from agentgym.rendering import renderer_for
from agentgym.rollout import Player, run_trajectory
from agentgym.testing import byte_tokenizer
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason, Task

MakePlayer = Callable[..., Player]
MakeRequest = Callable[..., RolloutRequest]


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

    async def grade(output: RolloutOutput, _: Task) -> RolloutOutput:
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
