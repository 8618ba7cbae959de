"""The chat templates that TRL ships, over stand-in tokenizers."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TABLE = Path(__file__).parents[2] / "benchmarks" / "template_table.py"


def load_table() -> ModuleType:
    """The script that knows the templates; it is no package."""
    name = "agentgym_template_table"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TABLE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


@pytest.fixture(scope="session")
def table() -> ModuleType:
    """See `load_table`."""
    return load_table()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests over every template take `template_name`."""
    if "template_name" in metafunc.fixturenames:
        metafunc.parametrize("template_name", load_table().names())
