"""The state of a working tree as frozen values, and the part of it that `git status` prints.

Names and paths come from git unchanged and may be hostile text, so sanitise them before they are shown.

`GitReader` fills `GitState`; checks, templates and flows decide by it without asking git again.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from engine.frozen import frozen
from engine.git import TOOL_FOLDERS, Git, is_in_tool_folder
from engine.git.habits import Partner, ReleaseRhythm
from engine.git.history import ANSWER_TIMEOUT_S, Commit, to_datetime
from engine.model import Refusal
from engine.text import one_line

STALE_BRANCH = timedelta(days=30)
"""A branch without a commit for this long is stale."""


@frozen
class Touch:
    """The last write to a file."""

    path: str
    """The path relative to the workspace. It may also be `.git/index` or `.git/HEAD`."""
    at: datetime
    untracked: bool = False


@frozen
class FileState:
    """One file that differs from HEAD."""

    path: str
    staged: bool = False
    modified: bool = False
    untracked: bool = False
    deleted: bool = False
    conflicted: bool = False
    modified_at: datetime | None = None
    """None if the file is deleted or could not be read."""


@frozen
class Branch:
    """A local or a remote branch."""

    name: str
    """A remote branch has the name of its remote before its own, as in `origin/main`."""
    tip: str
    at: datetime
    merged: bool = False
    """Whether its tip is among the last 5,000 commits of the base branch."""
    remote: bool = False
    has_worktree: bool = False
    """Whether it is checked out in a worktree."""


@dataclass(frozen=True)
class GitState:
    """A working tree and its repository at one moment."""

    head: str = ""
    """The commit of HEAD; "" if there is no commit yet."""
    branch: str = ""
    """"" if HEAD is detached."""
    is_detached: bool = False
    """Whether HEAD is at a commit and on no branch."""
    upstream: str = ""
    """"" if there is none."""
    upstream_tip: str = ""
    ahead: int = 0
    """Number of commits that the upstream does not have."""
    behind: int = 0
    """Number of commits that only the upstream has."""
    base: str = ""
    """The branch that others start from, such as `main` or `origin/main`; "" when it is unknown."""
    base_tip: str = ""
    ahead_of_base: int = 0
    behind_base: int = 0
    files: tuple[FileState, ...] = ()
    """At most 2,000 files that differ from HEAD."""
    more_files: int = 0
    """The number of all other files that differ from HEAD."""
    recent: tuple[Commit, ...] = ()
    """At most 50 commits of HEAD, newest first."""
    recent_of_branches: tuple[Commit, ...] = ()
    """At most 50 commits of HEAD and of all local branches, newest first."""
    branches: tuple[Branch, ...] = ()
    """At most 300 branches, newest first."""
    tag: str = ""
    """The newest tag among the last 5,000 commits of HEAD."""
    commits_since_tag: int = 0
    """Number of commits since `tag`; 0 without a tag."""
    own_files: tuple[str, ...] = ()
    """At most 2,000 files that this branch changed since it left its upstream, or without one, its base."""
    user_email: str = ""
    """git's `user.email`, "" when it is not set."""
    operation: str = ""
    """The name of the unfinished operation; see `engine.git.unfinished`."""
    refs: str = ""
    """A value that changes whenever HEAD or a ref does."""
    has_remote: bool = False
    on_github: bool = False
    touches: tuple[Touch, ...] = ()
    partner: Partner | None = None
    """A file that usually changes with `files`, or if nothing is uncommitted, with `own_files`, but has not changed."""
    release: ReleaseRhythm | None = None
    """How the project is released; None if that is unknown."""

    @cached_property
    def base_name(self) -> str:
        """The name of the base without its remote: `main` for `origin/main` too."""
        remote = any(branch.remote and branch.name == self.base for branch in self.branches)
        return self.base.partition("/")[2] if remote else self.base

    def is_mine(self, commit: Commit) -> bool:
        """Whether the operator wrote a commit, as far as git can tell."""
        return bool(self.user_email) and commit.email == self.user_email

    @cached_property
    def untracked(self) -> tuple[FileState, ...]:
        """Files that git does not know and does not ignore."""
        return tuple(file for file in self.files if file.untracked)

    @property
    def open_branches(self) -> tuple[Branch, ...]:
        """The branches with work that the base does not have. A remote one is left out if a local one has its name."""
        local = {branch.name for branch in self.branches if not branch.remote}
        return tuple(
            branch
            for branch in self.branches
            if not branch.merged
            and branch.tip != self.base_tip
            and strip_remote(branch) != self.base_name
            and not (branch.remote and strip_remote(branch) in local)
        )


def strip_remote(branch: Branch) -> str:
    """The name of a branch without its remote: `feature/x` for `origin/feature/x` too."""
    return branch.name.partition("/")[2] if branch.remote else branch.name


# -- branches that are made of the changes of sessions

SESSION_BRANCH_PREFIXES = ("clawpy/", "clawpy-")
"""The beginnings of the names of such branches. The second one is for a repository with a branch `clawpy`."""

MAX_BRANCH_CHARS = 50
"""Maximum number of characters in the name of a branch, without a number at its end."""


def make_session_branch_name(title: str, session_id: str, *, below: bool = True) -> str:
    """The name of the branch for a session's changes, which git always accepts.

    It is `clawpy/` and the first words of the prompt in lower case, such as `clawpy/fix-lint-in-cart`. If the prompt
    has no word, the session's id is used. If no branch can be `below` the name `clawpy`, the prefix is `clawpy-`.
    """
    first = unicodedata.normalize("NFKC", title.strip().partition("\n")[0]).lower()
    words = "".join(letter if letter.isalnum() else " " for letter in first).split()
    name, max_length = "", MAX_BRANCH_CHARS - len(SESSION_BRANCH_PREFIXES[0])
    for word in words:
        if name and len(name) + 1 + len(word) > max_length:
            break
        name = f"{name}-{word}" if name else word[:max_length]
    return f"{SESSION_BRANCH_PREFIXES[0] if below else SESSION_BRANCH_PREFIXES[1]}{name or session_id}"


