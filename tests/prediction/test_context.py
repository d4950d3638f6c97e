"""The context of a workspace (SPEC 2.1, 2.2, 2.10): what changed since a run, activity, conversations, problems that
still hold, sources that fail, and the situation in words."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from engine.git.inspection import DueMerge
from engine.model import CheckResult, SessionState
from engine.prediction.problems import find_unsolved_problem
from engine.prediction.signals import Thread
from tests.prediction.builders import NOW, make_session, make_task, propose_all
from tests.prediction.sensing import AFTER_RUN, LAST_RUN_AT, SensedWorkspace, make_old_workspace
from tests.support import read_table
from tests.support.past_run import PastRun
from tests.support.repository import Repository


@pytest.fixture
def world(repository: Repository) -> SensedWorkspace:
    return make_old_workspace(repository)


TABLE = read_table(__file__)


@pytest.mark.parametrize("runs, problem", TABLE["failed_runs"])
def test_a_failed_test_stays_a_problem_until_it_passes(
    world: SensedWorkspace, repository: Repository, runs: list[list[str]], problem: str
):
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), tuple(failing)) for failing in runs]
    assert find_unsolved_problem(world.sense()) == problem


def test_tests_that_fail_at_head_alone_stay_a_problem(world: SensedWorkspace, repository: Repository):
    repository.write("rates.py", "1")
    alone = PastRun(repository.git("rev-parse", "HEAD"), ("t.py::test_a",))
    world.runs = [alone, replace(alone, failing=(), clean=False, session_id="other")]
    world.sessions = [make_session("check_clean_head", id="s")]
    assert find_unsolved_problem(world.sense()) == (
        "at HEAD alone: 1 failed, 10 passed, at 08:30; "
        "with your uncommitted files the tests passed, so commit what they need"
    )


def test_tests_that_a_rehearsed_merge_breaks_are_named(world: SensedWorkspace, repository: Repository):
    check = CheckResult("pytest", 0, 2, failing=("t.py::test_a", "t.py::test_b"), failed_before=("t.py::test_a",))
    facts = {"source": "1234", "target": repository.git("rev-parse", "HEAD")}
    world.sessions = [make_session("rehearse_merge", check=check, facts=facts)]
    context = world.sense()
    assert find_unsolved_problem(context) == "", "it was merged since"
    inspection = replace(context.inspection, merges=(DueMerge("main", "1234", 1, 1, ()),))
    assert find_unsolved_problem(replace(context, inspection=inspection)) == "merging main into main breaks test_b"


def test_commits_that_a_bisect_could_not_test_are_named(world: SensedWorkspace, repository: Repository):
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"), ("t.py::test_a",))]
    world.sessions = [make_session("bisect", facts={"test": "t.py::test_a", "suspects": ["1" * 40, "2" * 40]})]
    problem = find_unsolved_problem(world.sense())
    assert problem.endswith("; it cannot run at 1111111111 and 2222222222, and one of these broke it")


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


def test_a_conversation_with_another_agent_ends_the_silence_and_is_a_signal(world: SensedWorkspace):
    thread = Thread(
        "claude-code:s1", "Claude Code", "/shop", "Add the cart", "Shall I test it?", unanswered=False, at=AFTER_RUN
    )
    world.threads = SimpleNamespace(read_newest=lambda workspace: [thread], find_last_growth=lambda: AFTER_RUN)
    context = world.sense(last_input=LAST_RUN_AT)
    assert context.silence == timedelta(minutes=5)
    [signal] = [signal for signal in context.signals if signal.name == "conversations"]
    assert signal.evidence == ("Claude Code asks “Shall I test it?” (09:25)",)
    assert signal.relevance > 0.99
    assert context.conversations(frozenset({"bisect"})).relevance == 0, "no card continues it"
    assert "conversation: Claude Code asks “Shall I test it?” (09:25)" in context.text


@pytest.mark.parametrize("broken, signal", TABLE["failing_sources"])
def test_a_source_that_fails_leaves_the_others(world: SensedWorkspace, broken: str, signal: str):
    world.broken = {broken}
    context = world.sense()
    assert any(f"no {broken} today" in error for error in context.errors)
    assert [collected.name for collected in context.signals if collected.error] == ([signal] if signal else [])


def test_a_failing_test_whose_file_is_gone_cannot_run_again(world: SensedWorkspace, repository: Repository):
    tests = {"test_c.py::test_it", "shop/cart.TestAdd"}
    head = repository.commit("tests", {"cart_test.go": "TestAdd", "test_c.py": "test_it"})
    world.runs = [PastRun(head, failing=tuple(tests))]
    assert world.sense().parts[0].deleted_tests == frozenset()
    for name in ("cart_test.go", "test_c.py"):
        (repository.path / name).unlink()
    assert world.sense().parts[0].deleted_tests == tests
    [card] = [card for card in propose_all(world.sense()) if card.kind == "rerun_failing"]
    assert card.parameters == {"paths": []}


def test_a_stopped_run_stays_a_problem_until_a_run_finishes(world: SensedWorkspace, repository: Repository):
    world.sessions = [make_session(state=SessionState.CANCELLED)]
    expected = "the tests were stopped, no run has finished here yet; ask for “run_tests”"
    assert find_unsolved_problem(world.sense()) == expected
    world.runs = [PastRun(repository.git("rev-parse", "HEAD"))]
    assert find_unsolved_problem(world.sense()) == ""
