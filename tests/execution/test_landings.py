"""Landing, undo and their recovery (SPEC 3.9), case by case, and a few random scenarios.

Five hundred of them: `pytest -m faults tests/faults/test_landing_kill.py`.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from engine.execution.change_store import ChangeSetRow
from engine.model import ChangeState, Refusal
from engine.storage.database import Transaction
from engine.storage.state import unfinished_intents
from tests.execution.landing_scenarios import Scenario, check_scenario, refusal_of, scenarios
from tests.execution.landing_world import (
    TEXT,
    Change,
    FileStates,
    LandingWorld,
    assert_landing_is_refused,
    file_edit,
    file_edits,
    kill_at,
)
from tests.support.helpers import refused


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", {"a.txt": TEXT, "d/only.txt": "d\n", "b.txt": TEXT})
    return landing_world


def test_lines_that_changed_on_both_sides_are_a_conflict(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("a.txt", TEXT.replace("line 3\n", "theirs\n")))
    world.write("a.txt", TEXT.replace("line 3\n", "mine\n"))

    refusal = assert_landing_is_refused(world, change_set)

    assert "a.txt" in refusal.message
    assert "branch" in refusal.fix


@pytest.mark.parametrize(
    ("target", "existing"),
    [
        pytest.param("new.txt", "new.txt", id="a file where a file comes"),
        pytest.param("new.txt", "new.txt/deep/er", id="a folder where a file comes"),
        pytest.param("sub/new.txt", "sub", id="a file where a folder comes"),
    ],
)
def test_an_ignored_file_or_folder_in_the_way_is_kept(world: LandingWorld, target: str, existing: str) -> None:
    change_set = world.make_change(file_edit(target, "theirs\n"))
    (world.root / ".git/info/exclude").write_text("/new.txt\n/sub\n")
    world.write(existing, "precious\n")

    assert existing in assert_landing_is_refused(world, change_set).message


def test_an_empty_folder_is_replaced_and_restored_by_the_undo(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("new", "theirs\n"))
    (world.root / "new/inner").mkdir(parents=True)
    (world.root / "new/inner").chmod(0o711)
    before = world.files

    change_set.land()
    assert (world.root / "new").read_text() == "theirs\n"
    change_set.undo()

    assert world.files == before


def test_an_edit_of_a_file_that_the_session_renamed_is_merged(world: LandingWorld) -> None:
    change_set = world.make_change(lambda folder: (folder / "a.txt").rename(folder / "moved.txt"))
    world.write("a.txt", TEXT + "mine\n")

    change_set.land()

    assert not (world.root / "a.txt").exists()
    assert (world.root / "moved.txt").read_text() == TEXT + "mine\n"


def test_modes_links_deletions_and_folders_land_and_are_undone(world: LandingWorld) -> None:
    world.write("private.txt", "p\n").chmod(0o600)
    world.write("fixed.txt", "f\n").chmod(0o444)
    world.write("run.sh", "r\n").chmod(0o750)
    (world.root / "link").symlink_to("./a.txt")
    (world.root / "d").chmod(0o711)

    def edit(folder: Path) -> None:
        (folder / "private.txt").write_text("P\n")
        (folder / "fixed.txt").unlink()
        (folder / "fixed.txt").write_text("F\n")
        (folder / "run.sh").chmod(0o644)
        (folder / "a.txt").chmod(0o755)
        (folder / "d/only.txt").unlink()
        (folder / "d").rmdir()
        (folder / "link").unlink()
        (folder / "link").symlink_to("b.txt/../d//")
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inner").write_bytes(b"\0\xff\r\n")

    change_set = world.make_change(edit)
    before, state = world.files, world.git_state

    change_set.land()

    after = world.files
    assert after["private.txt"] == ("file", 0o600, b"P\n")
    assert after["fixed.txt"] == ("file", 0o444, b"F\n")
    assert after["run.sh"] == ("file", 0o640, b"r\n")
    assert after["a.txt"][1] == 0o755
    assert after["link"] == ("link", 0, b"b.txt/../d//")
    assert after["b.txt/inner"][2] == b"\0\xff\r\n"
    assert "d" not in after
    change_set.undo()
    assert world.files == before
    assert world.git_state == state


def test_a_rename_that_changes_only_the_case_lands_and_is_undone(world: LandingWorld) -> None:
    change_set = world.make_change(lambda folder: (folder / "a.txt").rename(folder / "A.txt"))
    before = world.files

    change_set.land()
    assert {path for path in world.files if path.lower() == "a.txt"} == {"A.txt"}
    change_set.undo()
    assert world.files == before


def test_line_endings_are_those_of_a_checkout_and_restored_by_the_undo(world: LandingWorld) -> None:
    world.git("config", "core.autocrlf", "true")
    (world.root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (world.root / "unix.txt").write_bytes(b"one\ntwo\n")

    def edit(folder: Path) -> None:
        for name in ("dos.txt", "unix.txt"):
            (folder / name).write_bytes((folder / name).read_bytes() + b"three\r\n")
        (folder / "a.txt").chmod(0o755)
        (folder / ".gitattributes").write_text("*.lf eol=lf\n")
        (folder / "new.lf").write_text("x\ny\n")

    change_set = world.make_change(edit)
    before = world.files

    change_set.land()

    assert (world.root / "dos.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "unix.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "new.lf").read_bytes() == b"x\ny\n"
    assert (world.root / "a.txt").read_bytes() == TEXT.encode()  # the mode alone changed
    change_set.undo()
    assert world.files == before


@pytest.mark.long
def test_a_submodule_is_left_as_it_is(world: LandingWorld, tmp_path: Path) -> None:
    library = LandingWorld(tmp_path / "library").repository
    library.commit("one", {"x": "1"})
    commit = library.git("rev-parse", "HEAD")
    world.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.path), "lib")
    world.repository.commit("part")
    beside = world.make_change(file_edit("a.txt", "beside\n"), name="session_1")
    (world.root / "lib/x").write_text("dirty")
    beside.land()

    def drop(folder: Path) -> None:
        (folder / "lib").rmdir()

    assert world.run_session(drop, name="session_2") is None, "a submodule is no part of the changes"
    assert commit == world.git("-C", "lib", "rev-parse", "HEAD")


def test_a_file_with_a_filter_program_is_not_landed_and_no_filter_runs(world: LandingWorld) -> None:
    world.git("config", "filter.lfs.clean", f"touch {world.folder}/trap; cat")
    world.git("config", "filter.lfs.smudge", f"touch {world.folder}/trap; cat")
    world.write(".gitattributes", "*.bin filter=lfs\n")
    change_set = world.make_change(file_edit("big.bin", "theirs\n"))

    assert "lfs" in assert_landing_is_refused(world, change_set, "unsupported_files").message
    refused("unsupported_files", change_set.branch)
    assert not (world.folder / "trap").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["b.txt", pytest.param("d/only.txt", marks=pytest.mark.faults), pytest.param("new.txt", marks=pytest.mark.faults)],
)
def test_an_edit_during_the_landing_is_never_overwritten(world: LandingWorld, name: str) -> None:
    """At every step; and the landing happens as a whole or not at all."""
    files = {"a.txt": "theirs\n", "b.txt": "theirs\n", "d/only.txt": None, "new.txt": "theirs\n"}
    change_set = world.make_change(file_edits(files))
    steps: list[str] = []
    world.step = steps.append
    change_set.land()
    change_set.undo()
    before = world.files

    for number_of_step in range(steps.index("files done")):
        refusal = land_with_save(world, change_set, name, number_of_step)
        after = world.files
        assert after[name][2] == b"saved by the operator\n"
        if refusal is None:  # saved after its file was landed
            assert after["a.txt"][2] == b"theirs\n"
            world.database.write(lambda tx: make_waiting(tx, change_set.id))
        else:
            assert refusal.code == "conflict"
            assert {**after, name: None} == {**before, name: None}
        restore_files(world, before)


def land_with_save(world: LandingWorld, change_set: Change, name: str, number_of_step: int) -> Refusal | None:
    """Land while the operator saves a file at this step. Returns how it was refused, or None."""
    numbers = itertools.count()

    def save(step: str) -> None:
        if next(numbers) == number_of_step:
            world.write(name, "saved by the operator\n")

    world.step = save
    try:
        return refusal_of(change_set.land)
    finally:
        world.step = lambda step: None


def make_waiting(tx: Transaction, change_set_id: str) -> None:
    """Forget that a change set has landed."""
    row = tx.session.get(ChangeSetRow, change_set_id)
    row.state, row.landings = "waiting", []
    tx.session.add(row)


def restore_files(world: LandingWorld, before: FileStates) -> None:
    """Make the operator's files what they were; there is no link among them."""
    for path in world.files:
        if path not in before:
            (world.root / path).unlink()
    for path, (kind, mode, data) in before.items():
        if kind == "folder":
            (world.root / path).mkdir(exist_ok=True)
        elif kind == "file":
            (world.root / path).write_bytes(data)
            (world.root / path).chmod(mode)
    assert world.files == before


