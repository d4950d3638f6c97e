"""read, write and edit as a model uses them, and the jail in any tree and for any path (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.tools import texts
from engine.execution.tools.folder_jail import MAX_FILE_BYTES, Jail, is_git_name, split_path
from engine.model import Refusal
from tests.execution.tools.belt_world import BeltWorld


def test_read_returns_ranges_of_lines_and_says_so(world: BeltWorld) -> None:
    world.file("a.txt", "".join(f"line {number}\n" for number in range(1, 101)))
    answer = world.ok("read", path="a.txt", first_line=40, lines=2)
    assert answer == "line 40\nline 41\n[lines 40-41 of 100; go on with first_line 42]"
    assert world.ok("read", path="a.txt", first_line=100).endswith("[lines 100-100 of 100]")
    assert "nothing from line 101" in world.ok("read", path="a.txt", first_line=101)


def test_the_parts_of_a_long_file_are_the_whole_file(world: BeltWorld) -> None:
    whole = "".join(f"{number} {'x' * 90}\n" for number in range(2_000))
    world.file("long.txt", whole)
    got, first = "", 1
    while True:
        answer = world.ok("read", path="long.txt", first_line=first)
        assert len(answer) <= texts.MAX_RESULT + 200
        body, _, note = answer.rpartition("[lines ")
        got += body
        if "go on with" not in note:
            break
        first = int(note.rpartition(" ")[2].rstrip("]"))
    assert got == whole


def test_mistakes_are_answered_with_a_fix(world: BeltWorld) -> None:
    world.file("a.txt", "x")
    assert "there is no nope.py (read the folder" in world.no("read", path="nope.py")
    assert "a.txt is not a folder" in world.no("read", path="a.txt/b")
    assert "is a folder" in world.no("write", path=".", content="x")
    assert "path: Field required" in world.no("read")
    assert "file: Extra inputs are not permitted (read takes path, first_line, lines)" in world.no(
        "read", file="a.txt", path="a.txt"
    )
    assert "path: Input should be a valid string" in world.no("read", path=3)
    assert "lines: Input should be a valid integer" in world.no("read", path="a.txt", lines=True)
    assert "greater than or equal to 1" in world.no("read", path="a.txt", first_line=0)
    assert "the path is empty" in world.no("read", path=" ")
    assert "there is no tool 'sing'" in world.no("sing", song="x")
    assert "Input should be a valid dictionary" in world.belt.call("read", ["a.txt"]).text  # type: ignore[arg-type]
    assert not world.refused, "a mistake is no breach"


def test_a_file_that_is_too_large_is_neither_read_nor_written(world: BeltWorld) -> None:
    with (world.folder / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "more than 10,485,760" in world.no("read", path="huge.bin")
    assert "more than 10,485,760" in world.no("write", path="new.txt", content="x" * (MAX_FILE_BYTES + 1))
    assert not (world.folder / "new.txt").exists()


def test_write_creates_files_and_folders_and_keeps_the_mode(world: BeltWorld) -> None:
    assert world.ok("write", path="a/b/c.py", content="x = 1\n") == "wrote a/b/c.py, 1 line, a new file"
    file = world.file("run.sh", "old")
    file.chmod(0o755)
    assert world.ok("write", path="run.sh", content="new") == "wrote run.sh, 1 line"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o755)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((world.folder / "a/b/c.py").stat().st_mode) == 0o666 & ~mask
    assert world.ok("read", path=".").splitlines() == ["a/", "run.sh"]


def test_edit_replaces_a_text_that_occurs_once(world: BeltWorld) -> None:
    file = world.file("a.py", "def f():\n    return 1\n\ndef g():\n    return 2\n")
    answer = world.ok("edit", path="a.py", old_text="    return 2\n", new_text="    return 3\n")
    assert answer == "edited a.py at line 5"
    assert file.read_text().endswith("return 3\n")
    assert "is in the file 2 times" in world.no("edit", path="a.py", old_text="return", new_text="yield")
    assert "not in the file" in world.no("edit", path="a.py", old_text="nothing", new_text="y")
    assert "old_text is empty" in world.no("edit", path="a.py", old_text="", new_text="y")
    assert "are the same" in world.no("edit", path="a.py", old_text="def", new_text="def")
    assert "there is no b.py" in world.no("edit", path="b.py", old_text="a", new_text="y")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
        ("\ufeffa\n".encode(), "a", "b", "\ufeffb\n".encode()),
        (b"gr\xfc\xdf a", "a", "b", b"gr\xfc\xdf b"),
    ],
)
def test_edit_keeps_line_endings_and_other_bytes(before: bytes, old: str, new: str, after: bytes) -> None:
    assert texts.replace_once(before, old, new)[0] == after


def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(world: BeltWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    file = world.file("a.txt", "one two")
    replace = texts.replace_once

    def slow(data: bytes, old: str, new: str) -> tuple[bytes, int]:
        file.write_text("one two, and what somebody else wrote")
        return replace(data, old, new)

    monkeypatch.setattr(texts, "replace_once", slow)
    assert "changed meanwhile" in world.no("edit", path="a.txt", old_text="one", new_text="1")
    assert file.read_text() == "one two, and what somebody else wrote"


def test_parallel_edits_of_a_file_are_all_kept(world: BeltWorld) -> None:
    world.file("a.txt", "".join(f"<{number}>\n" for number in range(20)))

    def edit(number: int) -> None:
        world.ok("edit", path="a.txt", old_text=f"<{number}>", new_text=f"{number}")

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.ok("read", path="a.txt") == "".join(f"{number}\n" for number in range(20))


def test_an_agent_reads_and_writes_text_through_the_belt(world: BeltWorld) -> None:
    world.belt.write_text("src/a.py", "1\n2\n3\n")
    assert world.belt.read_text(str(world.folder / "src/a.py")) == "1\n2\n3\n"
    assert world.belt.read_text("src/a.py", line=2, limit=1) == "2\n"
    assert world.belt.read_text("src/a.py", line=9) == ""
    with pytest.raises(Refusal, match="not in the project"):
        world.belt.read_text(str(world.secret))
    with pytest.raises(Refusal, match="not in the project"):
        world.belt.write_text("../x", "y")
    assert [one.rule for one in world.refused] == ["outside", "outside"]


# Secrets

KEY = "sk-ant-0123456789abcdefghij"


def test_a_key_in_a_file_is_cut_for_the_model(world: BeltWorld) -> None:
    world.file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    assert world.ok("read", path="settings.py") == 'DEBUG = True\nAPI_KEY = "[secret cut]"\n'
    assert KEY not in world.ok("exec", command="cat settings.py")


def test_reading_from_the_middle_shows_no_part_of_a_private_key(world: BeltWorld) -> None:
    world.file("id_rsa", "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKC\nAQEA7bq9\n-----END RSA PRIVATE KEY-----\n")
    assert "MIIE" not in world.ok("read", path="id_rsa", first_line=2, lines=1)


def test_the_placeholder_of_a_key_is_not_written_over_it(world: BeltWorld) -> None:
    """A model that writes back what it read would destroy the operator's key."""
    file = world.file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    seen = world.ok("read", path="settings.py")
    assert "leave that place" in world.no("write", path="settings.py", content=seen.replace("True", "False"))
    assert "leave that place" in world.no(
        "edit", path="settings.py", old_text="DEBUG", new_text='X = "[secret cut]"\nDEBUG'
    )
    assert world.ok("edit", path="settings.py", old_text="True", new_text="False")
    assert file.read_text() == f'DEBUG = False\nAPI_KEY = "{KEY}"\n'
    own = world.file("about.md", "[secret cut] stands for a key\n")
    assert world.ok("write", path="about.md", content="[secret cut] stands for a key or a password\n")
    assert own.read_text().endswith("or a password\n"), "a file may speak of it"


