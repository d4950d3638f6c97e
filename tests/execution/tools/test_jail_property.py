"""No path whatever leaves the folder, and what the operating system would open within it, the jail opens (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.tools.folder_jail import Jail, is_git_name, split_path
from engine.model import Refusal

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
def test_any_text_as_a_path_is_a_refusal_or_within(path: str) -> None:
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
def test_what_the_jail_reads_is_what_stands_there_and_never_outside(entries: Entries, paths: list[str]) -> None:
    reads(entries, paths)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(trees, wanted)
def test_what_the_jail_writes_is_never_outside(entries: Entries, paths: list[str]) -> None:
    writes(entries, paths)


@pytest.mark.faults
@settings(max_examples=3_000, deadline=None)
@given(trees, wanted)
def test_the_same_of_many_more(entries: Entries, paths: list[str]) -> None:
    reads(entries, paths)
    writes(entries, paths)