@pytest.mark.long
def test_a_file_that_changes_all_the_time_is_refused(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("a.txt", TEXT + "theirs\n"))
    numbers_of_attempts = itertools.count()

    def change_file(step: str) -> None:
        if step == "planned":
            world.write("a.txt", f"{next(numbers_of_attempts)}\n" + TEXT)

    world.step = change_file
    refused("busy_files", change_set.land)
    assert next(numbers_of_attempts) == 5


# Undo and recovery


def replace_by_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("b.txt")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "edit"),
    [
        pytest.param("a.txt", lambda file: file.write_text("mine\n"), id="bytes"),
        pytest.param("a.txt", lambda file: file.chmod(0o755), id="mode"),
        pytest.param("a.txt", Path.unlink, id="gone"),
        pytest.param("a.txt", replace_by_link, id="kind"),
        pytest.param("d", lambda file: file.write_text("a file where the folder was\n"), id="folder"),
    ],
)
def test_an_undo_that_would_lose_later_edits_is_refused(
    world: LandingWorld, name: str, edit: Callable[[Path], object]
) -> None:
    change_set = world.make_change(file_edits({"a.txt": "theirs\n", "d/only.txt": None}))
    change_set.land()
    edit(world.root / name)
    before = world.files

    assert name in refused("later_edits", change_set.undo).message
    assert world.files == before
    assert change_set.current.state is ChangeState.LANDED


