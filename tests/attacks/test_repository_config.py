"""What a repository's own configuration names is never run, whatever it is called and however git comes to it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.git import repository_root
from engine.model import Refusal
from tests.attacks.planting import Trap, in_tree, plain_git, project, session
from tests.conftest import Repository
from tests.execution.landing_world import World
from tests.support.forked import Nursery

pytestmark = pytest.mark.attack("repository configuration")


@dataclass(frozen=True)
class Attack:
    """`plant` prepares the repository; `proof` is a command whose plain git starts the program, so that nothing here
    is proved of an attack that would not work. `broken`: an object is missing, and some work is refused."""

    name: str
    plant: Callable[[Repository, Trap], object]
    proof: str = "git status"
    broken: bool = False
    terminal: bool = False

    def __str__(self) -> str:
        return self.name


def settings(**values: str) -> Callable[[Repository, Trap], None]:
    """Settings by their names, `__` for a dot, `{trap}` for the program."""

    def plant(shop: Repository, trap: Trap) -> None:
        for name, value in values.items():
            shop.git("config", name.replace("__", "."), value.format(trap=trap))

    return plant


def attributes(line: str, place: str = ".gitattributes") -> Callable[[Repository, Trap], None]:
    return lambda shop, trap: shop.write(place, f"{line}\n")


def both(*plants: Callable[[Repository, Trap], object]) -> Callable[[Repository, Trap], None]:
    def plant(shop: Repository, trap: Trap) -> None:
        for one in plants:
            one(shop, trap)

    return plant


FILTERED = attributes("*.txt filter=evil")
ADD = "git add a.txt new.txt"
CHECKOUT = "rm a.txt; git checkout a.txt"


def included(shop: Repository, trap: Trap) -> None:
    shop.write("settings.inc", f'[filter "evil"]\n\tclean = {trap}\n')
    shop.git("config", "include.path", "../settings.inc")


def included_if(shop: Repository, trap: Trap) -> None:
    shop.write("settings.inc", f"[core]\n\tfsmonitor = {trap}\n")
    shop.git("config", "includeIf.onbranch:main.path", "../settings.inc")


def worktree_config(shop: Repository, trap: Trap) -> None:
    shop.git("config", "extensions.worktreeConfig", "true")
    shop.git("config", "--worktree", "filter.evil.clean", str(trap))


def hooks(folder: str) -> Callable[[Repository, Trap], None]:
    names = (
        "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
        "post-index-change", "post-merge", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit",
        "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "reference-transaction", "update",
    )  # fmt: skip

    def plant(shop: Repository, trap: Trap) -> None:
        (shop.path / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(trap.program, shop.path / folder / name)

    return plant


def signed(kind: str) -> Callable[[Repository, Trap], None]:
    """A commit on main that carries a signature."""

    def plant(shop: Repository, trap: Trap) -> None:
        lines = shop.git("cat-file", "commit", "HEAD").split("\n\n", 1)
        end = {"PGP": "PGP SIGNATURE", "SSH": "SSH SIGNATURE", "X509": "SIGNED MESSAGE"}[kind]
        signature = f"gpgsig -----BEGIN {end}-----\n \n aaaa\n -----END {end}-----"
        whole = f"{lines[0]}\n{signature}\n\n{lines[1]}\n"
        done = subprocess.run(
            ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
            cwd=shop.path, input=whole, text=True, check=True, capture_output=True,
        )  # fmt: skip
        shop.git("update-ref", "refs/heads/main", done.stdout.strip())

    return plant


def promised(**values: str) -> Callable[[Repository, Trap], None]:
    """A partial clone that lacks the contents of a file which every log with patches looks for."""

    def plant(shop: Repository, trap: Trap) -> None:
        shop.git("config", "core.repositoryFormatVersion", "1")
        shop.git("config", "extensions.partialClone", "origin")
        shop.git("config", "remote.origin.promisor", "true")
        settings(**values)(shop, trap)
        blob = shop.git("rev-parse", "HEAD:b.py")
        (shop.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    return plant


def alternates(shop: Repository, trap: Trap) -> None:
    other = Repository(shop.path.parent / "other-store")
    other.commit("elsewhere", {"x": "1"})
    shop.write(".git/objects/info/alternates", f"{other.path}/.git/objects\n")
    shop.git("config", "core.alternateRefsCommand", str(trap))


def moved(how: str) -> Callable[[Repository, Trap], None]:
    """The repository lies elsewhere, with a configuration of its own."""

    def plant(shop: Repository, trap: Trap) -> None:
        place, store = shop.path / ".git", shop.path / "store"
        shop.git("config", "core.fsmonitor", str(trap))
        if how == "commondir":
            shutil.copytree(place, store)
            (place / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
            (place / "commondir").write_text("../store\n")
            return
        place.rename(store)
        if how == "file":
            place.write_text("gitdir: store\n")
        else:
            place.symlink_to("store")

    return plant


ATTACKS = [
    Attack("filter clean", both(settings(filter__evil__clean="{trap}"), FILTERED), ADD),
    Attack("filter smudge", both(settings(filter__evil__smudge="{trap}"), FILTERED), CHECKOUT),
    Attack("filter process", both(settings(filter__evil__process="{trap}"), FILTERED), ADD),
    Attack(
        "filter required",
        both(settings(filter__evil__clean="{trap}", filter__evil__required="true"), FILTERED),
        ADD,
    ),
    Attack(
        "filter with dots, quotes and a line break in its name",
        both(
            lambda shop, trap: shop.git("config", 'filter.e"v\\il.x y.clean', str(trap)),
            attributes('*.txt "filter=e\\"v\\\\il.x y"'),
            settings(filter__evil__clean="{trap}"),
            attributes("*.txt filter=evil", ".git/info/attributes"),
        ),
        ADD,
    ),
    Attack("filter in an included file", both(included, FILTERED), ADD),
    Attack("monitor in a file included for a branch", included_if),
    Attack(
        "filter by .git/info/attributes",
        both(settings(filter__evil__clean="{trap}"), attributes("* filter=evil", ".git/info/attributes")),
        ADD,
    ),
    Attack(
        "filter by core.attributesFile",
        both(
            settings(filter__evil__clean="{trap}", core__attributesFile="lines"), attributes("* filter=evil", "lines")
        ),
        ADD,
    ),
    Attack("filter in config.worktree", both(worktree_config, FILTERED), ADD),
    Attack("file-system monitor", settings(core__fsmonitor="{trap}")),
    Attack("file-system monitor, second version", settings(core__fsmonitor="{trap}", core__fsmonitorHookVersion="2")),
    Attack("hooks in .git/hooks", hooks(".git/hooks"), "git update-ref refs/heads/z HEAD"),
    Attack(
        "hooks in core.hooksPath", both(hooks("tools"), settings(core__hooksPath="tools")), "git checkout -q other -f"
    ),
    Attack(
        "text converter", both(settings(diff__evil__textconv="{trap}"), attributes("*.txt diff=evil")), "git log -p"
    ),
    Attack(
        "cached text converter",
        both(
            settings(diff__evil__textconv="{trap}", diff__evil__cachetextconv="true"),
            attributes("* diff=evil", ".git/info/attributes"),
        ),
        "git log -p",
    ),
    Attack("external diff", settings(diff__external="{trap}"), "git diff"),
    Attack(
        "external diff of a driver", both(settings(diff__evil__command="{trap}"), attributes("* diff=evil")), "git diff"
    ),
    Attack(
        "merge driver",
        both(settings(merge__evil__driver="{trap} %A"), attributes("* merge=evil", ".git/info/attributes")),
        "git merge-tree --write-tree main other",
    ),
    Attack(
        "merge driver by default",
        settings(merge__evil__driver="{trap} %A", merge__default="evil"),
        "git merge-tree --write-tree main other",
    ),
    Attack(
        "signature checker", both(signed("PGP"), settings(gpg__program="{trap}", log__showSignature="true")), "git log"
    ),
    Attack(
        "signature checker for SSH",
        both(
            signed("SSH"),
            settings(gpg__ssh__program="{trap}", gpg__ssh__allowedSignersFile="a.txt", log__showSignature="true"),
        ),
        "git log",
    ),
    Attack(
        "signature checker for X.509",
        both(signed("X509"), settings(gpg__x509__program="{trap}", log__showSignature="true")),
        "git log",
    ),
    Attack("signing", settings(commit__gpgSign="true", gpg__program="{trap}"), "git commit --allow-empty -m x"),
    Attack("pager", settings(core__pager="{trap}"), "git log", terminal=True),
    Attack("pager of one command", settings(pager__status="{trap}"), terminal=True),
    Attack("editor", settings(core__editor="{trap}"), "git commit --allow-empty"),
    Attack("editor of sequences", settings(sequence__editor="{trap}"), "git stash -q; git rebase -i HEAD~1"),
    Attack(
        "credential helper",
        settings(credential__helper="!{trap}"),
        "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill",
    ),
    Attack(
        "asking for a password",
        settings(core__askPass="{trap}"),
        "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill",
    ),
    Attack(
        "missing object, upload-pack",
        promised(remote__origin__url="../elsewhere", remote__origin__uploadpack="{trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, ssh",
        promised(remote__origin__url="ssh://x/y", core__sshCommand="{trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, ext::",
        promised(remote__origin__url="ext::{trap}", protocol__ext__allow="always"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, proxy",
        promised(remote__origin__url="git://x/y", core__gitProxy="{trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, short ssh",
        promised(remote__origin__url="x:y", core__sshCommand="{trap}", protocol__allow="always"),
        "git log -p",
        broken=True,
    ),
    Attack("refs of an alternate store", alternates, "git rev-list --alternate-refs HEAD"),
    Attack("trailer", settings(trailer__x__key="X", trailer__x__command="{trap}"), "git interpret-trailers a.txt"),
    Attack("alias", settings(alias__st="!{trap}"), "git st"),
    Attack(".git is a file that leads elsewhere", moved("file")),
    Attack(".git is a link", moved("link")),
    Attack("commondir leads elsewhere", moved("commondir")),
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.attacks
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_a_program_that_the_repository_names_is_not_run(world: World, outside: Path, attack: Attack) -> None:
    shop, trap = project(world), Trap.set(outside)
    attack.plant(shop, trap)
    trap.sprung()
    copy = world.folder / "copy"
    shutil.copytree(shop.path, copy, symlinks=True)
    plain_git(copy, attack.proof, terminal=attack.terminal)
    assert trap.sprung(), "the attack does not work with plain git: it proves nothing"

    refused = in_tree(shop.path, world.folder / "scratch")
    assert not trap.sprung()
    assert bool(refused) == attack.broken, "what else was asked works as usual"
    with contextlib.suppress(Refusal) if attack.broken else contextlib.nullcontext():
        session(world)
    assert not trap.sprung()


def test_files_that_the_configuration_puts_elsewhere_are_refused(world: World, outside: Path) -> None:
    shop = project(world)
    shop.git("config", "core.worktree", str(outside))
    with pytest.raises(Refusal, match=r"core\.worktree|elsewhere"):
        repository_root(shop.path)


@pytest.mark.attacks
@pytest.mark.parametrize("verb", [["predict"], ["doctor"]], ids=["predict", "doctor"])
def test_clawpy_runs_nothing_of_a_repository_full_of_traps(
    world: World, outside: Path, nursery: Nursery, verb: list[str]
) -> None:
    shop, trap = project(world), Trap.set(outside)
    for attack in ATTACKS:
        if not attack.broken and not attack.name.startswith((".git", "commondir")):
            attack.plant(shop, trap)
    plain_git(shop.path, "git status")
    assert trap.sprung()

    with nursery.clawpy(
        "--home", str(world.folder / "fresh"), *verb, "--workspace", str(shop.path), folder=shop.path
    ) as ran:
        out, errors = ran.communicate()
    assert str(shop.path) in out or verb == ["predict"], errors
    assert not trap.sprung()
