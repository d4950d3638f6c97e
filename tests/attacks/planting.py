"""A planted program that leaves a mark when it is started, and all actions of the engine on a repository."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from engine.execution import trees
from engine.execution.diffs import list_file_changes, make_file_diffs
from engine.execution.runners.flow import Job, WorkFailed
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.git_steps import find_unmerged_files, reset_worktree, restore_tree, store_tree
from engine.git import Git, find_repository_root
from engine.git.github import find_address
from engine.git.reader import GitReader, read_workspace_label
from engine.model import Refusal
from tests.conftest import Repository
from tests.execution.changesets.landing_world import LandingWorld
from tests.execution.flows.flow_run import ProcessSession
from tests.support.fork_server import ForkServer
from tests.support.helpers import make_program


@dataclass(frozen=True)
class Trap:
    """A program that leaves a mark outside of the repository and then passes on what it is given."""

    program: Path
    mark: Path

    @classmethod
    def make(cls, folder: Path) -> Trap:
        mark = folder / "mark"
        body = f'echo "$0 $*" >> \'{mark}\'\n[ -f "$1" ] && cat "$1"\n[ $# -eq 0 ] && cat\nexit 0'
        return cls(make_program(folder / "trap", body), mark)

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

    def assert_works(self, folder: Path, command: str, *, terminal: bool = False) -> None:
        """Check that plain git starts the program: otherwise the attack proves nothing."""
        self.pop_mark()
        run_plain_git(folder, command, terminal=terminal)
        assert self.pop_mark(), "the attack does not work with plain git: it proves nothing"


def run_plain_git(folder: Path, command: str, *, terminal: bool = False) -> None:
    """A shell command as the operator might type it, with all that the configuration brings. It may fail."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SSH_"))}
    git_settings = {name: os.environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")}
    environment |= git_settings | {"GIT_TERMINAL_PROMPT": "0", "TERM": "xterm"}
    controller, terminal_fd = os.openpty() if terminal else (None, None)
    out = subprocess.DEVNULL if terminal_fd is None else terminal_fd
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, check=False, timeout=20,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    for descriptor in (controller, terminal_fd):
        if descriptor is not None:
            os.close(descriptor)


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


def run_flow(name: str, folder: Path, scratch: Path, **parameters: object) -> None:
    scratch.mkdir(exist_ok=True)
    with contextlib.suppress(WorkFailed):
        FLOWS[name](**parameters).run(Job(folder, folder, Git(folder), ProcessSession(scratch)))


def use_operator_tree(folder: Path, scratch: Path) -> list[str]:
    """Do all that the engine does in the operator's own tree. Returns the messages of refusals."""
    refused = []
    steps = [
        lambda: find_repository_root(folder),
        lambda: GitReader().read(folder),
        lambda: read_workspace_label(str(folder)),
        lambda: find_address(folder),
        lambda: run_flow("summarise_day", folder, scratch, since="2020-01-01T00:00:00Z"),
        lambda: run_flow("review_unpushed", folder, scratch, upstream="upstream"),
        lambda: run_flow("forecast_conflicts", folder, scratch, branches=["other"], base="main"),
        lambda: run_flow("report_branches", folder, scratch),
        lambda: run_flow("draft_changelog", folder, scratch, since="upstream"),
        lambda: trees.take_snapshot(Git(folder).pin()),
        lambda: diff_commits(folder),
    ]
    for step in steps:
        try:
            step()
        except Refusal as refusal:
            refused.append(refusal.message)
    return refused


def diff_commits(folder: Path) -> None:
    git = Git(folder).pin()
    base, result = (git.text("rev-parse", f"{name}^{{tree}}") for name in ("upstream", "HEAD"))
    list_file_changes(git, base, result)
    make_file_diffs(git, base, result, base)


def rehearse_and_land(world: LandingWorld) -> None:
    """Rehearse a merge in a worktree, capture its diff, land it, undo it, make it a branch."""

    def work(folder: Path) -> None:
        git = Git(folder).pin()
        use_worktree(world, folder, git)
        (folder / "a.txt").write_text("worked\n")

    change = world.make_change(work)
    for step in (lambda: world.changes.preview_land(change.id), change.land, change.undo, change.branch):
        with contextlib.suppress(Refusal):  # a file of a filter is not landed
            step()


def use_worktree(world: LandingWorld, folder: Path, git: Git) -> None:
    """Do what flows do in a worktree between the tests that they run there."""
    scratch = world.folder / "scratch-worktree"
    scratch.mkdir(exist_ok=True)
    job = Job(world.root, folder, git, ProcessSession(scratch))
    with contextlib.suppress(Refusal, WorkFailed):
        before = store_tree(job)
        reset_worktree(job, "other")
        git.run("merge", "--no-commit", "--no-ff", "--no-verify", "main", allowed=range(256))
        find_unmerged_files(git)
        reset_worktree(job, "main")
        restore_tree(job, before)


def run_clawpy(fork_server: ForkServer, verb: str, home: Path, folder: Path) -> tuple[str, str]:
    """Run `clawpy VERB` in a repository with a new home; its output and its errors."""
    argv = ("--home", str(home), verb, "--workspace", str(folder))
    with fork_server.clawpy(*argv, folder=folder) as process:
        return process.communicate()
