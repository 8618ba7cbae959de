"""Every kind of broken env is found by the check that is there for it, and by no unrelated one."""

from types import ModuleType

import pytest

from agentgym.checking import CheckReport, Status
from agentgym.checking.api import subject_of
from agentgym.checking.checklist import ENV_CHECKS
from agentgym.checking.runner import run_checks

FAULTS: dict[str, tuple[str, str]] = {
    "RandomSeed": ("seeds", "a new env plays another episode; reset: observation"),
    "UsedState": ("seeds", "used before plays another episode"),
    "GlobalRandom": ("global_random", "reset changes the global state of random"),
    "GlobalNumpy": ("global_random", "reset changes the global state of numpy.random"),
    "ClassState": ("interleaving", "played beside another env"),
    "NanReward": ("episodes", "the reward is nan, which is not finite"),
    "Unscored": ("policies", "unscored, rewards {'correct': None}"),
    "Constant": ("reward_range", "earned 0.5 on every task"),
    "TooMuch": ("reward_range", "earned 100.0 on task 'train-0', outside of [0, 1]"),
    "BadOracle": ("oracle", "the oracle earned 0.5 on average"),
    "EchoPays": ("floor", "'echo' earned 1 on average"),
    "ContainsPays": ("floor", "'all candidates' earned 1 on average"),
    "SilencePays": ("floor", "'null' earned 1 on average"),
    "Overlap": ("tasks", "'eval-0' has the data of 'train-0'"),
    "SameIds": ("tasks", "tasks('train')[0] and [8] have the same id 'train-0'"),
    "NoEval": ("tasks_exist", "tasks('eval') is empty"),
    "UnstableTasks": ("tasks", "differs when asked for again"),
    "TupleTasks": ("tasks", "pair=(1, 2)"),
    "PaysTwice": ("ending", "step after the end of the episode paid 1.0 again"),
    "LeaksThread": ("leaks", "left 6 threads behind"),
    "LeaksFile": ("leaks", "broken_envs.py (descriptor"),
    "LeaksProcess": ("leaks", "left 6 child processes behind"),
    "LeaksTask": ("leaks", "left 6 asyncio tasks behind"),
    "CloseRaises": ("build", "close before reset"),
    "CloseTwiceRaises": ("ending", "the second close: ValueError: closed already"),
    "Hangs": ("episodes", "hangs: no answer from step 1 (task 'train-0'"),
    "BlocksTheLoop": ("episodes", "hangs: no answer from step 1"),
    "NoText": ("episodes", "no list of messages: 42"),
    "Cancels": ("episodes", "CancelledError"),
    "ListOfTasks": ("tasks_exist", "tasks('train') returned a list: return a TaskSet"),
    "NoOracle": ("episodes", "the oracle returned None: return an assistant message"),
    "NoRange": ("build", "reward_range is None: give (lowest, highest)"),
    "HangsInClose": ("build", "hangs: no answer from close before reset"),
    "Silent": ("episodes", "went on without a message"),
    "BadSchema": ("tools", "properties.x.type: 'int' is not valid"),
    "WrongSchema": ("tools", "arguments that fit the schema are refused: {'a': 1}"),
    "SameToolNames": ("tools", "two tools are called 'add'"),
    "HashOrder": ("fresh_process", "a new process plays another episode; reset: observation"),
    "HashTasks": ("fresh_process", "the task: data"),
    "TellsAnswer": ("answer_hidden", "2 of 2 first observations say the answer"),
    "NumpyReward": ("episodes", "the reward np.float64(0.0) of type float64"),
    "NumpyEnd": ("episodes", "terminated=np.True_ of type bool"),
    "Fragile": ("episodes", "ValueError: invalid literal for int()"),
    "TwoSides": ("sides", "astep and step differ in step 1"),
    "Exits": ("episodes", "SystemExit: no data"),
    "CannotReset": ("episodes", "the data set is empty"),
    "ChangesTasks": ("consistency", "played=None became True"),
    "ChangesTools": ("consistency", "after step 1 the tools are ['add', 'more']"),
    "FirstCallOnly": ("consistency", "2 of 3 calls of a message got no tool message"),
    "ToldByTools": ("answer_hidden", "2 of 2 first observations say the answer"),
    "LengthPays": ("floor", "'long text' earned 1 on average"),
    "CallsPay": ("floor", "'one call again' earned 1 on average"),
    "NanPays": ("floor", "'no number' earned 1 on average"),
    "OddDigits": ("policies", "invalid literal for int()"),
    "ChangesProcess": ("process", "playing changes os.environ['BROKEN_ENVS_TASK']"),
    "LeavesFiles": ("leaks", "left 6 temporary files behind"),
    "KeepsEnvs": ("leaks", "closed envs behind"),
    "SameQuestions": ("held_out", "12 of the first 12 eval tasks ask what a train task asks"),
}
RELATED = {
    "NoText": {"registration"},
    "Exits": {"registration"},
    "CannotReset": {"registration"},
    "ListOfTasks": {"registration"},
    "SameToolNames": {"episodes"},
    "Overlap": {"held_out"},
}
"""What must fail too: where nothing can be reset, Gymnasium cannot either."""
HANGING = {"Hangs", "BlocksTheLoop", "HangsInClose"}
NEEDS_A_PROCESS = {"HashOrder", "HashTasks"}
NEEDS_FOUR_TASKS = {"BadOracle", "OddDigits"}


