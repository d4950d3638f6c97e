"""Landing part of a change set, then the rest, and undoing each; hunks of files (SPEC 3.9)."""

import pytest

from engine.model import ChangeState, FilePart
from tests.execution.changesets.landing_world import LandingWorld, make_edits
from tests.execution.changesets.parts_of_changes import FILES, TEXT, edit_four_files, make_text
from tests.support.checks import refused


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


# Landing a part and the rest


def test_after_a_part_landed_the_rest_waits(world: LandingWorld):
    git_state_before = world.git_state
    change = world.make_change(edit_four_files)
    landed = change.land(FilePart("b.txt"), FilePart("c.txt"))
    assert (landed.state, landed.landed) == (ChangeState.WAITING, 2)
    assert [file.path for file in landed.files] == [file.path for file in change.diff()] == ["a.txt", "new.txt"]
    assert [world.read_file(name) for name in ("b.txt", "c.txt", "a.txt")] == [None, "c\n", TEXT]
    assert world.worktrees.folder_of("session_1").exists()
    assert [landing.change.id for landing in world.changes.find_undoable_landings(str(world.root))] == [change.id]
    assert world.git_state == git_state_before


def test_hunks_land_beside_your_edits(world: LandingWorld):
    change = world.make_change(edit_four_files)
    world.write("a.txt", make_text({10: "mine"}))

    change.land(FilePart("a.txt", (2,)), FilePart("new.txt", (1,)))

    assert world.read_file("a.txt") == make_text({10: "mine", 20: "second"})
    assert (world.read_file("old.txt"), world.read_file("new.txt")) == (None, make_text({5: "five"}))
    assert [(diff.path, diff.status, diff.hunks.count("@@ -"), diff.landed) for diff in change.diff()] == [
        ("a.txt", "modified", 2, (2,)),
        ("b.txt", "deleted", 1, ()),
        ("c.txt", "added", 1, ()),
        ("new.txt", "renamed", 1, (1,)),
    ]
    assert [file.status for file in change.current.files if file.path == "new.txt"] == ["modified"]


@pytest.mark.long
def test_hunks_keep_their_numbers_when_others_landed(world: LandingWorld):
    change = world.make_change(edit_four_files)
    change.land(FilePart("a.txt", (1,)))
    refused("already_decided", lambda: change.land(FilePart("a.txt", (1,))))
    [diff] = [file for file in change.diff() if file.path == "a.txt"]
    assert diff.landed == (1,)
    assert ("+first" in diff.hunks, "+second" in diff.hunks) == (False, True)
    change.land(FilePart("a.txt", (2,)))
    assert world.read_file("a.txt") == make_text({2: "first", 20: "second"})


@pytest.mark.long
def test_the_rest_lands_after_an_undo(world: LandingWorld):
    change = world.make_change(edit_four_files)
    change.land(FilePart("a.txt", (1,)))
    change.land(FilePart("a.txt", (2,)))
    change.undo()
    change.land(FilePart("a.txt", (3,)), FilePart("c.txt"))
    assert world.read_file("a.txt") == make_text({2: "first", 38: "third"})
    refused("already_decided", lambda: change.land(FilePart("c.txt")))
    change.land(FilePart("a.txt"))
    assert world.read_file("a.txt") == make_text({2: "first", 20: "second", 38: "third"})


def test_an_unknown_file_or_hunk_is_refused(world: LandingWorld):
    change = world.make_change(edit_four_files)
    before = world.files
    refused("unknown_file", lambda: change.land(FilePart("nope")))
    refused("unknown_hunk", lambda: change.land(FilePart("a.txt", (4,))))
    refused("unknown_hunk", lambda: change.land(FilePart("b.txt", (0,))))
    assert world.files == before
    assert world.changes.preview_land(change.id, [FilePart("b.txt")]).files == 1


def test_a_file_that_replaces_another_lands_only_with_it(world: LandingWorld):
    change = world.make_change(make_edits({"b.txt": None, "b.txt/inside": "x\n"}))
    refused("inseparable", lambda: change.land(FilePart("b.txt/inside")))
    change.land(FilePart("b.txt/inside"), FilePart("b.txt"))
    assert world.read_file("b.txt/inside") == "x\n"


# Undo


@pytest.mark.long
def test_a_landed_part_can_be_undone_after_the_rest_was_discarded(world: LandingWorld):
    before = world.files
    change = world.make_change(edit_four_files)
    change.land(FilePart("a.txt"))
    events = world.bus.subscribe(lambda: None)

    narrowed = change.discard()

    assert (narrowed.state, narrowed.note) == (ChangeState.LANDED, "the rest was discarded")
    assert [file.path for file in narrowed.files] == ["a.txt"]
    assert [event.kind for event in events.drain()] == ["ChangeSetNarrowed"]
    assert not world.worktrees.folder_of("session_1").exists()
    world.changes.recover()
    world.git("gc", "-q", "--prune=now")
    assert change.undo().state is ChangeState.UNDONE
    assert world.files == before


@pytest.mark.long
def test_the_undo_of_a_session_undoes_its_last_landing(world: LandingWorld):
    files = [world.files]
    change = world.make_change(edit_four_files)
    for part in (FilePart("a.txt", (1,)), FilePart("c.txt"), FilePart("a.txt")):
        change.land(part)
        files.append(world.files)
    saved = world.read_file("a.txt")
    world.write("a.txt", "mine\n")
    refused("later_edits", lambda: world.changes.undo_session("session_1"))
    world.write("a.txt", saved)
    for landings_left in (2, 1, 0):
        assert world.changes.undo_session("session_1") == landings_left
        assert world.files == files[landings_left]
    assert change.current.state is ChangeState.UNDONE
