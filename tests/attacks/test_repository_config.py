"""What a repository's own configuration names is never run, whatever it is called and however git comes to it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.git import repository_root
from engine.model import Refusal
from tests.attacks.planting import Trap, make_project, read_tree, run_clawpy, run_session
from tests.conftest import Repository
from tests.execution.landing_world import World
from tests.support.forked import Nursery

pytestmark = pytest.mark.attack("repository configuration")


Plant = Callable[[Repository, Trap], object]


@dataclass(frozen=True)
class Attack:
    """`plant` prepares the repository. Plain git starts the program at the command `proof`. `broken`: an object is
    missing, and some work is refused."""

    name: str
    plant: Plant
    proof: str = "git status"
    broken: bool = False
    terminal: bool = False

    def __str__(self) -> str:
        return self.name


def settings(*lines: str) -> Plant:
    """Settings as NAME=VALUE, with `{trap}` for the program."""

    def plant(shop: Repository, trap: Trap) -> None:
        for line in lines:
            name, _, value = line.format(trap=trap).partition("=")
            shop.git("config", name, value)

    return plant


def attributes(line: str, place: str = ".gitattributes") -> Plant:
    return lambda shop, trap: shop.write(place, f"{line}\n")


def combine(*plants: Plant) -> Plant:
    def plant(shop: Repository, trap: Trap) -> None:
        for part in plants:
            part(shop, trap)

    return plant


FILTERED = attributes("*.txt filter=evil")
INFO = ".git/info/attributes"
ADD = "git add a.txt new.txt"
ASK_FOR_CREDENTIALS = "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill"
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


def hooks(folder: str) -> Plant:
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


def signed(kind: str) -> Plant:
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


def missing_object(*lines: str) -> Plant:
    """A partial clone that lacks the contents of a file which every log with patches looks for."""

    def plant(shop: Repository, trap: Trap) -> None:
        shop.git("config", "core.repositoryFormatVersion", "1")
        shop.git("config", "extensions.partialClone", "origin")
        shop.git("config", "remote.origin.promisor", "true")
        settings(*lines)(shop, trap)
        blob = shop.git("rev-parse", "HEAD:b.py")
        (shop.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    return plant


def alternates(shop: Repository, trap: Trap) -> None:
    other = Repository(shop.path.parent / "other-store")
    other.commit("elsewhere", {"x": "1"})
    shop.write(".git/objects/info/alternates", f"{other.path}/.git/objects\n")
    shop.git("config", "core.alternateRefsCommand", str(trap))


def moved(how: str) -> Plant:
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
    Attack("filter clean", combine(settings("filter.evil.clean={trap}"), FILTERED), ADD),
    Attack("filter smudge", combine(settings("filter.evil.smudge={trap}"), FILTERED), CHECKOUT),
    Attack("filter process", combine(settings("filter.evil.process={trap}"), FILTERED), ADD),
    Attack(
        "filter required",
        combine(settings("filter.evil.clean={trap}", "filter.evil.required=true"), FILTERED),
        ADD,
    ),
    Attack(
        "filter with dots, quotes and a line break in its name",
        combine(
            lambda shop, trap: shop.git("config", 'filter.e"v\\il.x y.clean', str(trap)),
            attributes('*.txt "filter=e\\"v\\\\il.x y"'),
            settings("filter.evil.clean={trap}"),
            attributes("*.txt filter=evil", INFO),
        ),
        ADD,
    ),
    Attack("filter in an included file", combine(included, FILTERED), ADD),
    Attack("monitor in a file included for a branch", included_if),
    Attack(
        "filter by .git/info/attributes",
        combine(settings("filter.evil.clean={trap}"), attributes("* filter=evil", INFO)),
        ADD,
    ),
    Attack(
        "filter by core.attributesFile",
        combine(
            settings("filter.evil.clean={trap}", "core.attributesFile=lines"), attributes("* filter=evil", "lines")
        ),
        ADD,
    ),
    Attack("filter in config.worktree", combine(worktree_config, FILTERED), ADD),
    Attack("file-system monitor", settings("core.fsmonitor={trap}")),
    Attack("file-system monitor, second version", settings("core.fsmonitor={trap}", "core.fsmonitorHookVersion=2")),
    Attack("hooks in .git/hooks", hooks(".git/hooks"), "git update-ref refs/heads/z HEAD"),
    Attack(
        "hooks in core.hooksPath",
        combine(hooks("tools"), settings("core.hooksPath=tools")),
        "git checkout -q other -f",
    ),
    Attack(
        "text converter", combine(settings("diff.evil.textconv={trap}"), attributes("*.txt diff=evil")), "git log -p"
    ),
    Attack(
        "cached text converter",
        combine(
            settings("diff.evil.textconv={trap}", "diff.evil.cachetextconv=true"),
            attributes("* diff=evil", INFO),
        ),
        "git log -p",
    ),
    Attack("external diff", settings("diff.external={trap}"), "git diff"),
    Attack(
        "external diff of a driver",
        combine(settings("diff.evil.command={trap}"), attributes("* diff=evil")),
        "git diff",
    ),
    Attack(
        "merge driver",
        combine(settings("merge.evil.driver={trap} %A"), attributes("* merge=evil", INFO)),
        "git merge-tree --write-tree main other",
    ),
    Attack(
        "merge driver by default",
        settings("merge.evil.driver={trap} %A", "merge.default=evil"),
        "git merge-tree --write-tree main other",
    ),
    Attack(
        "signature checker",
        combine(signed("PGP"), settings("gpg.program={trap}", "log.showSignature=true")),
        "git log",
    ),
    Attack(
        "signature checker for SSH",
        combine(
            signed("SSH"),
            settings("gpg.ssh.program={trap}", "gpg.ssh.allowedSignersFile=a.txt", "log.showSignature=true"),
        ),
        "git log",
    ),
    Attack(
        "signature checker for X.509",
        combine(signed("X509"), settings("gpg.x509.program={trap}", "log.showSignature=true")),
        "git log",
    ),
    Attack("signing", settings("commit.gpgSign=true", "gpg.program={trap}"), "git commit --allow-empty -m x"),
    Attack("pager", settings("core.pager={trap}"), "git log", terminal=True),
    Attack("pager of one command", settings("pager.status={trap}"), terminal=True),
    Attack("editor", settings("core.editor={trap}"), "git commit --allow-empty"),
    Attack("editor of sequences", settings("sequence.editor={trap}"), "git stash -q; git rebase -i HEAD~1"),
    Attack(
        "credential helper",
        settings("credential.helper=!{trap}"),
        ASK_FOR_CREDENTIALS,
    ),
    Attack(
        "asking for a password",
        settings("core.askPass={trap}"),
        ASK_FOR_CREDENTIALS,
    ),
    Attack(
        "missing object, upload-pack",
        missing_object("remote.origin.url=../elsewhere", "remote.origin.uploadpack={trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, ssh",
        missing_object("remote.origin.url=ssh://x/y", "core.sshCommand={trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, ext::",
        missing_object("remote.origin.url=ext::{trap}", "protocol.ext.allow=always"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, proxy",
        missing_object("remote.origin.url=git://x/y", "core.gitProxy={trap}"),
        "git log -p",
        broken=True,
    ),
    Attack(
        "missing object, short ssh",
        missing_object("remote.origin.url=x:y", "core.sshCommand={trap}", "protocol.allow=always"),
        "git log -p",
        broken=True,
    ),
    Attack("refs of an alternate store", alternates, "git rev-list --alternate-refs HEAD"),
    Attack("trailer", settings("trailer.x.key=X", "trailer.x.command={trap}"), "git interpret-trailers a.txt"),
    Attack("alias", settings("alias.st=!{trap}"), "git st"),
    Attack(".git is a file that leads elsewhere", moved("file")),
    Attack(".git is a link", moved("link")),
    Attack("commondir leads elsewhere", moved("commondir")),
]


@pytest.mark.attacks
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_a_program_that_the_repository_names_is_not_run(world: World, outside: Path, attack: Attack) -> None:
    shop, trap = make_project(world), Trap.set(outside)
    attack.plant(shop, trap)
    copy = world.folder / "copy"
    shutil.copytree(shop.path, copy, symlinks=True)
    trap.assert_works(copy, attack.proof, terminal=attack.terminal)

    refused = read_tree(shop.path, world.folder / "scratch")
    assert not trap.pop_mark()
    assert bool(refused) == attack.broken, "what else was asked works as usual"
    with contextlib.suppress(Refusal) if attack.broken else contextlib.nullcontext():
        run_session(world)
    assert not trap.pop_mark()


def test_files_that_the_configuration_puts_elsewhere_are_refused(world: World, outside: Path) -> None:
    shop = make_project(world)
    shop.git("config", "core.worktree", str(outside))
    with pytest.raises(Refusal, match=r"core\.worktree|elsewhere"):
        repository_root(shop.path)


@pytest.mark.attacks
@pytest.mark.parametrize("verb", ["predict", "doctor"])
def test_clawpy_runs_nothing_of_a_repository_full_of_traps(
    world: World, outside: Path, nursery: Nursery, verb: str
) -> None:
    shop, trap = make_project(world), Trap.set(outside)
    for attack in ATTACKS:
        if not attack.broken and not attack.name.startswith((".git", "commondir")):
            attack.plant(shop, trap)
    trap.assert_works(shop.path, "git status")
    output, errors = run_clawpy(nursery, verb, world.folder / "fresh", shop.path)
    assert str(shop.path) in output or verb == "predict", errors
    assert not trap.pop_mark()
