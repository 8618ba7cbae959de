"""The page about chat templates says what the code does."""

from types import ModuleType

import pytest

pytestmark = pytest.mark.slow


def test_the_page_is_what_the_script_writes(table: ModuleType):
    """Run `python benchmarks/template_table.py` after a change."""
    assert table.PAGE.read_text(encoding="utf-8") == table.page()


def test_it_covers_what_people_train(table: ModuleType):
    """At least thirty templates, and those of the known families by outcome."""
    audits = table.audits()
    outcomes = {name: audit.outcome for name, audit in audits.items()}

    assert len(outcomes) >= 30
    assert all(outcome != "refused" for outcome in outcomes.values())
    assert [outcomes[name] for name in ("qwen2_5", "llama3", "phi3", "gemma")] == ["exact"] * 4
    assert [outcomes[name] for name in ("qwen3", "gptoss", "glm4moe")] == ["forks"] * 3
