"""From settings to a trainer: what can be known without the weights is said without them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from agentgym.envs import Env
from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.registry import TRAINERS
from agentgym.rendering import Renderer
from agentgym.testing import CHATML
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.factory import trainer_class
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.pipeline import Recipe, build

MakeArgs = Callable[..., AgentGRPOConfig]


@pytest.fixture
def recipe(
    make_args: MakeArgs, model_folder: str, words_env: type[Env], chatty: Renderer
) -> Callable[..., Recipe]:
    def make(**changes: Any) -> Recipe:
        defaults = {
            "model": model_folder,
            "args": make_args(),
            "env": words_env,
            "renderer": chatty,
        }
        return Recipe(**{**defaults, **changes})

    return make


@pytest.fixture
def weightless(model_folder: str, tmp_path: Path) -> str:
    """A model folder without its weights: loading it must not even be tried."""
    folder = tmp_path / "weightless"
    shutil.copytree(model_folder, folder)
    (folder / "model.safetensors").unlink()
    return str(folder)


def test_a_recipe_becomes_a_trainer_that_trains(recipe: Callable[..., Recipe]):
    """The whole pipeline on a saved model."""
    trainer = build(recipe())
    trainer.train()

    assert trainer.state.global_step == 1


def test_registered_envs_take_arguments(recipe: Callable[..., Recipe]):
    """`--env calculator --env-args ...`, by name."""
    trainer = build(recipe(env="calculator", env_kwargs={"levels": (1,)}))

    assert trainer.game.name == "calculator"
    assert trainer.game.train[0].data["level"] == 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"env": "calculater"}, NotRegisteredError, "calculator"),
        ({"trainer": "grppo"}, NotRegisteredError, "'grpo'"),
        ({"rewards": ["nice"]}, NotRegisteredError, "no reward"),
        ({"scheduler": "nice"}, NotRegisteredError, "no scheduler"),
        ({"env_kwargs": {"level": 1}}, ConfigError, "env_kwargs"),
    ],
)
def test_what_is_wrong_is_said_before_the_weights_are_loaded(
    recipe: Callable[..., Recipe], weightless: str, changes: Any, error: Any, message: str
):
    """A large model takes minutes to load; a typo must not."""
    with pytest.raises(error, match=message):
        build(recipe(model=weightless, **changes))


def test_a_template_that_rewrites_history_is_refused_without_the_weights(
    recipe: Callable[..., Recipe], weightless: str, tokenizer: PreTrainedTokenizerFast
):
    """It would make what was sampled differ from what is trained."""
    template = CHATML.replace("{{ m.content }}", "{% if loop.last %}{{ m.content }}{% endif %}")
    assert template != CHATML
    (Path(weightless) / "chat_template.jinja").write_text(template)

    with pytest.raises(ConfigError, match="template"):
        build(recipe(model=weightless, renderer=None))


def test_a_folder_that_is_not_there_is_said_in_one_line(recipe: Callable[..., Recipe]):
    """And no hub is asked for it."""
    with pytest.raises(ConfigError, match=r"the model folder '\./missing' does not exist"):
        build(recipe(model="./missing"))


def test_weights_that_cannot_be_loaded_are_a_config_error(
    recipe: Callable[..., Recipe], weightless: str
):
    """One line instead of a traceback of the library's."""
    with pytest.raises(ConfigError, match="cannot train") as raised:
        build(recipe(model=weightless))
    assert "\n" not in str(raised.value)


def test_a_trainer_class_from_a_plugin(recipe: Callable[..., Recipe]):
    """A subclass under a name of its own."""

    class Mine(AgentGRPOTrainer):
        pass

    TRAINERS.register("mine", Mine)
    assert isinstance(build(recipe(trainer="mine")), Mine)


def test_a_trainer_that_is_no_class_is_refused():
    """Such as a function that was decorated by mistake."""
    TRAINERS.register("oops", 3)

    with pytest.raises(ConfigError, match="'oops' is 3"):
        trainer_class("oops")
