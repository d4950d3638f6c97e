"""Landing part of a change set, then the rest, and undoing each; hunks of files (SPEC 3.9)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.diffs import apply_hunks, find_hunks
from engine.model import ChangeState, FilePart
from tests.execution.changesets.landing_world import LandingWorld
from tests.execution.changesets.parts_of_changes import FILES, TEXT, edit, make_text
from tests.support.checks import refused


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


def read_file(world: LandingWorld, name: str) -> str | None:
    path = world.root / name
    return path.read_text() if path.exists() else None


# Landing a part and the rest


def test_after_a_part_landed_the_rest_waits(world: LandingWorld):
    state = world.git_state
    change = world.make_change(edit)
    part = change.land(FilePart("b.txt"), FilePart("c.txt"))
    assert (part.state, part.landed) == (ChangeState.WAITING, 2)
    assert [file.path for file in part.files] == [file.path for file in change.diff()] == ["a.txt", "new.txt"]
    assert [read_file(world, name) for name in ("b.txt", "c.txt", "a.txt")] == [None, "c\n", TEXT]
    assert world.worktrees.folder_of("session_1").exists()
    assert [landed.change.id for landed in world.changes.find_undoable_landings(str(world.root))] == [change.id]
    assert world.git_state == state


def test_hunks_land_beside_your_edits(world: LandingWorld):
    change = world.make_change(edit)
    world.write("a.txt", make_text({10: "mine"}))

    change.land(FilePart("a.txt", (2,)), FilePart("new.txt", (1,)))

    assert read_file(world, "a.txt") == make_text({10: "mine", 20: "second"})
    assert (read_file(world, "old.txt"), read_file(world, "new.txt")) == (None, make_text({5: "five"}))
    assert [(diff.path, diff.status, diff.hunks.count("@@ -"), diff.landed) for diff in change.diff()] == [
        ("a.txt", "modified", 2, (2,)),
        ("b.txt", "deleted", 1, ()),
        ("c.txt", "added", 1, ()),
        ("new.txt", "renamed", 1, (1,)),
    ]
    assert [file.status for file in change.current.files if file.path == "new.txt"] == ["modified"]


@pytest.mark.long
def test_hunks_keep_their_numbers_when_others_landed(world: LandingWorld):
    change = world.make_change(edit)
    change.land(FilePart("a.txt", (1,)))
    refused("already_decided", lambda: change.land(FilePart("a.txt", (1,))))
    [diff] = [file for file in change.diff() if file.path == "a.txt"]
    assert diff.landed == (1,)
    assert ("+first" in diff.hunks, "+second" in diff.hunks) == (False, True)
    change.land(FilePart("a.txt", (2,)))
    assert read_file(world, "a.txt") == make_text({2: "first", 20: "second"})
    change.undo()
    change.land(FilePart("a.txt", (3,)), FilePart("c.txt"))
    assert read_file(world, "a.txt") == make_text({2: "first", 38: "third"})
    refused("already_decided", lambda: change.land(FilePart("c.txt")))
    change.land(FilePart("a.txt"))
    assert read_file(world, "a.txt") == make_text({2: "first", 20: "second", 38: "third"})


def test_an_unknown_file_or_hunk_is_refused(world: LandingWorld):
    change = world.make_change(edit)
    before = world.files
    refused("unknown_file", lambda: change.land(FilePart("nope")))
    refused("unknown_hunk", lambda: change.land(FilePart("a.txt", (4,))))
    refused("unknown_hunk", lambda: change.land(FilePart("b.txt", (0,))))
    assert world.files == before
    assert world.changes.preview_land(change.id, [FilePart("b.txt")]).files == 1


def test_a_file_that_replaces_another_lands_only_with_it(world: LandingWorld):
    def replace_file_by_folder(folder: Path):
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inside").write_text("x\n")

    change = world.make_change(replace_file_by_folder)
    refused("inseparable", lambda: change.land(FilePart("b.txt/inside")))
    change.land(FilePart("b.txt/inside"), FilePart("b.txt"))
    assert read_file(world, "b.txt/inside") == "x\n"


# Undo, branches and our files


@pytest.mark.long
def test_a_landed_part_can_be_undone_after_the_rest_was_discarded(world: LandingWorld):
    before = world.files
    change = world.make_change(edit)
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
    change = world.make_change(edit)
    for part in (FilePart("a.txt", (1,)), FilePart("c.txt"), FilePart("a.txt")):
        change.land(part)
        files.append(world.files)
    saved = read_file(world, "a.txt")
    world.write("a.txt", "mine\n")
    refused("later_edits", lambda: world.changes.undo_session("session_1"))
    world.write("a.txt", saved)
    for left in (2, 1, 0):
        assert world.changes.undo_session("session_1") == left
        assert world.files == files[left]
    assert change.current.state is ChangeState.UNDONE


# Hunks of a file


@given(st.data())
def test_the_hunks_of_a_file_are_found_in_it(data: st.DataObject):
    """Also where lines repeat, hunks are empty on one side, or lie side by side."""
    lines = st.lists(st.sampled_from((b"a\n", b"b\n", b"a\r\n")), max_size=3)
    old, new = b"", b""
    spans = []
    for same, removed, added in data.draw(st.lists(st.tuples(lines, lines, lines), max_size=6)):
        old, new = old + b"".join(same), new + b"".join(same)
        start, new_start = old.count(b"\n"), new.count(b"\n")
        old, new = old + b"".join(removed), new + b"".join(added)
        spans.append((start, old.count(b"\n"), new_start, new.count(b"\n")))
    chosen = data.draw(st.sets(st.integers(1, max(1, len(spans))), max_size=len(spans)))
    file = apply_hunks(old, new, spans, chosen)
    numbers = find_hunks(file, old, new, spans)
    assert numbers is not None
    assert apply_hunks(old, new, spans, numbers) == file
    assert find_hunks(file + b"more\n", old, new, spans) is None
