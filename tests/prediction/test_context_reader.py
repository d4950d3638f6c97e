"""Contexts as they are read: activity, conversations, changes since a run, and sources that fail (SPEC 2.1, 2.2)."""

import subprocess
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.model import Thread
from engine.prediction.context import WorkspaceContext
from engine.prediction.signals import OurWrite
from tests.conftest import Repository
from tests.prediction.sensing import (
    AFTER,
    BEFORE,
    RUN,
    PastRun,
    SensedWorkspace,
    commit_at,
    make_old_workspace,
    make_session,
    propose_all,
    touch,
)


@pytest.fixture
def world(repository: Repository) -> SensedWorkspace:
    return make_old_workspace(repository)


def list_changed_paths(context: WorkspaceContext) -> list[str]:
    """The files that changed since the last run of the first project."""
    return [file.path for file in context.parts[0].changed]


def test_an_edit_ends_the_silence_and_a_landing_does_not(world: SensedWorkspace):
    edited = world.path / "a.py"
    edited.write_text("2")
    touch(edited, AFTER)
    assert world.sense().silence == timedelta(minutes=5)
    ours = [OurWrite("a.py", AFTER - timedelta(seconds=1), AFTER + timedelta(seconds=1))]
    context = world.make_reader().read(str(world.path), last_input=None, ours=ours)
    assert context.silence == timedelta(hours=2)


def test_a_conversation_with_another_agent_ends_the_silence_and_is_a_signal(world: SensedWorkspace):
    thread = Thread(
        "claude-code:s1", "Claude Code", str(world.path), "Add the cart", "Shall I test it?", unanswered=False, at=AFTER
    )
    world.threads = SimpleNamespace(read_newest=lambda workspace: [thread], find_last_growth=lambda: AFTER)
    context = world.sense(last_input=RUN)
    assert context.silence == timedelta(minutes=5)
    [signal] = [signal for signal in context.signals if signal.name == "conversations"]
    assert signal.evidence == ("Claude Code asks “Shall I test it?” (09:25)",)
    assert signal.relevance > 0.99
    assert context.conversations(frozenset({"bisect"})).relevance == 0, "no card continues it"
    assert "conversation: Claude Code asks “Shall I test it?” (09:25)" in context.text


def test_the_last_activity_is_that_of_any_workspace(world: SensedWorkspace, tmp_path: Path):
    other = Repository(tmp_path / "other")
    edited = other.write("x.py", "1")
    touch(edited, AFTER)
    paths = [str(world.path), str(tmp_path / "gone"), str(other.path)]
    reader = world.make_reader()
    assert reader.find_last_activity(paths, {}) == AFTER
    assert reader.find_last_activity(paths[:1], {}) == BEFORE
    assert reader.find_last_activity([], {}) is None
    world.sessions = [make_session(ended_at=None, cwd=str(other.path))]
    assert world.make_reader().find_last_activity(paths, {}) == BEFORE


@pytest.mark.parametrize(
    "broken, signal", [("tasks", "tasks"), ("sessions", "conversations"), ("runs", ""), ("tools", "")]
)
def test_a_source_that_fails_leaves_the_others(world: SensedWorkspace, broken: str, signal: str):
    world.broken = {broken}
    context = world.sense()
    assert any(f"no {broken} today" in error for error in context.errors)
    for signals in (context.signals, *(proposal.signals for proposal in propose_all(context))):
        failed = [collected.name for collected in signals if collected.error]
        assert failed == ([signal] if signal else [])


@pytest.mark.parametrize("kind", ["bare", "gone", "plain"])
def test_a_folder_without_a_working_tree_gives_an_error_and_no_proposals(tmp_path: Path, kind: str):
    folder = tmp_path / "folder"
    if kind == "bare":
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    if kind == "plain":
        folder.mkdir()
    context = SensedWorkspace(folder).sense()
    assert context.git is None
    assert [signal.name for signal in context.signals if signal.error] == ["git"]
    assert propose_all(context) == []


def test_changes_since_a_run_of_an_older_commit(world: SensedWorkspace, repository: Repository):
    old = repository.git("rev-parse", "HEAD")
    commit_at(repository, "two", {"b.py": "2"}, AFTER)
    repository.write("new.py", "1")
    world.runs = [PastRun(old, tree=repository.git("rev-parse", f"{old}^{{tree}}"))]
    context = world.sense()
    assert list_changed_paths(context) == ["b.py", "new.py"]
    assert context.ancestors == {old}


def test_no_changes_are_known_since_a_run_whose_commit_is_gone(world: SensedWorkspace, repository: Repository):
    repository.write("new.py", "1")
    touch(repository.path / "new.py", BEFORE)
    world.runs = [PastRun("1" * 40, tree="2" * 40)]
    context = world.sense()
    assert list_changed_paths(context) == []
    assert context.ancestors == frozenset()


def test_a_deletion_is_a_change_since_the_last_run(world: SensedWorkspace, repository: Repository):
    commit_at(repository, "two", {"b.py": "2", "test_c.py": "1"}, BEFORE)
    head, tree = repository.git("rev-parse", "HEAD"), repository.git("rev-parse", "HEAD^{tree}")
    world.runs = [PastRun(head, tree=tree, failing=("test_c.py::test_a",))]
    assert "still_red" in [card.kind for card in propose_all(world.sense())]
    (repository.path / "b.py").unlink()
    proposals = {proposal.kind: proposal for proposal in propose_all(world.sense())}
    assert "still_red" not in proposals
    assert proposals["rerun_failing"].parameters == {"tests": ["test_c.py::test_a"]}
    (repository.path / "test_c.py").unlink()
    proposals = {proposal.kind: proposal for proposal in propose_all(world.sense())}
    assert proposals["rerun_failing"].parameters == {"paths": []}, "a test that is gone cannot run again"


@pytest.mark.parametrize(
    "test, is_deleted",
    [
        ("test_c.py::test_it", True),
        ("a_test.py::test_it", False),
        ("shop/cart.TestAdd", True),
        ("TestAdd/with_tax", False),  # the name of a part, which the file does not have
        ("cart › adds two numbers", True),
        ("TestBoth", False),  # another file has it as well
        ("TestElsewhere", False),
    ],
)
def test_a_failing_test_whose_file_is_gone_is_deleted(
    world: SensedWorkspace, repository: Repository, test: str, is_deleted: bool
):
    files = {"cart_test.go": "TestAdd TestBoth adds two numbers", "test_c.py": "test_it", "a_test.py": "TestBoth"}
    head = repository.commit("tests", files)
    world.runs = (PastRun(head, failing=(test,)),)
    assert world.sense().parts[0].deleted_tests == frozenset()
    for name in ("cart_test.go", "test_c.py"):
        (repository.path / name).unlink()
    assert (test in world.sense().parts[0].deleted_tests) is is_deleted
    proposals = {proposal.kind: proposal for proposal in propose_all(world.sense())}
    assert ("tests" in proposals["rerun_failing"].parameters) is not is_deleted, "a test that is gone cannot run again"
    repository.commit("no tests")
    assert (test in world.sense().parts[0].deleted_tests) is is_deleted


def test_a_failing_test_is_kept_when_the_files_of_its_run_are_gone(world: SensedWorkspace, repository: Repository):
    head = repository.commit("tests", {"cart_test.go": "TestAdd"})
    world.runs = (PastRun(head, tree="1" * 40, failing=("shop/cart.TestAdd",)),)  # as after `git gc`
    (repository.path / "cart_test.go").unlink()
    context = world.sense()
    assert context.errors == ()
    assert context.parts[0].deleted_tests == frozenset()
