"""Landing part of a change set, then the rest, and undoing each (SPEC 3.9)."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.events import LandingUndone
from engine.model import ChangeSet, ChangeState, FilePart, Refusal
from engine.storage.state import unfinished_intents
from tests.execution.landing_scenarios import (
    EXISTING,
    LINES,
    Edit,
    apply_edits,
    operator_edits,
    paths,
    session_edits,
)
from tests.execution.landing_world import Change, Killed, LandingWorld
from tests.support.helpers import refused


def make_text(lines: Mapping[int, str]) -> str:
    """Forty numbered lines, of which these are others: `make_text({3: "three"})`."""
    return "".join(f"{lines.get(number, f'line {number}')}\n" for number in range(40))


TEXT = make_text({})

FILES = {"a.txt": TEXT, "b.txt": "b\n", "old.txt": TEXT}


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


def edit(folder: Path) -> None:
    """Change three places of a file, delete one, rename one with two changes, and make one."""
    (folder / "a.txt").write_text(make_text({2: "first", 20: "second", 38: "third"}))
    (folder / "b.txt").unlink()
    (folder / "old.txt").rename(folder / "new.txt")
    (folder / "new.txt").write_text(make_text({5: "five", 30: "thirty"}))
    (folder / "c.txt").write_text("c\n")


def read_file(world: LandingWorld, name: str) -> str | None:
    path = world.root / name
    return path.read_text() if path.exists() else None


# Landing a part and the rest


def test_after_a_part_landed_the_rest_waits_and_each_landing_is_undone_alone(world: LandingWorld) -> None:
    before, state = world.files, world.git_state
    change = world.make_change(edit)

    part = change.land(FilePart("b.txt"), FilePart("c.txt"))

    assert (part.state, part.landed) == (ChangeState.WAITING, 2)
    assert [file.path for file in part.files] == [file.path for file in change.diff()] == ["a.txt", "new.txt"]
    assert [read_file(world, name) for name in ("b.txt", "c.txt", "a.txt")] == [None, "c\n", TEXT]
    assert world.worktrees.folder_of("session_1").exists()
    assert [landed.id for landed in world.changes.find_undoable_landings(str(world.root))] == [change.id]
    assert world.git_state == state

    complete = change.land()
    assert (complete.state, complete.files) == (ChangeState.LANDED, change.files)
    assert read_file(world, "a.txt") == make_text({2: "first", 20: "second", 38: "third"})

    assert change.undo() == part
    assert (read_file(world, "c.txt"), read_file(world, "a.txt")) == ("c\n", TEXT)
    undone = change.undo()
    assert (undone.state, undone.files, undone.landed) == (ChangeState.UNDONE, change.files, 0)
    assert (world.files, world.git_state) == (before, state)


def test_the_worktree_stays_after_the_landing_of_a_part_was_undone(world: LandingWorld) -> None:
    change = world.make_change(edit)
    change.land(FilePart("b.txt"))
    assert change.undo().state is ChangeState.UNDONE
    world.changes.recover()
    assert world.worktrees.folder_of("session_1").exists()


def test_hunks_land_beside_your_edits(world: LandingWorld) -> None:
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


def test_hunks_keep_their_numbers_when_others_landed(world: LandingWorld) -> None:
    change = world.make_change(edit)
    first, second, third = (FilePart("a.txt", (number,)) for number in (1, 2, 3))

    change.land(first)

    refused("already_decided", lambda: change.land(first))
    [diff] = [file for file in change.diff() if file.path == "a.txt"]
    assert (diff.landed, "+first" in diff.hunks, "+second" in diff.hunks) == ((1,), False, True)
    change.land(second)
    assert read_file(world, "a.txt") == make_text({2: "first", 20: "second"})
    change.undo()
    change.land(third, FilePart("c.txt"))
    assert read_file(world, "a.txt") == make_text({2: "first", 38: "third"})
    refused("already_decided", lambda: change.land(FilePart("c.txt")))
    refused("already_decided", lambda: change.land(FilePart("a.txt", (2, 3))))
    change.land(FilePart("a.txt"))
    assert read_file(world, "a.txt") == make_text({2: "first", 20: "second", 38: "third"})


def test_hunks_are_numbered_anew_after_the_rest_was_discarded(world: LandingWorld) -> None:
    change = world.make_change(edit)
    change.land(FilePart("a.txt", (3,)))
    change.land(FilePart("a.txt", (1,)))
    change.discard()
    change.undo()
    [diff] = change.diff()
    assert (diff.landed, "+first" in diff.hunks) == ((2,), True)
    change.land(FilePart("a.txt", (1,)))
    assert read_file(world, "a.txt") == make_text({2: "first", 38: "third"})


def test_a_comment_on_an_old_line_is_on_the_line_that_the_diff_shows(world: LandingWorld) -> None:
    def edit_lines(folder: Path) -> None:
        (folder / "a.txt").write_text(make_text({2: "first\n" + "added\n" * 10, 38: "third"}))

    change = world.make_change(edit_lines)
    change.land(FilePart("a.txt", (1,)))
    [diff] = change.diff()
    assert diff.hunks.startswith("@@ -36,5 +47,5 @@")
    [comment] = world.changes.comments.add(change.id, "a.txt", 39, "why?", old=True).comments
    assert comment.quote == "line 38"


def test_an_unknown_file_or_hunk_is_refused(world: LandingWorld) -> None:
    change = world.make_change(edit)
    before = world.files
    refused("unknown_file", lambda: change.land(FilePart("nope")))
    refused("unknown_hunk", lambda: change.land(FilePart("a.txt", (4,))))
    refused("unknown_hunk", lambda: change.land(FilePart("b.txt", (0,))))
    assert world.files == before
    assert world.changes.preview_land(change.id, [FilePart("b.txt")]).files == 1


def test_a_file_that_replaces_another_lands_only_with_it(world: LandingWorld) -> None:
    def replace_file_by_folder(folder: Path) -> None:
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inside").write_text("x\n")

    change = world.make_change(replace_file_by_folder)
    refused("inseparable", lambda: change.land(FilePart("b.txt/inside")))
    change.land(FilePart("b.txt/inside"), FilePart("b.txt"))
    assert read_file(world, "b.txt/inside") == "x\n"


# Undo, branches and our files


def test_a_landed_part_can_be_undone_after_the_rest_was_discarded(world: LandingWorld) -> None:
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


def test_a_branch_has_only_the_rest(world: LandingWorld) -> None:
    change = world.make_change(edit)
    events = world.bus.subscribe(lambda: None)
    change.land(FilePart("a.txt", (1,)))
    change.land(FilePart("a.txt"))
    branched = change.branch()
    assert [event.sentence() for event in events.drain()] == [
        f"landed: {change.id}, 1 file, 4 left",
        f"landed: {change.id}, 1 file, 3 left",
        f"changes {change.id} were committed to the branch clawpy/fix-the-cart",
    ]
    assert (branched.state, branched.branch) == (ChangeState.LANDED, "clawpy/fix-the-cart")
    changed = world.git("diff", "--name-only", "--no-renames", "main", branched.branch).split()
    assert changed == ["b.txt", "c.txt", "new.txt", "old.txt"]
    change.undo()
    assert change.undo().state is ChangeState.UNDONE
    assert read_file(world, "a.txt") == TEXT


def test_git_gc_removes_no_tree_of_a_reduced_change_set(world: LandingWorld) -> None:
    change = world.make_change(edit)
    change.land(FilePart("a.txt", (1, 2)), FilePart("new.txt", (1,)))
    change.discard()
    complete = world.files
    change.undo()
    change.land(FilePart("a.txt", (1,)))

    world.git("gc", "-q", "--prune=now")

    assert [file.path for file in change.diff()] == ["a.txt", "new.txt"]
    change.land()
    assert world.files == complete


def test_files_of_every_landed_part_are_ours(world: LandingWorld) -> None:
    change = world.make_change(edit)
    workspace = str(world.root)
    change.land(FilePart("a.txt"))
    change.land(FilePart("c.txt"))
    assert set(world.changes.read_own_write_times(workspace)) == {"a.txt", "c.txt"}
    change.undo()
    assert set(world.changes.read_own_write_times(workspace)) == {"a.txt"}
    assert [landed.id for landed in world.changes.find_undoable_landings(workspace)] == [change.id]
    world.write("a.txt", "mine\n")
    change.land(FilePart("c.txt"))
    assert world.changes.find_undoable_landings(workspace) == []


def test_a_file_that_is_edited_while_the_next_one_is_written_is_not_ours(world: LandingWorld) -> None:
    change = world.make_change(edit)

    def save(step: str) -> None:
        if step == "write c.txt":  # after a.txt
            world.write("a.txt", "mine\n")
            os.utime(world.root / "a.txt", ns=(1, 1))

    world.step = save
    change.land()
    assert world.changes.read_own_write_times(str(world.root))["a.txt"] != 1
    assert world.changes.find_undoable_landings(str(world.root)) == []


def test_the_undo_of_a_session_undoes_its_last_landing(world: LandingWorld) -> None:
    files = [world.files]
    change = world.make_change(edit)
    for part in (FilePart("a.txt", (1,)), FilePart("c.txt"), FilePart("a.txt")):
        change.land(part)
        files.append(world.files)
    world.write("a.txt", "mine\n")
    refused("later_edits", lambda: world.changes.undo_session("session_1"))

    world.write("a.txt", make_text({2: "first", 20: "second", 38: "third"}))
    events = world.bus.subscribe(lambda: None)
    for left in (2, 1, 0):
        assert world.changes.undo_session("session_1") == left
        assert world.files == files[left]
    assert change.current.state is ChangeState.UNDONE
    assert [event.left for event in events.drain() if isinstance(event, LandingUndone)] == [2, 1, 0]


def test_a_landing_that_changes_nothing_can_be_undone(world: LandingWorld) -> None:
    change = world.make_change(edit)
    world.write("a.txt", make_text({2: "first", 20: "second", 38: "third"}))
    before = world.files
    part = change.land(FilePart("a.txt"))
    assert (part.landed, part.landings) == (0, 1)
    assert world.changes.undo_session("session_1") == 0
    assert (change.current.state, world.files) == (ChangeState.UNDONE, before)


# Random sequences of parts, and crashes


def draw_parts(change: Change, chance: random.Random) -> list[FilePart]:
    """Some of the files, some of the hunks of files."""
    parts = []
    for file in change.diff():
        hunks = file.hunks.count("\n@@ -") + file.hunks.startswith("@@ -")
        if hunks > 1 and not file.all_or_nothing and chance.random() < 0.7:
            numbers = list(itertools.islice(file.numbers, hunks))
            chosen = sorted(chance.sample(numbers, chance.randint(1, hunks)))
            parts.append(FilePart(file.path, tuple(chosen)))
        elif chance.random() < 0.5:
            parts.append(FilePart(file.path))
    return parts


line_edits_of_long_files = st.lists(
    st.builds(Edit, st.just("line"), st.sampled_from(EXISTING), paths, st.integers(0, 90)), max_size=6
)


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    session_edits,
    line_edits_of_long_files,
    st.lists(operator_edits, max_size=2),
    st.integers(0, 2**32),
    st.sampled_from(("\n", "\n", "\n", "\r\n")),
)
def test_any_sequence_of_parts_lands_the_whole_and_is_undone_step_by_step(
    edits: list[Edit], line_edits: list[Edit], meanwhile: list[Edit], seed: int, line_break: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = LandingWorld(Path(folder))
        try:
            _land_in_parts(world, [*line_edits, *edits], meanwhile, random.Random(seed), line_break)
        finally:
            world.close()


def _land_in_parts(
    world: LandingWorld, edits: list[Edit], meanwhile: list[Edit], chance: random.Random, line_break: str
) -> None:
    text = line_break.join(LINES * 8) + chance.choice((line_break, ""))
    world.repository.commit("one", {"a.txt": text, "b.txt": text[:200], "d/c.txt": text[100:], "x/y/z.txt": text * 2})

    def work(inside: Path) -> None:
        for session_edit in edits:
            session_edit.apply(inside)

    captured = world.run_session(work)
    if captured is None:
        return
    change = Change(world.changes, captured)
    apply_edits(world, meanwhile)
    start, state = world.files, world.git_state
    try:
        change.land()
    except Refusal:
        return
    complete = world.files
    change.undo()
    assert world.files == start
    steps = [start]
    while change.current.state is not ChangeState.LANDED:
        parts = draw_parts(change, chance) if len(steps) < 4 else []
        try:
            change.land(*parts)
        except Refusal as refusal:
            assert refusal.code == "inseparable" or meanwhile, refusal  # noqa: PT017 (a loop of cases)
            assert world.files == steps[-1]
            if meanwhile:
                return  # what you changed meanwhile takes the whole, but not this order of parts
            change.land()
        steps.append(world.files)
        assert world.git_state == state
    if not meanwhile:
        assert steps[-1] == complete
    for before in reversed(steps[:-1]):
        change.undo()
        assert world.files == before
    assert change.current.state is ChangeState.UNDONE
    assert world.git_state == state


DECISIONS: dict[str, Callable[[Change], ChangeSet]] = {
    "land a part": lambda change: change.land(FilePart("a.txt", (1, 3)), FilePart("new.txt")),
    "land the rest": Change.land,
    "undo the rest": Change.undo,
    "undo the part": Change.undo,
}


def is_killed_at(number: int, world: LandingWorld, action: Callable[[], object]) -> bool:
    """Do `action`, and end it at its step of this number as a kill would. False if it had no such step."""
    numbers = itertools.count()

    def step(name: str) -> None:
        if next(numbers) == number:
            raise Killed(name)

    world.step = step
    try:
        action()
    except Killed:
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("decision", DECISIONS)
def test_a_landing_that_is_killed_at_any_step_is_complete_or_rolled_back(tmp_path: Path, decision: str) -> None:
    """After a rollback the same decision succeeds."""
    outcomes: list[tuple[object, ...]] = []
    completed = 0
    killed = True
    while killed:
        folder = tmp_path / str(len(outcomes))
        folder.mkdir()
        world = LandingWorld(folder)
        world.repository.commit("one", FILES)
        change = world.make_change(edit)
        for earlier in itertools.takewhile(lambda name: name != decision, DECISIONS):
            DECISIONS[earlier](change)
        files_before, before = world.files, change.current
        killed = is_killed_at(len(outcomes), world, lambda change=change: DECISIONS[decision](change))
        world.close()
        world = LandingWorld(folder)
        world.changes.recover()
        assert unfinished_intents(world.database, "landing") == []
        after = world.changes.get(before.id)
        if after.landed == before.landed:
            assert (world.files, after) == (files_before, before)
            after = DECISIONS[decision](Change(world.changes, before))
        else:
            completed += killed
        outcomes.append((world.files, after.state, after.landed, after.files))
        world.close()
    assert len(outcomes) > 5
    assert completed
    assert all(outcome == outcomes[0] for outcome in outcomes)
