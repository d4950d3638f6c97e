"""A landing that edits, a full disk or a crash disturbs happens as a whole or not at all (SPEC 3.9)."""

import itertools
from pathlib import Path

import pytest

from engine.model import ChangeState, Refusal
from engine.storage.state import read_unfinished_intents
from tests.execution.changesets.landing_scenarios import find_refusal
from tests.execution.changesets.landing_world import FILES, TEXT, Change, LandingWorld, kill_at, make_edits
from tests.support.checks import refused


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


def land_with_save(world: LandingWorld, change_set: Change, name: str, step_index: int) -> Refusal | None:
    """Land while the operator saves a file at this step. Returns how it was refused, or None."""
    indices = itertools.count()

    def save(step: str):
        if next(indices) == step_index:
            world.write(name, "saved by the operator\n")

    world.step = save
    return find_refusal(change_set.land)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["b.txt", pytest.param("d/only.txt", marks=pytest.mark.faults), pytest.param("new.txt", marks=pytest.mark.faults)],
)
def test_an_edit_during_the_landing_is_never_overwritten(world: LandingWorld, tmp_path: Path, name: str):
    """At every step; and the landing happens as a whole or not at all."""
    files = {"a.txt": "theirs\n", "b.txt": "theirs\n", "d/only.txt": None, "new.txt": "theirs\n"}
    before = world.files
    steps = []
    world.step = steps.append
    world.make_change(make_edits(files)).land()

    for step_index in range(steps.index("files done")):
        edited = LandingWorld(tmp_path / str(step_index))
        edited.repository.commit("one", FILES)
        refusal = land_with_save(edited, edited.make_change(make_edits(files)), name, step_index)
        after = edited.files
        edited.close()
        assert after[name][2] == b"saved by the operator\n"
        if refusal is None:  # saved after its file was landed
            assert after["a.txt"][2] == b"theirs\n"
        else:
            assert refusal.code == "conflict"
            assert {**after, name: None} == {**before, name: None}, "all but what the operator saved"


@pytest.mark.long
def test_a_file_that_changes_all_the_time_is_refused(world: LandingWorld):
    change_set = world.make_change(make_edits({"a.txt": TEXT + "theirs\n"}))
    attempts = itertools.count()

    def change_file(step: str):
        if step == "planned":
            world.write("a.txt", f"{next(attempts)}\n" + TEXT)

    world.step = change_file
    refused("busy_files", change_set.land)
    assert next(attempts) == 5


@pytest.mark.long
@pytest.mark.parametrize("failing", ["prepare", "write", "make folder", "remove"])
def test_a_landing_that_fails_to_write_is_rolled_back(world: LandingWorld, failing: str):
    files = {"a.txt": "theirs\n", "d/only.txt": None, "sub/new.txt": "theirs\n"}
    change_set = world.make_change(make_edits(files))
    before = world.files

    def fail(step: str):
        if step.startswith(failing):
            world.step = lambda step: None
            raise OSError(28, "No space left on device", "a.txt")

    world.step = fail
    refused("cannot_write", change_set.land)

    assert world.files == before
    assert read_unfinished_intents(world.database, "landing") == []
    change_set.land()


def test_a_failed_rollback_is_finished_before_the_next_landing(world: LandingWorld):
    change_set = world.make_change(make_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    before = world.files

    def fail(step: str):
        if step in ("write b.txt", "roll back"):
            raise OSError(28, "No space left on device")

    world.step = fail
    refused("not_restored", change_set.land)
    assert world.files != before
    world.step = lambda step: fail("roll back")  # the disk is still full
    refused("not_restored", change_set.land)
    assert "cannot be undone yet" in world.changes.recover()[0]
    world.step = lambda step: None

    assert change_set.land().state is ChangeState.LANDED
    change_set.undo()
    assert world.files == before


def test_recovery_keeps_and_names_files_that_were_edited_after_the_crash(world: LandingWorld):
    change_set = world.make_change(make_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    kill_at(world, "write b.txt", change_set.land)
    world.write("a.txt", "edited after the crash\n")

    (message,) = world.changes.recover()

    assert "interrupted and undone" in message
    assert "a.txt" in message
    assert world.read_file("a.txt") == "edited after the crash\n"
    assert world.read_file("b.txt") == TEXT
    assert list(world.root.glob(".clawpy*")) == []
    assert world.changes.recover() == []
