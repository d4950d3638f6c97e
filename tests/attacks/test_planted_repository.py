"""A session plants repositories and programs. The engine never enters or runs them (SPEC 3.8)."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution import trees
from engine.git import Git
from engine.model import Refusal
from tests.attacks.planting import (
    Attack,
    Trap,
    make_project,
    rehearse_and_land,
    use_operator_tree,
)
from tests.conftest import Repository
from tests.execution.changesets.landing_world import LandingWorld
from tests.support.helpers import read_table
from tests.support.programs import run_git

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


SUBMODULE_ATTACKS = [Attack(name, **entry) for name, entry in read_table(__file__).items()]


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
