"""Ways out of the folder, each tried with the file tools: none reads, writes or names anything outside (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.tools.folder_jail import Jail, is_git_name, split_path
from engine.model import Refusal
from tests.execution.tools.belt_world import SECRET, BeltWorld
from tests.support.helpers import refused


@pytest.fixture(autouse=True)
def _nothing_changed_outside(world: BeltWorld) -> Iterator[None]:
    """After each test, the outside and the folder of git are as they were."""
    yield
    assert sorted(path.name for path in world.outside.iterdir()) == ["secret.txt"]
    assert world.secret.read_text() == SECRET
    assert (world.folder / ".git").read_text() == "gitdir: /somewhere\n"


def check_all_refuse(world: BeltWorld, path: str, problem: str = "not in the project") -> None:
    """Check that read, write and edit refuse the path for this problem."""
    for answer in (
        world.problem("read", path=path),
        world.problem("write", path=path, content="pwned"),
        world.problem("edit", path=path, old_text=SECRET, new_text="pwned"),
    ):
        assert problem in answer
    if problem == "not in the project":
        assert [refusal.rule for refusal in world.refused] == ["outside"] * 3


# Paths


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt", "a/b/../../../outside/secret.txt", "../work tree/a.txt", "{secret}", "/dev/zero",
        ".//./..//" * 50 + "etc/passwd", "{folder}/../outside/secret.txt", "{folder}-other/x", "~/.ssh/id_ed25519",
        "/proc/self/environ", "/proc/self/root{secret}",
    ],
)  # fmt: skip
def test_paths_to_outside_are_refused(world: BeltWorld, path: str) -> None:
    world.file("a/b/c.txt")
    world.file("a.txt", "x")
    beside = world.folder.with_name(world.folder.name + "-other")  # begins as the folder's own name does
    beside.mkdir()
    (beside / "x").write_text(SECRET)
    check_all_refuse(world, path.format(secret=world.secret, folder=world.folder))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\n../outside/secret.txt", "control characters"),
        ("a\x1b[2Kb", "control characters"),
        ("a\0../outside/secret.txt", "control characters"),
        ("\u202etxt.a", "control characters"),
        ("\ud800", "utf-8"),
        ("\u2025/outside/secret.txt", "there is no"),
        ("\uff0e\uff0e/outside/secret.txt", "there is no"),
        ("%2e%2e/outside/secret.txt", "there is no"),
        ("..\\outside\\secret.txt", "there is no"),
        ("file:///etc/passwd", "there is no"),
        ("$HOME/.ssh", "there is no"),
    ],
)
def test_disguised_paths_are_names_of_no_file(world: BeltWorld, path: str, words: str) -> None:
    assert words in world.problem("read", path=path)


def test_names_and_paths_that_are_too_long_are_refused(world: BeltWorld) -> None:
    assert "longer than 255 bytes" in world.problem("write", path="x" * 256, content="")
    assert "longer than 255 bytes" in world.problem("write", path="a/" + "\u00fc" * 128, content="")
    assert "longer than 4096 bytes" in world.problem("read", path="a/" * 2_100)
    assert "folders deep" in world.problem("write", path="a/" * 300 + "x", content="")
    assert not (world.folder / "a").exists()


@pytest.mark.parametrize(
    "path",
    [
        ".git", ".git/config", ".git/hooks/pre-commit", "a/.git/config", ".GIT/config", ".Git", "./.git", "a/../.git",
        ".g\u200cit/config", ".git\u200b/x", ".git /config", ".git./config", ".git::$INDEX_ALLOCATION/config",
        "git~1/config", "\uff0egit/config", ".gi\uff34/config",
    ],
)  # fmt: skip
def test_the_git_folder_is_refused_in_any_spelling(world: BeltWorld, path: str) -> None:
    (world.folder / "a").mkdir()
    words = world.problem("write", path=path, content="[core]\n\tfsmonitor = touch /tmp/pwned\n")
    assert ".git is not for the file tools" in words
    assert ".git is not for the file tools" in world.problem("read", path=path)
    assert {refusal.rule for refusal in world.refused} == {"git_folder"}


# Links, hard links and pipes


OUTSIDE, GIT, CIRCLE = "not in the project", ".git is not for the file tools", "too many links"


@pytest.mark.parametrize(
    ("target", "path", "problem"),
    [
        ("{outside}/secret.txt", "link", OUTSIDE), ("../outside/secret.txt", "link", OUTSIDE),
        ("{outside}/new.txt", "link", OUTSIDE), ("/", "link{outside}/secret.txt", OUTSIDE),
        ("{outside}", "link/secret.txt", OUTSIDE), ("{outside}", "link/new.txt", OUTSIDE),
        ("{outside}", "link", OUTSIDE), ("/dev/urandom", "link", OUTSIDE), (".git", "link", GIT),
        ("link", "link", CIRCLE),
    ],
)  # fmt: skip
def test_links_to_outside_to_git_and_in_a_circle_are_refused(
    world: BeltWorld, target: str, path: str, problem: str
) -> None:
    (world.folder / "link").symlink_to(target.format(outside=world.outside))
    check_all_refuse(world, path.format(outside=world.outside), problem)


def test_dots_behind_a_link_go_up_from_where_it_leads(world: BeltWorld) -> None:
    """`deep/..` is the folder above the link's target, not above the link."""
    world.file("a/b/c/d.txt", "d")
    world.file("a/b/e.txt", "e")
    (world.folder / "link").symlink_to("a/b/c")
    assert world.answer("read", path="link/../e.txt") == "e"
    check_all_refuse(world, "link/../../../../outside/secret.txt")


