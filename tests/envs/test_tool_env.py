"""The usual episode: calls, mistakes, limits and the answer's worth."""

import asyncio
import threading
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.envs import Episode, Task, TaskSet, ToolEnv
from agentgym.errors import ConfigError, EnvError, EpisodeOverError, RewardError
from agentgym.messages import MalformedCall, Message, assistant, system, user
from agentgym.tools import ToolContext, tool


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def roll(context: ToolContext) -> float:
    """Chance and memory of the trajectory."""
    context.state["rolls"] = context.state.get("rolls", 0) + 1
    return context.rng.random()


class Sums(ToolEnv):
    """Asks for sums; the last score is weighed and one is never known."""

    tools = (add, roll)
    system_prompt = "Add."
    reward_weights = {"short": 0.5}

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=str(index), data={"a": index % 97, "b": 2}))

    def prompt(self, task: Task) -> str:
        return f"{task['a']}+{task['b']}?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        self.scored = episode
        correct = episode.answer == str(episode.task["a"] + episode.task["b"])
        return {"correct": float(correct), "short": float(episode.turns < 3), "style": None}


TASK = Task(id="t", data={"a": 1, "b": 2})
CALL = assistant("", ("add", {"a": 1, "b": 2}))


async def _started(kind: type[Sums] = Sums, **attributes: Any) -> Sums:
    env = kind()
    for name, value in attributes.items():
        setattr(env, name, value)
    await env.areset(seed=0, options={"task": TASK})
    return env


async def test_a_whole_episode() -> None:
    """Question, call, result, answer, reward."""
    env = Sums()
    observation, info = await env.areset(seed=0, options={"task": TASK})
    assert observation == [system("Add."), user("1+2?")]
    assert info == {"task_id": "t"}

    observation, reward, terminated, truncated, info = await env.astep(CALL)
    assert observation == [Message(role="tool", content="3", tool_call_id="call_0", name="add")]
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert [result.content for result in info["tool_results"]] == ["3"]

    observation, reward, terminated, truncated, info = await env.astep(" 3 ")
    assert observation == []
    assert (reward, terminated, truncated) == (1.5, True, False)
    assert info == {
        "tool_results": [],
        "rewards": {"correct": 1.0, "short": 1.0, "style": None},
        "stop_reason": "final_answer",
    }
    assert env.scored.answer == "3"
    assert env.scored.turns == 2
    roles = [message.role for message in env.scored.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    with pytest.raises(EpisodeOverError):
        await env.astep("3")


async def test_malformed_and_unknown_calls_are_answered() -> None:
    """They are no final answer, whatever text stands beside them."""
    env = await _started()
    malformed = Message(
        role="assistant",
        content="3",
        malformed_calls=(MalformedCall(id="m", text="{", reason="no end"),),
    )
    observation, _, terminated, truncated, info = await env.astep(malformed)

    assert not terminated
    assert not truncated
    assert [message.role for message in observation] == ["tool"]
    assert "no end" in observation[0].content
    assert info["tool_results"][0].error == "malformed"
    observation, *_ = await env.astep(assistant("", ("ad", {})))
    assert "'ad'" in observation[0].content
    assert "'add'" in observation[0].content


@pytest.mark.parametrize("blank", ["", " \n", Message(role="assistant", reasoning="hm")])
async def test_three_blank_turns_end_the_episode(blank: Any) -> None:
    """A policy that says nothing is asked to go on, but not for ever."""
    env = await _started()
    for _ in range(2):
        observation, _, terminated, truncated, _ = await env.astep(blank)
        assert [message.role for message in observation] == ["user"]
        assert not terminated
        assert not truncated
    _, reward, terminated, truncated, info = await env.astep(blank)

    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] == "empty"
    assert info["rewards"]["correct"] == 0.0


async def test_an_episode_cut_by_its_turns_is_scored() -> None:
    """A policy that never answers must not go unpunished; an answer on the last turn counts."""
    env = await _started(max_turns=2)
    await env.astep(CALL)
    observation, reward, terminated, truncated, info = await env.astep(CALL)

    assert [message.content for message in observation] == ["3"]
    assert (reward, terminated, truncated) == (0.5, False, True)
    assert info["stop_reason"] == "max_turns"
    assert info["rewards"]["correct"] == 0.0
    assert len(info["tool_results"]) == 1
    assert env.scored.answer is None

    await env.areset(seed=0, options={"task": TASK})
    await env.astep(CALL)
    _, reward, terminated, truncated, info = await env.astep("3")
    assert (reward, terminated, truncated) == (1.5, True, False)
    assert info["stop_reason"] == "final_answer"


async def test_an_episode_cut_by_the_loop_is_scored_once() -> None:
    """A token budget ends an episode too."""
    env = await _started()
    await env.astep(CALL)

    assert await env.acut() == {"correct": 0.0, "short": 1.0, "style": None}
    assert await env.acut() == {}
    with pytest.raises(EpisodeOverError):
        await env.astep("3")


class AsyncSums(Sums):
    async def score(self, episode: Episode) -> dict[str, float | None]:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().score(episode)


