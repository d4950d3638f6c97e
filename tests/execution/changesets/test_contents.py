"""Change sets: their files, diffs and checks for the operator, and comments on their lines (SPEC 3.9)."""

from pathlib import Path

import pytest

from engine.model import ChangeState, CheckResult, FileChange
from tests.execution.changesets.landing_world import Change, LandingWorld, add_line, make_edits
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


def test_a_change_set_has_its_files_state_and_check(world: LandingWorld):
    def edit(folder: Path):
        add_line(folder)
        (folder / "b.txt").unlink()
        (folder / "old.txt").rename(folder / "new name.txt")
        (folder / "bin").write_bytes(bytes(range(256)))
        (folder / "esc\x1b[31m.txt").write_text("\x1b[2Jhello\n")

    check = CheckResult("pytest", 3, 1, failing=("t::x",), durations=(("t::x", 0.5),))
    change_set = world.make_change(edit, check=check).current
    assert (change_set.state, change_set.check) == (ChangeState.WAITING, check)
    assert set(change_set.files) == {
        FileChange("a.txt", "modified", 1, 0),
        FileChange("b.txt", "deleted", 0, 1),
        FileChange("new name.txt", "renamed", 0, 0, old_path="old.txt"),
        FileChange("bin", "added", None, None),
        FileChange("esc\\x1b[31m.txt", "added", 1, 0),
    }
    assert world.changes.list_newest(state=ChangeState.WAITING, workspace=str(world.root)) == [change_set]


def test_the_diff_has_the_hunks_of_each_file(world: LandingWorld):
    def edit(folder: Path):
        add_line(folder)
        (folder / "b.txt").unlink()
        (folder / "b.txt").symlink_to("a.txt")
        (folder / "bin").write_bytes(b"\0\1")
        (folder / 'new\nline "q".txt').write_text("diff --git a/x b/x\n\x1b[2Jred\n")
        (folder / "old.txt").chmod(0o755)
        (folder / "long.txt").write_text("line\n" * 50_000)

    diffs = {diff.path: diff for diff in world.make_change(edit).diff()}

    assert diffs["a.txt"].hunks == "@@ -1,3 +1,4 @@\n 1\n 2\n 3\n+four\n"
    assert diffs["b.txt"].hunks.startswith("@@ -1 +0,0 @@\n-b\n@@ -0,0 +1 @@\n+a.txt\n")
    assert (diffs["bin"].binary, diffs["bin"].hunks) == (True, "")
    assert diffs['new\\nline "q".txt'].hunks.endswith("+diff --git a/x b/x\n+<U+001B>[2Jred\n")
    assert (diffs["old.txt"].status, diffs["old.txt"].hunks) == ("mode", "")
    assert diffs["long.txt"].cut


# Comments on lines


@pytest.fixture
def change(world: LandingWorld) -> Change:
    """A change set that adds a line to a.txt and deletes b.txt."""
    return world.make_change(make_edits({"a.txt": "1\n2\n3\nfour\n", "b.txt": None}))


@pytest.mark.parametrize("path, line, text, code", TABLE["comments"])
def test_a_comment_without_a_line_or_a_text_is_refused(
    world: LandingWorld, change: Change, path: str, line: int, text: str, code: str
):
    refused(code, lambda: world.changes.comments.add(change.id, path, line, text))


def test_comments_are_sent_once_as_one_message_and_can_be_removed(world: LandingWorld, change: Change):
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4\x1b[2J instead")
    comments.add(change.id, "b.txt", 1, "keep it", old=True)
    text, numbers = comments.make_unsent_message(change.id)
    assert text.split("\n\n") == [
        "Comments on “Fix the cart”. Address each of them.",
        "a.txt:4\n> four\nwrite 4 instead",
        "b.txt:1 (before your change)\n> b\nkeep it",
    ]
    comments.add(change.id, "a.txt", 1, "and this, while they are sent")
    sent_at = world.clock.now().isoformat()
    assert [comment.sent for comment in comments.mark_sent(change.id, numbers).comments] == [sent_at, sent_at, ""]
    assert comments.make_unsent_message(change.id)[1] == (3,)
    comments.remove(change.id, 3)
    refused("no_comments", lambda: comments.make_unsent_message(change.id))
    refused("unknown_comment", lambda: comments.remove(change.id, 3))
    change.discard()
    assert [comment.text for comment in change.current.comments] == ["write 4 instead", "keep it"], "they stay as notes"
