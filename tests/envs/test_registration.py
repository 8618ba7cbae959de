"""Names of envs."""

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import agentgym.envs.registration as registration
from agentgym import envs
from agentgym.errors import ConfigError, NotRegisteredError


class Quiz(envs.TextEnv):
    def __init__(self, level: int = 1) -> None:
        self.level = level

    def start(self, task: envs.Task) -> str:
        return f"level {self.level}, {task.id}"

    def respond(self, text: str) -> envs.TextStep:
        return envs.TextStep("next")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests register goes away with them."""
    saved = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(saved)


@pytest.fixture
def quiz() -> None:
    envs.register("PubQuiz-v0", Quiz)
    envs.register("PubQuiz-v10", Quiz, kwargs={"level": 2})
    envs.register("PubQuiz-v9", Quiz)


@pytest.mark.parametrize(
    "name", ["pub_quiz", "pub-quiz", "PubQuiz", "PUB_QUIZ", "agentgym/PubQuiz"]
)
def test_a_bare_name_finds_the_newest_version(quiz: None, name: str) -> None:
    """By number, not by text."""
    assert envs.spec(name).id == "agentgym/PubQuiz-v10"
    assert envs.make(name).level == 2
    assert envs.make(name, level=5).level == 5


@pytest.mark.parametrize("name", ["PubQuiz-v9", "agentgym/PubQuiz-v9", "pub_quiz-v9"])
def test_a_version_can_be_named(quiz: None, name: str) -> None:
    """Published results name theirs."""
    assert envs.spec(name).id == "agentgym/PubQuiz-v9"


def test_other_namespaces_are_named_in_full(quiz: None) -> None:
    """A package keeps its own names apart from ours."""
    envs.register("Other/PubQuiz-v1", Quiz, kwargs={"level": 7})

    assert envs.make("Other/PubQuiz-v1").level == 7
    assert envs.make("pub_quiz").level == 2
    assert envs.names().count("pub_quiz") == 1


def test_make_gives_an_env_for_the_loop(quiz: None) -> None:
    """Without Gymnasium's wrappers, and with a turn limit of our own."""
    envs.register("ShortQuiz-v0", Quiz, max_turns=2)

    assert type(envs.make("pub_quiz")) is Quiz
    short = envs.make("short_quiz")
    assert isinstance(short, envs.TurnLimit)
    assert short.limit == 2
    assert short.spec is not None


def test_gymnasium_makes_them_too(quiz: None) -> None:
    """The other direction: whoever has Gymnasium code can use these envs."""
    env = gymnasium.make("agentgym/PubQuiz-v0", level=3)
    assert env.reset(seed=0)[0][0].content.startswith("level 3")
    assert env.unwrapped.spec.id == "agentgym/PubQuiz-v0"
    check_env(env.unwrapped)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("agentgym/Nope-v0", gymnasium.error.NameNotFound),
        ("agentgym/PubQuiz-v99", gymnasium.error.VersionNotFound),
        ("nope/PubQuiz-v0", gymnasium.error.NamespaceNotFound),
    ],
)
def test_gymnasium_knows_what_is_missing(quiz: None, name: str, error: type[Exception]) -> None:
    """Its users get its own errors."""
    with pytest.raises(error):
        gymnasium.make(name)


@pytest.mark.parametrize("name", ["pub_quizz", "PubQuiz-v3", "agentgym/PubQuz-v0", "a b//c", ""])
def test_an_unknown_name_brings_a_suggestion(quiz: None, name: str) -> None:
    """Whatever was typed, no traceback of Gymnasium's."""
    with pytest.raises(NotRegisteredError, match="no environment is registered as"):
        envs.make(name)


def test_the_suggestion_is_a_name_that_works(quiz: None) -> None:
    """Copy, paste, run."""
    with pytest.raises(NotRegisteredError, match="Did you mean 'pub_quiz'"):
        envs.make("pubquizz")


def test_a_taken_id_is_refused(quiz: None) -> None:
    """Gymnasium itself replaces it with a warning."""
    envs.register("PubQuiz-v0", Quiz)
    with pytest.raises(ConfigError, match="'agentgym/PubQuiz-v0' is already registered"):
        envs.register("PubQuiz-v0", envs.TextEnv)
    with pytest.raises(ConfigError, match="already registered"):
        envs.register("PubQuiz-v0", Quiz, max_turns=3)
    with pytest.raises(ConfigError, match="malformed"):
        envs.register("Pub Quiz!", Quiz)

    assert envs.spec("PubQuiz-v0").entry_point is Quiz


@pytest.mark.parametrize(
    ("entry_point", "complaint"),
    [
        ("no_such_module:Env", "No module named 'no_such_module'"),
        ("agentgym.envs:NoSuchEnv", "NoSuchEnv"),
    ],
)
def test_an_env_that_cannot_be_built_is_one_line(entry_point: object, complaint: str) -> None:
    """Naming the env and the reason."""
    envs.register("Broken-v0", entry_point)  # type: ignore[arg-type]

    with pytest.raises(
        ConfigError, match=f"^env 'agentgym/Broken-v0' cannot be built.*{complaint}"
    ):
        envs.make("broken", colour="red")


def test_an_argument_that_the_env_does_not_take_is_named() -> None:
    """With the one that was probably meant."""
    with pytest.raises(ConfigError, match=r"takes no argument 'level'. Did you mean 'levels'\?"):
        envs.make("calculator", level=[1])


def test_an_env_without_messages_is_refused() -> None:
    """CartPole cannot be played by talking."""
    with pytest.raises(ConfigError, match=r"CartPole-v1.*no agentgym Env"):
        envs.make("CartPole-v1")


def test_names_are_bare_and_import_nothing(quiz: None) -> None:
    """A list of what `--env` takes."""
    envs.register("Far-v0", "no_such_module:Env")

    assert {"calculator", "pub_quiz", "far"} <= set(envs.names())


def test_entry_points_are_found_on_a_miss(quiz: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package brings envs without being imported first."""
    lookups = []

    def entry_points(*, group: str) -> list[object]:
        from importlib.metadata import EntryPoint

        lookups.append(group)
        return [
            EntryPoint("FarQuiz-v3", f"{__name__}:Quiz", group),
            EntryPoint("near_quiz", "no_such_module:Quiz", group),
        ]

    monkeypatch.setattr(registration, "entry_points", entry_points)
    envs.spec("pub_quiz")
    assert lookups == []
    assert envs.spec("far_quiz").id == "agentgym/FarQuiz-v3"
    assert envs.spec("near-quiz").id == "agentgym/near_quiz-v0"
    assert lookups == ["agentgym.envs"]


def test_the_bundled_envs_are_there() -> None:
    """By import of the package alone."""
    assert gymnasium.spec("agentgym/Calculator-v0").entry_point == (
        "agentgym.envs.calculator:CalculatorEnv"
    )
    assert envs.spec("calculator").id == "agentgym/Calculator-v0"
