"""Landing, undoing and rolling back while a folder is exchanged for a link: nothing outside changes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.storage import beneath
from engine.storage.beneath import Beneath
from tests.attacks.landing_canary import (
    Canary,
    attempt,
    carry_out,
    commit_landing_files,
    edit,
    exchange,
    make_tree,
    reverse,
    roll_back,
)
from tests.execution.landing_world import World

pytestmark = pytest.mark.attack("landing")

CALLS = ("open", "replace", "link", "unlink", "symlink", "mkdir", "rmdir", "readlink", "stat")
MOVES = (carry_out, reverse, roll_back)
Move = Callable[[Beneath], None]


@pytest.fixture
def world(world: World) -> World:
    return commit_landing_files(world)


# A link in place of the folder, just before each single call to the system


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("call", [*CALLS, pytest.param("resolve", marks=pytest.mark.attacks)])
def test_a_link_in_place_of_the_folder_before_each_call(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, call: str, move: Move
) -> None:
    place: Any = beneath if call == "resolve" else os
    name = "_open_folder" if call == "resolve" else call
    real = getattr(place, name)
    for number in range(1000):
        top = make_tree(tmp_path / str(number))
        with Beneath.open(top) as files:
            if move is not carry_out:
                carry_out(files)
            calls = 0

            def before(*arguments: Any, top: Path = top, number: int = number, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number + 1:
                    with monkeypatch.context() as inner:
                        inner.setattr(place, name, real)
                        exchange(top / "d", canary.folder)
                return real(*arguments, **options)

            with monkeypatch.context() as patched:
                patched.setattr(place, name, before)
                attempt(partial(move, files))
        canary.check()
        shutil.rmtree(top)
        if calls <= number:
            break
    if call not in ("readlink", "rmdir", "mkdir", "link", "symlink"):
        assert number > 1, "the call is never made: nothing was attacked"


@pytest.mark.parametrize("kernel", ["openat2", "step by step"])
@pytest.mark.parametrize("move", MOVES)
def test_parents_that_are_links_from_the_start(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, move: Move, kernel: str
) -> None:
    if kernel == "step by step":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    elif beneath._openat2() is None:
        pytest.skip("this kernel has no openat2")
    (tmp_path / "d").symlink_to(canary.folder)
    with Beneath.open(tmp_path) as files:
        attempt(partial(move, files))
    canary.check()


# A real second process

EXCHANGER = """
import ctypes, os, sys
rename = ctypes.CDLL(None).renameat2
one, other = map(os.fsencode, sys.argv[1:])
print("ready", flush=True)
while os.getppid() != 1:
    rename(-100, one, -100, other, 2)
"""


@contextmanager
def exchanging(path: Path, other: Path) -> Iterator[None]:
    """Another process exchanges the two as fast as it can."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("this system has no renameat2")
    argv = [sys.executable, "-c", EXCHANGER, str(path), str(other)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=path.parent) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


@pytest.mark.attacks
@pytest.mark.parametrize("kernel", ["openat2", "step by step"])
@pytest.mark.parametrize("move", MOVES)
def test_a_process_that_exchanges_folder_and_link(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, move: Move, kernel: str
) -> None:
    if kernel == "step by step":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    for number in range(20):
        top = make_tree(tmp_path / str(number))
        with Beneath.open(top) as files:
            if move is not carry_out:
                carry_out(files)
            (top / "other").symlink_to(canary.folder)
            with exchanging(top / "d", top / "other"):
                for _ in range(20):
                    attempt(partial(move, files))
        canary.check()


@pytest.mark.attacks
@pytest.mark.parametrize("verb", ["land", "undo"])
def test_a_process_that_exchanges_during_a_whole_landing(world: World, canary: Canary, verb: str) -> None:
    change_set = world.changed(edit)
    if verb == "undo":
        world.changes.land(change_set.id)
    (world.root / "other").symlink_to(canary.folder)
    with exchanging(world.root / "d", world.root / "other"):
        for _ in range(15):
            attempt(lambda: getattr(world.changes, verb)(change_set.id))
    canary.check()


# At each step that a landing names

STEPS = ("planned", "intent", "prepare", "remove d", "remove folder", "make folder", "write", "files done")


@pytest.mark.long
@pytest.mark.parametrize("verb", ["land", "undo"])
@pytest.mark.parametrize("when", STEPS)
def test_a_link_in_place_of_the_folder_at_each_step(world: World, canary: Canary, when: str, verb: str) -> None:
    change_set = world.changed(edit)
    if verb == "undo":
        world.changes.land(change_set.id)

    def step(name: str) -> None:
        if name.startswith(when):
            exchange(world.root / "d", canary.folder)

    world.step = step
    attempt(lambda: getattr(world.changes, verb)(change_set.id))
    canary.check()
    attempt(world.changes.recover)
    canary.check()


@pytest.mark.parametrize("killed_at", ["remove d", "remove folder", "write"])
def test_recovery_after_a_crash_finds_a_link(
    world: World, canary: Canary, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    change_set = world.changed(edit)

    class Killed(BaseException):
        pass

    def step(name: str) -> None:
        if name.startswith(killed_at):
            raise Killed

    world.step = step
    with pytest.raises(Killed):
        world.changes.land(change_set.id)
    world.step = lambda name: None
    exchange(world.root / "d", canary.folder)
    world.changes.recover()
    canary.check()
