"""A repository whose configuration, submodules, nested repositories and pipes want to start or to block something. The
engine enters and runs none of them (SPEC 3.8, 11.4)."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution import trees
from engine.execution.prompts import ProjectPart
from engine.execution.runners.toolchains.projects import find_projects
from engine.execution.sandbox.mounts import find_protected_git_paths
from engine.git import Git, find_repository_root
from engine.git.reader import GitReader
from engine.model import PromptRequest, Refusal
from tests.attacks.planting import Attack, Trap, make_project, rehearse_and_land, use_operator_tree
from tests.execution.changesets.landing_world import LandingWorld
from tests.support import read_table
from tests.support.programs import run_git
from tests.support.repository import Repository

pytestmark = pytest.mark.attack("planted repository")

STATUS = "git status"
Plant = Callable[[Path, Trap], object]


def make_project_with_submodule(world: LandingWorld) -> Repository:
    """The project, with an uninitialised submodule `sub`."""
    shop = make_project(world)
    library = Repository(world.folder / "library")
    library.commit("one", {"lib.txt": "1\n"})
    shop.git("add", "-A")
    shop.git("update-index", "--add", "--cacheinfo", f"160000,{library.git('rev-parse', 'HEAD')},sub")
    shop.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ../library\n\tignore = none\n')
    shop.git("add", ".gitmodules")
    shop.git("commit", "-q", "-m", "with a submodule")
    shop.git("branch", "-f", "other")
    shop.write("a.txt", "changed\n")
    (shop.path / "sub").mkdir(exist_ok=True)
    return shop


def make_repository(folder: Path, **git_settings: object):
    """Make a repository with a changed file. `__` in the name of a setting stands for a dot."""
    Repository(folder).commit("one", {"lib.txt": "1\n"})
    (folder / "lib.txt").write_text("2\n")
    configure(folder, **git_settings)


def configure(folder: Path, **git_settings: object):
    for name, value in git_settings.items():
        run_git(folder, "config", name.replace("__", "."), str(value))


TABLE = read_table(__file__)
ATTACKS, SUBMODULE_ATTACKS = (
    [Attack(name, **entry) for name, entry in TABLE[kind].items()] for kind in ("configuration", "submodule")
)


def plant_in_submodule(tree: Path, attack: Attack, trap: Trap):
    """Make a repository in `sub`, the folder of the submodule, in which git would start the trap."""
    make_repository(tree / "sub")
    if attack.inner:
        make_repository(tree / "sub" / attack.inner)
    attack.plant(Repository(tree / "sub" / attack.inner), trap)
    if attack.inner:
        run_git(tree / "sub", "add", attack.inner)


@pytest.mark.slow_attack
@pytest.mark.parametrize("attack", SUBMODULE_ATTACKS, ids=str)
def test_an_uninitialised_submodule_runs_no_planted_program_in_the_operators_tree(
    world: LandingWorld, trap: Trap, attack: Attack
):
    shop = make_project_with_submodule(world)
    plant_in_submodule(shop.path, attack, trap)
    trap.assert_works(shop.path, attack.proof)
    assert not use_operator_tree(world)
    assert not trap.pop_mark()
    rehearse_and_land(world)
    assert not trap.pop_mark()


# What a session puts where the .git file of its worktree was


def put_file_to_another(folder: Path, trap: Trap):
    make_repository(folder / "evil", core__fsmonitor=trap, core__worktree="../..")
    (folder / ".git").write_text("gitdir: evil/.git\n")


def put_link_to_another(folder: Path, trap: Trap):
    make_repository(folder / "evil", core__fsmonitor=trap)
    (folder / ".git").unlink()
    (folder / ".git").symlink_to("evil/.git")


@pytest.mark.slow_attack
@pytest.mark.parametrize("exchange", [put_file_to_another, put_link_to_another])
def test_an_exchanged_git_folder_of_a_worktree_runs_no_program(world: LandingWorld, trap: Trap, exchange: Plant):
    make_project(world)

    def work(folder: Path):
        git = Git(folder).pin()
        (folder / "a.txt").write_text("worked\n")
        exchange(folder, trap)
        trap.assert_works(folder, STATUS)
        trees.take_snapshot(git.pin())

    change = world.make_change(work)
    change.discard()
    assert not trap.pop_mark()
    assert "a.txt" in [file.path for file in change.files]
    assert not world.worktrees.folder_of("session_1").exists()


@pytest.mark.slow_attack
@pytest.mark.parametrize("bare", [False, True], ids=["nested", "bare"])
def test_a_nested_repository_runs_no_program(world: LandingWorld, trap: Trap, bare: bool):
    shop = make_project(world)
    nested = shop.path / "docs"
    if bare:
        run_git(shop.path, "init", "-q", "--bare", str(nested))
        configure(nested, core__fsmonitor=trap, core__worktree="..", core__bare="false")
    else:
        make_repository(nested, core__fsmonitor=trap)
    trap.assert_works(nested, STATUS)
    assert not use_operator_tree(world)
    with contextlib.suppress(Refusal):
        Git(nested).text("status")
    rehearse_and_land(world)
    assert not trap.pop_mark()


@pytest.mark.slow_attack
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_a_program_that_the_repository_names_is_not_run(world: LandingWorld, trap: Trap, attack: Attack):
    shop = make_project(world)
    attack.plant(shop, trap)
    copy = world.folder / "copy"
    shutil.copytree(shop.path, copy, symlinks=True)
    trap.assert_works(copy, attack.proof)

    refused = use_operator_tree(world)
    assert not trap.pop_mark()
    assert bool(refused) == attack.missing_object, "what else was asked works as usual"
    with contextlib.suppress(Refusal) if attack.missing_object else contextlib.nullcontext():
        rehearse_and_land(world)
    assert not trap.pop_mark()


def test_files_that_the_configuration_puts_elsewhere_are_refused(world: LandingWorld, outside: Path):
    shop = make_project(world)
    shop.git("config", "core.worktree", str(outside))
    with pytest.raises(Refusal, match=r"core\.worktree|elsewhere"):
        find_repository_root(shop.path)


@pytest.mark.long
@pytest.mark.usefixtures("alarm_after_a_minute")
@pytest.mark.parametrize("name", TABLE["read_files"])
def test_a_pipe_in_the_tree_blocks_nothing(repository: Repository, name: str):
    repository.commit("one", {"a.py": "1"})
    if name == ".git/config.worktree":
        repository.git("config", "extensions.worktreeConfig", "true")
    (repository.path / name).unlink(missing_ok=True)
    (repository.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(repository.path / name)
    for read in (GitReader().read, find_projects):
        with contextlib.suppress(Refusal):  # git itself may need the file
            read(repository.path)
    find_protected_git_paths(repository.path)
    ProjectPart().make_part(PromptRequest("", "build", str(repository.path), "work", folder=str(repository.path)))
