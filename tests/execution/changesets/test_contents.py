"""Change sets: their files, diffs and checks for the operator, and those that change the same files (SPEC 3.9)."""

from pathlib import Path

import pytest

from engine.model import ChangeState, CheckResult, FileChange
from engine.storage.ledger import Ledger
from tests.execution.changesets.landing_world import LandingWorld, add_line, make_edit


def test_a_change_set_has_its_files_state_and_check(world: LandingWorld):
    def edit(folder: Path):
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
    assert "-b\n" in diffs["b.txt"].hunks
    assert "+a.txt\n" in diffs["b.txt"].hunks
    assert (diffs["bin"].binary, diffs["bin"].hunks) == (True, "")
    assert diffs['new\\nline "q".txt'].hunks.endswith("+diff --git a/x b/x\n+<U+001B>[2Jred\n")
    assert (diffs["old.txt"].status, diffs["old.txt"].hunks) == ("mode", "")
    assert diffs["long.txt"].cut
    assert len(diffs) == 6


@pytest.mark.parametrize(
    "second, conflicting, is_undone",
    [("one\n2\n3\n", [], False), ("1\n2\n3\nmine\n", ["a.txt"], False), ("one\n2\n3\n", [], True)],
    ids=["other lines", "the same lines", "of a landing that was undone"],
)
def test_undecided_changes_of_the_same_file_are_recorded_with_their_conflicts(
    world: LandingWorld, second: str, conflicting: list[str], is_undone: bool
):
    earlier = world.make_change(add_line)
    if is_undone:
        earlier.land()
        earlier.undo()
    later = world.make_change(make_edit("a.txt", second), name="session_2")
    (overlap,) = Ledger(world.database).latest(kinds=["WorkOverlapped"])
    assert (overlap.subject, overlap.payload["other"], overlap.payload["files"]) == (later.id, earlier.id, ["a.txt"])
    assert overlap.payload["conflicting"] == conflicting
    earlier.land()
    assert world.changes.preview_land(later.id).clean is not bool(conflicting)
