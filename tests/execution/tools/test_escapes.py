"""Ways out of the folder, each tried for real with the file tools; none reads, writes, makes or removes anything
outside, and the text of none names what is there (SPEC 3.8)."""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.execution.tools.folder_jail import Jail
from engine.model import Refusal
from tests.execution.tools.belt_world import SECRET, BeltWorld


@pytest.fixture(autouse=True)
def _nothing_changed_outside(world: BeltWorld) -> Iterator[None]:
    yield
    assert sorted(path.name for path in world.outside.iterdir()) == ["secret.txt"]
    assert world.secret.read_text() == SECRET
    assert (world.folder / ".git").read_text() == "gitdir: /somewhere\n"


def try_all(world: BeltWorld, path: str, said: str = "not in the project") -> None:
    """read, write and edit all refuse the path, in these words."""
    for words in (
        world.no("read", path=path),
        world.no("write", path=path, content="pwned"),
        world.no("edit", path=path, old_text=SECRET, new_text="pwned"),
    ):
        assert said in words, words
    if said == "not in the project":
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
    try_all(world, path.format(secret=world.secret, folder=world.folder))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\n../outside/secret.txt", "control characters"),
        ("a\x1b[2Kb", "control characters"),
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
    assert words in world.no("read", path=path)


def test_a_nul_in_a_path_is_refused(world: BeltWorld) -> None:
    world.file("a.txt", "x")
    try_all(world, f"a.txt\0{world.secret}", "control characters")


def test_names_and_paths_that_are_too_long_are_refused(world: BeltWorld) -> None:
    assert "longer than 255 bytes" in world.no("write", path="x" * 256, content="")
    assert "longer than 255 bytes" in world.no("write", path="a/" + "\u00fc" * 128, content="")
    assert "longer than 4096 bytes" in world.no("read", path="a/" * 2_100)
    assert "folders deep" in world.no("write", path="a/" * 300 + "x", content="")
    assert not (world.folder / "a").exists()


# git's own


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
    words = world.no("write", path=path, content="[core]\n\tfsmonitor = touch /tmp/pwned\n")
    assert ".git is not for the file tools" in words
    assert ".git is not for the file tools" in world.no("read", path=path)
    assert {refusal.rule for refusal in world.refused} == {"git_folder"}


def test_the_git_folder_is_refused_through_a_link(world: BeltWorld) -> None:
    (world.folder / "plain").symlink_to(".git")
    try_all(world, "plain", ".git is not for the file tools")


# Links


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("{outside}/secret.txt", "link"), ("../outside/secret.txt", "link"), ("{outside}/new.txt", "link"),
        ("/", "link{outside}/secret.txt"), ("{outside}", "link/secret.txt"), ("{outside}", "link/new.txt"),
        ("/dev/urandom", "link"),
    ],
)  # fmt: skip
def test_links_to_outside_are_refused(world: BeltWorld, target: str, path: str) -> None:
    (world.folder / "link").symlink_to(target.format(outside=world.outside))
    try_all(world, path.format(outside=world.outside))
    if target == "{outside}":
        assert "not in the project" in world.no("read", path="link")


def test_links_in_a_circle_are_refused(world: BeltWorld) -> None:
    (world.folder / "x").symlink_to("y")
    (world.folder / "y").symlink_to("x")
    try_all(world, "x", "too many links")


def test_dots_behind_a_link_go_up_from_where_it_leads(world: BeltWorld) -> None:
    """`deep/..` is the folder above the link's target, not above the link."""
    world.file("a/b/c/d.txt", "d")
    world.file("a/b/e.txt", "e")
    (world.folder / "link").symlink_to("a/b/c")
    assert world.ok("read", path="link/../e.txt") == "e"
    try_all(world, "link/../../../../outside/secret.txt")


def test_links_inside_are_followed_and_stay_links(world: BeltWorld) -> None:
    file = world.file("real/a.txt", "old")
    (world.folder / "link").symlink_to("real/a.txt")
    (world.folder / "absolute").symlink_to(file)
    assert world.ok("read", path="link") == "old"
    world.ok("write", path="link", content="new")
    world.ok("edit", path="absolute", old_text="new", new_text="newer")
    assert (world.folder / "link").is_symlink()
    assert file.read_text() == "newer"


# Hard links and what is no file


def test_a_hard_link_to_a_file_outside_is_not_read(world: BeltWorld) -> None:
    os.link(world.secret, world.folder / "innocent.txt")
    assert "another name elsewhere" in world.no("read", path="innocent.txt")
    assert "another name elsewhere" in world.no("edit", path="innocent.txt", old_text="own", new_text="x")


