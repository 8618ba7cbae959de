"""The dialect is read off the chat template, for every template that trl knows."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from agentgym.commands.language import Language, load_language
from agentgym.commands.sections import ModelSection
from agentgym.errors import NotRegisteredError
from agentgym.rendering.dialects import DIALECTS
from agentgym.rendering.dialects.detect import detect_dialect, resolve_dialect
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY

CALLS_AS_HERMES = {
    *("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"),
}
WITHOUT_TOOLS = {
    *("cohere", "cohere2", "gemma", "gemma3", "idefics3", "llama3", "llava_next"),
    *("phi3", "phi3_5", "qwen2_5_vl", "smolvlm"),
}
WITHOUT_DIALECT = {
    *("diffusion_gemma", "gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"),
    "muse_glimmer",
}
"""Their own form of calls is not spoken here; they can be told to write Hermes'."""
EXPECTED = {
    **dict.fromkeys(CALLS_AS_HERMES | WITHOUT_TOOLS | WITHOUT_DIALECT, "hermes"),
    "deepseek_r1_distill": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "lfm2": "llama_pythonic",
    "lfm2_2_5": "llama_pythonic",
    "lfm2_2_5_v2": "llama_pythonic",
    "lfm2_2_5_vl": "llama_pythonic",
    "lfm2_v2": "llama_pythonic",
    "llama3_1": "llama3",
    "llama3_2": "llama3",
    "nemotron_3_5_lightning": "qwen3_coder",
    "nemotron_3_nano": "qwen3_coder",
    "nemotron_3_super": "qwen3_coder",
    "nemotron_3_ultra": "qwen3_coder",
    "qwen3_5_nothink": "qwen3_coder",
    "qwen3_5_think": "qwen3_coder",
    "qwen3_6": "qwen3_coder",
    "qwen3_8": "qwen3_coder",
}


def _templates() -> list[Path]:
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "chat_templates").glob("*.jinja"))


@pytest.mark.parametrize("path", _templates(), ids=lambda path: path.stem)
def test_dialect_of_every_template(path: Path) -> None:
    """A family that is taken for another has none of its calls read."""
    assert detect_dialect(path.read_text()) == EXPECTED[path.stem.removesuffix("_training")]


def test_the_table_is_of_templates_that_exist() -> None:
    """Else a name in it could not be wrong."""
    assert len(_templates()) > 60
    assert set(EXPECTED) == {path.stem.removesuffix("_training") for path in _templates()}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, "hermes"),
        ("", "hermes"),
        ({"default": "plain", "tool_use": "<tool_call>\n<function={{ name }}>"}, "qwen3_coder"),
        ({"default": "[TOOL_CALLS]"}, "mistral"),
        ({"rag": "x", "other": "y"}, "hermes"),
        ({}, "hermes"),
        ("{{ '<｜tool▁calls▁begin｜>' + name + '<｜tool▁sep｜>' + arguments }}", "deepseek_v31"),  # noqa: RUF001
        ("<|tool_calls_section_begin|><|tool_call_begin|>", "kimi"),
        ("[TOOL_CALLS]{{ name }}[ARGS]", "mistral"),
        ("<|tool|>{{ tools }}<|/tool|>", "phi4"),
        ("[func_name1(params_name1=params_value1)]", "llama_pythonic"),
        ("Thought: ...\nAction: ...\nAction Input: ...", "react"),
    ],
)
def test_dialect_of_other_forms(template: str | dict[str, str] | None, expected: str) -> None:
    """Tokenizers have no template, one, or several by name."""
    assert detect_dialect(template) == expected


def test_a_named_dialect_stays() -> None:
    """A flag is stronger than the template."""
    assert resolve_dialect("react", "<|tool_calls_section_begin|>") == "react"
    assert resolve_dialect("auto", "<|tool_calls_section_begin|>") == "kimi"


def test_help_names_every_dialect() -> None:
    """A user finds the names without reading the code."""
    described = ModelSection.model_fields["dialect"].description or ""

    assert all(name in described for name in [*DIALECTS, "auto"])


def test_the_language_of_a_model_knows_its_dialect() -> None:
    """What `auto` stands for, not the word; and a wrong name is told with the known ones."""

    def load(name: str) -> Language:
        return load_language(
            str(TINY_POLICY), dialect_name=name, template_args={}, on_rewrite="refuse"
        )

    assert load("auto").dialect == "hermes"
    with pytest.raises(NotRegisteredError, match="no dialect is registered as 'hermse'"):
        load("hermse")