def test_links_inside_are_followed_and_stay_links(world: BeltWorld) -> None:
    file = world.file("real/a.txt", "old")
    (world.folder / "link").symlink_to("real/a.txt")
    (world.folder / "absolute").symlink_to(file)
    assert world.answer("read", path="link") == "old"
    world.answer("write", path="link", content="new")
    world.answer("edit", path="absolute", old_text="new", new_text="newer")
    assert (world.folder / "link").is_symlink()
    assert file.read_text() == "newer"


def test_a_hard_link_to_a_file_outside_is_not_read_and_replaced_not_written_through(world: BeltWorld) -> None:
    os.link(world.secret, world.folder / "innocent.txt")
    assert "another name elsewhere" in world.problem("read", path="innocent.txt")
    assert "another name elsewhere" in world.problem("edit", path="innocent.txt", old_text="own", new_text="x")
    world.answer("write", path="innocent.txt", content="mine")
    assert (world.folder / "innocent.txt").read_text() == "mine"
    assert world.secret.stat().st_nlink == 1


def test_a_pipe_is_neither_waited_for_nor_replaced(world: BeltWorld) -> None:
    os.mkfifo(world.folder / "pipe")
    check_all_refuse(world, "pipe", "no ordinary file")
    assert stat.S_ISFIFO((world.folder / "pipe").stat().st_mode)


# Files that are replaced meanwhile


@contextlib.contextmanager
def repeating(change: Callable[[], None]) -> Iterator[None]:
    """Makes a change again and again, in a thread, during the block."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            change()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def swap(folder: Path, first: str, second: str) -> None:
    """Let two names of a folder change places."""
    (folder / first).rename(folder / "spare")
    (folder / second).rename(folder / first)
    (folder / "spare").rename(folder / second)


@pytest.mark.parametrize("tool", ["read", "edit"])
def test_a_folder_that_is_replaced_by_a_link_leads_nowhere_outside(world: BeltWorld, tool: str) -> None:
    """`d` is a folder, then a link to outside, then a folder, as fast as a thread can do it."""
    world.file("d/secret.txt", "inside")
    (world.folder / "link").symlink_to(world.outside)
    arguments = {"path": "d/secret.txt"} | ({"old_text": "s", "new_text": "S"} if tool == "edit" else {})
    with repeating(lambda: swap(world.folder, "d", "link")):
        for _ in range(300):
            assert SECRET not in world.belt.call(tool, arguments).text


def test_an_edit_in_a_folder_that_was_removed_creates_no_folder(world: BeltWorld) -> None:
    """Another's `mv d elsewhere && mv next d` must not find a `d` that we made in between."""
    file = world.file("d/a.txt", "inside")
    jail = Jail(world.folder)
    before = jail.read("d/a.txt")
    file.parent.rename(world.folder / "elsewhere")
    refused("not_there", lambda: jail.write("d/a.txt", b"changed", only_if=before))
    assert not file.parent.exists()
    assert (world.folder / "elsewhere/a.txt").read_text() == "inside"


@pytest.mark.long
def test_a_link_that_is_turned_to_outside_is_not_written_through(world: BeltWorld) -> None:
    """`d` leads to a folder inside, then outside, then inside, each time in one step."""
    world.file("real/a.txt", "inside")
    targets = itertools.cycle(("real", str(world.outside)))

    def turn() -> None:
        (world.folder / "next").symlink_to(next(targets))
        (world.folder / "next").replace(world.folder / "d")

    turn()
    with repeating(turn):
        written = [world.belt.call("write", {"path": "d/b.txt", "content": "inside"}).ok for _ in range(300)]
    assert (world.folder / "real/b.txt").exists() == any(written)


