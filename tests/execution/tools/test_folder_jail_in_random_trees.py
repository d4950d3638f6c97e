"""In no tree of files and links does any path lead the jail out of its folder, or to the files of git (SPEC 3.8)."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.tools.folder_jail import Jail
from engine.model import Refusal

GIT = ".git"
NAMES = ("a", "b", "c", GIT, "\u00fc")
KINDS = (
    "file",
    "folder",
    "relative link",
    "absolute link",
    "link to an outside folder",
    "link to an outside file",
    "hard link",
)


class Entry(NamedTuple):
    """An entry of a random tree."""

    path: str
    kind: str
    target: str
    """Where a relative or absolute link leads, from its own place or from the folder."""


PATHS = st.lists(st.sampled_from((*NAMES, "..", ".", "")), min_size=1, max_size=7).map("/".join)
ENTRY_PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
TREES = st.lists(st.builds(Entry, ENTRY_PATHS, st.sampled_from(KINDS), PATHS), max_size=12)
ODD_TEXTS = st.text(st.sampled_from("a./\\~\0\n\u2025\uff0e\u200b:%"), max_size=12)
PATH_LISTS = st.lists(PATHS | ODD_TEXTS, min_size=1, max_size=6)


def make_tree(root: Path, entries: list[Entry]):
    """A tree with links in all directions. What does not fit is left out."""
    folder, outside = root / "in", root / "out"
    folder.mkdir()
    (outside / "a").mkdir(parents=True)
    for file in (outside / "b", outside / "a" / "b", root / "c"):
        file.write_text("outside")
    for entry in entries:
        with contextlib.suppress(OSError):
            make_entry(folder, outside, entry)


def make_entry(folder: Path, outside: Path, entry: Entry):
    path = folder / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    match entry.kind:
        case "file":
            path.write_text("inside")
        case "folder":
            path.mkdir()
        case "relative link":
            path.symlink_to(entry.target or ".")
        case "absolute link":
            path.symlink_to(f"{folder}/{entry.target}")
        case "link to an outside folder":
            path.symlink_to(outside)
        case "link to an outside file":
            path.symlink_to(outside / "a" / "b")
        case "hard link":
            os.link(outside / "b", path)


def list_steps(path: str) -> list[str]:
    """The names on a way, as pathlib divides it."""
    return [step for step in PurePosixPath(path).parts if not step.startswith("/")]


def read_link_below(folder: Path, link: Path) -> list[str] | None:
    """The names on the way that a link leads, of an absolute one those below the folder. None if it leads outside."""
    target = link.readlink()
    if not target.is_absolute():
        return list_steps(str(target))
    return list_steps(str(target.relative_to(folder))) if target.is_relative_to(folder) else None


def find_expected_file(folder: Path, path: str) -> Path | None:
    """Where the operating system would end from the folder. None for a path that does not begin there, and when it
    leaves the folder on its way, or cannot go it."""
    if not path.strip() or path.startswith(("/", "~")):
        return None
    here = folder
    pending = list_steps(path)
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
        if step == GIT:
            return None
        if here.is_symlink():
            steps = read_link_below(folder, here)
            if steps is None:
                return None
            here = folder if here.readlink().is_absolute() else here.parent
            pending = steps + pending
        elif pending and not here.is_dir():
            return None
    return None


@contextlib.contextmanager
def temporary_root() -> Iterator[Path]:
    """A new folder, by a path without links, which is removed after the block."""
    root = Path(tempfile.mkdtemp()).resolve()
    try:
        yield root
    finally:
        shutil.rmtree(root)


def read_outside(root: Path) -> dict[Path, bytes]:
    """The files beside the jail's folder."""
    return {file: file.read_bytes() for file in (root / "c", *(root / "out").rglob("*")) if file.is_file()}


def read_git_names(folder: Path) -> dict[str, bytes | None]:
    """Everything under a name that is git's."""
    paths = [path for path in folder.rglob("*") if GIT in path.relative_to(folder).parts]
    return {str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else None for path in paths}


@settings(max_examples=60)
@given(TREES, PATH_LISTS)
def test_the_jail_reads_only_files_inside(entries: list[Entry], paths: list[str]):
    """What it reads is what stands there."""
    with temporary_root() as root:
        make_tree(root, entries)
        folder = root / "in"
        jail = Jail(folder)
        for path in paths:
            expected = find_expected_file(folder, path)
            is_file = expected is not None and expected.is_file()
            try:
                data = jail.read(path).data
            except Refusal:
                is_disguised = not path.isprintable() or "\u200b" in path
                assert not is_file or is_disguised or expected.stat().st_nlink > 1, path
            else:
                assert data == b"inside"
                assert Path(os.path.realpath(folder / path)).is_relative_to(folder)
                assert is_file


@pytest.mark.long
@settings(max_examples=60)
@given(TREES, PATH_LISTS)
def test_the_jail_writes_only_files_inside(entries: list[Entry], paths: list[str]):
    with temporary_root() as root:
        make_tree(root, entries)

        def read_untouchable() -> tuple[object, ...]:
            return read_outside(root), read_git_names(root / "in"), sorted(path.name for path in root.iterdir())

        before = read_untouchable()  # links of `entries` may have written outside already
        jail = Jail(root / "in")
        for path in paths:
            with contextlib.suppress(Refusal):
                jail.write(path, b"written")
        assert read_untouchable() == before
