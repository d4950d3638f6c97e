"""Ways out of the folder, each tried with the file tools, also while files are replaced: none reads, writes or names
anything outside (SPEC 3.8)."""

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.execution.tools.belt_world import SECRET, BeltWorld
from tests.support import read_table

TABLE = read_table(__file__)

pytestmark = pytest.mark.usefixtures("outside_is_unchanged")


def check_all_refuse(world: BeltWorld, path: str, problem: str = "not in the project"):
    """Check that read, write and edit refuse the path for this problem."""
    for answer in (
        world.get_problem("read", path=path),
        world.get_problem("write", path=path, content="pwned"),
        world.get_problem("edit", path=path, old_text=SECRET, new_text="pwned"),
    ):
        assert problem in answer
    if problem == "not in the project":
        assert [refusal.rule for refusal in world.refused] == ["outside"] * 3


# Paths


@pytest.mark.parametrize("path", TABLE["paths_to_outside"])
def test_paths_to_outside_are_refused(world: BeltWorld, path: str):
    world.write_file("a/b/c.txt")
    world.write_file("a.txt", "x")
    beside = world.folder.with_name(world.folder.name + "-other")  # begins as the folder's own name does
    beside.mkdir()
    (beside / "x").write_text(SECRET)
    check_all_refuse(world, path.format(secret=world.secret, folder=world.folder))


def test_names_and_paths_that_are_too_long_are_refused(world: BeltWorld):
    for name in ("x" * 256, "\u00fc" * 128):
        assert "File name too long" in world.get_problem("write", path=name, content="")
    assert "longer than 4096 bytes" in world.get_problem("read", path="a/" * 2_100)
    assert "folders deep" in world.get_problem("write", path="a/" * 300 + "x", content="")
    assert not (world.folder / "a").exists()


@pytest.mark.parametrize("path", TABLE["spellings_of_git"])
def test_the_git_folder_is_refused_in_any_spelling(world: BeltWorld, path: str):
    (world.folder / "a").mkdir()
    words = world.get_problem("write", path=path, content="[core]\n\tfsmonitor = touch /tmp/pwned\n")
    assert ".git is not for the file tools" in words
    assert ".git is not for the file tools" in world.get_problem("read", path=path)
    assert {refusal.rule for refusal in world.refused} == {"git_folder"}


# Links, hard links and pipes


@pytest.mark.parametrize("target, path, problem", TABLE["links"])
def test_links_to_outside_to_git_and_in_a_circle_are_refused(world: BeltWorld, target: str, path: str, problem: str):
    (world.folder / "link").symlink_to(target.format(outside=world.outside))
    check_all_refuse(world, path, problem)


def test_a_hard_link_to_a_file_outside_is_not_read_and_replaced_not_written_through(world: BeltWorld):
    os.link(world.secret, world.folder / "innocent.txt")
    assert "another name elsewhere" in world.get_problem("read", path="innocent.txt")
    assert "another name elsewhere" in world.get_problem("edit", path="innocent.txt", old_text="own", new_text="x")
    world.get_answer("write", path="innocent.txt", content="mine")
    assert (world.folder / "innocent.txt").read_text() == "mine"
    assert world.secret.stat().st_nlink == 1


def test_a_pipe_is_neither_waited_for_nor_replaced(world: BeltWorld):
    os.mkfifo(world.folder / "pipe")
    check_all_refuse(world, "pipe", "no ordinary file")
    assert stat.S_ISFIFO((world.folder / "pipe").stat().st_mode)


# Races


@contextlib.contextmanager
def repeating(change: Callable[[], None]) -> Iterator[None]:
    """Makes a change again and again, in a thread, during the block."""
    over = threading.Event()

    def repeat():
        while not over.is_set():
            change()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def swap_with_link(folder: Path, name: str):
    """Let a name of a folder and `link` change places."""
    (folder / name).rename(folder / "spare")
    (folder / "link").rename(folder / name)
    (folder / "spare").rename(folder / "link")


@pytest.mark.parametrize("tool", ["read", "edit"])
def test_a_folder_that_is_replaced_by_a_link_leads_nowhere_outside(world: BeltWorld, tool: str):
    """`d` is a folder, then a link to outside, then a folder, as fast as a thread can do it."""
    world.write_file("d/secret.txt", "inside")
    (world.folder / "link").symlink_to(world.outside)
    arguments = {"path": "d/secret.txt"} | ({"old_text": "s", "new_text": "S"} if tool == "edit" else {})
    with repeating(lambda: swap_with_link(world.folder, "d")):
        for _ in range(300):
            assert SECRET not in world.belt.call(tool, arguments).text


@pytest.mark.long
def test_a_link_that_is_turned_to_outside_is_not_written_through(world: BeltWorld):
    """`d` leads to a folder inside, then outside, then inside, each time in one step."""
    world.write_file("real/a.txt", "inside")
    targets = itertools.cycle(("real", str(world.outside)))

    def turn():
        (world.folder / "next").symlink_to(next(targets))
        (world.folder / "next").replace(world.folder / "d")

    turn()
    with repeating(turn):
        written = [world.belt.call("write", {"path": "d/b.txt", "content": "inside"}).ok for _ in range(300)]
    assert (world.folder / "real/b.txt").exists() == any(written)


def test_a_replaced_folder_is_not_used(world: BeltWorld):
    world.folder.rename(world.root / "away")
    world.folder.symlink_to(world.outside)
    try:
        for tool, more in (("read", {}), ("write", {"content": "x"})):
            assert not world.belt.call(tool, {"path": "secret.txt"} | more).ok
    finally:
        world.folder.unlink()
        (world.root / "away").rename(world.folder)