def is_session_branch(name: str, session: str) -> bool:
    """Whether this branch was made of a session's changes. `session` is the trailer `Session` of its last commit; "" if
    it has none, because a branch to which you have committed is yours."""
    return name.startswith(SESSION_BRANCH_PREFIXES) and bool(session.strip())


# -- the working tree as `git status` sees it

MAX_FILES = 2_000
"""Maximum number of files that are named. The others are counted."""

MAX_IN_FOLDER = 300
"""Maximum number of files of one untracked folder that are named."""

_BYPRODUCT_PATH = re.compile(
    r"(?:^|/)(?:\.idea|\.vscode|\.direnv|dist|build|out|target|htmlcov|coverage|tmp|temp|logs?|[^/]*\.egg-info)/"
    r"|(?:^|/)(?:\.DS_Store|Thumbs\.db|\.coverage[^/]*|nohup\.out|core|tags|\.env[^/]*)$"
    r"|\.(?:log|tmp|temp|bak|orig|rej|swp|swo|pyc|pid|out|class|o)$|~$",
    re.I,
)
"""Paths of output, logs, backups and settings."""


def is_byproduct(path: str) -> bool:
    """Whether an untracked file with this name is not the work of a person, but output, a log, a backup of an editor,
    or settings."""
    return is_in_tool_folder(path) or bool(_BYPRODUCT_PATH.search(path))


@frozen
class GitStatus:
    """The output of `git status`."""

    head: str
    branch: str
    upstream: str
    files: tuple[FileState, ...]
    more_files: int
    digest: str
    """It is another one after any change of HEAD, of the index or of a file that git tracks."""


def read_status(git: Git) -> GitStatus:
    """Run `git status`, which writes nothing and does not enter submodules. Raises `GitError`."""
    records = git.items(
        "status", "--porcelain=v2", "--branch", "-z", "--no-ahead-behind", "--no-renames", "--untracked-files=normal"
    )
    header = dict(part[2:].partition(" ")[::2] for part in records if part.startswith("# "))
    states = [file for part in records for file in _parse_file_states(git.folder, part)]
    files = states[:MAX_FILES]
    head, branch = header.get("branch.oid", ""), header.get("branch.head", "")
    tracked = [part for part in records if part[0] in "12u"]
    times = [str(file.modified_at) for file in files if not file.untracked]
    text = "\0".join([head, *tracked, *times])
    return GitStatus(
        head="" if head == "(initial)" else head,
        branch="" if branch == "(detached)" else branch,
        upstream=header.get("branch.upstream", ""),
        files=tuple(files),
        more_files=len(states) - len(files),
        digest=hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest(),
    )


def _parse_file_states(root: Path, part: str) -> Iterator[FileState]:
    """The files of one record of `status --porcelain=v2`: none of a header, and of an untracked folder those in it."""
    kind = part[0]
    if kind == "?":
        path = part[2:]
        if is_in_tool_folder(path):
            return
        inside = _list_files_below(root, path) if path.endswith("/") else (path,)
        yield from (FileState(name, untracked=True, modified_at=read_modified_at(root / name)) for name in inside)
    elif kind in "1u":
        fields = part.split(" ", 8 if kind == "1" else 10)
        index, tree, path = fields[1][0], fields[1][1], fields[-1]
        yield FileState(
            path,
            staged=kind == "1" and index != ".",
            modified=kind == "1" and tree != ".",
            deleted=kind == "1" and (tree == "D" or (index == "D" and tree == ".")),
            conflicted=kind == "u",
            modified_at=read_modified_at(root / path),
        )


def _list_files_below(root: Path, folder: str) -> Iterator[str]:
    """At most `MAX_IN_FOLDER` files below an untracked folder. If it is a repository itself, the folder is returned."""
    if (root / folder / ".git").exists():
        yield folder.rstrip("/")
        return
    yield from itertools.islice(_walk_files(root, root / folder), MAX_IN_FOLDER)


def _walk_files(root: Path, folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in TOOL_FOLDERS)  # os.walk enters only these
        for name in sorted(names):
            yield os.path.relpath(os.path.join(place, name), root)  # noqa: PTH118 (names that are no UTF-8 stay whole)


def read_modified_at(path: Path) -> datetime | None:
    """When a file was last written; None if it does not exist."""
    try:
        return to_datetime(path.lstat().st_mtime)
    except (OSError, ValueError):
        return None


# -- single questions about the working tree


def read_workspace_label(workspace: str) -> str:
    """The name and branch of a workspace, such as `shop main*`. The star stands for uncommitted changes."""
    folder = Path(workspace)
    git = Git(folder, timeout=5)
    try:
        branch = git.text("symbolic-ref", "--short", "-q", "HEAD", allowed=(0, 1)) or "detached"
        dirty = git.output("status", "--porcelain", "-uno")
    except Refusal as refusal:
        return one_line(f"{folder.name} ({refusal.code.replace('_', ' ')})")
    return one_line(f"{folder.name} {branch}{'*' if dirty else ''}")


def is_text_in_files(workspace: Path, folder: str, text: str) -> bool:
    """Whether a present file below `folder` (relative to the top) has this text, in a commit or not."""
    pattern = ("--untracked", "--fixed-strings", "-e", text, "--", f":(top,literal){folder}" if folder else ":(top)")
    return Git(workspace, timeout=ANSWER_TIMEOUT_S).run("grep", "--quiet", *pattern, allowed=(0, 1)).returncode == 0
