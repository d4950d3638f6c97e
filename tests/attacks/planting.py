"""A planted program that leaves a mark when it is started, what makes git start it, and all actions of the engine on a
repository."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from engine.execution import trees
from engine.execution.diffs import list_file_changes, make_file_diffs
from engine.execution.runners import WorkFailed
from engine.execution.runners.flow import Job
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.git_steps import find_unmerged_files, reset_worktree, restore_tree, store_tree
from engine.git import Git, find_repository_root
from engine.git.github import find_address
from engine.git.reader import GitReader
from engine.git.state import read_workspace_label
from engine.model import Refusal
from tests.execution.changesets.landing_world import LandingWorld
from tests.execution.flows.flow_run import ProcessSession
from tests.support.programs import make_program
from tests.support.repository import Repository


class Trap:
    """A program that leaves a mark outside of the repository and then passes on what it is given."""

    def __init__(self, folder: Path):
        self.mark = folder / "mark"
        body = f'echo "$0 $*" >> \'{self.mark}\'\n[ -f "$1" ] && cat "$1"\n[ $# -eq 0 ] && cat\nexit 0'
        self.program = make_program(folder / "trap", body)

    def __str__(self) -> str:
        return str(self.program)

    def pop_mark(self) -> str:
        """Remove the mark and return the commands that left it; "" when the program was not started."""
        try:
            text = self.mark.read_text()
        except FileNotFoundError:
            return ""
        self.mark.unlink()
        return text or "something"

    def assert_works(self, folder: Path, command: str):
        """Check that plain git starts the program: otherwise the attack proves nothing."""
        self.pop_mark()
        run_plain_git(folder, command)
        assert self.pop_mark(), "the attack does not work with plain git: it proves nothing"


def run_plain_git(folder: Path, command: str):
    """A shell command as the operator might type it, with all that the configuration brings. It may fail."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SSH_"))}
    git_settings = {name: os.environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")}
    environment |= git_settings | {"GIT_TERMINAL_PROMPT": "0"}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, check=False, timeout=20,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip


HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit",
    "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "reference-transaction", "update",
)  # fmt: skip
"""The hooks that git knows."""


@dataclass(frozen=True)
class Attack:
    """An entry of a table of attacks. Plain git starts the program at the command `proof`."""

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
    moved: str = ""
    """The repository lies in `store`, with a configuration of its own: behind a `file`, a `link` or a `commondir`."""
    store: str = "store"
    inner: str = ""
    """The folder of a repository in the repository, which is the one that is attacked."""
    proof: str = "git status"

    def __str__(self) -> str:
        return self.name

    def plant(self, shop: Repository, trap: Trap):
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
        if self.moved:
            self._move(shop.path)

    def _move(self, folder: Path):
        place, store = folder / ".git", folder / self.store
        if self.moved == "commondir":
            shutil.copytree(place, store)
            (place / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
            (place / "commondir").write_text(f"../{self.store}\n")
            return
        place.rename(store)
        if self.moved == "file":
            place.write_text(f"gitdir: {self.store}\n")
        else:
            place.symlink_to(self.store)


def sign_last_commit(shop: Repository, kind: str):
    header, text = shop.git("cat-file", "commit", "HEAD").split("\n\n", 1)
    signed = f"{header}\ngpgsig -----BEGIN {kind}-----\n \n aaaa\n -----END {kind}-----\n\n{text}\n"
    argv = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    completed = subprocess.run(argv, cwd=shop.path, input=signed, text=True, check=True, capture_output=True)
    shop.git("update-ref", "refs/heads/main", completed.stdout.strip())


def remove_promised_object(shop: Repository):
    shop.git("config", "core.repositoryFormatVersion", "1")
    shop.git("config", "extensions.partialClone", "origin")
    shop.git("config", "remote.origin.promisor", "true")
    blob = shop.git("rev-parse", "HEAD:b.py")
    (shop.path / ".git/objects" / blob[:2] / blob[2:]).unlink()


def make_project(world: LandingWorld) -> Repository:
    """Make a repository with branches that conflict, an upstream, unpushed commits and changed files."""
    shop = world.repository
    shop.commit("one", {"a.txt": "1\n", "b.py": "b = 1\n"})
    shop.git("branch", "upstream")
    shop.git("switch", "-q", "-c", "other")
    shop.commit("theirs", {"a.txt": "theirs\n"})
    shop.git("switch", "-q", "main")
    shop.commit("ours", {"a.txt": "ours\n", "b.py": "b = 2\n"})
    shop.write("a.txt", "changed\n")
    shop.write("new.txt", "new\n")
    return shop


def use_operator_tree(world: LandingWorld) -> list[str]:
    """Do all that the engine does in the operator's own tree. Returns the messages of refusals."""
    refused = []
    folder, git = world.root, Git(world.root)
    job = Job(folder, folder, git, ProcessSession(world.folder))
    flows = {
        "summarise_day": {"since": "2020-01-01T00:00:00Z"},
        "review_unpushed": {"upstream": "upstream"},
        "forecast_conflicts": {"branches": ["other"], "base": "main"},
        "report_branches": {},
        "draft_changelog": {"since": "upstream"},
    }
    steps = [
        lambda: find_repository_root(folder),
        lambda: GitReader().read(folder),
        lambda: read_workspace_label(str(folder)),
        lambda: find_address(folder),
        *(partial(FLOWS[name](**parameters).run, job) for name, parameters in flows.items()),
        lambda: trees.take_snapshot(git.pin()),
        lambda: diff_commits(folder),
    ]
    for step in steps:
        try:
            step()
        except WorkFailed:
            pass  # it may find nothing to do
        except Refusal as refusal:
            refused.append(refusal.message)
    return refused


def diff_commits(folder: Path):
    git = Git(folder).pin()
    base, result = (git.text("rev-parse", f"{name}^{{tree}}") for name in ("upstream", "HEAD"))
    list_file_changes(git, base, result)
    make_file_diffs(git, base, result, base)


def rehearse_and_land(world: LandingWorld):
    """Rehearse a merge in a worktree, capture its diff, land it, undo it, make it a branch."""

    def work(folder: Path):
        git = Git(folder).pin()
        use_worktree(world, folder, git)
        (folder / "a.txt").write_text("worked\n")

    change = world.make_change(work)
    for step in (lambda: world.changes.preview_land(change.id), change.land, change.undo, change.branch):
        with contextlib.suppress(Refusal):  # a file of a filter is not landed
            step()


def use_worktree(world: LandingWorld, folder: Path, git: Git):
    """Do what flows do in a worktree between the tests that they run there."""
    job = Job(world.root, folder, git, ProcessSession(world.folder))
    with contextlib.suppress(Refusal, WorkFailed):
        before = store_tree(job)
        reset_worktree(job, "other")
        git.run("merge", "--no-commit", "--no-ff", "--no-verify", "main", allowed=range(256))
        find_unmerged_files(git)
        reset_worktree(job, "main")
        restore_tree(job, before)
