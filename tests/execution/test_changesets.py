"""Change sets: their contents for the operator, decisions, branches, comments, and what continues them (SPEC 3.9)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from engine.execution.change_store import NEXT_STATES
from engine.execution.session_store import SessionRow
from engine.model import ChangeSet, ChangeState, CheckResult, FileChange, Refusal, SessionState
from engine.storage.ledger import Ledger
from tests.execution.landing_world import Change, LandingWorld, file_edit, file_edits, kill_at
from tests.support.helpers import refused, wait_for_threads


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", {"a.txt": "1\n2\n3\n", "b.txt": "b\n", "old.txt": "some\nlonger\ntext\n"})
    return landing_world


add_line = file_edit("a.txt", "1\n2\n3\nfour\n")


# Contents


def test_a_change_set_has_its_files_state_and_check(world: LandingWorld) -> None:
    def edit(folder: Path) -> None:
        add_line(folder)
        (folder / "b.txt").unlink()
        (folder / "old.txt").rename(folder / "new name.txt")
        (folder / "bin").write_bytes(bytes(range(256)))
        (folder / "esc\x1b[31m.txt").write_text("\x1b[2Jhello\n")

    check = CheckResult("pytest", 3, 1, failing=("t::x",), durations=(("t::x", 0.5),))
    stored = world.run_session(edit, check=check)

    change_set = world.changes.get(stored.id)

    assert change_set.state is ChangeState.WAITING
    assert change_set.check == check
    assert set(change_set.files) == {
        FileChange("a.txt", "modified", 1, 0),
        FileChange("b.txt", "deleted", 0, 1),
        FileChange("new name.txt", "renamed", 0, 0, old_path="old.txt"),
        FileChange("bin", "added", None, None),
        FileChange("esc\\x1b[31m.txt", "added", 1, 0),
    }
    assert world.changes.list(state=ChangeState.WAITING, workspace=str(world.root)) == [change_set]
    assert world.changes.list(state=ChangeState.LANDED) == []
    assert world.changes.for_session("session_1") == change_set


def test_the_diff_has_the_hunks_of_each_file(world: LandingWorld) -> None:
    def edit(folder: Path) -> None:
        add_line(folder)
        (folder / "b.txt").unlink()
        (folder / "b.txt").symlink_to("a.txt")
        (folder / "bin").write_bytes(b"\0\1")
        (folder / 'new\nline "q".txt').write_text("diff --git a/x b/x\n\x1b[2Jred\n")
        (folder / "run.sh").write_text("x\n")
        (folder / "old.txt").chmod(0o755)
        (folder / "long.txt").write_text("line\n" * 50_000)

    diffs = {diff.path: diff for diff in world.make_change(edit).diff()}

    assert diffs["a.txt"].hunks == "@@ -1,3 +1,4 @@\n 1\n 2\n 3\n+four\n"
    assert "-b\n" in diffs["b.txt"].hunks
    assert "+a.txt\n" in diffs["b.txt"].hunks
    assert (diffs["bin"].binary, diffs["bin"].hunks) == (True, "")
    assert diffs['new\\nline "q".txt'].hunks.endswith("+diff --git a/x b/x\n+<U+001B>[2Jred\n")
    assert (diffs["old.txt"].status, diffs["old.txt"].hunks) == ("mode", "")
    assert diffs["long.txt"].cut
    assert len(diffs) == 7


@pytest.mark.parametrize(
    ("second", "conflicting", "is_undone"),
    [("one\n2\n3\n", [], False), ("1\n2\n3\nmine\n", ["a.txt"], False), ("one\n2\n3\n", [], True)],
    ids=["other lines", "the same lines", "of a landing that was undone"],
)
def test_undecided_changes_of_the_same_file_are_recorded_with_their_conflicts(
    world: LandingWorld, second: str, conflicting: list[str], is_undone: bool
) -> None:
    earlier = world.make_change(add_line)
    if is_undone:
        earlier.land()
        earlier.undo()
    later = world.make_change(file_edit("a.txt", second), name="session_2")
    (overlap,) = Ledger(world.database).latest(kinds=["WorkOverlapped"])
    assert (overlap.subject, overlap.payload["other"], overlap.payload["files"]) == (later.id, earlier.id, ["a.txt"])
    assert overlap.payload["conflicting"] == conflicting
    earlier.land()
    assert world.changes.preview_land(later.id).clean is not bool(conflicting)


# Decisions


Decision = Callable[[Change], ChangeSet]


DECISIONS: dict[Decision, ChangeState] = {
    Change.land: ChangeState.LANDED,
    Change.branch: ChangeState.BRANCHED,
    Change.discard: ChangeState.DISCARDED,
    Change.undo: ChangeState.UNDONE,
}
"""The state after each decision."""


@pytest.mark.parametrize("earlier", [[], [Change.land], [Change.land, Change.undo], [Change.branch], [Change.discard]])
def test_an_illegal_decision_is_refused(world: LandingWorld, earlier: list[Decision]) -> None:
    change = world.make_change(add_line)
    for decide in earlier:
        decide(change)
    before = change.current.state

    for decide, after in DECISIONS.items():
        if after not in NEXT_STATES.get(before, set()):
            refused("already_decided", partial(decide, change))
            assert change.current.state is before


def test_an_unknown_change_set_is_refused(world: LandingWorld) -> None:
    changes = world.changes
    for action in (changes.get, changes.diff, changes.preview_land, changes.land, changes.branch, changes.undo):
        refused("unknown_change_set", partial(action, "change_x"))
    refused("unknown_change_set", lambda: changes.discard("change_x"))


def test_decisions_from_many_threads_decide_once(world: LandingWorld) -> None:
    change = world.make_change(add_line)
    decided: list[ChangeSet] = []
    refusals: list[str] = []

    def try_to(decide: Decision) -> None:
        try:
            decided.append(decide(change))
        except Refusal as refusal:
            refusals.append(refusal.code)

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(try_to, (Change.land, Change.discard, Change.branch) * 3))

    assert len(decided) == 1
    assert refusals == ["already_decided"] * 8


def test_a_discard_leaves_nothing_behind(world: LandingWorld) -> None:
    files, state = world.files, world.git_state
    change = world.make_change(add_line)

    assert change.discard().state is ChangeState.DISCARDED

    assert world.refs == []
    assert not world.worktrees.folder_of("session_1").exists()
    assert (world.files, world.git_state) == (files, state)
    world.git("gc", "-q", "--prune=now")
    with pytest.raises(Refusal, match=r"git no longer has the contents.*clawpy propose TEXT"):
        change.diff()


def test_changes_of_a_repository_that_is_gone_can_be_discarded(world: LandingWorld) -> None:
    change = world.make_change(add_line)
    shutil.rmtree(world.root)

    assert change.discard().state is ChangeState.DISCARDED
    refused("no_folder", change.diff)


@pytest.mark.parametrize(
    ("decide", "step", "state"),
    [
        (Change.branch, "branch intent", ChangeState.WAITING),
        (Change.branch, "branch made", ChangeState.BRANCHED),
        (Change.discard, "discarded", ChangeState.DISCARDED),
    ],
)
def test_an_interrupted_decision_is_finished_or_undone_at_the_next_start(
    world: LandingWorld, decide: Decision, step: str, state: ChangeState
) -> None:
    change = world.make_change(add_line)
    kill_at(world, step, lambda: decide(change))
    world.changes.recover()
    assert change.current.state is state
    assert bool(world.refs) is (state is ChangeState.WAITING)
    assert world.git("branch", "--list", "clawpy/*").strip() == (
        "clawpy/fix-the-cart" if state is ChangeState.BRANCHED else ""
    )


def test_a_landing_can_be_undone_after_a_crash_and_git_gc(world: LandingWorld) -> None:
    before = world.files
    change = world.make_change(file_edits({"a.txt": None}))
    kill_at(world, "files done", change.land)
    world.changes.recover()
    assert change.current.state is ChangeState.LANDED
    world.git("gc", "-q", "--prune=now")
    change.undo()
    assert world.files == before
    world.git("gc", "-q", "--prune=now")
    assert change.land().state is ChangeState.LANDED


# Branches


def test_a_branch_has_only_the_changes_of_the_session(world: LandingWorld) -> None:
    world.write("b.txt", "uncommitted\n")
    world.write("mine.txt", "untracked\n")
    change = world.make_change(add_line)
    files, state = world.files, world.git_state

    branched = change.branch()

    git = world.repository.git
    assert branched.branch == "clawpy/fix-the-cart"
    assert git("diff", "--name-only", "main", "clawpy/fix-the-cart") == "a.txt"
    assert git("rev-parse", "clawpy/fix-the-cart^") == git("rev-parse", "main")
    assert git("log", "-1", "--format=%s|%an|%ae|%cI", "clawpy/fix-the-cart") == (
        "Fix the cart|Test|test@example.org|2026-01-05T09:30:00+00:00"
    )
    assert world.files == files
    git("branch", "-q", "-D", "clawpy/fix-the-cart")
    assert world.git_state == state
    assert world.refs == []
    assert not world.worktrees.folder_of("session_1").exists()


def test_a_branch_with_a_revert_has_the_message_of_git(world: LandingWorld) -> None:
    culprit = world.git("rev-parse", "HEAD").strip()
    change = world.make_change(add_line)
    row = SessionRow(
        id=change.current.session_id, prediction_id="", permit_id="", prompt="Revert it", workspace="", channel="",
        agent="", runner="flow", flow="rehearse_revert", parameters={}, state=SessionState.SUCCEEDED, mode="approved",
        created_at=world.clock.now(), facts={"commit": culprit},
    )  # fmt: skip
    world.database.write(lambda tx: tx.session.merge(row))

    branch = change.branch().branch

    subject = world.git("log", "-1", "--format=%s", culprit).strip()
    lines = world.git("log", "-1", "--format=%B", branch).splitlines()
    assert lines[:3] == [f'Revert "{subject}"', "", f"This reverts commit {culprit}."]


@pytest.mark.long
def test_a_branch_gets_a_free_name(world: LandingWorld) -> None:
    """Where `clawpy` is a branch, none can be below it."""
    world.git("branch", "clawpy")
    assert world.make_change(add_line).branch().branch == "clawpy-fix-the-cart"


def test_a_branch_is_made_without_a_commit_or_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    world = LandingWorld(tmp_path)
    world.write("x.txt", "operator's\n")
    change = world.make_change(file_edit("y.txt", "session's\n"))

    change.branch()

    git = world.repository.git
    assert git("ls-tree", "-r", "--name-only", "clawpy/fix-the-cart") == "y.txt"
    assert git("log", "--format=%an <%ae>", "clawpy/fix-the-cart") == "Clawpy Console <clawpy@localhost>"
    world.close()


def test_changes_that_build_on_uncommitted_work_are_not_branched(world: LandingWorld) -> None:
    world.write("a.txt", "1\n2\nmine\n")
    change = world.make_change(file_edit("a.txt", "1\n2\nmine too\n"))

    assert refused("conflict", change.branch).message == (
        "no branch was made: it builds on changes that HEAD does not have: a.txt"
    )
    assert change.current.state is ChangeState.WAITING


def test_changes_that_head_has_already_are_not_branched(world: LandingWorld) -> None:
    change = world.make_change(add_line)
    world.repository.commit("the same", {"a.txt": "1\n2\n3\nfour\n"})

    refusal = refused("nothing_to_commit", change.branch)
    assert refusal.fix == "land them if your files differ from HEAD there, else discard them"


# Comments


@pytest.fixture
def change(world: LandingWorld) -> Change:
    """A change set that adds a line to a.txt and deletes b.txt."""
    return world.make_change(file_edits({"a.txt": "1\n2\n3\nfour\n", "b.txt": None}))


def test_comments_quote_a_line_of_the_new_or_the_old_file(world: LandingWorld, change: Change) -> None:
    events = world.bus.subscribe(lambda: None)
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4\x1b[2J instead")
    [first, second] = comments.add(change.id, "b.txt", 1, "keep it", old=True).comments

    assert (first.quote, first.text, second.quote, second.old) == ("four", "write 4 instead", "b", True)
    assert [event.kind for event in events.drain()] == ["ChangeSetCommented"] * 2
    text, numbers = comments.make_unsent_message(change.id)
    assert numbers == (1, 2)
    assert text.split("\n\n") == [
        "Comments on “Fix the cart”. Address each of them.",
        "a.txt:4\n> four\nwrite 4 instead",
        "b.txt:1 (before your change)\n> b\nkeep it",
    ]


@pytest.mark.parametrize(
    ("path", "line", "text", "code"),
    [
        ("a.txt", 5, "no", "unknown_line"),
        ("b.txt", 1, "no", "unknown_line"),
        ("c", 1, "no", "unknown_file"),
        ("a.txt", 1, "  \n", "bad_comment"),
    ],
)
def test_a_comment_without_a_line_or_a_text_is_refused(
    world: LandingWorld, change: Change, path: str, line: int, text: str, code: str
) -> None:
    refused(code, lambda: world.changes.comments.add(change.id, path, line, text))


def test_comments_are_sent_once_and_can_be_removed(world: LandingWorld, change: Change) -> None:
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4 instead")
    comments.add(change.id, "b.txt", 1, "keep it", old=True)
    _, numbers = comments.make_unsent_message(change.id)
    comments.add(change.id, "a.txt", 1, "and this, while they are sent")

    sent_at = world.clock.now().isoformat()
    assert [comment.sent for comment in comments.mark_sent(change.id, numbers).comments] == [sent_at, sent_at, ""]
    assert comments.make_unsent_message(change.id)[1] == (3,)
    comments.remove(change.id, 3)
    refused("no_comments", lambda: comments.make_unsent_message(change.id))
    assert [comment.number for comment in comments.remove(change.id, 1).comments] == [2]
    refused("unknown_comment", lambda: comments.remove(change.id, 1))
    change.discard()
    assert [comment.text for comment in change.current.comments] == ["keep it"]


# A session that continues another one (SPEC 9.4)


def run_session_with(world: LandingWorld, session_id: str, files: dict[str, str], *, continues: str = "") -> Change:
    """Run a session that writes `files`. Returns its change set."""
    return world.make_change(file_edits(files), name=session_id, title=f"of {session_id}", continues=continues)


def test_a_continuing_session_has_the_waiting_changes_in_its_change_set(world: LandingWorld) -> None:
    earlier = run_session_with(world, "sess_1", {"a.txt": "one\n2\n3\n", "new.txt": "n\n"})
    world.write("mine.txt", "meanwhile\n")

    after = run_session_with(world, "sess_2", {"c.txt": "c\n"}, continues="sess_1")

    assert {file.path for file in after.files} == {"a.txt", "new.txt", "c.txt"}
    assert after.current.title == "of sess_1"
    superseded = earlier.current
    assert (superseded.state, superseded.note) == (ChangeState.DISCARDED, "continued in sess_2")
    wait_for_threads("clawpy-tidy-")
    assert not world.worktrees.folder_of("sess_1").exists()
    assert not any("sess_1" in ref for ref in world.refs)
    after.land()
    assert (world.root / "a.txt").read_text() == "one\n2\n3\n"
    assert (world.root / "c.txt").read_text() == "c\n"
    assert (world.root / "mine.txt").read_text() == "meanwhile\n"


@pytest.mark.parametrize("decide", [Change.land, Change.discard])
def test_a_continuing_session_leaves_decided_changes_as_they_are(world: LandingWorld, decide: Decision) -> None:
    earlier = run_session_with(world, "sess_1", {"a.txt": "one\n2\n3\n"})
    decide(earlier)
    state = earlier.current.state

    after = run_session_with(world, "sess_2", {"c.txt": "c\n"}, continues="sess_1")

    assert [file.path for file in after.files] == ["c.txt"]
    assert earlier.current.state is state


@pytest.mark.long
def test_changes_that_land_while_a_session_continues_them_are_not_discarded(world: LandingWorld) -> None:
    earlier = run_session_with(world, "sess_1", {"a.txt": "one\n2\n3\n"})

    def edit(folder: Path) -> None:
        earlier.land()
        (folder / "c.txt").write_text("c\n")

    after = world.make_change(edit, name="sess_2", continues="sess_1")

    assert earlier.current.state is ChangeState.LANDED
    after.land()
    assert (world.root / "c.txt").read_text() == "c\n"


def test_changes_that_conflict_with_your_files_cannot_be_continued(world: LandingWorld) -> None:
    run_session_with(world, "sess_1", {"a.txt": "agent\n2\n3\n"})
    world.write("a.txt", "mine\n2\n3\n")

    onto = world.changes.make_starting_tree_builder("sess_1")
    refusal = refused("conflict", lambda: world.worktrees.create("sess_2", world.root, onto=onto))

    assert "a.txt" in refusal.message
    assert not world.worktrees.folder_of("sess_2").exists()
    assert not any("sess_2" in ref for ref in world.refs)
