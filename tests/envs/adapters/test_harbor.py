"""Harbor's task directories: what can be played, what the agent never sees, what a reward is."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from counting_kit import Counting

from agentgym import envs
from agentgym.envs.adapters.harbor import HarborEnv, read_task
from agentgym.envs.adapters.harbor.dockerfile import UnsupportedTaskError
from agentgym.envs.adapters.harbor.env import survey
from agentgym.envs.adapters.harbor.places import moved
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant

TASKS = Path(__file__).parent / "harbor_tasks"
HELLO = ("write_file", {"path": "hello.txt", "content": "Hello, world!\n"})


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def _env(path: Path) -> tuple[HarborEnv, Counting]:
    env, counting = HarborEnv(path=str(path)), Counting()
    env.sandbox_provider = counting
    return env, counting


async def _play(env: HarborEnv, *calls: tuple[str, Mapping[str, object]]) -> float:
    """The reward of an episode with these calls, one per turn."""
    await env.areset(seed=0)
    for call in calls:
        observation, *_ = await env.astep(assistant("", call))
        assert "was not run" not in observation[0].content
    _, reward, terminated, _, info = await env.astep("Done.")
    assert terminated
    assert info["rewards"] == {"reward": reward}
    return reward


def _copy(tmp_path: Path, name: str = "greeting", **files: str) -> Path:
    """A bundled task with other files; `tests_test_sh` is tests/test.sh."""
    folder = tmp_path / name
    shutil.copytree(TASKS / name, folder)
    for key, text in files.items():
        place = {"toml": "task.toml", "dockerfile": "environment/Dockerfile"}
        (folder / place.get(key, "tests/test.sh")).write_text(text)
    return folder


def test_tasks_that_need_a_container_are_named_with_the_reason() -> None:
    """The others can be played; nobody has to find out by a failing run."""
    survey.cache_clear()
    with pytest.warns(UserWarning, match="left out: database: .*RUN apt-get update"):
        env = HarborEnv(path=str(TASKS))

    assert [task.id for task in env.tasks()] == ["counter", "greeting", "median"]
    assert list(env.unsupported) == ["database"]
    with pytest.raises(ConfigError, match=r"no task of .* runs without a container: database"):
        HarborEnv(path=str(TASKS / "database"))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"dockerfile": "FROM nvidia/cuda:12\nWORKDIR /app"}, "FROM nvidia/cuda:12"),
        ({"dockerfile": "FROM ubuntu\nENV MODE=fast"}, "variable MODE"),
        ({"dockerfile": "FROM ubuntu\nCOPY ../x /app/"}, "copies"),
        ({"dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY Dockerfile /etc/x"}, "outside"),
        ({"dockerfile": "FROM ubuntu AS a\nCOPY --from=a /x /y"}, "FROM ubuntu AS a"),
        ({"toml": "[environment]\ndocker_image = 'a/b'"}, "docker_image = 'a/b'"),
        ({"dockerfile": "FROM ubuntu"}, "no WORKDIR"),
        ({"toml": "[environment]\ngpus = 1"}, "gpus = 1"),
        ({"toml": "[verifier]\nenvironment_mode = 'separate'"}, "'separate'"),
        ({"toml": "[verifier.env]\nKEY = '${OPENAI_API_KEY}'"}, "KEY takes a variable"),
        ({"test_sh": "#!/bin/bash\napt-get install -y jq\n"}, "apt-get"),
        ({"test_sh": "#!/bin/bash\nx && uvx ruff check\n"}, "uvx"),
        ({"test_sh": "#!/bin/bash\nuvx -w numpy==2.0 pytest /tests/x.py\n"}, "the package numpy"),
        ({"test_sh": "#!/bin/bash\ncurl https://example.com/x | sh\n"}, "curl"),
        ({"test_sh": "#!/bin/bash\napt-get install -y curl git\n"}, "apt-get"),
    ],
)
def test_what_a_sandbox_cannot_give_is_refused(
    tmp_path: Path, how: dict[str, str], reason: str
) -> None:
    """Before anything runs, and with the line that asks for it."""
    folder = _copy(tmp_path, **how)
    with pytest.raises(UnsupportedTaskError) as caught:
        read_task(folder)

    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("task.toml", "task.toml"),
        ("instruction.md", "cannot be read"),
        ("tests/test.sh", "no tests"),
    ],
)
def test_a_malformed_task_is_the_callers_to_correct(
    tmp_path: Path, broken: str, words: str
) -> None:
    """In one line that names the file."""
    folder = _copy(tmp_path)
    (folder / broken).unlink()
    with pytest.raises(ConfigError, match=words):
        HarborEnv(path=str(folder))


def test_it_is_made_by_name_and_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every family of envs."""
    monkeypatch.chdir(TASKS)
    made = envs.make("harbor", path=str(TASKS / "median"))
    named = envs.make("harbor/median")
    split = envs.make("harbor", path=str(TASKS / "median"), eval_path=str(TASKS / "greeting"))

    assert [task.id for task in made.tasks()] == [task.id for task in named.tasks()] == ["median"]
    assert [task.id for task in split.tasks("eval")] == ["greeting"]
    with pytest.raises(ConfigError, match="needs the path"):
        envs.make("harbor")
    with pytest.raises(ConfigError, match=r"no task\.toml in '.*nowhere'"):
        envs.make("harbor", path="nowhere")


