"""Landing, case by case (SPEC 3.9): merged files, what stands in the way."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.change_store import ChangeSetRow
from engine.execution.file_plan import ABSENT, Entry, Image, Kind, Plan, blob_id
from engine.model import ChangeState, Refusal
from engine.storage.beneath import Beneath
from engine.storage.database import Transaction
from engine.storage.state import unfinished_intents
from tests.execution.landing_world import TEXT, World, git_state, picture, refusal_of, refused_whole, writing


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT, "d/only.txt": "d\n", "b.txt": TEXT})
    yield world
    world.close()


def test_the_same_lines_on_both_sides_are_refused(world: World) -> None:
    change_set = world.changed(writing("a.txt", TEXT.replace("line 3\n", "theirs\n")))
    world.repository.write("a.txt", TEXT.replace("line 3\n", "mine\n"))

    refusal = refused_whole(world, change_set)

    assert refusal.code == "conflict"
    assert "a.txt" in refusal.message
    assert "branch" in refusal.fix


@pytest.mark.parametrize(
    ("made", "way"),
    [
        ("new.txt", "new.txt"),  # an ignored file where one comes
        ("new.txt/deep/er", "new.txt/deep/er"),  # an ignored folder with a file in it
        ("sub", "sub"),  # an ignored file where a folder comes
    ],
)
def test_ignored_things_in_the_way_are_never_lost(world: World, made: str, way: str) -> None:
    target = "sub/new.txt" if made == "sub" else "new.txt"
    change_set = world.changed(writing(target, "theirs\n"))
    (world.root / ".git/info/exclude").write_text("/new.txt\n/sub\n")
    world.repository.write(made, "precious\n")

    refusal = refused_whole(world, change_set)

    assert refusal.code == "conflict"
    assert way in refusal.message


def test_a_link_to_elsewhere_is_not_written_through(world: World) -> None:
    change_set = world.changed(writing("sub/new.txt", "theirs\n"))
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    (world.root / ".git/info/exclude").write_text("/sub\n")
    (world.root / "sub").symlink_to(elsewhere)

    refused_whole(world, change_set)

    assert list(elsewhere.iterdir()) == []


def test_an_empty_folder_gives_way_and_comes_back(world: World) -> None:
    change_set = world.changed(writing("place", "theirs\n"))
    (world.root / "place/inner").mkdir(parents=True)
    (world.root / "place/inner").chmod(0o711)
    before = picture(world.root)

    world.changes.land(change_set.id)
    assert (world.root / "place").read_text() == "theirs\n"
    world.changes.undo(change_set.id)

    assert picture(world.root) == before


def test_a_rename_meets_an_edit(world: World) -> None:
    change_set = world.changed(lambda folder: (folder / "a.txt").rename(folder / "moved.txt"))
    world.repository.write("a.txt", TEXT + "mine\n")

    world.changes.land(change_set.id)

    assert not (world.root / "a.txt").exists()
    assert (world.root / "moved.txt").read_text() == TEXT + "mine\n"


def test_modes_links_deletions_and_folders_come_and_go(world: World) -> None:
    world.repository.write("private.txt", "p\n").chmod(0o600)
    world.repository.write("fixed.txt", "f\n").chmod(0o444)
    world.repository.write("run.sh", "r\n").chmod(0o750)
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

    change_set = world.changed(edit)
    before, state = picture(world.root), git_state(world.root)

    world.changes.land(change_set.id)

    after = picture(world.root)
    assert after["private.txt"] == ("file", 0o600, b"P\n")
    assert after["fixed.txt"] == ("file", 0o444, b"F\n")
    assert after["run.sh"] == ("file", 0o640, b"r\n")
    assert after["a.txt"][1] == 0o755
    assert after["link"] == ("link", 0, b"b.txt/../d//")
    assert after["b.txt/inner"][2] == b"\0\xff\r\n"
    assert "d" not in after
    world.changes.undo(change_set.id)
    assert picture(world.root) == before
    assert git_state(world.root) == state


def test_a_rename_of_upper_and_lower_case_alone(world: World) -> None:
    change_set = world.changed(lambda folder: (folder / "a.txt").rename(folder / "A.txt"))
    before = picture(world.root)

    world.changes.land(change_set.id)
    assert {path for path in picture(world.root) if path.lower() == "a.txt"} == {"A.txt"}
    world.changes.undo(change_set.id)
    assert picture(world.root) == before


def test_line_endings_come_as_a_checkout_makes_them_and_go_as_they_were(world: World) -> None:
    world.repository.git("config", "core.autocrlf", "true")
    (world.root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (world.root / "unix.txt").write_bytes(b"one\ntwo\n")

    def edit(folder: Path) -> None:
        for name in ("dos.txt", "unix.txt"):
            (folder / name).write_bytes((folder / name).read_bytes() + b"three\r\n")
        (folder / "a.txt").chmod(0o755)
        (folder / ".gitattributes").write_text("*.lf eol=lf\n")
        (folder / "new.lf").write_text("x\ny\n")

    change_set = world.changed(edit)
    before = picture(world.root)

    world.changes.land(change_set.id)

    assert (world.root / "dos.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "unix.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "new.lf").read_bytes() == b"x\ny\n"
    assert (world.root / "a.txt").read_bytes() == TEXT.encode()  # the mode alone changed
    world.changes.undo(change_set.id)
    assert picture(world.root) == before


@pytest.mark.long
def test_a_submodule_is_not_moved_by_us(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other").repository
    other.commit("one", {"x": "1"})
    commit = other.git("rev-parse", "HEAD")
    world.repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "lib")
    world.repository.commit("part")
    beside = world.changed(writing("a.txt", "beside\n"), name="session_1")
    (world.root / "lib/x").write_text("dirty")
    world.changes.land(beside.id)

    def drop(folder: Path) -> None:
        (folder / "lib").rmdir()

    assert world.session(drop, name="session_2") is None, "what is in the place of a submodule is nobody's change"
    assert commit == world.repository.git("-C", "lib", "rev-parse", "HEAD")


def test_filtered_files_are_neither_run_nor_landed(world: World) -> None:
    world.repository.git("config", "filter.lfs.clean", f"touch {world.folder}/trap; cat")
    world.repository.git("config", "filter.lfs.smudge", f"touch {world.folder}/trap; cat")
    world.repository.write(".gitattributes", "*.bin filter=lfs\n")
    change_set = world.changed(writing("big.bin", "theirs\n"))

    refusal = refused_whole(world, change_set)

    assert refusal.code == "unsupported_files"
    assert "lfs" in refusal.message
    assert refusal_of(lambda: world.changes.branch(change_set.id)).code == "unsupported_files"
    assert not (world.folder / "trap").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["b.txt", pytest.param("d/only.txt", marks=pytest.mark.faults), pytest.param("new.txt", marks=pytest.mark.faults)],
)
def test_an_edit_between_plan_and_write_is_never_overwritten(world: World, name: str) -> None:
    """Whatever instant the operator saves at: the edit is there afterwards, and nothing else was half landed."""

    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "b.txt").write_text("theirs\n")
        (folder / "d/only.txt").unlink()
        (folder / "new.txt").write_text("theirs\n")

    change_set = world.changed(edit)
    steps: list[str] = []
    world.step = steps.append
    world.changes.land(change_set.id)
    world.changes.undo(change_set.id)
    before = picture(world.root)
    landing_steps = steps[: steps.index("files done")]

    for instant in range(len(landing_steps)):
        steps_so_far: list[str] = []

        def save(step: str, instant: int = instant, steps_so_far: list[str] = steps_so_far) -> None:
            if len(steps_so_far) == instant:
                (world.root / name).parent.mkdir(exist_ok=True)
                (world.root / name).write_text("saved by the operator\n")
            steps_so_far.append(step)

        world.step = save
        refusal = None
        try:
            world.changes.land(change_set.id)
        except Refusal as error:
            refusal = error
        world.step = lambda step: None
        after = picture(world.root)
        assert after[name][2] == b"saved by the operator\n"
        if refusal is None:  # saved after its file was landed
            assert after["a.txt"][2] == b"theirs\n"
            world.database.write(lambda tx: make_waiting(tx, change_set.id))
        else:
            assert refusal.code == "conflict"
            assert {**after, name: None} == {**before, name: None}
        put_back(world, before)


def make_waiting(tx: Transaction, change_set_id: str) -> None:
    row = tx.session.get(ChangeSetRow, change_set_id)
    assert row is not None
    row.state, row.landings = "waiting", []
    tx.session.add(row)


def put_back(world: World, before: dict[str, tuple[str, int, bytes]]) -> None:
    for path in picture(world.root):
        if path not in before:
            (world.root / path).unlink()
    for path, (kind, mode, data) in before.items():
        if kind == "folder":
            (world.root / path).mkdir(exist_ok=True)
        elif kind == "file":
            (world.root / path).write_bytes(data)
            (world.root / path).chmod(mode)
    assert picture(world.root) == before


@pytest.mark.long
def test_a_file_that_never_stands_still_is_refused(world: World) -> None:
    change_set = world.changed(writing("a.txt", TEXT + "theirs\n"))
    counter = iter(range(100))

    def scribble(step: str) -> None:
        if step == "planned":
            (world.root / "a.txt").write_text(f"{next(counter)}\n" + TEXT)

    world.step = scribble
    assert refusal_of(lambda: world.changes.land(change_set.id)).code == "busy_files"
    assert next(counter) == 5


# Undo and broken-off halves, case by case (SPEC 3.9).


@pytest.mark.long
@pytest.mark.parametrize("edit", ["bytes", "mode", "gone", "kind", "folder"])
def test_undo_refuses_what_would_lose_later_edits(world: World, edit: str) -> None:
    def session(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "d/only.txt").unlink()

    change_set = world.changed(session)
    world.changes.land(change_set.id)
    file = world.root / "a.txt"
    name = "a.txt"
    if edit == "bytes":
        file.write_text("mine\n")
    elif edit == "mode":
        file.chmod(0o755)
    elif edit == "gone":
        file.unlink()
    elif edit == "kind":
        file.unlink()
        file.symlink_to("b.txt")
    else:
        (world.root / "d").write_text("a file where the folder was\n")
        name = "d"
    before = picture(world.root)

    refusal = refusal_of(lambda: world.changes.undo(change_set.id))

    assert refusal.code == "later_edits"
    assert name in refusal.message
    assert picture(world.root) == before
    assert world.changes.get(change_set.id).state is ChangeState.LANDED


@pytest.mark.long
@pytest.mark.parametrize("failing", ["prepare", "write", "make folder", "remove"])
def test_a_write_that_fails_takes_everything_back(world: World, failing: str) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "d/only.txt").unlink()
        (folder / "sub").mkdir()
        (folder / "sub/new.txt").write_text("theirs\n")

    change_set = world.changed(edit)
    before = picture(world.root)

    def fail(step: str) -> None:
        if step.startswith(failing):
            world.step = lambda step: None
            raise OSError(28, "No space left on device", "a.txt")

    world.step = fail
    refusal = refusal_of(lambda: world.changes.land(change_set.id))

    assert refusal.code == "cannot_write"
    assert picture(world.root) == before
    assert unfinished_intents(world.database, "landing") == []
    world.changes.land(change_set.id)


def test_what_could_not_be_taken_back_is_taken_back_before_anything_else(world: World) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "b.txt").write_text("theirs\n")

    change_set = world.changed(edit)
    before = picture(world.root)

    def fail(step: str) -> None:
        if step in ("write b.txt", "roll back"):
            raise OSError(28, "No space left on device")

    world.step = fail
    assert refusal_of(lambda: world.changes.land(change_set.id)).code == "not_restored"
    assert picture(world.root) != before
    world.step = lambda step: None

    assert world.changes.land(change_set.id).state is ChangeState.LANDED
    world.changes.undo(change_set.id)
    assert picture(world.root) == before


def test_recovery_says_what_it_left_alone(world: World) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "b.txt").write_text("theirs\n")

    change_set = world.changed(edit)

    class Killed(BaseException):
        pass

    def kill(step: str) -> None:
        if step == "write b.txt":
            raise Killed

    world.step = kill
    with pytest.raises(Killed):
        world.changes.land(change_set.id)
    (world.root / "a.txt").write_text("edited after the crash\n")
    world.step = lambda step: None

    (words,) = world.changes.recover()

    assert "interrupted and undone" in words
    assert "a.txt" in words
    assert (world.root / "a.txt").read_text() == "edited after the crash\n"
    assert (world.root / "b.txt").read_text() == TEXT
    assert list(world.root.glob(".clawpy*")) == []
    assert world.changes.recover() == []


def test_a_repository_with_longer_hashes(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", tmp_path / "shop"], check=True)
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT})
    change_set = world.changed(writing("a.txt", "theirs\n"))
    before = picture(world.root)

    world.changes.land(change_set.id)
    assert (world.root / "a.txt").read_text() == "theirs\n"
    world.changes.undo(change_set.id)
    assert picture(world.root) == before
    assert world.changes.branch(change_set.id).branch == "clawpy/fix-the-cart"
    world.close()


def test_a_workspace_that_is_itself_a_linked_worktree(world: World) -> None:
    linked = world.folder / "linked"
    world.repository.git("worktree", "add", "-q", "-b", "other", str(linked))
    change_set = world.changed(writing("a.txt", "theirs\n"), workspace=linked)
    untouched = picture(world.root)

    world.changes.land(change_set.id)

    assert (linked / "a.txt").read_text() == "theirs\n"
    assert picture(world.root) == untouched
    world.changes.undo(change_set.id)
    assert (linked / "a.txt").read_text() == TEXT
    assert linked.exists()


# The plan of a landing itself, without git (SPEC 3.9).


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Beneath]:
    with Beneath.open(tmp_path) as opened:
        yield opened


def file_image(text: str, mode: int = 0o644) -> Image:
    return Image(Kind.FILE, blob_id(text.encode()), mode)


def test_a_plan_survives_json() -> None:
    plan = Plan("t", (Entry("a\udcff", ABSENT, file_image("one")),), (("d", 0o711),), (("e", 0o755),), "sha256", True)
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan
    assert plan.reversed().reversed() == plan


def test_observing_never_looks_through_a_link(tmp_path: Path, top: Beneath) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/x").write_text("one")
    (tmp_path / "link").symlink_to("real")
    plan = Plan("land_x", ())

    assert plan.observe_image(top, "real/x") == Image(
        Kind.FILE, blob_id(b"one"), stat.S_IMODE((tmp_path / "real/x").stat().st_mode)
    )
    assert plan.observe_image(top, "link/x") == ABSENT
    assert plan.observe_image(top, "link") == Image(Kind.LINK, blob_id(b"real"))
    assert plan.observe_image(top, "real") == ABSENT
    os.mkfifo(tmp_path / "pipe")
    assert plan.observe_image(top, "pipe").kind is Kind.OTHER


def test_folded_case_tells_spellings_apart(tmp_path: Path, top: Beneath) -> None:
    (tmp_path / "a").write_text("one")
    plan = Plan("t", (), folds_case=True)
    assert plan.observe_image(top, "a").kind is Kind.FILE
    assert plan.observe_image(top, "A") == ABSENT
