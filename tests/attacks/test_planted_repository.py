"""What a session plants in a tree, a repository or a pipe, is never entered, run or waited for by the engine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution import snapshots
from engine.execution.prompt_parts import ProjectPart
from engine.execution.runners.toolchains.projects import find_projects
from engine.execution.sandbox.mounts import protected_git_paths
from engine.git import Git, submodule_paths
from engine.git.calendars import CalendarReader
from engine.git.reader import GitReader
from engine.model import PromptRequest, Refusal
from tests.attacks.planting import Trap, in_tree, in_worktree, plain_git, project, session
from tests.conftest import Repository
from tests.execution.landing_world import World
from tests.support.forked import Nursery

pytestmark = pytest.mark.attack("planted repository")

STATUS = "git status"
Plant = Callable[[Path, Trap], object]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def in_time() -> Iterator[None]:
    """Whatever waits for a pipe waits for ever; an alarm ends it."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("somebody waits for a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def with_submodule(world: World, *, list_key: str = "path") -> Repository:
    """The project, with a submodule `sub` that nobody initialised."""
    shop = project(world)
    library = Repository(world.folder / "library")
    library.commit("one", {"lib.txt": "1\n"})
    shop.git("add", "-A")
    shop.git("update-index", "--add", "--cacheinfo", f"160000,{library.git('rev-parse', 'HEAD')},sub")
    shop.write(".gitmodules", f'[submodule "sub"]\n\t{list_key} = sub\n\turl = ../library\n\tignore = none\n')
    shop.git("add", ".gitmodules")
    shop.git("commit", "-q", "-m", "with a submodule")
    shop.git("branch", "-f", "other")
    shop.write("a.txt", "changed\n")
    (shop.path / "sub").mkdir(exist_ok=True)
    return shop


def repository(place: Path, *, bare: bool = False) -> None:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", *(["--bare"] if bare else []), str(place)], check=True)
    if not bare:
        (place / "lib.txt").write_text("1\n")
        subprocess.run(["git", "add", "-A"], cwd=place, check=True)
        subprocess.run(["git", "commit", "-q", "-m", "one"], cwd=place, check=True)
        (place / "lib.txt").write_text("2\n")


def configure(place: Path, **values: object) -> None:
    for name, value in values.items():
        subprocess.run(["git", "config", name.replace("__", "."), str(value)], cwd=place, check=True)


def monitored(tree: Path, trap: Trap) -> None:
    repository(tree / "sub")
    configure(tree / "sub", core__fsmonitor=trap)


def filtered(tree: Path, trap: Trap) -> None:
    repository(tree / "sub")
    (tree / "sub/.gitattributes").write_text("* filter=evil\n")
    configure(tree / "sub", filter__evil__clean=trap)


def filtered_inside(tree: Path, trap: Trap) -> None:
    repository(tree / "sub")
    (tree / "sub/.git/info").mkdir(exist_ok=True)
    (tree / "sub/.git/info/attributes").write_text("* filter=evil\n")
    configure(tree / "sub", filter__evil__process=trap)


def pointing(tree: Path, trap: Trap) -> None:
    monitored(tree, trap)
    (tree / "sub/.git").rename(tree / "hidden")
    (tree / "sub/.git").write_text("gitdir: ../hidden\n")


def linked(tree: Path, trap: Trap) -> None:
    monitored(tree, trap)
    (tree / "sub/.git").rename(tree / "hidden")
    (tree / "sub/.git").symlink_to("../hidden")


def included(tree: Path, trap: Trap) -> None:
    repository(tree / "sub")
    (tree / "evil.inc").write_text(f"[core]\n\tfsmonitor = {trap}\n")
    configure(tree / "sub", include__path="../../evil.inc")


def deeper(tree: Path, trap: Trap) -> None:
    repository(tree / "sub")
    repository(tree / "sub/deep")
    configure(tree / "sub/deep", core__fsmonitor=trap)
    subprocess.run(["git", "add", "deep"], cwd=tree / "sub", check=True)


