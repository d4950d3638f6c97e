"""Programs that a repository's own git configuration names are never run, by no git command (SPEC 3.8)."""

import contextlib
import shutil
from pathlib import Path

import pytest

from engine.git import find_repository_root
from engine.model import Refusal
from tests.attacks.planting import Attack, Trap, make_project, rehearse_and_land, run_clawpy, use_operator_tree
from tests.execution.changesets.landing_world import LandingWorld
from tests.support.fork_server import ForkServer
from tests.support.helpers import read_table

pytestmark = pytest.mark.attack("repository configuration")

ATTACKS = [Attack(name, **entry) for name, entry in read_table(__file__).items()]


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


@pytest.mark.slow_attack
@pytest.mark.parametrize("verb", ["predict", "doctor"])
def test_clawpy_runs_nothing_of_a_repository_full_of_traps(
    world: LandingWorld, trap: Trap, fork_server: ForkServer, verb: str
):
    shop = make_project(world)
    for attack in ATTACKS:
        if not attack.missing_object and not attack.name.startswith((".git", "commondir")):
            attack.plant(shop, trap)
    trap.assert_works(shop.path, "git status")
    output, errors = run_clawpy(fork_server, verb, world.folder / "fresh", shop.path)
    assert str(shop.path) in output or verb == "predict", errors
    assert not trap.pop_mark()
