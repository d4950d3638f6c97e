"""Programs that a repository's own git configuration names are never run, by no git command (SPEC 3.8)."""

import contextlib
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.git import find_repository_root
from engine.model import Refusal
from tests.attacks.planting import Trap, make_project, rehearse_and_land, run_clawpy, use_operator_tree
from tests.conftest import Repository
from tests.execution.changesets.landing_world import LandingWorld
from tests.support.fork_server import ForkServer
from tests.support.helpers import read_table

pytestmark = pytest.mark.attack("repository configuration")

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit",
    "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "reference-transaction", "update",
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """An entry of the table. Plain git starts the program at the command `proof`."""

    name: str
    settings: list[str] = field(default_factory=list)
    """Settings of git as NAME=VALUE."""
    files: dict[str, str] = field(default_factory=dict)
    hooks: str = ""
    """A folder in which the program stands for every hook."""
    signature: str = ""
    """The last commit is signed in this way."""
    missing_object: bool = False
    """A partial clone lacks the contents of a file which every log with patches reads: some work is refused."""
    alternate_store: bool = False
    """Objects lie in the store of another repository, too."""
    moved: str = ""
    """The repository lies elsewhere, with a configuration of its own: behind a `file`, a `link` or a `commondir`."""
    proof: str = "git status"
    terminal: bool = False

    def __str__(self) -> str:
        return self.name

    def plant(self, shop: Repository, trap: Trap) -> None:
        """Prepare the repository."""
        if self.signature:
            sign_last_commit(shop, self.signature)
        for name in HOOKS if self.hooks else ():
            (shop.path / self.hooks).mkdir(parents=True, exist_ok=True)
            shutil.copy(trap.program, shop.path / self.hooks / name)
        for line in self.settings:
            name, _, value = line.format(trap=trap).partition("=")
            shop.git("config", name, value)
        for name, text in self.files.items():
            shop.write(name, text.format(trap=trap))
        if self.missing_object:
            remove_promised_object(shop)
        if self.alternate_store:
            add_alternate_store(shop)
        if self.moved:
            move_repository(shop, self.moved)


def sign_last_commit(shop: Repository, kind: str) -> None:
    header, text = shop.git("cat-file", "commit", "HEAD").split("\n\n", 1)
    signed = f"{header}\ngpgsig -----BEGIN {kind}-----\n \n aaaa\n -----END {kind}-----\n\n{text}\n"
    argv = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    completed = subprocess.run(argv, cwd=shop.path, input=signed, text=True, check=True, capture_output=True)
    shop.git("update-ref", "refs/heads/main", completed.stdout.strip())


def remove_promised_object(shop: Repository) -> None:
    shop.git("config", "core.repositoryFormatVersion", "1")
    shop.git("config", "extensions.partialClone", "origin")
    shop.git("config", "remote.origin.promisor", "true")
    blob = shop.git("rev-parse", "HEAD:b.py")
    (shop.path / ".git/objects" / blob[:2] / blob[2:]).unlink()


def add_alternate_store(shop: Repository) -> None:
    other = Repository(shop.path.parent / "other-store")
    other.commit("elsewhere", {"x": "1"})
    shop.write(".git/objects/info/alternates", f"{other.path}/.git/objects\n")


def move_repository(shop: Repository, way: str) -> None:
    place, store = shop.path / ".git", shop.path / "store"
    if way == "commondir":
        shutil.copytree(place, store)
        (place / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
        (place / "commondir").write_text("../store\n")
        return
    place.rename(store)
    if way == "file":
        place.write_text("gitdir: store\n")
    else:
        place.symlink_to("store")


ATTACKS = [Attack(name, **entry) for name, entry in read_table(__file__).items()]


@pytest.mark.slow_attack
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_a_program_that_the_repository_names_is_not_run(world: LandingWorld, outside: Path, attack: Attack):
    shop, trap = make_project(world), Trap.make(outside)
    attack.plant(shop, trap)
    copy = world.folder / "copy"
    shutil.copytree(shop.path, copy, symlinks=True)
    trap.assert_works(copy, attack.proof, terminal=attack.terminal)

    refused = use_operator_tree(shop.path, world.folder / "scratch")
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
    world: LandingWorld, outside: Path, fork_server: ForkServer, verb: str
):
    shop, trap = make_project(world), Trap.make(outside)
    for attack in ATTACKS:
        if not attack.missing_object and not attack.name.startswith((".git", "commondir")):
            attack.plant(shop, trap)
    trap.assert_works(shop.path, "git status")
    output, errors = run_clawpy(fork_server, verb, world.folder / "fresh", shop.path)
    assert str(shop.path) in output or verb == "predict", errors
    assert not trap.pop_mark()