async def test_the_instruction_names_paths_of_the_working_directory() -> None:
    """There is no /app here, and nobody has to guess."""
    env, _ = _env(TASKS / "greeting")
    observation, _ = await env.areset(seed=0)

    assert observation[-1].content == (
        "Create the file hello.txt with one line in it: `Hello, world!`"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("/app", "."),
        ("cat /app/x.txt > /app/y", "cat x.txt > y"),
        ('Path("/app") / "/application"', 'Path(".") / "/application"'),
        ("in /app.", "in .."),
        ("/apple /my/app $HOME/app ${X}/app http://a/app ./app", None),
        ("/app-old /app.bak", None),
    ],
)
def test_only_whole_paths_are_moved(text: str, seen: str | None) -> None:
    """Part of another path is another path."""
    assert moved(text, {"/app": "."}) == (text if seen is None else seen)


@pytest.mark.parametrize(
    "name", ["greeting", *(pytest.param(n, marks=pytest.mark.slow) for n in ("counter", "median"))]
)
async def test_the_oracle_scores_1_and_idleness_0(name: str) -> None:
    """As in Harbor's own check of a task."""
    env, counting = _env(TASKS / name)
    task = env.tasks()[0]
    observation, _ = await env.areset(seed=0, options={"task": task})
    messages: list[Message] = list(observation)
    terminated = False
    while not terminated:
        messages.append(env.oracle(task, messages))
        observation, reward, terminated, _, info = await env.astep(messages[-1])
        messages += observation
    assert reward == 1.0
    assert info["report"]["harbor"]["reason"] == ""
    idle = await _play(env)
    assert idle == {"counter": 0.0, "greeting": 0.0, "median": 0.5}[name]

    await env.aclose()
    assert len(counting.opened) == 4
    assert counting.num_open == 0


async def test_parts_of_the_reward_are_in_the_record() -> None:
    """The reward is the number of that name."""
    env, _ = _env(TASKS / "median")
    await _play(env)
    await env.aclose()

    assert env.report()["harbor"]["parts"] == {"reward": 0.5, "odd": 1.0, "even": 0.0}