@pytest.mark.long
@pytest.mark.parametrize("failing", ["prepare", "write", "make folder", "remove"])
def test_a_landing_that_fails_to_write_is_rolled_back(world: LandingWorld, failing: str) -> None:
    files = {"a.txt": "theirs\n", "d/only.txt": None, "sub/new.txt": "theirs\n"}
    change_set = world.make_change(file_edits(files))
    before = world.files

    def fail(step: str) -> None:
        if step.startswith(failing):
            world.step = lambda step: None
            raise OSError(28, "No space left on device", "a.txt")

    world.step = fail
    refused("cannot_write", change_set.land)

    assert world.files == before
    assert unfinished_intents(world.database, "landing") == []
    change_set.land()


def test_a_failed_rollback_is_finished_before_the_next_landing(world: LandingWorld) -> None:
    change_set = world.make_change(file_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    before = world.files

    def fail(step: str) -> None:
        if step in ("write b.txt", "roll back"):
            raise OSError(28, "No space left on device")

    world.step = fail
    refused("not_restored", change_set.land)
    assert world.files != before
    world.step = lambda step: None

    assert change_set.land().state is ChangeState.LANDED
    change_set.undo()
    assert world.files == before


def test_recovery_keeps_and_names_files_that_were_edited_after_the_crash(world: LandingWorld) -> None:
    change_set = world.make_change(file_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    kill_at(world, "write b.txt", change_set.land)
    (world.root / "a.txt").write_text("edited after the crash\n")

    (message,) = world.changes.recover()

    assert "interrupted and undone" in message
    assert "a.txt" in message
    assert (world.root / "a.txt").read_text() == "edited after the crash\n"
    assert (world.root / "b.txt").read_text() == TEXT
    assert list(world.root.glob(".clawpy*")) == []
    assert world.changes.recover() == []


def test_a_repository_with_sha256_lands_undoes_and_branches(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", tmp_path / "shop"], check=True)
    world = LandingWorld(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT})
    change_set = world.make_change(file_edit("a.txt", "theirs\n"))
    before = world.files

    change_set.land()
    assert (world.root / "a.txt").read_text() == "theirs\n"
    change_set.undo()
    assert world.files == before
    assert change_set.branch().branch == "clawpy/fix-the-cart"
    world.close()


def test_a_workspace_that_is_a_linked_worktree_lands_and_undoes(world: LandingWorld) -> None:
    linked = world.folder / "linked"
    world.git("worktree", "add", "-q", "-b", "other", str(linked))
    change_set = world.make_change(file_edit("a.txt", "theirs\n"), workspace=linked)
    untouched = world.files

    change_set.land()

    assert (linked / "a.txt").read_text() == "theirs\n"
    assert world.files == untouched
    change_set.undo()
    assert (linked / "a.txt").read_text() == TEXT
    assert linked.exists()


@pytest.mark.long
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios)
def test_a_landing_is_what_git_would_do_and_an_undo_is_its_exact_reverse(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_scenario(scenario, Path(folder))


def test_nothing_is_written_through_a_link(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("sub/new.txt", "theirs\n"))
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (world.root / ".git/info/exclude").write_text("/sub\n")
    (world.root / "sub").symlink_to(elsewhere)

    assert_landing_is_refused(world, change_set)

    assert list(elsewhere.iterdir()) == []
