"""Flags over YAML over defaults, with errors of one line."""

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agentgym.config import Config, load, parse_yaml, to_yaml
from agentgym.errors import ConfigError


class Played(Config):
    """What is played."""

    env: str = "calculator"
    """A registered id, 100%."""
    env_args: dict[str, Any] = {}
    """Arguments of the environment."""
    plugins: tuple[str, ...] = ()
    """Files to load first."""


class Settings(Played):
    """Train it."""

    group_size: int = Field(8, ge=2)
    """Trajectories per task."""
    loss_type: Literal["grpo", "dapo"] = "dapo"
    """How losses are averaged."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate."""
    resume: bool = False
    """Continue."""


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "run.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


def test_flags_win_over_files_and_later_files_over_earlier_ones(write):
    """The order is the promise of the README: defaults, files from left to right, flags."""
    first = write("group_size: 4\nloss_type: grpo\nenv: a", "a.yaml")
    second = write("group_size: 6\nenv: b", "b.yaml")

    settings = load(Settings, [first, second, "--env", "c"])

    assert (settings.env, settings.group_size, settings.loss_type) == ("c", 6, "grpo")
    assert settings.learning_rate is None


def test_files_may_stand_between_flags(write):
    """People append flags to a line that ends with the file, and the other way round."""
    settings = load(Settings, ["--env", "x", write("group_size: 4"), "--resume"])

    assert (settings.env, settings.group_size, settings.resume) == ("x", 4, True)


def test_a_flag_may_be_written_with_dashes_or_underscores():
    """Flags and YAML keys are the same names."""
    dashed = load(Settings, ["--group-size", "4", "--env-args", "{a: 1}"])

    assert load(Settings, ["--group_size=4", "--env_args={a: 1}"]) == dashed


def test_lists_take_several_words_and_may_be_repeated():
    """Both spellings are in use; neither splits a path at a comma."""
    settings = load(Settings, ["--plugins", "a,b.py", "c.py", "--plugins", "d.py"])

    assert settings.plugins == ("a,b.py", "c.py", "d.py")


@pytest.mark.parametrize("text", ['{"levels": [1, 2], "x": 1e-4}', "{levels: [1, 2], x: 0.0001}"])
def test_a_mapping_is_read_as_yaml_or_json_with_numbers_as_numbers(text: str):
    """`1e-4` is a string to YAML 1.1, which would reach an env as text."""
    assert load(Settings, ["--env-args", text]).env_args == {"levels": [1, 2], "x": 1e-4}


def test_null_takes_back_what_a_file_says(write):
    """Otherwise an optional setting of a file could not be unset."""
    file = write("learning_rate: 1e-4")

    assert load(Settings, [file]).learning_rate == 1e-4
    assert load(Settings, [file, "--learning-rate", "null"]).learning_rate is None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--gruop-size", "3"], ["--gruop-size", "did you mean '--group-size'"]),
        (["--group-size", "1"], ["--group-size 1", "greater than or equal to 2"]),
        (["--group-size"], ["--group-size", "expected one argument"]),
        (["--loss-type", "gpo"], ["--loss-type gpo", "'grpo' or 'dapo'"]),
        (["--learning-rate", "fast"], ["--learning-rate fast", "valid number"]),
        (["--env-args", "levels=[1]"], ["--env-args", "levels=[1]", "mapping"]),
        (["--env-args", "{levels: [1"], ["--env-args", "YAML"]),
        (["--env-args", ""], ["--env-args", "mapping"]),
        (["--resume=perhaps"], ["--resume", "perhaps"]),
        (["missing.yaml"], ["'missing.yaml'", "No such file"]),
    ],
)
def test_a_wrong_flag_is_named_with_its_value_and_what_is_allowed(argv, words):
    """One line says what, the value and the way out."""
    with pytest.raises(ConfigError) as error:
        load(Settings, argv)

    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gruop_size: 4", ["run.yaml", "'gruop_size'", "did you mean 'group_size'"]),
        ("group_size: 1\nloss_type: x", ["run.yaml: group_size 1", "equal to 2", "(and 1 more)"]),
        ("env: calculator\n  env: b", ["run.yaml:2", "no valid YAML"]),
        ("env: a\nenv: b", ["run.yaml:2", "'env' stands twice"]),
        ("- a\n- b", ["run.yaml", "key: value", "list"]),
        ("env: 3", ["run.yaml: env 3", "valid string"]),
        ("env: \0", ["run.yaml", "no valid YAML"]),
    ],
)
def test_a_wrong_file_is_named_with_the_key(write, text: str, words: list[str]):
    """A typing error in a file must be found without reading code."""
    with pytest.raises(ConfigError) as error:
        load(Settings, [write(text)])

    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_help_shows_sections_docstrings_and_defaults(capsys: pytest.CaptureFixture[str]):
    """The config class is the only place where help is written."""
    with pytest.raises(SystemExit) as stop:
        load(Settings, ["--help"], prog="agentgym play")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]

    assert stop.value.code == 0
    assert "What is played:" in lines
    assert "--group-size INT         Trajectories per task. (default: 8)" in lines
    assert "--env TEXT               A registered id, 100%. (default: calculator)" in lines


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
settings_strategy = st.builds(
    Settings,
    env=st.text() | st.from_regex(r"[-+]?[0-9.]{1,3}(e[-+]?[0-9]{1,2})?", fullmatch=True),
    env_args=st.dictionaries(st.text(), json_values, max_size=4),
    plugins=st.lists(st.text(), max_size=3).map(tuple),
    group_size=st.integers(2, 10**9),
    learning_rate=st.none() | st.floats(1e-30, 1e30),
    resume=st.booleans(),
)


@given(settings_strategy)
def test_a_saved_config_reads_back_as_the_same_config(settings: Settings):
    """What lies beside a run must start the same run again, whatever strings it holds."""
    assert Settings.model_validate(parse_yaml(to_yaml(settings), "saved")) == settings


class Positional(Config):
    """Has arguments."""

    arguments = ("kind", "count")

    kind: str
    """What."""
    count: int = 1
    """How many."""
    loud: bool = False
    """Whether."""


def test_arguments_are_given_by_position_and_flags_stand_anywhere():
    """Commands about one thing read like a sentence."""
    assert load(Positional, ["dog", "--loud", "3"]) == Positional(kind="dog", count=3, loud=True)
    assert load(Positional, ["dog"]).count == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "KIND is required"),
        (["dog", "x"], "COUNT x: should be a valid integer"),
        (["dog", "1", "2"], "unknown flag '2'"),
        (["--kind", "dog"], "unknown flag '--kind': give KIND without it"),
    ],
)
def test_a_wrong_argument_is_named_as_help_shows_it(argv: list[str], words: str):
    """In capitals, as there is no flag of that name."""
    with pytest.raises(ConfigError, match=words):
        load(Positional, argv)
