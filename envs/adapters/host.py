"""The program inside a `process.HostProcess`: foreign code that keeps global state or may hang.

Run as a file, so that it starts without loading agentgym. Requests and answers are JSON lines; it
ends when its parent is gone, or after `idle_s` seconds without a request.
"""

import ast
import importlib
import json
import os
import queue
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

_SET_SIZE = 500
_MAX_SETS = 16
_MAX_ENTRIES = 64
_ANSWERS = ("possible_answer", "example_answer", "example_correct_answer")
"""Where a data set with many right answers keeps one."""
_LITERALS = (
    "algorithmic.binary_matrix",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
"""Modules of reasoning-gym whose graders `eval` an answer that is to be a list."""
_FORMULAS = ("games.countdown", "games.puzzle24")
"""Those that hold `parse_expr`, which evaluates an answer that is to be a formula."""
_IN_FORMULAS = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Call,
)
_FUNCTIONS = (
    "Abs Add Integer Integral Mul Pow Rational abs acos acosh asin asinh atan atanh cbrt cos cosh "
    "cot coth csc erf exp factorial ln log root sec sign sin sinh sqrt tan tanh"
)
"""What a formula may call: names, with spaces between."""


class TextArenaHost:
    """One game of TextArena at a time."""

    def __init__(self) -> None:
        self._game: Any = None
        self._adds_brackets = False

    def names(self) -> list[str]:
        """Ids of the games for one player, without the wrapper variants."""
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        package = Path(textarena.__path__[0])
        return [
            name
            for name, spec in ENV_REGISTRY.items()
            if f"{name}-raw" in ENV_REGISTRY and _is_for_one(package, spec.entry_point)
        ]

    def probe(self, name: str, options: dict[str, Any]) -> None:
        """Build a game, to see whether that is possible."""
        import textarena

        textarena.make(f"{name}-raw", **options)

    def reset(self, name: str, options: dict[str, Any], seed: int) -> str:
        """Begin a game; its first text."""
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        random.seed(seed)
        wrappers = ENV_REGISTRY[name].default_wrappers or []
        self._adds_brackets = "ActionFormattingWrapper" in {w.__name__ for w in wrappers}
        self._game = textarena.make(f"{name}-raw", **options)
        self._game.reset(num_players=1, seed=seed)
        return self._said()

    def step(self, text: str) -> dict[str, Any]:
        """Play a move."""
        is_bare = self._adds_brackets and "[" not in text and "]" not in text
        done, _ = self._game.step(f"[{text}]" if is_bare else text)
        if not done:
            return {"text": self._said(), "done": False}
        rewards, infos = self._game.close()
        info = infos.get(0, {})
        return {
            "text": str(info.get("reason") or ""),
            "done": True,
            "reward": None if rewards is None else rewards.get(0),
            "is_invalid": bool(info.get("invalid_move")),
            "num_moves": info.get("turn_count"),
        }

    def _said(self) -> str:
        """What the game has said since the last move, without the move itself."""
        _, heard = self._game.get_observation()
        return "\n".join(text for _, text, kind in heard if kind.name != "PLAYER_ACTION").strip()