IN_SUBMODULE = {
    "a monitor": (monitored, STATUS),
    "a filter": (filtered, STATUS),
    "a filter in info/attributes": (filtered_inside, STATUS),
    "a .git file": (pointing, STATUS),
    "a .git link": (linked, STATUS),
    "an include": (included, STATUS),
    "a submodule of it": (deeper, "git -C sub status"),
}


@pytest.mark.attacks
@pytest.mark.parametrize("key", ["path", "PATH"])
@pytest.mark.parametrize("name", IN_SUBMODULE)
def test_in_an_uninitialised_submodule_of_the_operators_tree(world: World, outside: Path, name: str, key: str) -> None:
    plant, proof = IN_SUBMODULE[name]
    shop, trap = with_submodule(world, list_key=key), Trap.set(outside)
    plant(shop.path, trap)
    trap.sprung()
    plain_git(shop.path, proof)
    assert trap.sprung(), "the attack does not work with plain git: it proves nothing"
    assert not in_tree(shop.path, world.folder / "scratch")
    assert not trap.sprung()
    session(world)
    assert not trap.sprung()


@pytest.mark.attacks
@pytest.mark.parametrize("name", IN_SUBMODULE)
def test_in_an_uninitialised_submodule_of_a_sessions_worktree(world: World, outside: Path, name: str) -> None:
    plant, proof = IN_SUBMODULE[name]
    shop, trap = with_submodule(world), Trap.set(outside)

    def work(folder: Path) -> None:
        git = Git(folder).pin()
        plant(folder, trap)
        plain_git(folder, proof)
        assert trap.sprung(), "the attack does not work with plain git: it proves nothing"
        snapshots.take_snapshot(Git(git).pin())
        assert not trap.sprung()
        in_worktree(world, folder, git)
        plant(folder, trap) if not (folder / "sub/.git").exists() else None
        trap.sprung()
        (folder / "a.txt").write_text("worked\n")

    change = world.changed(work)
    assert not trap.sprung()
    assert [file.path for file in change.files if file.path.startswith("sub/")] == []
    assert shop.git("ls-files", "--stage", "sub").startswith("160000")


def another_repository(folder: Path, trap: Trap) -> None:
    (folder / ".git").unlink()
    repository(folder)
    configure(folder, core__fsmonitor=trap)


def a_file_to_another(folder: Path, trap: Trap) -> None:
    repository(folder / "evil")
    configure(folder / "evil", core__fsmonitor=trap, core__worktree="../..")
    (folder / ".git").write_text("gitdir: evil/.git\n")


def a_link_to_another(folder: Path, trap: Trap) -> None:
    repository(folder / "evil")
    configure(folder / "evil", core__fsmonitor=trap)
    (folder / ".git").unlink()
    (folder / ".git").symlink_to("evil/.git")


@pytest.mark.attacks
@pytest.mark.parametrize("exchange", [another_repository, a_file_to_another, a_link_to_another])
def test_a_worktree_whose_own_git_is_exchanged(world: World, outside: Path, exchange: Plant) -> None:
    project(world)
    trap = Trap.set(outside)

    def work(folder: Path) -> None:
        git = Git(folder).pin()
        (folder / "a.txt").write_text("worked\n")
        exchange(folder, trap)
        trap.sprung()
        plain_git(folder, STATUS)
        assert trap.sprung(), "the attack does not work with plain git: it proves nothing"
        snapshots.take_snapshot(Git(git).pin())

    change = world.changed(work)
    assert not trap.sprung()
    assert "a.txt" in [file.path for file in change.files]


@pytest.mark.attacks
@pytest.mark.parametrize("bare", [False, True], ids=["nested", "bare"])
def test_a_repository_inside_the_tree(world: World, outside: Path, bare: bool) -> None:
    shop, trap = project(world), Trap.set(outside)
    nested = shop.path / "docs"
    repository(nested, bare=bare)
    configure(nested, core__fsmonitor=trap, **({"core__worktree": "..", "core__bare": "false"} if bare else {}))
    trap.sprung()
    plain_git(nested, STATUS)
    assert trap.sprung(), "the attack does not work with plain git: it proves nothing"
    assert not in_tree(shop.path, world.folder / "scratch")
    with contextlib.suppress(Refusal):
        Git(nested).text("status")
    session(world)
    assert not trap.sprung()


