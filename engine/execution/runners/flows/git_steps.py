"""Steps with git that several flows share: they read commits and your own changes, try merges, and reset the worktree
of a flow.

`link_packages` lends the worktree the packages of the operator's tree.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import product
from pathlib import Path

from engine.execution.runners import WorkFailed
from engine.execution.runners.flow import Job, require_commit
from engine.execution.runners.toolchains import LANGUAGES, list_folders_up_to
from engine.execution.runners.toolchains.project_tools import ProjectTool
from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git import Git, update_index
from engine.git.inspection import OwnChanges, find_own_changes
from engine.git.reader import USUAL_BASES, GitReader
from engine.git.secrets import find_secret_kind
from engine.git.unfinished import read_conflicted_files
from engine.wording import count, join_names

MAX_DIFF_LINES = 200
"""Maximum number of lines of a commit's diff in the transcript."""

MAX_LISTED_COMMITS = 50
"""Maximum number of commits in the transcript."""

REHEARSAL_AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "rehearsal"), ("EMAIL", "rehearsal@localhost"))
}
"""Environment for git with the author of temporary commits."""

MAX_CONFLICT_FILE_BYTES = 50_000_000
"""Maximum size of a file in conflict in which marked places are counted."""

_CONFLICT_BEGIN = re.compile(rb"^<<<<<<< ", re.MULTILINE)

LINKED_FOLDERS = tuple(name for language in LANGUAGES.values() for name in language.linked_folders)
"""Folders that `link_packages` may have linked into the worktree."""


@frozen
class ShownCommit:
    """A commit as transcripts show it."""

    sha: str
    author: str
    date: str
    subject: str

    def __str__(self) -> str:
        return f"{self.sha[:10]} {self.subject}"


def make_operator_git(job: Job) -> Git:
    """git in the operator's own tree, whose HEAD is the operator's. Use it only for reading."""
    return replace(job.git, folder=job.workspace, pinned=None)


def resolve_commit(job: Job, revision: str) -> str:
    """The commit that `revision` names in the operator's repository. Raises `CannotRun` if there is none."""
    return require_commit(make_operator_git(job), revision)


def read_own_changes(job: Job, today: datetime | None = None) -> OwnChanges:
    """The operator's own changes. TODOs count only if they were added since `today`; None leaves them out."""
    return find_own_changes(make_operator_git(job), GitReader().read(job.workspace), today)


def read_commit(job: Job, sha: str) -> ShownCommit:
    """A commit's author, date (ISO) and subject."""
    return ShownCommit(*job.git.text("show", "--no-patch", "--format=%H%x00%an%x00%aI%x00%s", sha).split("\0"))


def parse_line_count(lines: str) -> int:
    """The number of lines that git printed; 0 for a binary file, for which git prints `-`."""
    return int(lines) if lines.isdigit() else 0


def list_commits(job: Job, commits: Sequence[str]) -> None:
    """Put one line for each commit into the transcript."""
    lines = [read_commit(job, sha) for sha in commits[:MAX_LISTED_COMMITS]]
    job.say_list([*lines, *commits[MAX_LISTED_COMMITS:]], MAX_LISTED_COMMITS, indent="  ")


def show_diff(job: Job, sha: str) -> None:
    """Show a commit and its diff, without lines that look secret."""
    commit = read_commit(job, sha)
    for line in (commit.sha, f"{commit.author}, {commit.date}", commit.subject):
        job.say(line)
    diff = job.git.text("show", "--format=", "--stat", "--patch", "--no-color", "--diff-merges=first-parent", sha)
    hidden = "(a line that looks secret)"
    lines = [hidden if find_secret_kind("", line[1:], "A" * 40) else line for line in diff.splitlines()]
    job.say_list(lines, MAX_DIFF_LINES)


def quote_paths(paths: Iterable[str]) -> str:
    """Paths as arguments of a git command for a shell. git takes them as they stand."""
    return " ".join(shlex.quote(f":(literal){path}" if re.search(r"^:|[*?\[\\]", path) else path) for path in paths)


def find_known_main_branch(job: Job) -> str | None:
    """The branch into which others are merged: the main branch of the remote, or else `init.defaultBranch`, or else one
    with a usual name. None if the repository has none of these."""
    remote = job.git.text("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", allowed=(0, 1))
    default = job.git.text("config", "init.defaultBranch", allowed=(0, 1))
    local = _list_local_branches(job)
    candidates = (remote.removeprefix("refs/remotes/origin/"), default, *USUAL_BASES)
    return next((name for name in candidates if name in local), None)