class ReasoningGymHost:
    """Tasks of reasoning-gym's data sets, and grades: some evaluate an answer as code."""

    def __init__(self) -> None:
        self._is_safe = False
        self._sets: OrderedDict[str, Any] = OrderedDict()
        self._entries: OrderedDict[str, Any] = OrderedDict()

    def names(self) -> list[str]:
        """Every data set that asks questions of its own."""
        from reasoning_gym.factory import DATASETS

        return sorted(DATASETS.keys() - {"composite"})

    def probe(self, name: str, config: dict[str, Any]) -> None:
        """Build a data set, to see whether its settings are any."""
        self._entry(name, config, 0)

    def ask(self, name: str, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """Question and answer number `seed`; `None` where no answer is known."""
        entry = self._entry(name, config, seed)[1]
        answer = entry["answer"]
        if answer is None:
            metadata = entry["metadata"]
            answer = next((metadata[key] for key in _ANSWERS if key in metadata), None)
        if answer is not None and not isinstance(answer, str):
            answer = json.dumps(answer)
        return {"question": entry["question"], "answer": answer}

    def score(
        self, name: str, config: dict[str, Any], seed: int, question: str, answer: str | None
    ) -> float | None:
        """The data set's own score of an answer; `None` if its grader raises.

        Raises:
            LookupError: this version of reasoning-gym asks something else under this seed.
        """
        dataset, entry = self._entry(name, config, seed)
        if entry["question"] != question:
            raise LookupError("the task is of another version of reasoning-gym")
        try:
            return float(dataset.score_answer(answer, entry))
        except Exception:  # noqa: BLE001 - the policy may have written anything
            return None

    def _entry(self, name: str, config: dict[str, Any], seed: int) -> tuple[Any, Any]:
        """A data set and its entry; sets are small, as some hold all of their entries."""
        import reasoning_gym

        if not self._is_safe:
            _refuse_code()
            self._is_safe = True
        first = seed - seed % _SET_SIZE
        key = json.dumps([name, config, first], sort_keys=True)
        dataset = _cached(
            self._sets,
            key,
            lambda: reasoning_gym.create_dataset(name, seed=first, size=_SET_SIZE, **config),
            _MAX_SETS,
        )
        entry = _cached(self._entries, f"{key}/{seed}", lambda: dataset[seed - first], _MAX_ENTRIES)
        return dataset, entry


def _refuse_code() -> None:
    """Graders that evaluate what a policy wrote get to see values and formulas, never code."""
    import sympy

    for name in _LITERALS:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["eval"] = ast.literal_eval
    for name in _FORMULAS:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["parse_expr"] = _parse_formula
    vars(sympy)["parse_expr"] = _parse_formula


def _parse_formula(text: str, *args: Any, **kwargs: Any) -> Any:
    """sympy's `parse_expr` of numbers, names, operators and calls of known functions.

    Raises:
        ValueError: there is anything else in it.
        SyntaxError: it is no formula.
    """
    from sympy.parsing.sympy_parser import parse_expr

    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        is_known = isinstance(node, _IN_FORMULAS)
        if isinstance(node, ast.Call):
            is_known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS.split()
        elif isinstance(node, ast.Constant):
            is_known = type(node.value) in (int, float)
        if not is_known:
            raise ValueError(f"a formula holds no {type(node).__name__}")
    return parse_expr(text, *args, **kwargs)


def _cached(cache: OrderedDict[str, Any], key: str, make: Callable[[], Any], limit: int) -> Any:
    if key not in cache:
        cache[key] = make()
    cache.move_to_end(key)
    while len(cache) > limit:
        cache.popitem(last=False)
    return cache[key]


def _is_for_one(package: Path, entry_point: Any) -> bool:
    """Read from the source, so that a game whose own needs are missing is still known."""
    module = entry_point.partition(":")[0] if isinstance(entry_point, str) else ""
    file = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return file.is_file() and "SinglePlayerState(" in file.read_text("utf-8", errors="replace")


HOSTS: dict[str, Callable[[], Any]] = {
    "reasoning-gym": ReasoningGymHost,
    "textarena": TextArenaHost,
}


def serve(kind: str, idle_s: float) -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=[sys.stdin, requests], daemon=True).start()
    host = HOSTS[kind]()
    while True:
        try:
            line = requests.get(timeout=idle_s or None)
        except queue.Empty:
            os._exit(0)
        answers.write(json.dumps(_answer(host, json.loads(line))) + "\n")
        answers.flush()


def _answer(host: Any, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": getattr(host, request["method"])(**request["arguments"])}
    except BaseException as error:  # noqa: BLE001 - raised again by the parent
        lines = [line.strip(" *") for line in str(error).splitlines() if line.strip(" *")]
        return {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]}


def _read(source: IO[str], requests: "queue.Queue[str]") -> None:
    for line in source:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
