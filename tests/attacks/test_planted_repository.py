"""A session plants repositories and programs. The engine never enters or runs them (SPEC 3.8)."""

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution import trees
from engine.execution.sandbox.mounts import find_protected_git_paths
from engine.git import Git, read_submodule_paths
from engine.model import Refusal
from tests.attacks.planting import (
    Attack,
    Trap,
    make_project,
    rehearse_and_land,
    run_clawpy,
    use_operator_tree,
    use_worktree,
)
from tests.conftest import Repository
from tests.execution.changesets.landing_world import LandingWorld
from tests.support.fork_server import ForkServer
from tests.support.helpers import read_table
from tests.support.programs import run_git

pytestmark = pytest.mark.attack("planted repository")

STATUS = "git status"
Plant = Callable[[Path, Trap], object]


def make_project_with_submodule(world: LandingWorld, *, list_key: str = "path") -> Repository:
    """The project, with an uninitialised submodule `sub`."""
    shop = make_project(world)
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
@pytest.mark.parametrize("key", ["path", "PATH"])
@pytest.mark.parametrize("attack", SUBMODULE_ATTACKS, ids=str)
def test_an_uninitialised_submodule_runs_no_planted_program_in_the_operators_tree(
    world: LandingWorld, trap: Trap, attack: Attack, key: str
):
    shop = make_project_with_submodule(world, list_key=key)
    plant_in_submodule(shop.path, attack, trap)
    trap.assert_works(shop.path, attack.proof)
    assert not use_operator_tree(world)
    assert not trap.pop_mark()
    rehearse_and_land(world)
    assert not trap.pop_mark()


@pytest.mark.slow_attack
@pytest.mark.parametrize("attack", SUBMODULE_ATTACKS, ids=str)
def test_an_uninitialised_submodule_runs_no_planted_program_in_a_worktree(
    world: LandingWorld, trap: Trap, attack: Attack
):
    shop = make_project_with_submodule(world)

    def work(folder: Path):
        git = Git(folder).pin()
        plant_in_submodule(folder, attack, trap)
        trap.assert_works(folder, attack.proof)
        trees.take_snapshot(git.pin())
        assert not trap.pop_mark()
        use_worktree(world, folder, git)
        if not (folder / "sub/.git").exists():
            plant_in_submodule(folder, attack, trap)  # again, since flows reset the worktree
        trap.pop_mark()
        (folder / "a.txt").write_text("worked\n")

    change = world.make_change(work)
    assert not trap.pop_mark()
    planted = [file for file in change.files if file.path.startswith("sub/")]
    assert all((file.path, file.can_land) == ("sub/", False) for file in planted)
    assert shop.git("ls-files", "--stage", "sub").startswith("160000")


# What a session puts where the .git file of its worktree was


def put_another_repository(folder: Path, trap: Trap):
    (folder / ".git").unlink()
    make_repository(folder, core__fsmonitor=trap)


def put_file_to_another(folder: Path, trap: Trap):
    make_repository(folder / "evil", core__fsmonitor=trap, core__worktree="../..")
    (folder / ".git").write_text("gitdir: evil/.git\n")


def put_link_to_another(folder: Path, trap: Trap):
    make_repository(folder / "evil", core__fsmonitor=trap)
    (folder / ".git").unlink()
    (folder / ".git").symlink_to("evil/.git")


@pytest.mark.slow_attack
@pytest.mark.parametrize("exchange", [put_another_repository, put_file_to_another, put_link_to_another])
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


@pytest.mark.parametrize(
    "line", ["path = sub", "PATH = sub", 'Path="sub"', "path = sub ; said", "pa\\\n = x\n\tpath = sub"]
)
def test_the_sandbox_holds_the_git_of_every_submodule_that_git_knows(tmp_path: Path, line: str):
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub/.git").mkdir(parents=True)
    (tmp_path / ".gitmodules").write_text(f'[SubModule "x"]\n\t{line}\n')
    argv = ["git", "config", "-f", str(tmp_path / ".gitmodules"), "submodule.x.path"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    assert (tmp_path / "sub/.git" in find_protected_git_paths(tmp_path)) == (listed == "sub\n")


def test_a_list_of_submodules_includes_nothing(tmp_path: Path, outside: Path):
    (outside / "more").write_text('[submodule "y"]\n\tpath = secret\n')
    (tmp_path / ".gitmodules").write_text(f'[include]\n\tpath = {outside}/more\n[submodule "x"]\n\tpath = sub\n')
    assert read_submodule_paths(tmp_path) == ("sub",)


@pytest.mark.slow_attack
@pytest.mark.parametrize("verb", ["predict", "doctor"])
def test_clawpy_reads_no_planted_repository(world: LandingWorld, trap: Trap, fork_server: ForkServer, verb: str):
    shop = make_project_with_submodule(world)
    make_repository(shop.path / "sub", core__fsmonitor=trap)
    trap.assert_works(shop.path, STATUS)
    run_clawpy(fork_server, verb, world.folder / "fresh", shop.path)
    assert not trap.pop_mark()
