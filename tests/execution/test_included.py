"""`.worktreeinclude`: ignored files that a new worktree gets, and what never leaves the repository with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution import worktrees
from tests.execution.landing_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": "1\n", ".gitignore": ".env*\ncache/\nlinks/\nother\n"})
    yield world
    world.close()


def test_ignored_files_that_match_come_along(world: World) -> None:
    write = world.repository.write
    write(".worktreeinclude", "# what tests need\n.env\n/cache/**\n!cache/big.bin\na.txt\n")
    write(".env", "KEY=1\n")
    (world.root / ".env").chmod(0o600)
    write(".env.local", "KEY=2\n")
    write("cache/x/y ü.json", "{}")
    write("cache/big.bin", "0")
    (world.root / "cache/run").write_text("#!/bin/sh\n")
    (world.root / "cache/run").chmod(0o755)

    worktree = world.worktrees.create("session_1", world.root)

    assert (worktree.folder / ".env").read_text() == "KEY=1\n"
    assert stat.S_IMODE((worktree.folder / ".env").stat().st_mode) == 0o600
    assert os.access(worktree.folder / "cache/run", os.X_OK)
    assert (worktree.folder / "cache/x/y ü.json").read_text() == "{}"
    assert not (worktree.folder / ".env.local").exists()
    assert not (worktree.folder / "cache/big.bin").exists()
    assert set(worktree.included.names) == {b".env", "cache/x/y ü.json".encode(), b"cache/run"}
    assert worktree.included.summary.startswith(".worktreeinclude: copied ")


def test_links_never_lead_out(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    world.repository.write(".worktreeinclude", "links/\nother\n")
    links = world.root / "links"
    links.mkdir()
    (links / "real").write_text("here")
    (links / "inside").symlink_to("real")
    (links / "up").symlink_to("../../secret/key")
    (links / "away").symlink_to(secret / "key")
    (links / "folder").symlink_to(secret, target_is_directory=True)
    os.mkfifo(links / "pipe")
    (world.root / "other").symlink_to(secret, target_is_directory=True)

    worktree = world.worktrees.create("session_1", world.root)

    assert (worktree.folder / "links/inside").readlink() == Path("real")
    assert sorted(path.name for path in (worktree.folder / "links").iterdir()) == ["inside", "real"]
    assert not (worktree.folder / "other").exists()
    assert "a link that leads out of the repository" in worktree.included.summary
    assert not any(b"key" in path.read_bytes() for path in worktree.folder.rglob("*") if path.is_file())


def test_a_link_in_the_worktree_is_not_written_through(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    world.repository.write(".worktreeinclude", "deep/\n")
    (world.root / "deep").symlink_to(outside, target_is_directory=True)
    world.repository.git("add", "-Af")
    world.repository.git("commit", "-qm", "a link")
    (world.root / "deep").unlink()
    world.repository.write(".gitignore", "deep/\n")
    world.repository.git("update-index", "--assume-unchanged", "deep")
    world.repository.write("deep/.env", "KEY=1\n")

    world.worktrees.create("session_1", world.root)

    assert list(outside.iterdir()) == []


def test_the_files_of_git_and_of_repositories_inside_stay(world: World) -> None:
    world.repository.write(".worktreeinclude", "*\n.*\n")
    world.repository.write("cache/sub/file", "1")
    world.repository.git("init", "-q", "cache/own")
    (world.root / "cache/own/file").write_text("1")

    worktree = world.worktrees.create("session_1", world.root)

    assert (worktree.folder / ".git").is_file()
    assert not (worktree.folder / "cache/own").exists()
    assert (worktree.folder / "cache/sub/file").exists()


def test_it_is_bounded_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktrees, "MAX_INCLUDE_FILES", 3)
    world.repository.write(".worktreeinclude", "cache/\n")
    for number in range(9):
        world.repository.write(f"cache/{number}", "x")

    worktree = world.worktrees.create("session_1", world.root)

    assert len(list((worktree.folder / "cache").iterdir())) == 3
    assert "left out: the rest, beyond 3 files" in worktree.included.summary


@pytest.mark.parametrize("kind", ["pipe", "link", "large"])
def test_a_strange_list_is_not_used(world: World, kind: str) -> None:
    place = world.root / ".worktreeinclude"
    if kind == "pipe":
        world.repository.write(".git/info/exclude", ".worktreeinclude\n")
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to("/etc/passwd")
    else:
        place.write_text("x\n" * 100_000)

    worktree = world.worktrees.create("session_1", world.root)

    assert worktree.included.names == ()
    assert worktree.included.summary.startswith(".worktreeinclude was not used")


def test_what_came_along_is_no_part_of_the_diff(world: World) -> None:
    world.repository.write(".worktreeinclude", ".env\n")
    world.repository.write(".env", "KEY=1\n")
    worktree = world.worktrees.create("session_1", world.root)
    (worktree.folder / ".gitignore").write_text("")  # the session un-ignores it
    (worktree.folder / "made.txt").write_text("made")

    result = world.worktrees.capture(worktree)

    names = world.repository.git("ls-tree", "-r", "--name-only", result.tree).splitlines()
    assert "made.txt" in names
    assert ".env" not in names
