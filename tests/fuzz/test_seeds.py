"""Replays the fuzzer's seeds on every dialect; see `fuzz_dialects.py`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentgym.rendering.dialects import DIALECTS

FOLDER = Path(__file__).parent
SEEDS = sorted((FOLDER / "seeds").iterdir())


def _load() -> ModuleType:
    name = "agentgym_dialect_checks"
    spec = importlib.util.spec_from_file_location(name, FOLDER / "dialect_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


checks = _load()


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.name)
def test_seed(seed: Path) -> None:
    """What once broke a dialect, or covers what others do not, breaks none."""
    turn = checks.turn_of(seed.read_bytes())

    for dialect in DIALECTS.values():
        checks.check(dialect, turn)


def test_there_are_seeds_and_every_dialect_can_be_chosen() -> None:
    """An empty folder would pass in silence."""
    assert len(SEEDS) >= 20
    assert {checks.dialect_of(bytes([0, index])).name for index in range(256)} == set(DIALECTS)


def test_a_wrong_dialect_is_found() -> None:
    """The check can fail."""

    class Forgetful:
        name = "forgetful"

        def parse(self, text: str, **_: object) -> object:
            return DIALECTS["hermes"].parse("", finish_reason="stop")

    with pytest.raises(AssertionError):
        checks.check(Forgetful(), checks.turn_of(b"\x00\x00text"))
