"""A session that continues another one takes over its change set (SPEC 3.9, 9.4)."""

from pathlib import Path

import pytest

from engine.model import ChangeState
from tests.execution.changesets.landing_world import Change, LandingWorld, make_edits
from tests.support.checks import refused, wait_for_threads


def run_session_with(world: LandingWorld, session_id: str, files: dict[str, str], *, continues: str = "") -> Change:
    """Run a session that writes `files`. Returns its change set."""
    return world.make_change(make_edits(files), name=session_id, title=f"of {session_id}", continues=continues)


def test_a_continuing_session_has_the_waiting_changes_in_its_change_set(world: LandingWorld):
    earlier = run_session_with(world, "sess_1", {"a.txt": "one\n2\n3\n", "new.txt": "n\n"})
    world.write("mine.txt", "meanwhile\n")

    after = run_session_with(world, "sess_2", {"c.txt": "c\n"}, continues="sess_1")

    assert {file.path for file in after.files} == {"a.txt", "new.txt", "c.txt"}
    superseded = earlier.current
    assert (superseded.state, superseded.note) == (ChangeState.DISCARDED, "continued in sess_2")
    wait_for_threads("clawpy-tidy-")
    assert not world.worktrees.folder_of("sess_1").exists()
    assert not any("sess_1" in ref for ref in world.refs)
    after.land()
    assert [world.read_file(name) for name in ("a.txt", "c.txt", "mine.txt")] == [
        "one\n2\n3\n", "c\n", "meanwhile\n"
    ]  # fmt: skip


@pytest.mark.long
def test_changes_that_land_while_a_session_continues_them_are_not_discarded(world: LandingWorld):
    earlier = run_session_with(world, "sess_1", {"a.txt": "one\n2\n3\n"})

    def edit(folder: Path):
        earlier.land()
        (folder / "c.txt").write_text("c\n")

    after = world.make_change(edit, name="sess_2", continues="sess_1")

    assert earlier.current.state is ChangeState.LANDED
    after.land()
    assert world.read_file("c.txt") == "c\n"


def test_changes_that_conflict_with_your_files_cannot_be_continued(world: LandingWorld):
    run_session_with(world, "sess_1", {"a.txt": "agent\n2\n3\n"})
    world.write("a.txt", "mine\n2\n3\n")

    onto = world.changes.make_starting_tree_builder("sess_1")
    refusal = refused("conflict", lambda: world.worktrees.create("sess_2", world.root, onto=onto))

    assert "a.txt" in refusal.message
    assert not world.worktrees.folder_of("sess_2").exists()
    assert not any("sess_2" in ref for ref in world.refs)
    world.changes.discard(world.changes.find_of_session("sess_1").id)
    assert world.changes.make_starting_tree_builder("sess_1") is None, "what is decided is not continued"
