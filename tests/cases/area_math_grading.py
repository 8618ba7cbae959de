"""The maths grader, called from where a case says and in both orders."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from agentgym.rewards.math import answer_of, grade

_QUICK_S = 1.0
_KEYS = ("prediction", "answer", "response")


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether the prediction is right; both orders must agree."""
    gold = _text(case, "gold")
    prediction = _text(case, next(key for key in _KEYS if key in case or f"{key}_gen" in case))
    where = str(case.get("call_in") or "")
    start = time.perf_counter()
    correct = _call(where, gold, prediction)
    if time.perf_counter() - start < _QUICK_S:  # else the case's own limit would be for two calls
        assert _call(where, prediction, gold) is correct
    extracted = answer_of(prediction)
    return {"correct": correct, "symmetric": True, "extracted": extracted, "exception": False}


def _text(case: Mapping[str, Any], key: str) -> Any:
    """A text, or one made of `prefix + unit x count + suffix`."""
    if f"{key}_gen" not in case:
        return case.get(key)
    parts = case[f"{key}_gen"]
    return parts.get("prefix", "") + parts["unit"] * parts["count"] + parts.get("suffix", "")


def _call(where: str, first: Any, second: Any) -> bool:
    """The result from a process, a thread, an event loop, both, or here."""
    grading = partial(grade, first, second)
    if "process" in where.lower():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            return processes.submit(grading).result()
    if "async" in where or "loop" in where:
        return asyncio.run(_in_loop(grading, in_thread="thread" in where))
    if "Executor" in where or "pool" in where.lower():
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(grading).result()
    if "thread" in where.lower():
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(grading()))
        thread.start()
        thread.join()
        return results[0]
    return grading()


async def _in_loop(grading: Callable[[], bool], *, in_thread: bool) -> bool:
    return await asyncio.to_thread(grading) if in_thread else grading()
