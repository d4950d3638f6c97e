"""A change set becomes a branch of its own, which has nothing but its changes (SPEC 3.9)."""

import os
from pathlib import Path

import pytest

from engine.execution.changesets import find_free_branch_name
from engine.git import Git
from engine.model import ChangeState
from tests.execution.changesets.landing_world import LandingWorld, add_line, make_edits
from tests.support.checks import refused
from tests.support.repository import Repository


@pytest.mark.parametrize(
    "title, name",
    [
        ("  fix: lint in cart/*.py (2 files)\nand more", "clawpy/fix-lint-in-cart-py-2-files"),
        ("größer als -- ~^:?*[ @{ ..lock", "clawpy/größer-als-lock"),
        ("…", "clawpy/sess_1"),
        ("word " * 40, "clawpy/word-word-word-word-word-word-word-word"),
    ],
)
def test_a_branch_is_named_after_the_prompt(repository: Repository, title: str, name: str):
    repository.commit("one", {"a.py": "1"})
    assert find_free_branch_name(Git(repository.path), title, "sess_1") == name
    repository.git("branch", name)
    assert find_free_branch_name(Git(repository.path), title, "sess_1") == f"{name}-2"


def test_a_branch_has_only_the_changes_of_the_session(world: LandingWorld):
    world.write("b.txt", "uncommitted\n")
    world.write("mine.txt", "untracked\n")
    change = world.make_change(add_line)
    files, state = world.files, world.git_state

    branched = change.branch()

    git = world.repository.git
    assert branched.branch == "clawpy/fix-the-cart"
    assert git("diff", "--name-only", "main", "clawpy/fix-the-cart") == "a.txt"
    assert git("rev-parse", "clawpy/fix-the-cart^") == git("rev-parse", "main")
    assert git("log", "-1", "--format=%s|%an|%ae|%cI", "clawpy/fix-the-cart") == (
        "Fix the cart|Test|test@example.org|2026-01-05T09:30:00+00:00"
    )
    assert world.files == files
    git("branch", "-q", "-D", "clawpy/fix-the-cart")
    assert world.git_state == state
    assert world.refs == []
    assert not world.worktrees.folder_of("session_1").exists()


def test_a_branch_is_made_without_a_commit_or_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    world = LandingWorld(tmp_path)
    world.write("x.txt", "operator's\n")
    change = world.make_change(make_edits({"y.txt": "session's\n"}))

    change.branch()

    git = world.repository.git
    assert git("ls-tree", "-r", "--name-only", "clawpy/fix-the-cart") == "y.txt"
    assert git("log", "--format=%an <%ae>", "clawpy/fix-the-cart") == "Clawpy Console <clawpy@localhost>"
    world.close()


def test_changes_that_build_on_uncommitted_work_are_not_branched(world: LandingWorld):
    world.write("a.txt", "1\n2\nmine\n")
    change = world.make_change(make_edits({"a.txt": "1\n2\nmine too\n"}))

    assert refused("conflict", change.branch).message == (
        "no branch was made: it builds on changes that HEAD does not have: a.txt"
    )
    assert change.current.state is ChangeState.WAITING


def test_changes_that_head_has_already_are_not_branched(world: LandingWorld):
    change = world.make_change(add_line)
    world.repository.commit("the same", {"a.txt": "1\n2\n3\nfour\n"})

    refusal = refused("nothing_to_commit", change.branch)
    assert refusal.fix == "land them if your files differ from HEAD there, else discard them"