def checked(name: str, *only: str) -> CheckReport:
    """Checks on a few tasks: some with what they need, or all.

    Of all, the ones in a new process only where they are meant to fail: they take a second.
    """
    num_tasks = 4 if name in NEEDS_FOUR_TASKS else 2
    subject = subject_of(name, num_tasks=num_tasks, timeout_s=1.5 if name in HANGING else 60)
    chosen = needed(*only) or {check.name for check in ENV_CHECKS}
    if name not in NEEDS_A_PROCESS:
        chosen -= {"fresh_process"}
    checks = [check for check in ENV_CHECKS if check.name in chosen]
    return run_checks(subject, checks, on_result=lambda result: None)


def needed(*names: str) -> set[str]:
    """Checks and what they need."""
    by_name = {check.name: check for check in ENV_CHECKS}
    return set(names) | {other for name in names for other in needed(*by_name[name].needs)}


ALWAYS = ("RandomSeed", "NanReward", "EchoPays", "Overlap", "PaysTwice", "LeaksTask", "TellsAnswer")
"""Also tried without the slow tests, each with its own check alone."""


@pytest.mark.parametrize("name", ALWAYS)
def test_a_broken_env_fails_the_check_that_is_there_for_it(
    name: str, broken_envs: ModuleType
) -> None:
    """A check that passes what is broken is worse than none."""
    check, words = FAULTS[name]
    report = checked(name, check)

    assert check in report.failed, str(report)
    assert words in " ".join(report.result(check).messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_no_unrelated_check_fails(name: str, broken_envs: ModuleType) -> None:
    """A report that says everything is wrong is no help, nor is one that says nothing."""
    check, words = FAULTS[name]
    report = checked(name)

    assert set(report.failed) == {check} | RELATED.get(name, set()), str(report)
    assert words in " ".join(report.result(check).messages)


@pytest.mark.parametrize("name", ["Sound", "Talks"])
def test_what_is_not_broken_passes(name: str, broken_envs: ModuleType) -> None:
    """The broken ones differ from these in one thing each."""
    report = checked(name)

    assert report.passed, str(report)
    assert not report.warned


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("Counts", "shared_state", "Counts.num_episodes changes by playing"),
        ("ToldByErrors", "answer_hidden", "errors of tools contain the answer of 2 of 2 tasks"),
        ("Prints", "process", "it prints 'playing train-0"),
        ("BadReport", "records", "set is not JSON serializable"),
    ],
)
def test_what_may_be_meant_is_a_warning(
    name: str, check: str, words: str, broken_envs: ModuleType
) -> None:
    """It is said, and fails nothing."""
    report = checked(name, check)

    assert report.passed, str(report)
    assert report.warned == (check,)
    assert words in report.result(check).messages[0]


def test_every_broken_env_is_expected_here(broken_envs: ModuleType) -> None:
    """None is forgotten."""
    known = {env.__name__ for env in broken_envs._envs()}

    assert known == {
        *FAULTS,
        "Sound",
        "Talks",
        "Counts",
        "BadReport",
        "KeepsTheProcess",
        "Prints",
        "ToldByErrors",
    }


def test_nothing_else_is_tried_once_an_env_hangs(broken_envs: ModuleType) -> None:
    """A call that is still running may disturb whatever comes after it."""
    report = checked("Hangs")

    after = [result for result in report.results if result.name in ("loop", "leaks", "speed")]
    assert {result.status for result in after} == {Status.SKIPPED}
    assert sum(result.seconds for result in report.results) < 10