def test_a_file_that_is_replaced_by_a_link_is_not_read(world: BeltWorld) -> None:
    world.file("f", "inside")
    (world.folder / "link").symlink_to(world.secret)
    with repeating(lambda: swap(world.folder, "f", "link")):
        for _ in range(300):
            assert world.belt.call("read", {"path": "f"}).text != SECRET


def test_a_link_that_appears_after_the_check_is_replaced(world: BeltWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    fdopen = os.fdopen

    def link_first(descriptor: int, mode: str) -> object:
        (world.folder / "new.txt").symlink_to(world.secret)
        return fdopen(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", link_first)
    world.answer("write", path="new.txt", content="mine")
    assert not (world.folder / "new.txt").is_symlink()
    assert (world.folder / "new.txt").read_text() == "mine"


def test_a_replaced_folder_is_not_used(world: BeltWorld) -> None:
    world.folder.rename(world.root / "away")
    world.folder.symlink_to(world.outside)
    try:
        for tool, more in (("read", {}), ("write", {"content": "x"})):
            assert not world.belt.call(tool, {"path": "secret.txt"} | more).ok
    finally:
        world.folder.unlink()
        (world.root / "away").rename(world.folder)


# The engine's own files


def test_nothing_of_the_engine_can_be_read(world: BeltWorld) -> None:
    for path in (world.database.path, world.root / "transcript.jsonl", world.live.confinement.caches):
        check_all_refuse(world, str(path))
        world.refused.clear()


# No path leaves the folder, in any tree

NAMES = ("a", "b", "c", ".git", "\u00fc")
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


step_lists = st.lists(st.sampled_from((*NAMES, "..", ".", "")), min_size=1, max_size=7)
entry_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
trees = st.lists(st.builds(Entry, entry_paths, st.sampled_from(KINDS), step_lists.map("/".join)), max_size=12)
odd_texts = st.text(st.sampled_from("a./\\~\0\n\u2025\uff0e\u200b:%"), max_size=12)
path_lists = st.lists(step_lists.map("/".join) | odd_texts, min_size=1, max_size=6)


def make_tree(root: Path, entries: list[Entry]) -> None:
    """A tree with links in all directions. What does not fit is left out."""
    folder, outside = root / "in", root / "out"
    folder.mkdir()
    (outside / "a").mkdir(parents=True)
    for file in (outside / "b", outside / "a" / "b", root / "c"):
        file.write_text("outside")
    for entry in entries:
        with contextlib.suppress(OSError):
            make_entry(folder, outside, entry)


def make_entry(folder: Path, outside: Path, entry: Entry) -> None:
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


def find_expected_file(folder: Path, path: str) -> Path | None:
    """Where the operating system would end. None when it leaves the folder on its way, or cannot go it."""
    above = list(folder.parts[1:])
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
            link = here.readlink()
            steps = split_path(str(link))
            if not link.is_absolute():
                here = here.parent
            elif steps[: len(above)] == above:
                here, steps = folder, steps[len(above) :]
            else:
                return None
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


@settings(max_examples=60, deadline=None)
@given(trees, path_lists)
def test_the_jail_reads_only_files_inside(entries: list[Entry], paths: list[str]) -> None:
    """What it reads is what stands there."""
    with temporary_root() as root:
        make_tree(root, entries)
        folder = root / "in"
        jail = Jail(folder)
        for path in paths:
            expected = find_expected_file(folder, path) if path.strip() and not path.startswith(("/", "~")) else None
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
@settings(max_examples=60, deadline=None)
@given(trees, path_lists)
def test_the_jail_writes_only_files_inside(entries: list[Entry], paths: list[str]) -> None:
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


def read_outside(root: Path) -> dict[Path, bytes]:
    """The files beside the jail's folder."""
    return {file: file.read_bytes() for file in (root / "c", *(root / "out").rglob("*")) if file.is_file()}


def read_git_names(folder: Path) -> dict[str, bytes | None]:
    """Everything under a name that is git's."""
    paths = [path for path in folder.rglob("*") if any(map(is_git_name, path.relative_to(folder).parts))]
    return {str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else None for path in paths}


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(os.fsdecode))
def test_any_path_is_refused_or_inside(path: str) -> None:
    with temporary_root() as root:
        (root / "in").mkdir()
        jail = Jail(root / "in")
        with contextlib.suppress(Refusal):
            jail.write(path, b"x")
        with contextlib.suppress(Refusal):
            jail.read(path)
        assert [file.name for file in root.iterdir()] == ["in"]
