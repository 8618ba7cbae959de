"""`--engine`: what cannot sample is refused before anything is loaded, in one line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from vllm_protocol_kit import FakeVllm, running, status

from agentgym.cli import main
from agentgym.commands.recipes import trainer_settings
from agentgym.commands.rollout import RolloutConfig
from agentgym.commands.served import servers_of
from agentgym.commands.train_config import TrainConfig
from agentgym.config import load
from agentgym.rollout.background import LoopThread
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that speaks vLLM's protocol; its URL."""
    loop, opened = LoopThread(), []

    def start(fake: FakeVllm) -> str:
        server = running(fake)
        opened.append(server)
        return loop.run(server.__aenter__()).url

    yield start
    for server in opened:
        loop.run(server.__aexit__(None, None, None))
    loop.close()


@pytest.fixture(params=["train", "rollout"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    name: str = request.param
    return [
        name,
        "--env",
        "calculator",
        *(["--run-dir", str(tmp_path / "run")] * (name == "train")),
    ]


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line."""
    assert main(argv) == 2
    out = capsys.readouterr()
    assert out.out == ""
    (line,) = out.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("flags", "needle"),
    [
        ("--engine vllm --server-url http://x:1", "--server-url http://x:1 is for --engine vllm-"),
        ("--engine vllm-server --kv-cache-gb 2", "--kv-cache-gb 2.0 is for --engine vllm, and"),
        ("--max-context 64", "--max-context 64 is for --engine vllm, and this is --engine transf"),
        ("--engine vllm --max-context 513", "--max-context 513 is more than the 512 tokens that"),
        ("--engine vllm --max-tokens 513", "--max-tokens 513 is more than the 512 tokens of cont"),
        ("--engine vllm --max-context 64", "is more than the 64 tokens of context that vLLM has"),
        ("--engine other", "--engine other: should be 'transformers', 'vllm' or 'vllm-server'"),
        ("--engine openai:http://x/v1#m", "it plays in `agentgym rollout --policy openai:URL#MOD"),
        ("--server-url http://x:1/v1", "--server-url http://x:1/v1: give the address without /v1"),
        ("--server-url nowhere", "'nowhere' must begin with http://"),
        ("--server-url http://x:1 http://x:1", "need one or more servers, each once"),
        ("--server-url http://x:nine", "'http://x:nine' is no URL of a server"),
        ("--server-url http://localhost:1 http://127.0.0.1:1/", "one or more servers, each once"),
        ("--server-url http://x:1 --server-key-variable NO_KEY_HERE", "NO_KEY_HERE: it is not set"),
        ("--server-url http://127.0.0.1:9 --server-timeout 0.3", "start one with `agentgym serve"),
        ("--server-url http://127.0.0.1:9 --scheduler math_tip", "Did you mean 'math_tips'?"),
        ("--model tests", "the folder 'tests' holds no model: there is no config.json in it"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    command: list[str], flags: str, needle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert needle in refusal([*command, *flags.split()], capsys)


def test_one_engine_needs_its_extra(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.commands.engines.find_spec", lambda name: None)

    line = refusal([*command, "--engine", "vllm"], capsys)

    assert "--engine vllm needs the extra 'vllm': pip install 'agentgym-rl[vllm]'" in line


async def other_tokens(request: web.Request) -> web.StreamResponse:
    return web.json_response({"tokens": [1, 2, 3]})


@pytest.mark.parametrize(
    ("fake", "flags", "needle"),
    [
        (FakeVllm(model="another"), "", "serves 'another', and this is a run of"),
        (FakeVllm(model="x"), "--server-model x", "--max-tokens 512 is more than the 64 tokens"),
        (FakeVllm(model="x"), "--server-model y", "serves x, not y"),
    ],
)
def test_a_server_of_something_else_is_refused(
    command: list[str],
    serve: Serve,
    fake: FakeVllm,
    flags: str,
    needle: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = refusal([*command, "--server-url", serve(fake), *flags.split()], capsys)

    assert needle in line


@pytest.mark.parametrize(
    ("path", "fault", "needle"),
    [
        ("/tokenize", other_tokens, "whose tokens are not those of"),
        ("/weight_info", status(404), "has no /weight_info: start it with `agentgym serve`"),
        ("/v1/models", status(401), "wants an API key: set VLLM_API_KEY, or name another var"),
    ],
)
def test_a_server_that_was_not_started_for_this_is_refused(
    command: list[str],
    serve: Serve,
    path: str,
    fault: Callable[..., object],
    needle: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    fake = FakeVllm(model=str(TINY_POLICY))
    fake.faults[path].append(fault)
    line = refusal([*command, "--server-url", serve(fake)], capsys)

    assert needle in line


def test_a_saved_run_says_what_sampled_and_where() -> None:
    plain = load(TrainConfig, [])
    served = load(TrainConfig, ["--engine", "vllm-server"])

    assert plain.resolved().engine == "transformers"
    assert served.resolved().server_url == ("http://127.0.0.1:8000",)


@pytest.mark.parametrize(("given", "hung_s"), [(5, 5), (600, 60)])
def test_servers_are_waited_for_alike_before_and_within_a_run(
    given: float, hung_s: float, tmp_path: Path
) -> None:
    """Nothing outside cuts a turn before its servers' own deadlines: the turn would be to blame."""
    flags = ["--server-url", "http://x:1", "--server-timeout", str(given)]
    settings = load(TrainConfig, flags)
    deadlines = servers_of(settings).deadlines
    trainer = trainer_settings(settings.resolved(), tmp_path, num_ranks=1)

    assert (deadlines.connect_s, deadlines.gone_s, deadlines.hung_s) == (given, given, hung_s)
    assert trainer["engine_timeout_s"] == deadlines.longest_s < trainer["episode_timeout_s"]
    assert deadlines.longest_s > deadlines.turn_s + deadlines.update_s + given
    assert load(RolloutConfig, flags).sampling_timeout_s == deadlines.longest_s


def test_an_engine_in_this_process_has_the_trainers_own_deadlines(tmp_path: Path) -> None:
    settings = load(TrainConfig, ["--engine", "transformers"])
    trainer = trainer_settings(settings.resolved(), tmp_path, num_ranks=1)

    assert (trainer["engine_timeout_s"], trainer["episode_timeout_s"]) == (300, 600)


def test_a_run_that_goes_on_may_find_its_server_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("engine: vllm-server\nserver_url: [http://a:1]\n")
    flags = ["--resume", "--run-dir", str(tmp_path)]

    assert load(TrainConfig, flags).server_urls == ("http://a:1",)
    assert load(TrainConfig, [*flags, "--server-url", "http://b:2"]).server_urls == ("http://b:2",)


@pytest.mark.parametrize(
    ("saved", "flags", "name"),
    [
        ("vllm-server\nserver_url: [http://a:1]\nserver_timeout: 5", "--engine vllm", "vllm"),
        ("vllm\nkv_cache_gb: 2", "--engine transformers", "transformers"),
        ("vllm\nkv_cache_gb: 2", "--server-url http://a:1", "vllm-server"),
    ],
)
def test_a_run_that_goes_on_may_have_another_engine(
    saved: str, flags: str, name: str, tmp_path: Path
) -> None:
    """What the run's config says of the old one was not given by whoever chooses a new one."""
    (tmp_path / "config.yaml").write_text(f"engine: {saved}\n")

    settings = load(TrainConfig, ["--resume", "--run-dir", str(tmp_path), *flags.split()])

    assert settings.engine_name == name
    assert ("http://a:1" in settings.server_urls) is (name == "vllm-server")
    assert (settings.kv_cache_gb, settings.server_timeout) == (None, 60)


def test_a_policy_of_another_kind_has_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(["rollout", "--policy", "oracle", "--engine", "vllm"], capsys)

    assert "--policy oracle and --engine vllm both say what plays" in line


@pytest.mark.parametrize("flags", ["--policy openai-chat:http://x/v1#m", "--engine openai-chat"])
def test_nothing_is_trained_with_an_endpoint(
    flags: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, before anything is loaded, that says where it can play."""

    def no_language(*_: object, **__: object) -> None:
        pytest.fail("a tokenizer was loaded")

    monkeypatch.setattr("agentgym.commands.train.load_language", no_language)
    line = refusal(["train", "--env", "calculator", *flags.split()], capsys)

    assert "gives text, not the sampled tokens and their log-probabilities" in line
    assert "`agentgym rollout --policy openai:URL#MODEL`" in line
