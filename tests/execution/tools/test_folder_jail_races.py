"""Files and folders that are replaced while the file tools work on them lead nowhere outside (SPEC 3.8)."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.execution.tools.belt_world import SECRET, BeltWorld

pytestmark = pytest.mark.usefixtures("outside_is_unchanged")


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
