"""Tests that ask for fixtures, or that claim nothing, as pytest takes them."""

import pytest

from agentgym.envs.code.grading import grade_workspace
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import SandboxProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = {
    "a.py": "def f(n):\n    return n * n\n\nclass Bag:\n    def __init__(self):\n"
    "        self.n = 0\n    def add(self, k=1):\n        self.n += k\n"
}
IMPORTS = "import pytest\nimport unittest\nfrom a import Bag, f\n"
TWO = "@pytest.fixture\ndef two():\n    return 2\n"
FULL = (
    "@pytest.fixture()\ndef full(two):\n    b = Bag()\n    b.add(two)\n    yield b\n    b.n = 0\n"
)
EACH = (
    "class TestA:\n    @pytest.fixture(autouse=True)\n    def start(self):\n"
    "        self.b = Bag()\n"
)
SKIPPED = "@pytest.mark.skip(reason='x')\ndef test_s():\n    assert f(2) == 5\n"


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        (f"{TWO}def test(two):\n    assert f(two) == 4", True),
        (f"{TWO}def test(two):\n    assert f(two) == 5", False),
        (f"{TWO}{FULL}def test(full):\n    full.add()\n    assert full.n == 3", True),
        (f"{TWO}{FULL}def test(full, two):\n    b = 1\n    assert full.n == two + b", False),
        (f"{EACH}    def test(self):\n        self.b.add()\n        assert self.b.n == 1", True),
        (f"{EACH}    def test(self):\n        self.b.add()\n        assert self.b.n == 0", False),
        (f"{SKIPPED}def test():\n    assert f(2) == 4", True),
        (
            "@pytest.mark.parametrize('x', [1, pytest.param(3, marks=pytest.mark.xfail)])\n"
            "def test(x):\n    assert f(x) == 1",
            True,
        ),
        (
            "@pytest.mark.parametrize(('x', 'y'), [pytest.param(1, 1, id='a'), (2, 5)])\n"
            "def test(x, y):\n    assert f(x) == y",
            False,
        ),
        (
            "class T(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_a(self):\n"
            "        self.assertEqual(f(1), 2)\n    def test_b(self):\n"
            "        self.assertEqual(f(2), 4)",
            True,
        ),
    ],
)
async def test_fixtures_are_what_they_do(provider: SandboxProvider, source: str, passed: bool):
    """Each test gets its own, and what is skipped has no say."""
    graded = await grade_workspace(provider, FILES, {"test_a.py": IMPORTS + source})

    assert graded.all_passed == passed
    assert graded.tamper_resistance == "full"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def test(capsys):\n    assert f(2) == 4", "asks for 'capsys'"),
        ("def test(two):\n    assert f(2) == 4", "asks for 'two'"),
        (
            f"{TWO.replace('return 2', 'if f(1): return 2')}def test(two):\n    assert f(two)",
            "more",
        ),
        (SKIPPED, "checks nothing"),
    ],
)
async def test_what_no_program_could_pass_is_refused(
    provider: SandboxProvider, source: str, words: str
):
    """Else every program would earn 0 without a word."""
    with pytest.raises(ConfigError, match=words):
        await grade_workspace(provider, FILES, {"test_a.py": IMPORTS + source})
