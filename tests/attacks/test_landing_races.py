"""Folders that become links while a change set lands, at any call, step or instant: nothing outside changes (SPEC
3.9)."""

import os
import shutil
from collections.abc import Callable
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


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("call", [*CALLS, pytest.param("resolve", marks=pytest.mark.slow_attack)])
def test_a_folder_that_becomes_a_link_before_a_call_leads_nowhere(
    tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch, call: str, move: Move
):
    place = beneath if call == "resolve" else os
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
                        replace_by_link(top / "d", canary.folder)
                return real(*arguments, **options)

            with monkeypatch.context() as patched:
                patched.setattr(place, name, before)
                ignore_failure(partial(move, files))
        canary.assert_untouched()
        shutil.rmtree(top)
        if calls <= number:
            break
    if call not in ("readlink", "rmdir", "mkdir", "link", "symlink"):
        assert number > 1, "the call is never made: nothing was attacked"


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
