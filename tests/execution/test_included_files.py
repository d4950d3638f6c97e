"""A worktree gets the ignored files that `.worktreeinclude` names, and no others (SPEC 3.9)."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution import worktrees
from tests.execution.changesets.landing_world import LandingWorld

GITIGNORE = "*.log\n.env*\n.GIT/\ncache/\nlinks/\nother\n"


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", {"a.txt": "1\n", ".gitignore": GITIGNORE})
    return landing_world


def test_ignored_files_that_match_are_copied(world: LandingWorld):
    write = world.repository.write
    write(".worktreeinclude", "# what tests need\n.env\n/cache/**\n.GIT/\n!cache/big.bin\na.txt\n")
    write(".env", "KEY=1\n").chmod(0o600)
    write(".env.local", "KEY=2\n")
    write("cache/x/y ü.json", "{}")
    write("cache/big.bin", "0")
    write(".GIT/config", "is .git on some disks")
    write("cache/run", "#!/bin/sh\n").chmod(0o755)

    worktree = world.open_worktree()

    assert (worktree.folder / ".env").read_text() == "KEY=1\n"
    modes = [stat.S_IMODE((worktree.folder / name).stat().st_mode) for name in (".env", "cache/run")]
    assert modes == [0o600, 0o755]
    assert set(worktree.included.names) == {b".env", "cache/x/y ü.json".encode(), b"cache/run"}
    assert not any((worktree.folder / name).exists() for name in (".env.local", "cache/big.bin"))
    assert worktree.included.summary.startswith(".worktreeinclude: copied .env, cache/")
    assert worktree.included.summary.endswith(".GIT/config (belongs to git)")


def test_links_that_lead_out_of_the_repository_are_not_copied(world: LandingWorld, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    world.write(".worktreeinclude", "links/\nother\n")
    world.write("links/real", "here")
    links = world.root / "links"
    for name, target in (
        ("links/inside", "real"),
        ("links/up", "../../secret/key"),
        ("links/away", secret / "key"),
        ("links/folder", secret),
        ("other", secret),
    ):
        (world.root / name).symlink_to(target)
    os.mkfifo(links / "pipe")

    worktree = world.open_worktree()

    assert (worktree.folder / "links/inside").readlink() == Path("real")
    assert sorted(path.name for path in (worktree.folder / "links").iterdir()) == ["inside", "real"]
    assert not (worktree.folder / "other").exists()
    assert "a link that leads out of the repository" in worktree.included.summary


def test_a_link_in_the_worktree_is_not_written_through(world: LandingWorld, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    world.write(".worktreeinclude", "deep/\n")
    (world.root / "deep").symlink_to(outside, target_is_directory=True)
    world.git("add", "-Af")
    world.git("commit", "-qm", "a link")
    (world.root / "deep").unlink()
    world.write(".gitignore", "deep/\n")
    world.git("update-index", "--assume-unchanged", "deep")
    world.write("deep/.env", "KEY=1\n")

    world.open_worktree()

    assert list(outside.iterdir()) == []


def test_files_of_git_and_of_nested_repositories_are_not_copied(world: LandingWorld):
    world.write(".worktreeinclude", "*\n.*\n")
    world.write("cache/sub/file", "1")
    world.git("init", "-q", "cache/own")
    (world.root / "cache/own/file").write_text("1")

    worktree = world.open_worktree()

    assert (worktree.folder / ".git").is_file()
    assert not (worktree.folder / "cache/own").exists()
    assert (worktree.folder / "cache/sub/file").exists()


def test_the_number_of_copied_files_is_limited(world: LandingWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worktrees, "MAX_INCLUDE_FILES", 3)
    world.write(".worktreeinclude", "cache/\n")
    for number in range(9):
        world.write(f"cache/{number}", "x")

    worktree = world.open_worktree()

    assert len(list((worktree.folder / "cache").iterdir())) == 3
    assert "left out: the rest, beyond 3 files" in worktree.included.summary


@pytest.mark.parametrize(
    "make_list",
    [os.mkfifo, lambda path: path.write_text("x\n" * 100_000), lambda path: path.symlink_to("/etc/passwd")],
    ids=["pipe", "large", "link"],
)
def test_a_list_that_is_no_plain_small_file_is_not_used(world: LandingWorld, make_list: Callable[[Path], object]):
    world.write(".git/info/exclude", ".worktreeinclude\n")
    make_list(world.root / ".worktreeinclude")
    worktree = world.open_worktree()
    assert worktree.included.names == ()
    assert worktree.included.summary.startswith(".worktreeinclude was not used: it ")


def test_copied_files_are_no_part_of_the_changes(world: LandingWorld):
    world.write(".worktreeinclude", ".env\n")
    world.write(".env", "KEY=1\n")
    worktree = world.open_worktree()
    (worktree.folder / ".gitignore").write_text("")  # the session un-ignores it
    (worktree.folder / "made.txt").write_text("made")

    result = world.worktrees.capture(worktree)

    names = world.git("ls-tree", "-r", "--name-only", result.tree).splitlines()
    assert "made.txt" in names
    assert ".env" not in names