def test_a_hard_link_to_a_file_outside_is_replaced_not_written_through(world: BeltWorld) -> None:
    os.link(world.secret, world.folder / "innocent.txt")
    world.ok("write", path="innocent.txt", content="mine")
    assert (world.folder / "innocent.txt").read_text() == "mine"
    assert world.secret.stat().st_nlink == 1


def test_a_pipe_is_neither_waited_for_nor_replaced(world: BeltWorld) -> None:
    os.mkfifo(world.folder / "pipe")
    try_all(world, "pipe", "no ordinary file")
    assert stat.S_ISFIFO((world.folder / "pipe").stat().st_mode)


# Races


def flip(work: Callable[[], None]) -> tuple[threading.Thread, threading.Event]:
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    return thread, over


def swap(path: Path, other: Path, spare: Path) -> None:
    path.rename(spare)
    other.rename(path)
    spare.rename(other)


@pytest.mark.parametrize("tool", ["read", "edit"])
def test_a_folder_that_is_replaced_by_a_link_leads_nowhere_outside(world: BeltWorld, tool: str) -> None:
    """`d` is a folder, then a link to outside, then a folder, as fast as a thread can do it."""
    world.file("d/secret.txt", "inside")
    (world.folder / "other").symlink_to(world.outside)
    d, other, spare = (world.folder / name for name in ("d", "other", "spare"))
    arguments = {"path": "d/secret.txt"} | ({"old_text": "s", "new_text": "S"} if tool == "edit" else {})
    thread, over = flip(lambda: swap(d, other, spare))
    try:
        for _ in range(300):
            assert SECRET not in world.belt.call(tool, arguments).text
    finally:
        over.set()
        thread.join()


def test_an_edit_in_a_folder_that_was_removed_creates_no_folder(world: BeltWorld) -> None:
    """Another's `mv d elsewhere && mv next d` must not find a `d` that we made in between."""
    file = world.file("d/a.txt", "inside")
    jail = Jail(world.folder)
    before = jail.read("d/a.txt")
    file.parent.rename(world.folder / "elsewhere")
    with pytest.raises(Refusal) as refused:
        jail.write("d/a.txt", b"changed", only_if=before)
    assert refused.value.code == "not_there"
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
    thread, over = flip(turn)
    try:
        done = [world.belt.call("write", {"path": "d/b.txt", "content": "inside"}).ok for _ in range(300)]
    finally:
        over.set()
        thread.join()
    assert (world.folder / "real/b.txt").exists() == any(done)


def test_a_file_that_is_replaced_by_a_link_is_not_read(world: BeltWorld) -> None:
    world.file("f", "inside")
    (world.folder / "other").symlink_to(world.secret)
    f, other, spare = (world.folder / name for name in ("f", "other", "spare"))
    thread, over = flip(lambda: swap(f, other, spare))
    try:
        for _ in range(300):
            assert world.belt.call("read", {"path": "f"}).text != SECRET
    finally:
        over.set()
        thread.join()


def test_a_link_that_appears_after_the_check_is_replaced(world: BeltWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = os.fdopen

    def late(descriptor: int, mode: str) -> object:
        (world.folder / "new.txt").symlink_to(world.secret)
        return fresh(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", late)
    world.ok("write", path="new.txt", content="mine")
    assert not (world.folder / "new.txt").is_symlink()
    assert (world.folder / "new.txt").read_text() == "mine"


def test_a_replaced_folder_is_not_used(world: BeltWorld) -> None:
    (world.outside.parent / "kept").mkdir()
    world.folder.rename(world.root / "away")
    world.folder.symlink_to(world.outside)
    try:
        for tool, more in (("read", {}), ("write", {"content": "x"})):
            assert not world.belt.call(tool, {"path": "secret.txt"} | more).ok
    finally:
        world.folder.unlink()
        (world.root / "away").rename(world.folder)


# What the operator has


def test_no_variable_of_the_operator_reaches_a_tool(world: BeltWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-operator")
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-operator")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:sk-operator@host/")
    assert "sk-operator" not in world.ok("exec", command="env; set; export -p")
    assert "sk-operator" not in world.no("exec", command="echo $OPENAI_API_KEY$CLAWPY_OPENAI_API_KEY; exit 3")


def test_nothing_of_the_engine_can_be_read(world: BeltWorld) -> None:
    for path in (world.database.path, world.root / "transcript.jsonl", world.live.confinement.caches):
        try_all(world, str(path))
        world.refused.clear()
