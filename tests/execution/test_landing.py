"""Landing, case by case (SPEC 3.9): merged files, what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.change_store import ChangeSetRow
from engine.model import Refusal
from engine.storage.database import Transaction
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
    change_set = world.changed(lambda folder: (folder / "a.txt").rename(folder / "moved.txt") and None)
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
    change_set = world.changed(lambda folder: (folder / "a.txt").rename(folder / "A.txt") and None)
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
