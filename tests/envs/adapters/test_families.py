"""Envs of other libraries by name."""

import sys
from collections.abc import Callable

import gymnasium
import pytest

from agentgym import envs
from agentgym.cli import main
from agentgym.envs.adapters import reasoning_gym, textarena
from agentgym.envs.registration import FAMILIES
from agentgym.errors import ConfigError, MissingExtraError, NotRegisteredError
from agentgym.tools.mcp import McpServer, mcp_tools


def test_families_are_listed_and_not_looked_into(capsys: pytest.CaptureFixture[str]) -> None:
    """Listing imports none of the libraries, so it shows how each is named."""
    assert main(["envs"]) == 0
    out = " ".join(capsys.readouterr().out.split())

    assert {"reasoning-gym", "textarena", "gymnasium", "openenv"} <= set(FAMILIES)
    for prefix in FAMILIES:
        assert f"{prefix}/..." in out
    assert not any("/" in name for name in envs.names())


def test_a_prefix_belongs_to_one_family() -> None:
    """A plugin cannot take another's."""
    envs.register_family("gymnasium", *FAMILIES["gymnasium"])
    with pytest.raises(ConfigError, match="'gymnasium' are already played by"):
        envs.register_family("gymnasium", "mine:Env", "mine")


def test_gymnasium_knows_what_was_asked_for() -> None:
    """Then its own `make` builds it too."""
    envs.spec("gymnasium/FrozenLake-v1")
    env = gymnasium.make("gymnasium/FrozenLake-v1", disable_env_checker=True)

    assert "S" in env.reset(seed=0)[0][0].content
    env.close()


@pytest.mark.parametrize("name", ["no-such/thing", "reasoning-gym/", "reasoning-gym/a b"])
def test_what_is_in_no_family_is_not_registered(name: str) -> None:
    """One line, as for every other name."""
    with pytest.raises(NotRegisteredError, match="no environment is registered"):
        envs.make(name)


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("reasoning_gym", "reasoning-gym", lambda: envs.make("reasoning-gym/bf")),
        ("textarena", "textarena", lambda: envs.make("textarena/Sudoku-v0")),
        ("mcp", "mcp", lambda: mcp_tools(McpServer(command="true"))),
    ],
)
def test_a_missing_library_names_its_extra(
    module: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to install, in one line."""
    monkeypatch.setitem(sys.modules, module, None)
    for cached in (reasoning_gym, textarena):
        cached.known_names.cache_clear()
        cached._check.cache_clear()

    with pytest.raises(MissingExtraError, match=rf"pip install 'agentgym-rl\[{extra}\]'"):
        use()