@pytest.mark.parametrize(
    "line", ["path = sub", "PATH = sub", 'Path="sub"', "path = sub ; said", "pa\\\n = x\n\tpath = sub"]
)
def test_the_sandbox_holds_the_git_of_every_submodule_that_git_knows(tmp_path: Path, line: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub/.git").mkdir(parents=True)
    (tmp_path / ".gitmodules").write_text(f'[SubModule "x"]\n\t{line}\n')
    listed = subprocess.run(
        ["git", "config", "-f", ".gitmodules", "submodule.x.path"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "sub/.git" in protected_git_paths(tmp_path)[0]) == (listed.stdout == "sub\n")


def test_a_list_of_submodules_includes_nothing(tmp_path: Path, outside: Path) -> None:
    (outside / "more").write_text('[submodule "y"]\n\tpath = secret\n')
    (tmp_path / ".gitmodules").write_text(f'[include]\n\tpath = {outside}/more\n[submodule "x"]\n\tpath = sub\n')
    assert submodule_paths(tmp_path) == ("sub",)


READ = [
    ".gitmodules", ".mailmap", "AGENTS.md", "CLAUDE.md", "pyproject.toml", "setup.cfg", "tox.ini", "requirements.txt",
    "Pipfile", "package.json", "Cargo.toml", "go.mod", "Makefile", ".flake8", "ruff.toml", "poetry.toml", "poetry.lock",
    ".git/config.worktree", ".git/info/grafts",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("name", READ)
def test_nobody_waits_for_a_pipe(repository: Repository, name: str) -> None:
    repository.commit("one", {"a.py": "1"})
    if name == ".git/config.worktree":
        repository.git("config", "extensions.worktreeConfig", "true")
    (repository.path / name).unlink(missing_ok=True)
    (repository.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(repository.path / name)
    for look in (GitReader().read, find_projects):
        with contextlib.suppress(Refusal):  # git itself may need the file
            look(repository.path)
    protected_git_paths(repository.path)
    ProjectPart().part(PromptRequest("", "build", str(repository.path), "work", folder=str(repository.path)))


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("name", [".git/config", ".git"])
def test_a_repository_whose_own_files_are_pipes_is_refused(repository: Repository, name: str) -> None:
    place = repository.path / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    os.mkfifo(place)
    with pytest.raises(Refusal):
        GitReader().read(repository.path)


@pytest.mark.usefixtures("in_time")
def test_a_calendar_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    os.mkfifo(tmp_path / "meetings.ics")
    with pytest.raises(Refusal, match="not a regular file"):
        CalendarReader().meetings([str(tmp_path / "meetings.ics")], datetime(2026, 1, 5, tzinfo=UTC))


@pytest.mark.long
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("name", ["sub/.gitignore", ".gitattributes", "sub/.git/HEAD"])
def test_a_pipe_that_git_itself_would_wait_for_ends_with_its_name(repository: Repository, name: str) -> None:
    repository.commit("one", {"a.py": "1"})
    (repository.path / name).parent.mkdir(parents=True, exist_ok=True)
    (repository.path / "sub").mkdir(exist_ok=True)
    repository.write("sub/new", "1")
    repository.write("a.py", "2")  # of the same size: git has to read it, and with it the attributes
    os.mkfifo(repository.path / name)
    git = replace(Git(repository.path), timeout=2)
    with pytest.raises(Refusal, match=name.replace(".", r"\.")):
        git.text("status", "--porcelain")


@pytest.mark.attacks
@pytest.mark.parametrize("verb", [["predict"], ["doctor"]], ids=["predict", "doctor"])
def test_clawpy_enters_nothing_planted(world: World, outside: Path, nursery: Nursery, verb: list[str]) -> None:
    shop, trap = with_submodule(world), Trap.set(outside)
    monitored(shop.path, trap)
    trap.sprung()
    plain_git(shop.path, STATUS)
    assert trap.sprung()
    home = str(world.folder / "fresh")
    with nursery.clawpy("--home", home, *verb, "--workspace", str(shop.path), folder=shop.path) as ran:
        ran.communicate()
    assert not trap.sprung()
