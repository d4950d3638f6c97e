"""Folders that become links while a change set lands, at any call, step or instant: nothing outside changes (SPEC
3.9)."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import beneath
from engine.beneath import Beneath
from tests.attacks.landing_files import (
    Canary,
    carry_out,
    ignore_failure,
    make_all_changes,
    make_tree,
    replace_by_link,
    reverse,
    roll_back,
)
from tests.execution.changesets.landing_world import LandingWorld, kill_at

pytestmark = pytest.mark.attack("landing")


CALLS = ("open", "replace", "link", "unlink", "symlink", "mkdir", "rmdir", "readlink", "stat")
"""Functions of `os` by which files are changed."""
MOVES = (carry_out, reverse, roll_back)
Move = Callable[[Beneath], None]


@pytest.mark.parametrize("has_openat2", [True, False])
@pytest.mark.parametrize("move", MOVES)
def test_parents_that_are_links_lead_nowhere(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, move: Move, has_openat2: bool
):
    """Also on a kernel on which each step of a path is opened alone."""
    if not has_openat2:
        monkeypatch.setattr(beneath, "_load_openat2", lambda: None)
    (tmp_path / "d").symlink_to(canary.folder)
    with Beneath.open(tmp_path) as files:
        ignore_failure(partial(move, files))
    canary.assert_untouched()


@contextlib.contextmanager
def do_before_call(
    act: Callable[[], object], patch: pytest.MonkeyPatch, place: object, name: str, number: int
) -> Iterator[list[object]]:
    """Do `act` just before the call of this number of a function of `place`. Yields the calls so far."""
    real, calls = getattr(place, name), []

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number:
            with patch.context() as inner:
                inner.setattr(place, name, real)
                act()
        return real(*arguments, **options)

    with patch.context() as patched:
        patched.setattr(place, name, call)
        yield calls


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("call", [*CALLS, pytest.param("resolve", marks=pytest.mark.slow_attack)])
def test_a_folder_that_becomes_a_link_before_a_call_leads_nowhere(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, call: str, move: Move
):
    place, name = (beneath, "_open_folder") if call == "resolve" else (os, call)
    for number in range(1, 1000):
        top = make_tree(tmp_path / str(number))
        replace = partial(replace_by_link, top / "d", canary.folder)
        with Beneath.open(top) as files:
            if move is not carry_out:
                carry_out(files)
            with do_before_call(replace, monkeypatch, place, name, number) as calls:
                ignore_failure(partial(move, files))
        canary.assert_untouched()
        shutil.rmtree(top)
        if len(calls) < number:
            break
    if call not in ("readlink", "rmdir", "mkdir", "link", "symlink"):
        assert number > 2, "the call is never made: nothing was attacked"


STEPS = ("planned", "intent", "prepare", "remove d", "remove folder", "make folder", "write", "files completed")


@pytest.mark.long
@pytest.mark.parametrize("decision", ["land", "undo"])
@pytest.mark.parametrize("when", STEPS)
def test_a_folder_that_becomes_a_link_at_a_step_leads_nowhere(
    project: LandingWorld, canary: Canary, when: str, decision: str
):
    change = project.make_change(make_all_changes)
    if decision == "undo":
        change.land()

    def step(name: str):
        if name.startswith(when):
            replace_by_link(project.root / "d", canary.folder)

    project.step = step
    ignore_failure(getattr(change, decision))
    canary.assert_untouched()
    ignore_failure(project.changes.recover)
    canary.assert_untouched()


@pytest.mark.parametrize("killed_at", ["remove d", "remove folder", "write"])
def test_recovery_follows_no_link(project: LandingWorld, canary: Canary, killed_at: str):
    change = project.make_change(make_all_changes)
    kill_at(project, killed_at, change.land)
    replace_by_link(project.root / "d", canary.folder)
    project.changes.recover()
    canary.assert_untouched()