# No path whatever leaves the folder, and what the operating system would open within it, the jail opens (SPEC 3.8).


NAMES = ("a", "b", "c", ".git", "\u00fc")
STEPS = (*NAMES, "..", ".", "")

name = st.sampled_from(NAMES)
steps = st.lists(st.sampled_from(STEPS), min_size=1, max_size=7)
place = st.lists(name, min_size=1, max_size=3)
entry = st.tuples(
    place, st.sampled_from(("file", "folder", "relative", "absolute", "to-outside", "hard")), steps, st.booleans()
)
odd = st.text(st.sampled_from("a./\\~\0\n\u2025\uff0e\u200b:%"), max_size=12)
trees = st.lists(entry, max_size=12)
wanted = st.lists(steps.map("/".join) | odd, min_size=1, max_size=6)

Entries = list[tuple[list[str], str, list[str], bool]]


def build(root: Path, entries: Entries) -> None:
    """A tree with links in all directions; what does not fit is left out."""
    folder, outside = root / "in", root / "out"
    folder.mkdir()
    (outside / "a").mkdir(parents=True)
    for file in (outside / "b", outside / "a" / "b", root / "c"):
        file.write_text("outside")
    for parts, kind, target, below in entries:
        path = folder.joinpath(*parts)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                path.write_text("inside")
            elif kind == "folder":
                path.mkdir()
            elif kind == "relative":
                path.symlink_to("/".join(target) or ".")
            elif kind == "absolute":
                path.symlink_to(str(folder) + "/" + "/".join(target))
            elif kind == "to-outside":
                path.symlink_to(outside / "a" / "b" if below else outside)
            else:
                os.link(outside / "b", path)


