"""Reads the past of a repository as frozen values: commits, what they changed, and tags; reflogs, and the stashes,
which are one of them. Other functions say which commit a revision means, how two commits differ, what a merge of them
would bring, and of which project a clone is.

A merge is tried without changing a file, a branch or an object of the repository: git writes the objects of the merge
to a temporary folder. What follows from the past is in `habits`, `lost_commits` and `inspection`.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from engine.files import read_plain_or_nothing
from engine.frozen import frozen, group_pairs
from engine.git import Git, is_in_tool_folder, split_nul
from engine.git.environment import GitError, get_temporary_folder
from engine.model import Refusal

log = logging.getLogger(__name__)

MAX_CHANGES = 3_000
"""Maximum number of commits that are read with their files. Older ones say little about the habits of today."""

MAX_LOG_BYTES = 8_000_000
"""Maximum size of a reflog, which is about 40,000 entries. A longer one counts as none."""

MAX_STASHES = 50
"""Maximum number of stashes that are read."""

MAX_STASHED_FILES = 300
"""Maximum number of files of a stash that are named."""

_COMMIT_MARK = "\x01"
"""The beginning of a commit in the output of `git log`."""

_LOG_LINE = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .*?> (\d+) [+-]\d{4}\t?(.*)")
"""A line of a reflog: old, new, time, and action."""

_FIXUP_PREFIX = re.compile(r"^(?:(?:fixup|squash|amend)! )+")
"""The prefixes of a fixup commit."""


@frozen
class Commit:
    """One commit."""

    id: str
    at: datetime
    author: str
    subject: str
    parents: tuple[str, ...] = ()
    """Full ids."""
    email: str = ""
    """The author's address."""
    committer_email: str = ""
    authored: str = ""
    """When its author wrote it, in seconds since 1970. git accepts any number, so it may be no valid date."""

    @property
    def is_fixup(self) -> bool:
        """Whether it is to be squashed into the commit with the subject `target_subject`."""
        return _FIXUP_PREFIX.match(self.subject) is not None

    @property
    def target_subject(self) -> str:
        """Its subject without the prefix of a fixup commit."""
        return _FIXUP_PREFIX.sub("", self.subject)


@frozen
class CommitChange:
    """What one commit changed. Habits are computed from thousands of them, so times and parents are numbers."""

    id: str
    committed: int
    """In seconds since 1970."""
    parent_count: int
    subject: str
    files: tuple[str, ...] = ()
    """The files in which it differs from its only parent, sorted. A merge has none."""
    deleted: tuple[str, ...] = ()
    """Those of `files` that it deleted."""
    tags: tuple[str, ...] = ()
    """The names of the tags on it."""


def to_datetime(seconds: str | float) -> datetime:
    """Convert seconds since 1970 to a time. git accepts any number; a number that is no valid date becomes 1970."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def log_commits(git: Git, *arguments: str, stdin: bytes | None = None) -> list[Commit]:
    """The commits of `git log ARGUMENTS`, in its order. Raises `GitError`."""
    records = git.items(
        "log", "-z", "--no-show-signature", "--format=%H%n%ct%n%P%n%at%n%an%n%ae%n%ce%n%s", *arguments, stdin=stdin
    )
    commits = []
    for record in records:
        commit, seconds, parents, authored, author, email, committer, subject = record.split("\n", 7)
        commits.append(
            Commit(commit, to_datetime(seconds), author, subject, tuple(parents.split()), email, committer, authored)
        )
    return commits


def read_changes(git: Git, head: str = "HEAD") -> tuple[CommitChange, ...]:
    """The newest `MAX_CHANGES` commits of `head` with their files, oldest first. A renamed file appears as a deleted
    file and a new one. Raises `GitError`, also if there is no commit yet."""
    tags = read_tags_by_commit(git)
    output = git.output(
        "log", "-z", f"-n{MAX_CHANGES}", "--no-renames", "--name-status", "--no-show-signature",
        f"--format={_COMMIT_MARK}%H%x00%ct%x00%P%x00%s", head, "--",
    )  # fmt: skip
    words = iter(output.decode(errors="surrogateescape").split("\0"))
    return tuple(reversed(list(_parse_changes(words, tags))))


def _parse_changes(words: Iterator[str], tags: dict[str, list[str]]) -> Iterator[CommitChange]:
    """Parse git's output. A commit is four words, then two for each file: its status and its path."""
    word = next(words, "")
    while word.startswith(_COMMIT_MARK):
        commit = word.removeprefix(_COMMIT_MARK)
        at, parents, subject = next(words), next(words), next(words)
        files, deleted = [], []
        for word in words:
            if word.startswith(_COMMIT_MARK):
                break
            if status := word.strip():  # before the first one of a commit is a line break
                files.append(next(words))
                deleted += files[-1:] if status == "D" else []
        else:
            word = ""
        yield CommitChange(
            commit, int(at), len(parents.split()), subject,
            tuple(sorted(files)), tuple(sorted(deleted)), tuple(tags.get(commit, ())),
        )  # fmt: skip