def find_main_branch(job: Job) -> str | None:
    """The branch into which others are merged, or that of HEAD while it is not known. None without both."""
    current = job.git.text("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1))
    return find_known_main_branch(job) or (current if current in _list_local_branches(job) else None)


def _list_local_branches(job: Job) -> list[str]:
    return job.git.lines("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/")


def reset_worktree(job: Job, revision: str = "HEAD", *, tree: str = "") -> None:
    """Put the worktree at `revision`. Uncommitted and untracked files are removed, and an unfinished merge is aborted.
    If a `tree` is given, its files replace those of the revision.

    Raises `WorkFailed` in the operator's own tree, because it is only for flows that work in a worktree.
    """
    if job.folder.resolve() == job.workspace.resolve():
        raise WorkFailed("this flow may only run in its own worktree")
    job.git.run("checkout", "--quiet", "--force", "--detach", revision)
    job.git.run("reset", "--quiet", "--hard", revision)
    remove_untracked(job)
    if tree:
        restore_tree(job, tree)


def remove_untracked(job: Job) -> None:
    """Remove files and empty folders of the worktree that git neither tracks nor ignores, except linked packages."""
    job.git.run("clean", "--quiet", "-ffd", *(f"--exclude={name}" for name in LINKED_FOLDERS))


@frozen
class GitTrial:
    """The result of a git command that may end in conflicts."""

    tree: str
    """The id of the tree with the resulting files; "" if the command was not completed."""
    is_empty: bool
    """Whether the command was completed and changed no file."""
    conflicts: Mapping[str, int]
    """The files in conflict, each with its number of marked places; 0 if the whole file is in conflict."""
    error: str
    """The end of git's error output, if it failed without a conflict."""
    stop_in_words: str
    """The commit at which a rebase stopped, in words. The rebase was then aborted."""

    @property
    def conflicts_in_words(self) -> str:
        """The files in conflict, in words."""
        return f"{count(len(self.conflicts), 'file')}: {join_names(self.conflicts, 4)}"


def try_git(job: Job, *arguments: str, environment: Mapping[str, str] | None = None) -> GitTrial:
    """Run a git command in the worktree that may end in conflicts: merge, revert, apply, cherry-pick or rebase."""
    environment = {**REHEARSAL_AUTHOR, **(environment or {})}
    result = job.git.run(*arguments, environment=environment, allowed=range(256))
    conflicts = find_unmerged_files(job.git)
    error = result.stderr.decode(errors="replace")[-300:] if result.returncode and not conflicts else ""
    stop = ""
    if result.returncode and arguments[0] == "rebase":
        commit = job.git.text("log", "-1", "--no-show-signature", "--format=%h “%s”", "REBASE_HEAD", allowed=(0, 128))
        job.git.run("rebase", "--abort", allowed=(0, 1, 128))
        stop = f"stops at {commit}" + (f" in {join_names(conflicts, 3)}" if conflicts else "")
    tree = "" if result.returncode or conflicts else job.git.text("write-tree")
    is_empty = bool(tree) and tree == job.git.text("rev-parse", "HEAD^{tree}")
    return GitTrial(tree, is_empty, conflicts, error, stop)


def report_conflicts(job: Job, conflicts: Mapping[str, int]) -> None:
    """Show the files in conflict with their numbers of places."""
    for path, places in conflicts.items():
        job.say(f"conflict  {path}  ({count(places, 'place') if places else 'whole file'})")


def find_unmerged_files(git: Git) -> dict[str, int]:
    """The files in conflict, each with its number of marked places; 0 if the whole file is in conflict."""
    conflicts = {}
    for path in read_conflicted_files(git):
        data = read_plain_or_nothing(git.folder / path, MAX_CONFLICT_FILE_BYTES, follow=False)
        conflicts[path] = len(_CONFLICT_BEGIN.findall(data))
    return conflicts


def store_tree(job: Job) -> str:
    """Store the present files of the worktree, even uncommitted and untracked ones, as a tree. Returns its id."""
    index = str(job.scratch / "flow-index")
    git = replace(job.git, environment={**job.git.environment, "GIT_INDEX_FILE": index})
    git.run("read-tree", "HEAD")  # so that tracked files stay, even if they are ignored
    update_index(git)
    return git.text("write-tree")


def restore_tree(job: Job, tree: str) -> None:
    """Replace the files of the worktree by those of a tree from `store_tree`."""
    job.git.run("read-tree", "--reset", "-u", tree)


@contextmanager
def link_packages(job: Job, tools: Sequence[ProjectTool]) -> Iterator[None]:
    """Link folders of packages, such as `node_modules`, from the operator's tree into the worktree of `job`.

    This is done for the projects of `tools` and the folders above them. The links are removed after the block, so that
    they are in no change set.
    """
    folders = {above for tool in tools for above in list_folders_up_to(tool.folder, job.folder)}
    names = {name for tool in tools for name in LANGUAGES[tool.row.language].linked_folders}
    links: list[Path] = []
    try:
        for folder, name in product(sorted(folders), sorted(names)):
            link, source = folder / name, job.workspace / folder.relative_to(job.folder) / name
            if source.is_dir() and not os.path.lexists(link) and folder.is_dir():  # in the operator's tree it is there
                link.symlink_to(source, target_is_directory=True)
                links.append(link)
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
