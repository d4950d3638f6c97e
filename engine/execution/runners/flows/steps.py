"""What flows share: words for results and transcripts, commits, trees, and the worktree that they work in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.execution.runners.flow import FlowError, Job
from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git
from engine.git.command import update_index
from engine.git.operations import conflicted_files
from engine.git.secrets import secret_kind
from engine.model import CheckResult
from engine.model.text import one_line, seconds_in_words

# -- Words ----------------------------------------------------------------------------------------------------------


MAX_NAMES = 8
"""Maximum number of names in a list; "and 3 more" stands for the rest."""


def last_line(output: str) -> str:
    """The last line that is not empty, preferably of an error, at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def in_project(path: str) -> str:
    """` in packages/py`, "" for the top."""
    return f" in {one_line(path)}" if path else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 test`, `3 tests`, `no tests`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {plural or noun + 's'}"


def join_names(names: Iterable[str], shown: int = MAX_NAMES) -> str:
    """`a, b and 3 more`; every name sanitised."""
    every = [one_line(name) for name in names]
    if len(every) <= shown:
        return " and ".join(filter(None, [", ".join(every[:-1]), *every[-1:]]))
    return f"{', '.join(every[:shown])} and {len(every) - shown} more"


def describe_check(check: CheckResult) -> str:
    """A result in one sentence without a full stop."""
    skipped = f", {check.skipped} skipped" if check.skipped else ""
    took = f" in {seconds_in_words(check.seconds)}"
    if not check.counted:
        name = check.failing[0] if check.failing else check.tool
        return f"{name} {'failed' if check.failed else 'succeeded'}{took}; its output names no tests"
    if check.failed or check.errors:
        parts = []
        if check.failed:
            parts.append(f"{check.failed} of {count(check.passed + check.failed, 'test')} failed")
        if check.errors:  # an error is no failed test: the tests of a file that cannot be imported did not run
            parts.append(count(check.errors, "error"))
        rest = ""
        if not check.failed:
            rest = f", {count(check.passed, 'test')} passed" if check.passed else ", no tests ran"
        return f"{' and '.join(parts)}{rest}{took}{skipped}: {join_names(check.failing, 2)}"
    if not check.passed:
        return f"no tests ran{skipped}"
    passed = "the one test passed" if check.passed == 1 else f"all {check.passed} tests passed"
    return f"{passed}{took}{skipped}"


def conflict_line(path: str, places: int) -> str:
    """A file in conflict, for the transcript; `places` 0: the whole file."""
    return f"conflict  {path}  ({count(places, 'place') if places else 'whole file'})"


def as_facts(items: Iterable[object], *names: str) -> list[dict[str, Any]]:
    """The fields `names` of each item."""
    return [{name: getattr(item, name) for name in names} for item in items]


def capitalised(text: str) -> str:
    """`text` with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


MAX_DIFF_LINES = 200
"""Maximum number of lines of a commit's diff in the transcript."""


@frozen
class Commit:
    """One commit."""

    sha: str
    author: str
    date: str
    subject: str

    def __str__(self) -> str:
        return f"{self.sha[:10]} {self.subject}"


def operator_git(job: Job) -> Git:
    """git in the operator's own tree: where HEAD is the operator's HEAD. Only for reading."""
    return replace(job.git, folder=job.workspace, pinned=None)


def resolve_commit(job: Job, revision: str) -> str:
    """The full id of the commit that `revision` names in the operator's repository.

    A branch wins over a tag of the same name. Raises `FlowError` when there is no such commit.
    """
    git = operator_git(job)
    for name in (f"refs/heads/{revision}", f"refs/remotes/{revision}", revision):
        options = ("--verify", "--quiet", "--end-of-options")
        if commit := git.text("rev-parse", *options, f"{name}^{{commit}}", allowed=(0, 1, 128)):
            return commit
    raise FlowError(f"`{revision}` names no commit in this repository", "git branch --all; git log --oneline")


def read_commit(git: Git, sha: str) -> Commit:
    """A commit's author, date (ISO) and subject."""
    return Commit(*git.text("show", "--no-patch", "--format=%H%x00%an%x00%aI%x00%s", sha).split("\0"))


MAX_RECENT_COMMITS = 3
"""Maximum number of commits that are shown for a file in conflict."""

LITERAL_PATHS = {"GIT_LITERAL_PATHSPECS": "1"}
"""Environment for git: every path is literal, also one that begins with `:`."""


def show_diff(job: Job, sha: str) -> None:
    """Show a commit and its diff, without lines that look secret."""
    commit = read_commit(job.git, sha)
    for line in (commit.sha, f"{commit.author}, {commit.date}", commit.subject):
        job.say(line)
    text = job.git.text("show", "--format=", "--stat", "--patch", "--no-color", "--diff-merges=first-parent", sha)
    lines = text.splitlines()
    for line in lines[:MAX_DIFF_LINES]:
        job.say("(a line that looks secret)" if secret_kind("", line[1:], "A" * 40) else line)
    if len(lines) > MAX_DIFF_LINES:
        job.say(f"and {len(lines) - MAX_DIFF_LINES} more lines: git show {sha[:10]}")


def recent_commits(git: Git, path: str, span: str) -> list[str]:
    """The newest commits of the range `span` that changed `path`, one line each."""
    out = git.text(
        "log", f"-n{MAX_RECENT_COMMITS}", "--no-merges", "--no-show-signature", "--format=%h %s", span, "--", path,
        environment=LITERAL_PATHS, allowed=(0, 128),
    )  # fmt: skip
    return out.splitlines()


def main_branch(job: Job) -> str | None:
    """The branch that others are merged into: the remote's main one, else main, master or trunk, else HEAD's; None in a
    repository without any of these."""
    names = job.git.text("for-each-ref", "--format=%(refname)", "refs/heads/").splitlines()
    local = {name.removeprefix("refs/heads/") for name in names}
    remote = job.git.text("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", allowed=(0, 1))
    current = job.git.text("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1))
    candidates = [remote.removeprefix("refs/remotes/origin/"), "main", "master", "trunk", current]
    return next((name for name in candidates if name in local), None)


REHEARSAL_AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "rehearsal"), ("EMAIL", "rehearsal@localhost"))
}
"""Environment of git for temporary commits."""

MAX_CONFLICT_FILE_BYTES = 50_000_000
"""Maximum size of a file in conflict whose places are counted."""

LINKED_FOLDERS = ("node_modules", "vendor", "deps")
"""Folders that `linked_packages` may have linked into the worktree."""


def reset_worktree(job: Job, revision: str) -> None:
    """Put the worktree at `revision`, clean: no uncommitted and no untracked files, no merge under way.

    Only for flows that work in a worktree; refuses to touch the operator's own tree.
    """
    if job.folder.resolve() == job.workspace.resolve():
        raise FlowError("this flow may only run in its own worktree")
    job.git.run("checkout", "--quiet", "--force", "--detach", revision)
    job.git.run("reset", "--quiet", "--hard", revision)
    job.git.run("clean", "--quiet", "-ffd", *(f"--exclude={name}" for name in LINKED_FOLDERS))


@frozen
class GitTrial:
    """What a command of git left in the worktree."""

    tree: str
    """The files as a tree id; "" when it did not come to its end."""
    conflicts: Mapping[str, int]
    """The files in conflict, each with its number of marked places, 0 when the whole file is in dispute."""
    error: str
    """The end of what git printed when it failed without a conflict."""
    stop: str
    """Where a rebase stopped, in words; it is aborted."""

    @property
    def files(self) -> str:
        """The files in conflict, in words."""
        return f"{count(len(self.conflicts), 'file')}: {join_names(self.conflicts, 4)}"


def try_git(job: Job, *arguments: str, environment: Mapping[str, str] | None = None) -> GitTrial:
    """Run a command of git in the worktree that may end in conflicts: merge, revert, apply, cherry-pick, rebase."""
    environment = {**REHEARSAL_AUTHOR, **(environment or {})}
    done = job.git.run(*arguments, environment=environment, allowed=range(256))
    conflicts = unmerged_files(job.git)
    error = done.stderr.decode(errors="replace")[-300:] if done.returncode and not conflicts else ""
    stop = ""
    if done.returncode and arguments[0] == "rebase":
        commit = job.git.text("log", "-1", "--no-show-signature", "--format=%h “%s”", "REBASE_HEAD", allowed=(0, 128))
        job.git.run("rebase", "--abort", allowed=(0, 1, 128))
        stop = f"stops at {commit}" + (f" in {join_names(conflicts, 3)}" if conflicts else "")
    tree = "" if done.returncode or conflicts else job.git.text("write-tree")
    return GitTrial(tree, conflicts, error, stop)


def unmerged_files(git: Git) -> dict[str, int]:
    """The files in conflict, each with its number of marked places (0 when the whole file is in dispute)."""
    return {path: _count_conflict_markers(git.folder / path) for path in conflicted_files(git)}


def _count_conflict_markers(file: Path) -> int:
    try:
        lines = read_plain(file, MAX_CONFLICT_FILE_BYTES, follow=False).splitlines()
    except (OSError, ValueError):
        return 0
    return sum(line.startswith(b"<<<<<<< ") for line in lines)


def stage_all_files(job: Job) -> dict[str, str]:
    """The environment of git for a separate index that has all present files, uncommitted and untracked ones too."""
    environment = {"GIT_INDEX_FILE": str(job.scratch / "flow-index")}
    git = replace(job.git, environment={**job.git.environment, **environment})
    git.run("read-tree", "HEAD")  # so that tracked files stay which an ignore rule names
    update_index(git)
    return environment


def store_tree(job: Job) -> str:
    """The present files of the worktree, uncommitted and untracked ones included, as a tree id."""
    return job.git.text("write-tree", environment=stage_all_files(job))


def restore_tree(job: Job, tree: str) -> None:
    """Make the worktree's files those of a tree from `store_tree`."""
    job.git.run("read-tree", "--reset", "-u", tree)