def reference(folder: Path, path: str) -> Path | None:
    """Where the operating system would end, None when it leaves the folder on its way, or cannot go it."""
    here = folder
    pending = split_path(path)
    for _ in range(400):
        if not pending:
            return here
        step = pending.pop(0)
        if step == "..":
            if here == folder:
                return None
            here = here.parent
            continue
        here = here / step
        if is_git_name(step):
            return None
        if here.is_symlink():
            target = str(here.readlink())
            if target.startswith("/"):
                if split_path(target)[: len(folder.parts) - 1] != list(folder.parts[1:]):
                    return None
                pending = split_path(target)[len(folder.parts) - 1 :] + pending
                here = folder
            else:
                pending = split_path(target) + pending
                here = here.parent
        elif pending and not here.is_dir():
            return None
    return None


def reads(entries: Entries, paths: list[str]) -> None:
    """What the jail reads is what stands there, and never outside."""
    root = Path(tempfile.mkdtemp()).resolve()
    try:
        build(root, entries)
        folder = root / "in"
        jail = Jail(folder)
        for path in paths:
            try:
                data = jail.read(path).data
            except Refusal:
                data = None
            expected = reference(folder, path) if path.strip() and not path.startswith(("/", "~")) else None
            plain = expected is not None and expected.is_file() and not expected.is_symlink()
            if data is None:
                linked = plain and expected is not None and expected.stat().st_nlink > 1
                assert not plain or linked or not path.isprintable() or "\u200b" in path, path
            else:
                assert data == b"inside"
                real = Path(os.path.realpath(folder / path.lstrip("/") if not path.startswith("/") else path))
                assert real.is_relative_to(folder)
                assert plain
    finally:
        shutil.rmtree(root)


def writes(entries: Entries, paths: list[str]) -> None:
    """What the jail writes is never outside."""
    root = Path(tempfile.mkdtemp()).resolve()
    try:
        build(root, entries)
        before = outside(root)  # what stands there now: entries, too, may be written through a link that leads out
        git, names = (
            snapshot(root / "in"),
            sorted(found_path.name for found_path in root.iterdir()),
        )  # a link of `entries` may lead here
        jail = Jail(root / "in")
        for path in paths:
            with contextlib.suppress(Refusal):
                jail.write(path, b"written")
        assert outside(root) == before
        assert sorted(found_path.name for found_path in root.iterdir()) == names
        assert snapshot(root / "in") == git
    finally:
        shutil.rmtree(root)


def outside(root: Path) -> dict[Path, bytes]:
    """The files beside the jail's folder."""
    return {file: file.read_bytes() for file in (root / "c", *(root / "out").rglob("*")) if file.is_file()}


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything under a name that is git's."""
    found = {}
    for at, folders, files in os.walk(folder):
        for found_path in (*folders, *files):
            path = Path(at) / found_path
            if any(is_git_name(part) for part in path.relative_to(folder).parts):
                plain = path.is_file() and not path.is_symlink()
                found[str(path)] = path.read_bytes() if plain else None
    return found


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(os.fsdecode))
def test_any_path_is_refused_or_inside(path: str) -> None:
    root = Path(tempfile.mkdtemp()).resolve()
    try:
        (root / "in").mkdir()
        jail = Jail(root / "in")
        with contextlib.suppress(Refusal):
            jail.write(path, b"x")
        with contextlib.suppress(Refusal):
            jail.read(path)
        assert [found_path.name for found_path in root.iterdir()] == ["in"]
    finally:
        shutil.rmtree(root)


@settings(max_examples=60, deadline=None)
@given(trees, wanted)
def test_the_jail_reads_only_files_inside(entries: Entries, paths: list[str]) -> None:
    reads(entries, paths)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(trees, wanted)
def test_the_jail_writes_only_files_inside(entries: Entries, paths: list[str]) -> None:
    writes(entries, paths)


@pytest.mark.faults
@settings(max_examples=3_000, deadline=None)
@given(trees, wanted)
def test_many_paths_stay_inside(entries: Entries, paths: list[str]) -> None:
    reads(entries, paths)
    writes(entries, paths)