def read_tags_by_commit(git: Git) -> dict[str, list[str]]:
    """The names of the tags of each commit that has any. Raises `GitError`."""
    lines = git.lines("for-each-ref", "--format=%(objectname) %(*objectname) %(refname:lstrip=2)", "refs/tags")
    return group_pairs((peeled or tip, name) for tip, peeled, name in (line.split(" ", 2) for line in lines))


@frozen
class ReflogEntry:
    """One move of a ref from the commit `old` to the commit `new`."""

    old: str
    """Zeroes when the ref was new."""
    new: str
    """Zeroes when the ref was deleted."""
    at: datetime
    action: str
    """For example `commit (amend): the subject`."""


def read_reflog(git: Git, ref: str = "HEAD") -> list[ReflogEntry]:
    """The entries of the log of a ref, oldest first. Empty when it has no log."""
    repository = git.repository
    file = (repository.git_dir if ref == "HEAD" else repository.common) / "logs" / ref
    lines = read_plain_or_nothing(file, MAX_LOG_BYTES, follow=False).split(b"\n")
    entries = [match.groups() for line in lines if (match := _LOG_LINE.fullmatch(line))]
    return [
        ReflogEntry(old.decode(), new.decode(), to_datetime(at.decode()), action.decode(errors="surrogateescape"))
        for old, new, at, action in entries
    ]


@frozen
class Stash:
    """One stash."""

    number: int
    commit: str
    at: datetime
    branch: str
    """The branch on which it was made; "" for a detached HEAD."""
    message: str
    """Its message without the branch at the beginning."""
    files: tuple[str, ...]
    """At most `MAX_STASHED_FILES` files that it changes, untracked ones included."""

    @property
    def name(self) -> str:
        """Its name for git: `stash@{NUMBER}`."""
        return f"stash@{{{self.number}}}"


def read_stashes(git: Git) -> tuple[Stash, ...]:
    """The newest `MAX_STASHES` stashes. Raises `GitError`."""
    stashes = []
    for number, entry in enumerate(read_reflog(git, "refs/stash")[: -MAX_STASHES - 1 : -1]):
        # git writes `WIP on main: 1a2b3c4 subject` or `On main: message`.
        where, _, message = entry.action.partition(": ")
        branch = where.removeprefix("WIP on ").removeprefix("On ").removeprefix("(no branch)")
        stashes.append(Stash(number, entry.new, entry.at, branch, message, _read_stashed_files(git, entry.new)))
    return tuple(stashes)


def _read_stashed_files(git: Git, commit: str) -> tuple[str, ...]:
    """The files that a stash changes; () when the stash is gone."""
    names = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit, allowed=(0, 128))
    names += git.items("ls-tree", "-r", "-z", "--name-only", f"{commit}^3", allowed=(0, 128))
    return tuple(names[:MAX_STASHED_FILES])


def find_commit(git: Git, revision: str) -> str:
    """The full id of the commit that `revision` names; "" for none. A branch goes before a tag of the same name."""
    options = ("--verify", "--quiet", "--end-of-options")
    for name in (f"refs/heads/{revision}", f"refs/remotes/{revision}", revision):
        if commit := git.text("rev-parse", *options, f"{name}^{{commit}}", allowed=(0, 1, 128)):
            return commit
    return ""


def is_ancestor(git: Git, older: str, newer: str) -> bool:
    """Whether `older` is in the history of `newer`. False also if one of the two does not exist. Raises `GitError`."""
    return git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1, 128)).returncode == 0


def read_file_at(git: Git, revision: str, path: str) -> bytes:
    """The content of a file in a commit, b"" if there is no such file. Raises `GitError`."""
    return git.output("cat-file", "blob", f"{revision}:{path}", allowed=(0, 128))


def count_apart(git: Git, head: str, other: str) -> tuple[int, int]:
    """The number of commits that only `head` has, and the number that only `other` has. Both are 0 if one of the two is
    "". Raises `GitError`."""
    if not head or not other or head == other:
        return 0, 0
    ahead, behind = git.text("rev-list", "--left-right", "--count", f"{head}...{other}").split()
    return int(ahead), int(behind)


# -- answers that are remembered, also those of a git that took too long, which would do so in each check

MAX_ANSWERS = 512
"""Maximum number of answers of one sort that are remembered."""

ANSWER_TIMEOUT_S = 15.0
"""Seconds in which git must have answered."""

MAX_DIFFERENT_FILES = 2_000
"""Maximum number of files between two commits that are named."""


@lru_cache(MAX_ANSWERS)
def is_in_history(workspace: Path, older: str, newer: str) -> bool:
    """The answer of `is_ancestor`, remembered."""
    return is_ancestor(Git(workspace, timeout=ANSWER_TIMEOUT_S), older, newer)


