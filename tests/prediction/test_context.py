"""The context of a workspace (SPEC 2.1, 2.10): what changed since a run, problems that still hold, and the situation in
words."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.git.state import FileState
from engine.model import SessionState, SessionView
from engine.prediction.context import ChangedFile, find_files_changed_since
from engine.prediction.problems import find_unsolved_problem
from tests.conftest import Repository
from tests.prediction.sensing import (
    AFTER,
    BEFORE,
    NOW,
    PYTEST,
    RUN,
    PastRun,
    SensedWorkspace,
    make_old_workspace,
    make_session,
    make_task,
)


@pytest.fixture
def world(repository: Repository) -> SensedWorkspace:
    return make_old_workspace(repository)


def list_paths(changed: tuple[ChangedFile, ...]) -> list[str]:
    return [file.path for file in changed]


@pytest.mark.parametrize(
    "between, exact, at, expected",
    [
        ((), True, BEFORE, ["a"]),  # the run saw the file as HEAD has it, now it differs
        (("a",), True, BEFORE, []),  # it differed already, and was not written since
        (("a",), True, AFTER, ["a"]),  # it was written since
        ((), False, BEFORE, []),  # what the run saw is unknown: the time of the file decides
        ((), False, AFTER, ["a"]),
        (None, True, BEFORE, []),
        (None, False, AFTER, ["a"]),
        (None, False, RUN, []),  # written exactly at the time of the run
    ],
)
def test_whether_an_uncommitted_file_changed_since_a_run(
    between: tuple[str, ...] | None, exact: bool, at: object, expected: list[str]
):
    files = [FileState("a", modified=True, modified_at=at)]
    assert list_paths(find_files_changed_since(RUN, between, files, exact=exact)) == expected


@pytest.mark.parametrize(
    "between, exact, expected",
    [((), True, ["gone"]), (("gone",), True, []), ((), False, []), (None, True, [])],
)
def test_a_deleted_file_changed_if_the_run_saw_it(between: tuple[str, ...] | None, exact: bool, expected: list[str]):
    changed = find_files_changed_since(RUN, between, [FileState("gone", deleted=True)], exact=exact)
    assert (list_paths(changed), [file.gone for file in changed]) == (expected, [True] * len(expected))


FAILED = "`test_a` failed at 08:30 and has not passed since; fix it"


@pytest.mark.parametrize(
    "runs, problem",
    [
        ([], ""),
        ([("t.py::test_a",)], FAILED),
        ([(), ("t.py::test_a",)], ""),  # the whole suite passed since
        ([("t.py::test_b",), ("t.py::test_a",)], FAILED.replace("_a", "_b")),  # all others passed since
        ([("t.py::test_a", "t.py::test_b")], "2 tests failed at 08:30 and have not passed since; fix them"),
    ],
)
def test_a_failed_test_stays_a_problem_until_it_passes(
    world: SensedWorkspace, repository: Repository, runs: list[tuple[str, ...]], problem: str
):
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), failing) for failing in runs]
    assert find_unsolved_problem(world.sense()) == problem


def test_a_run_of_other_tests_does_not_answer_a_failed_test(world: SensedWorkspace, repository: Repository):
    head = repository.commit("two", {"a.py": "2"}, at=BEFORE.isoformat())
    measured = PastRun(head, full=False, passed=1, durations=(("t.py::test_b", 0.1),))
    world.runs = [measured, PastRun(head, ("t.py::test_a",))]
    advice = ", or ask for “bisect test=t.py::test_a good=COMMIT” with a commit where it passed"
    assert find_unsolved_problem(world.sense()) == FAILED + advice
    world.runs = [replace(measured, durations=(("t.py::test_a", 0.1),)), *world.runs]
    assert find_unsolved_problem(world.sense()) == ""
    world.runs = [replace(measured, durations=()), *world.runs[1:]]
    assert find_unsolved_problem(world.sense()) == "", "a green run that names no tests counts"


@pytest.mark.parametrize(
    "latest, answer",
    [
        (make_session("bisect", SessionState.RUNNING, prompt="Find what broke `test_a`"), "a bisect is running"),
        (
            make_session("rehearse_revert", SessionState.RUNNING, prompt="Revert it, run `test_a`"),
            "a revert is being tried",
        ),
        (
            make_session("bisect", facts={"test": "t.py::test_a", "culprit": "d3d1785" * 5, "subject": "tidy"}),
            "d3d1785d3d “tidy” broke `test_a`",
        ),
        (make_session("bisect", SessionState.RUNNING, prompt="Find what broke `test_b`"), "fix it"),
        (make_session("bisect", facts={"test": "t.py::test_b", "culprit": "d3d1785" * 5}), "fix it"),
        (make_session("rehearse_revert", facts={"test": "t.py::test_a"}, change_set_id="change_1"), "fix it"),
    ],
)
def test_a_failed_test_is_named_with_its_answer(
    world: SensedWorkspace, repository: Repository, latest: SessionView, answer: str
):
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), ("t.py::test_a",))]
    world.sessions = [latest]
    assert find_unsolved_problem(world.sense()) == FAILED.replace("fix it", answer)


def test_a_stopped_run_stays_a_problem_until_a_run_finishes(world: SensedWorkspace, repository: Repository):
    stopped = make_session(state=SessionState.CANCELLED)
    world.sessions = [stopped]
    expected = "the tests were stopped, no run has finished here yet; ask for “run_tests”"
    assert find_unsolved_problem(world.sense()) == expected
    world.sessions = [make_session(state=SessionState.RUNNING), stopped]
    assert find_unsolved_problem(world.sense()) == ""
    world.sessions, world.runs = [stopped], [PastRun(repository.git("rev-parse", "HEAD"))]
    assert find_unsolved_problem(world.sense()) == ""


def test_advice_on_a_failed_test_names_its_project(world: SensedWorkspace, repository: Repository):
    head = repository.commit("two", {"b/tests/test_b.py": "1"}, at=BEFORE.isoformat())
    world.projects = [replace(PYTEST, path="b")]
    world.runs = [PastRun(head, ("tests/test_b.py::test_b",), project="b")]
    assert "“bisect test=tests/test_b.py::test_b good=COMMIT project=b”" in find_unsolved_problem(world.sense())


def test_there_is_no_advice_if_files_changed_between_a_failed_run_and_a_later_one(
    world: SensedWorkspace, repository: Repository
):
    head = repository.git("rev-parse", "HEAD")
    failed = PastRun(head, ("t.py::test_a",), clean=False, tree="1")
    later = PastRun(head, passed=1, durations=(("t.py::test_b", 0.1),), clean=False, full=False)
    world.runs = [replace(later, tree="1"), failed]
    assert find_unsolved_problem(world.sense()) == FAILED
    world.runs = [replace(later, tree="2"), failed]
    assert find_unsolved_problem(world.sense()) == FAILED.removesuffix("; fix it")


def test_a_failed_test_whose_file_is_gone_is_no_problem(world: SensedWorkspace, repository: Repository):
    failing = ("t.py::test_a", "gone.py::test_b", "pkg::TestC")
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), failing)]
    assert find_unsolved_problem(world.sense()).startswith("2 tests failed")


def test_the_situation_in_words(world: SensedWorkspace, repository: Repository):
    repository.git("tag", "v1.2")
    repository.write("a.py", "2")
    world.tasks = [make_task("cart rounding", timedelta(days=4))]
    world.sessions = [make_session(state=SessionState.FAILED)]
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), failing=("t",), passed=2)]
    assert world.sense(last_input=NOW - timedelta(minutes=3)).text.splitlines() == [
        "workspace: shop",
        "time: Monday 09:30, morning; silence: 3 min",
        "branch: main; 1 uncommitted file",
        "uncommitted: a.py",
        "tag: v1.2, 0 commits since",
        "last commit: 07:30 one",
        "tools: pytest and ruff",
        "last test run: 08:30 1 failed, 2 passed",
        "changed since: a.py",
        "task: cart rounding, 4 days old",
        "session: Run the tests: failed",
    ]


def test_the_situation_in_words_has_no_control_characters(world: SensedWorkspace, repository: Repository):
    repository.commit("bad \x1b]0;title\x07subject", {"x\x1b[31m.py": "1"})
    repository.write("y\x1b[2J.py", "1")
    text = world.sense().text
    assert "\x1b" not in text
    assert "bad subject" in text