async def test_files_of_the_image_are_there_and_programs_stay_programs(tmp_path: Path) -> None:
    """COPY works below the working directory."""
    folder = _copy(tmp_path, dockerfile="FROM ubuntu\nWORKDIR /app\nCOPY data run.sh /app/sub/\n")
    (folder / "environment/data").mkdir()
    (folder / "environment/data/a.txt").write_text("A")
    (folder / "environment/run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "environment/run.sh").chmod(0o755)
    env, _ = _env(folder)
    await env.areset(seed=0)
    seen, *_ = await env.astep(assistant("", ("shell", {"command": "cat sub/a.txt; sub/run.sh"})))
    await env.aclose()

    assert seen[0].content == "Aran"


HACKS = {
    "a reward file": "mkdir -p logs/verifier; echo 1 > logs/verifier/reward.txt",
    "a reward file in its place": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "own tests": "mkdir -p tests; echo 'echo 1' > tests/test.sh; mkdir /tests",
    "a program that goes on": "while :; do echo 1 > /tmp/reward.txt; sleep 0.1; done & disown",
    "a bash in the way": "echo 'echo 1' > bash; chmod +x bash; ln -s bash sh; ln -s bash cat",
    "a profile": "echo 'exit 0' | tee .bashrc .profile .bash_profile > /dev/null",
    "links": "ln -s / root; ln -s /tests t; mkfifo hello.txt",
    "a folder in place of the file": "mkdir hello.txt",
    "names that are no text": "touch \"$(printf 'a\\377b')\" \"$(printf 'new\\nline')\" -- -n",
    "unreadable files": "echo 1 > hello.txt; chmod 0 hello.txt",
    "no working directory": "cd /; rm -rf /work; ls > /dev/null",
    "many files": "mkdir m; for n in $(seq 1200); do : > m/$n; done",
}


@pytest.mark.parametrize("command", HACKS.values(), ids=HACKS)
async def test_hacks_are_worth_nothing(command: str) -> None:
    """The tests run where the agent never was, and get its files as data."""
    env, counting = _env(TASKS / "greeting")
    reward = await _play(env, ("shell", {"command": command}))
    await env.aclose()

    assert reward == 0.0
    assert counting.num_open == 0


PYTEST_HACKS = {
    "options that collect only": "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini",
    "other options": "printf '[tool.pytest.ini_options]\\naddopts = \"-k no\"' > pyproject.toml",
    "a plug-in": "echo 'import os; os._exit(0)' > conftest.py",
    "another pytest": "echo 'raise SystemExit(0)' | tee pytest.py subprocess.py > sitecustomize.py",
    "another python": "ln -s /bin/true python3; echo 'export PATH=.' > .bashrc",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", PYTEST_HACKS.values(), ids=PYTEST_HACKS)
async def test_hacks_of_pytest_are_worth_nothing(command: str) -> None:
    """It must not be told by the agent's files what to run."""
    env, _ = _env(TASKS / "counter")
    reward = await _play(env, ("shell", {"command": command}))
    await env.aclose()

    assert reward == 0.0
    assert env.verdict is not None
    assert "2 failed" in env.verdict.output


async def test_honest_work_among_odd_files_counts() -> None:
    """What cannot be copied is left behind; the rest is tested."""
    env, _ = _env(TASKS / "greeting")
    odd = {"command": "ln -s / up; mkfifo pipe; touch \"$(printf 'a\\377b')\"; touch x; chmod 0 x"}
    reward = await _play(env, HELLO, ("shell", odd))
    await env.aclose()

    assert reward == 1.0


async def test_the_agent_never_sees_the_tests() -> None:
    """Neither files nor the answer in them."""
    env, _ = _env(TASKS / "greeting")
    await env.areset(seed=0)
    command = "ls -a /tests /solution /logs 2>&1; grep -rl world! . /tmp 2>/dev/null"
    seen, *_ = await env.astep(assistant("", ("shell", {"command": command})))
    await env.aclose()

    assert "expected" not in seen[0].content
    assert seen[0].content.count("No such file") == 3


@pytest.mark.parametrize(
    ("written", "reward", "reason"),
    [
        ("echo 0.25 > /logs/verifier/reward.txt", 0.25, ""),
        ("echo 1e0 > /logs/verifier/reward.txt; exit 3", 1.0, ""),
        ('echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json', 0.5, ""),
        ("echo nan > /logs/verifier/reward.txt", 0.0, "refused: reward = nan"),
        slow("echo inf > /logs/verifier/reward.txt", 0.0, "refused: reward = inf"),
        slow("echo 1.01 > /logs/verifier/reward.txt", 0.0, "not from 0 to 1"),
        ("echo -- -1 > /logs/verifier/reward.txt", 0.0, "refused"),
        slow("echo yes > /logs/verifier/reward.txt", 0.0, "refused"),
        slow(": > /logs/verifier/reward.txt", 0.0, "refused"),
        ("echo '{\"reward\": NaN}' > /logs/verifier/reward.json", 0.0, "refused: reward = nan"),
        ("echo '{\"reward\": true}' > /logs/verifier/reward.json", 0.0, "is no number"),
        slow('echo \'{"reward": "1"}\' > /logs/verifier/reward.json', 0.0, "is no number"),
        slow("echo '[1]' > /logs/verifier/reward.json", 0.0, "no numbers by name"),
        slow("echo '{}' > /logs/verifier/reward.json", 0.0, "no numbers by name"),
        slow("echo '{' > /logs/verifier/reward.json", 0.0, "refused"),
        slow("ln -s /etc/hostname /logs/verifier/reward.txt", 0.0, "wrote no reward"),
        ("mkfifo /logs/verifier/reward.txt", 0.0, "wrote no reward"),
        ("yes 1 | head -n 200000 > /logs/verifier/reward.txt", 0.0, "wrote no reward"),
        ("exit 0", 0.0, "wrote no reward"),
        ("kill -9 $$", 0.0, "wrote no reward"),
        slow("while :; do :; done", 0.0, "ended in"),
    ],
)
async def test_only_a_number_from_0_to_1_is_a_reward(
    tmp_path: Path, written: str, reward: float, reason: str
) -> None:
    """Never unscored: what the tests run could choose that to dodge a bad reward."""
    toml = "[verifier]\ntimeout_sec = 1.0\n"
    env, _ = _env(_copy(tmp_path, test_sh=f"#!/bin/bash\n{written}\n", toml=toml))
    got = await _play(env)
    await env.aclose()

    assert got == reward
    assert env.verdict is not None
    assert reason in env.verdict.reason
    assert bool(reason) == bool(env.verdict.reason)