@pytest.mark.parametrize("kind", [Sums, AsyncSums])
async def test_score_may_be_sync_or_async(kind: type[Sums]) -> None:
    """A judge is a request; a grader is a computation."""
    env = await _started(kind)

    assert (await env.astep("3"))[1] == 1.5


async def test_a_sync_score_runs_off_the_loop() -> None:
    """A slow grader must not stop every other trajectory."""
    env = await _started()
    threads = []
    env.score = lambda episode: threads.append(threading.get_ident()) or {"a": 1.0}  # type: ignore[method-assign]
    await env.astep("3")

    assert threads != [threading.get_ident()]


@pytest.mark.parametrize(
    ("outcome", "error", "complaint"),
    [
        (ZeroDivisionError("no"), RewardError, "score: ZeroDivisionError: no"),
        (SystemExit(3), RewardError, "score: SystemExit: 3"),
        ({"correct": "1"}, EnvError, "'correct' must be a number"),
        (1.0, EnvError, "rewards must be given by name"),
    ],
)
async def test_a_failed_score_is_an_error_and_never_a_zero(
    outcome: Any, error: type[Exception], complaint: str
) -> None:
    """A broken grader says nothing about the policy."""

    def score(episode: Episode) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    env = await _started(score=score)
    with pytest.raises(error, match=complaint):
        await env.astep("3")


async def test_all_unscored_pays_nothing_and_says_so() -> None:
    """The step reward must be a number; the record knows better."""
    env = await _started(score=lambda episode: {"a": None})
    _, reward, _, _, info = await env.astep("3")

    assert (reward, info["rewards"]) == (0.0, {"a": None})


async def test_tools_share_the_trajectorys_state_and_seed() -> None:
    """Same seed, same chance; a new episode starts with nothing."""

    async def rolls(env: Sums) -> list[str]:
        await env.areset(seed=5)
        messages = [
            (await env.astep(assistant("", ("roll", {}), ("roll", {}))))[0] for _ in range(2)
        ]
        assert env.episode.state == {"rolls": 4}
        return [message.content for turn in messages for message in turn]

    one = Sums()
    first = await rolls(one)
    assert first == await rolls(one) == await rolls(Sums())
    assert len(set(first)) == 4


async def test_the_tokenizers_count_limits_tool_output() -> None:
    """The loop knows the tokenizer; the env passes its measure on."""

    @tool(max_output_tokens=20)
    def flood() -> str:
        return "word " * 100

    env = Sums()
    env.tools = (flood,)
    await env.areset(seed=0, options={"task": TASK, "count_tokens": len})
    observation, *_ = await env.astep(assistant("", ("flood", {})))

    assert len(observation[0].content) == 20


async def test_tools_of_one_name_stop_the_run() -> None:
    """The author must rename one; no trajectory can play."""
    env = await _started(tools=(add, tool(name="add")(roll.function)))

    with pytest.raises(ConfigError, match="two tools are called 'add'"):
        await env.astep(CALL)


class Prompted(Sums):
    def prompt(self, task: Task) -> list[Message]:  # type: ignore[override]
        return [system("Mine."), user("?")]


async def test_a_prompt_may_bring_its_own_system_message() -> None:
    """Then there is no second one."""
    env = Prompted()
    observation, _ = await env.areset(seed=0)

    assert observation == [system("Mine."), user("?")]
    observation.clear()
    assert len(env.episode.messages) == 2


async def test_missing_hooks_are_named() -> None:
    """An author who forgot one learns which."""

    class Silent(ToolEnv):
        pass

    class Unscored(Silent):
        def prompt(self, task: Task) -> str:
            return "?"

    with pytest.raises(NotImplementedError, match="Silent must define prompt"):
        await Silent().areset(seed=0)
    env = Unscored()
    await env.areset(seed=0)
    with pytest.raises(RewardError, match="Unscored must define score"):
        await env.astep("3")


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_the_sync_side_and_gymnasiums_checker() -> None:
    """The same env under Gymnasium."""
    env = Sums()
    check_env(env)
    env.reset(seed=0, options={"task": TASK})
    assert env.step(CALL)[0][0].content == "3"
    assert env.step("3")[1] == 1.5
    env.close()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_score_without_rewards_is_the_envs_mistake(is_cut: bool) -> None:
    """It would otherwise count as 0.0: evidence against a policy that nobody judged."""

    class Silent(Sums):
        def score(self, episode: Episode) -> dict[str, float | None]:
            return {}

    env = await _started(Silent)

    with pytest.raises(EnvError, match="score returned no rewards"):
        await (env.acut() if is_cut else env.astep(assistant("3")))


async def test_the_members_of_a_group_do_not_share_what_an_env_writes_into_its_task() -> None:
    """They are handed the same task."""

    class Writes(Sums):
        def prompt(self, task: Task) -> str:
            task.data["seen"] = True
            return str(super().prompt(task))

    task = Writes().tasks()[0]
    await Writes().areset(seed=0, options={"task": task})

    assert "seen" not in task.data