@lru_cache(MAX_ANSWERS)
def find_last_commit_of(workspace: Path, path: str, head: str) -> str:
    """The newest commit in the history of `head` that changed the file `path` (relative to the top); "" if there is
    none, or if the history is too long to find it."""
    git = Git(workspace, timeout=ANSWER_TIMEOUT_S)
    try:
        completed = git.run("log", "-1", "--format=%H", head, "--", f":(top,literal){path}", allowed=(0, 128))
    except GitError as error:
        log.warning("%s: the last commit of %s is not known: %s", workspace, path, error)
        return ""
    return completed.stdout.decode().strip()


@lru_cache(MAX_ANSWERS)
def is_text_at(workspace: Path, commit: str, path: str, text: str) -> bool:
    """Whether the file `path` (relative to the top) has this text at a commit or tree. False also if that does not
    exist any more, such as the tree of a test run after `git gc`."""
    pattern = ("--fixed-strings", "-e", text, commit, "--", f":(top,literal){path}")
    completed = Git(workspace, timeout=ANSWER_TIMEOUT_S).run("grep", "--quiet", *pattern, allowed=(0, 1, 128))
    return completed.returncode == 0


@lru_cache(MAX_ANSWERS)
def list_files_between(workspace: Path, old: str, new: str) -> tuple[str, ...] | None:
    """At most `MAX_DIFFERENT_FILES` paths that differ between two commits or trees; None if one of them does not exist.

    Folders that tools fill are left out, because one tree may contain a `.venv` that is not ignored, and the other not.
    """
    git = Git(workspace, timeout=ANSWER_TIMEOUT_S)
    completed = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", allowed=(0, 128))
    if completed.returncode:
        return None
    paths = map(os.fsdecode, split_nul(completed.stdout))
    return tuple(itertools.islice(itertools.filterfalse(is_in_tool_folder, paths), MAX_DIFFERENT_FILES))


# -- merges that are tried

MAX_TRIALS = 512
"""Maximum number of outcomes that are remembered."""

TRIAL_TIMEOUT_S = 5.0
"""Seconds in which git must have tried one merge."""


def separate_objects(git: Git, folder: Path) -> dict[str, str]:
    """The environment in which git writes new objects to `folder`/objects, and not into the repository."""
    own = folder / "objects"
    own.mkdir(exist_ok=True)
    # Without quotes, a `:` in the path would separate two paths. Within quotes, git reads escapes as in C.
    quoted = str(git.repository.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(own), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def merge_trees(git: Git, ours: str, theirs: str, objects: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Merge `theirs` into `ours`. Returns the tree, and the files in conflict, which have git's markers in the tree.
    Raises `GitError`, also if the two have no common history."""
    completed = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs,
        environment=objects, allowed=(0, 1),
    )  # fmt: skip
    tree, *names = map(os.fsdecode, split_nul(completed.stdout))
    return tree, tuple(dict.fromkeys(names)) if completed.returncode else ()


@frozen
class MergeTrial:
    """The outcome of a merge that was tried."""

    files: tuple[str, ...] | None
    """The files that conflict; None if git could not merge."""
    changes_anything: bool
    """False if the work of the other side is there already, perhaps in other commits."""


@lru_cache(MAX_TRIALS)
def try_merge(workspace: Path, onto: str, other: str) -> MergeTrial:
    """Merge the commit `other` into `onto`, within `TRIAL_TIMEOUT_S`. The outcome is remembered, because it never
    changes. So is a failure: a repository that is too large for the timeout would cost it in each check."""
    git = Git(workspace, timeout=TRIAL_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="merge-", dir=get_temporary_folder()) as folder:
        try:
            tree, files = merge_trees(git, onto, other, separate_objects(git, Path(folder)))
            return MergeTrial(files, changes_anything=bool(files) or tree != git.text("rev-parse", f"{onto}^{{tree}}"))
        except GitError:
            return MergeTrial(None, changes_anything=True)


# -- the project of a clone


class ProjectIds:
    """Finds the id of the project of which a workspace is a clone. It is the first commit, which all clones share."""

    def __init__(self) -> None:
        self._cache: dict[str, str] = {}

    def of(self, workspace: str) -> str:
        """The id of the project of a workspace; "" if git fails, or if the clone is shallow."""
        if not self._cache.get(workspace):
            roots: list[str] = []
            try:
                git = Git(Path(workspace), timeout=10)
                if git.text("rev-parse", "--is-shallow-repository") == "false":
                    roots = git.text("rev-list", "--max-parents=0", "HEAD", allowed=(0, 128)).split()
            except Refusal as refusal:
                log.warning("%s is not a project that could be shared: %s", workspace, refusal)
            self._cache[workspace] = min(roots, default="")
        return self._cache[workspace]
