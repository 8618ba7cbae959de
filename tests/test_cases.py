"""Runs cases from practice; see cases/README.md."""

import importlib.util
import json
import math
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).parent / "cases"


class Unserved(NamedTuple):
    """Why the project does not run the cases of an area yet."""

    reason: str


Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]
AREAS: dict[str, str | Unserved] = {
    "advantages": "area_advantages",
    "agent_loop": "area_agent_loop",
    "calculator": "area_calculator",
    "code_grading": "area_code_grading",
    "concurrency": "area_concurrency",
    "engine_sync": "area_engine_sync",
    "evaluation": Unserved("pass@k is not reported yet"),
    "gymnasium": "area_gymnasium",
    "loss": "area_loss",
    "math_grading": "area_math_grading",
    "resume_seed": "area_resume_seed",
    "sandbox": "area_sandbox",
    "templates": "area_templates",
    "tokens_masks": "area_tokens_masks",
    "toolparse/deepseek_v3": "area_toolparse",
    "toolparse/deepseek_v31": "area_toolparse",
    "toolparse/glm": "area_toolparse",
    "toolparse/harmony": "area_toolparse",
    "toolparse/hermes": "area_toolparse",
    "toolparse/kimi": "area_toolparse",
    "toolparse/llama3": "area_toolparse",
    "toolparse/mistral": "area_toolparse",
    "toolparse/phi4": "area_toolparse",
    "toolparse/qwen3_coder": "area_toolparse",
    "toolparse/react": "area_toolparse",
}


def _load(name: str) -> ModuleType:
    key = f"agentgym_cases_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[key] = module
    return sys.modules[key]


compare = _load("compare")
inputs = _load("inputs")
for _kit in ("loop_kit", "names_kit", "repeat_kit", "resume_kit", "choice_kit"):
    _load(_kit)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        path = metafunc.config.getoption("--cases")
        own = sorted(FOLDER.glob("own_*.jsonl")) if path == FOLDER / "handed.jsonl" else []
        cases = [case for file in (path, *own) for case in _read(file)]
        metafunc.parametrize("case", [pytest.param(c, id=c["id"], marks=_marks(c)) for c in cases])


def _marks(case: Mapping[str, Any]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if case.get("slow") else []


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise pytest.UsageError(f"--cases: there is no file {path}")
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            cases += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise pytest.UsageError(f"--cases: {path}:{number} is no JSON: {error}") from error
    return cases


def test_case(case: dict[str, Any]) -> None:
    """What the system does is what the case expects."""
    handler = AREAS.get(case["area"])
    if handler is None:
        pytest.fail(f"unknown area {case['area']!r}; known: {', '.join(AREAS)}")
    if isinstance(handler, Unserved):
        pytest.skip(f"area {case['area']!r} is not served: {handler.reason}")
    given = inputs.Inputs(case["input"])
    actual = observe(_load(handler).run, given, traces_memory="_mb" in str(case["expected"]))

    assert actual["exception"] or not inputs.unread(given)
    assert not compare.differences(case["expected"], actual)


def observe(run: Run, case: Mapping[str, Any], *, traces_memory: bool = False) -> dict[str, Any]:
    """What a handler says of a case, with what can be measured from outside.

    Memory is traced only where a case asks for it, since that takes several times as long.
    """
    if traces_memory:
        tracemalloc.start()
    peak_before = _peak_rss_mb()
    start = time.perf_counter()
    try:
        said = dict(run(case))
    except Exception as error:  # noqa: BLE001 - what it raises is what the case judges
        said = {"raises": error, "message": str(error), "error": str(error), "exception": True}
    seconds = time.perf_counter() - start
    allocated_mb = tracemalloc.get_traced_memory()[1] / 2**20
    if traces_memory:
        tracemalloc.stop()
    measured = {
        "seconds": seconds,
        "wall_seconds": seconds,
        "host_rss_growth_mb": max(allocated_mb, _peak_rss_mb() - peak_before),
        "finite": _finite(said),
        "exception": False,
    }
    return measured | said


def _peak_rss_mb() -> float:
    """Peak resident memory of this process so far; a new peak is growth."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_what_no_handler_reads_is_told() -> None:
    """A case with a key that nothing uses is not the case that was run."""
    given = inputs.Inputs({"a": 1, "b": [{"c": 2, "d": 3}], "e": {"f": 4}, "g": 5})
    assert given.get("a") == 1
    assert given["b"][0]["c"] == 2
    assert dict(given["e"]) == {"f": 4}
    assert "g" in given

    assert inputs.unread(given) == ["input.g", "input.b[0].d"]


def test_a_key_that_a_case_lacks_is_no_refusal_of_the_system() -> None:
    """Else a case that expects an error would pass because its handler could not run it."""
    with pytest.raises(pytest.fail.Exception, match="needs 'b', the case gives a"):
        observe(lambda case: {"value": case["b"]}, inputs.Inputs({"a": 1}))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"value": 2}, {"value": 3}),
        ({"value": 2}, {}),
        ({"value": 1.0, "tol": 0.1}, {"value": 1.2}),
        ({"advantages": [[0.5, -0.5]]}, {"advantages": [[0.5, 0.5]]}),
        ({"metrics": {"a": 1}}, {"metrics": {"b": 1}}),
        ({"any_of": [{"value": 1}, {"raises": True}]}, {"value": 2}),
        ({"peak": "<=4"}, {"peak": 5}),
        ({"error": True}, {"value": 1}),
        ({"raises": "KeyError"}, {"raises": ValueError("x")}),
        ({"raises": ["KeyError", "ValueError"]}, {"raises": [KeyError("x")]}),
        ({"reason_in": ["a", "b"]}, {"reason": "c"}),
        ({"text_contains": ["a", "b"]}, {"text": "a"}),
        ({"error_mentions": "nan|finite"}, {"error": "broken"}),
        ({"max_seconds": 1.0}, {"seconds": 1.5}),
        ({"never": "NaN"}, {"advantages": [math.nan]}),
        ({"ok": True}, {"ok": 1}),
        ({"exits_within_s": 5}, {"exits_within_s": 5.1}),
        ({"peak_at_least": 3}, {"peak_at_least": 2}),
        ({"calls": [{"arguments": {}}]}, {"calls": [{"arguments": {"a": 1}}]}),
    ],
)
def test_comparison_finds_a_difference(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    """A wrong result must never pass as the right one."""
    assert compare.differences(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"value": 2}, {"value": 2, "other": 3}),
        ({"value": 0.3}, {"value": 0.1 + 0.2}),
        ({"value": 1.0, "tol": 0.1}, {"value": 1.05}),
        ({"advantages": [math.nan, None]}, {"advantages": [math.nan, None]}),
        ({"any_of": [{"value": 1}, {"raises": True}]}, {"raises": ValueError("x")}),
        ({"peak": "<=4"}, {"peak": 4}),
        ({"raises": "LookupError"}, {"raises": KeyError("x")}),
        ({"raises": "builtins.KeyError"}, {"raises": KeyError("x")}),
        ({"raises": False}, {"value": 1}),
        ({"observations": ["a", {"any_of": ["b", "c"]}]}, {"observations": ["a", "c"]}),
        ({"error": True, "error_mentions": "nan|finite"}, {"error": "not finite"}),
        ({"text": "<answer>"}, {"text": "<answer>"}),
        ({"exits_within_s": 5}, {"exits_within_s": 4.9}),
        ({"peak_at_least": 3}, {"peak_at_least": 4}),
    ],
)
def test_comparison_accepts_what_holds(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    """Only listed keys count, and every form of expectation can be met."""
    assert not compare.differences(expected, actual)
