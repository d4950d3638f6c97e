"""The state of a working tree, as frozen values.

Names and paths are as git has them, hostile text included: sanitise them before they are shown.
"""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.history import Commit, to_datetime
from engine.git.project_habits import Partner, ReleaseRhythm

STALE_BRANCH = timedelta(days=30)
"""A branch without a commit for so long is stale."""


@frozen
class Touch:
    """A file (path relative to the workspace; `.git/index`, `.git/HEAD`) was written at this instant."""

    path: str
    at: datetime
    untracked: bool = False


@frozen
class FileState:
    """One file that differs from HEAD. `modified_at` is None when it is gone or could not be read."""

    path: str
    staged: bool = False
    modified: bool = False
    untracked: bool = False
    deleted: bool = False
    conflicted: bool = False
    modified_at: datetime | None = None


@frozen
class Branch:
    """A local branch, or a remote one as `origin/name`. `merged`: among the last 5,000 commits of the base branch.
    `taken`: some worktree has it checked out."""

    name: str
    tip: str
    at: datetime
    merged: bool = False
    remote: bool = False
    taken: bool = False


@dataclass(frozen=True)
class GitState:
    """A working tree and its repository at one moment; what is bounded says so.

    `head` is "" before the first commit, `branch` "" when detached, `upstream` "" when there is none. `ahead` and
    `behind` count against the upstream, `ahead_of_base` and `behind_base` against `base`, the branch that others
    start from (`main`, `origin/main`, …; "" for unknown). `tag` is the newest tag among the last 5,000
    commits of HEAD; `commits_since_tag` counts from there, or, without a tag, all commits up to 301. `subjects`: of at
    most 50 commits since `tag`, or, when HEAD is `tag`, between it and the tag before it, merges left out.
    `own_files`: at most 2,000 files that this branch changed since it left its upstream, or its base where it has none.
    `me`: git's own `user.email`, "" when it is not set.
    `operation`: what is unfinished, see `engine.git.operations`. `refs` changes whenever HEAD or a ref does.
    `recent`: at most 50 commits, `branches`: at most 300, newest first, `files`: at most 2,000 (`more_files` counts
    the rest). `partner`: the file that usually changes with those of `files` (or, where nothing is uncommitted, of
    `own_files`) and has not; None when there is none. `release`: how the project is released, None for
    unknown.
    """

    head: str = ""
    branch: str = ""
    detached: bool = False
    upstream: str = ""
    upstream_tip: str = ""
    ahead: int = 0
    behind: int = 0
    base: str = ""
    base_tip: str = ""
    ahead_of_base: int = 0
    behind_base: int = 0
    files: tuple[FileState, ...] = ()
    more_files: int = 0
    recent: tuple[Commit, ...] = ()
    branches: tuple[Branch, ...] = ()
    tag: str = ""
    commits_since_tag: int = 0
    subjects: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()
    me: str = ""
    operation: str = ""
    refs: str = ""
    has_remote: bool = False
    on_github: bool = False
    touches: tuple[Touch, ...] = ()
    partner: Partner | None = None
    release: ReleaseRhythm | None = None

    @property
    def clean(self) -> bool:
        """True when the files are exactly those of HEAD."""
        return not self.files and not self.more_files

    @cached_property
    def base_name(self) -> str:
        """`main` for the base `main` as for `origin/main`."""
        remote = any(branch.remote and branch.name == self.base for branch in self.branches)
        return self.base.partition("/")[2] if remote else self.base

    def is_mine(self, commit: Commit) -> bool:
        """Whether the operator wrote it, as far as git can tell."""
        return bool(self.me) and commit.email == self.me

    @cached_property
    def untracked(self) -> tuple[FileState, ...]:
        """Files that git does not know and does not ignore."""
        return tuple(file for file in self.files if file.untracked)

    @property
    def open_branches(self) -> tuple[Branch, ...]:
        """Branches with work that the base does not have: local ones, and remote ones that have no local namesake."""
        local = {branch.name for branch in self.branches if not branch.remote}
        return tuple(
            branch
            for branch in self.branches
            if not branch.merged
            and branch.tip != self.base_tip
            and bare_name(branch) != self.base_name
            and not (branch.remote and bare_name(branch) in local)
        )


def bare_name(branch: Branch) -> str:
    """`feature/x` for `feature/x` and for `origin/feature/x`."""
    return branch.name.partition("/")[2] if branch.remote else branch.name


# -- branches that sessions' changes became


PREFIXES = ("clawpy/", "clawpy-")
MAX_LENGTH = 50
"""Characters of a branch's name, before it is numbered."""


def session_branch(title: str, session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/` and the first words of its prompt in lower case, such as
    `clawpy/fix-lint-in-cart`, or the session's id where there is no word; `clawpy-` where none can be below `clawpy`.
    Always a name that git takes."""
    first = unicodedata.normalize("NFKC", title.strip().partition("\n")[0]).lower()
    words = "".join(letter if letter.isalnum() else " " for letter in first).split()
    name, max_length = "", MAX_LENGTH - len(PREFIXES[0])
    for word in words:
        if name and len(name) + 1 + len(word) > max_length:
            break
        name = f"{name}-{word}" if name else word[:max_length]
    return f"{PREFIXES[0] if below else PREFIXES[1]}{name or session_id}"


def is_session_branch(name: str, session: str) -> bool:
    """Whether a branch is one that a session's changes became. `session`: the trailer `Session` of its last commit,
    "" when it has none. A branch that you committed to is yours."""
    return name.startswith(PREFIXES) and bool(session.strip())


# -- the working tree as `git status` sees it


MAX_FILES: Final = 2_000
MAX_IN_FOLDER: Final = 300  # files named of one untracked folder

_LITTER_FOLDERS: Final = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".venv", "node_modules")
)
"""Folders that tools fill: where they are not ignored they are still no work of a person, and no activity."""


def is_litter(path: str) -> bool:
    """Whether `path` lies in a folder that tools fill, such as `.venv` or `node_modules`."""
    return not _LITTER_FOLDERS.isdisjoint(path.split("/"))


_BYPRODUCT: Final = re.compile(
    r"(?:^|/)(?:\.idea|\.vscode|\.direnv|dist|build|out|target|htmlcov|coverage|tmp|temp|logs?|[^/]*\.egg-info)/"
    r"|(?:^|/)(?:\.DS_Store|Thumbs\.db|\.coverage[^/]*|nohup\.out|core|tags|\.env[^/]*)$"
    r"|\.(?:log|tmp|temp|bak|orig|rej|swp|swo|pyc|pid|out|class|o)$|~$",
    re.I,
)


def is_byproduct(path: str) -> bool:
    """Whether an untracked file of this name is nobody's work: output, logs, editor backups, local settings."""
    return is_litter(path) or bool(_BYPRODUCT.search(path))


@frozen
class Status:
    """The output of `git status`."""

    head: str
    branch: str
    upstream: str
    files: tuple[FileState, ...]
    more_files: int


def read_status(git: Git) -> Status:
    """One `git status`, which writes nothing and does not enter submodules. Raises `GitError`."""
    records = git.items(
        "status", "--porcelain=v2", "--branch", "-z", "--no-ahead-behind", "--no-renames", "--untracked-files=normal"
    )
    header: dict[str, str] = {}
    files: list[FileState] = []
    omitted = 0
    for part in records:
        if part.startswith("# "):
            name, _, value = part[2:].partition(" ")
            header[name] = value
            continue
        for file in _file_states(git.folder, part):
            if len(files) < MAX_FILES:
                files.append(file)
            else:
                omitted += 1
    head, branch = header.get("branch.oid", ""), header.get("branch.head", "")
    return Status(
        head="" if head == "(initial)" else head,
        branch="" if branch == "(detached)" else branch,
        upstream=header.get("branch.upstream", ""),
        files=tuple(files),
        more_files=omitted,
    )


def _file_states(root: Path, part: str) -> Iterator[FileState]:
    """One record of `status --porcelain=v2`; an untracked folder gives the files in it."""
    kind = part[0]
    if kind == "?":
        path = part[2:]
        if is_litter(path):
            return
        inside = _files_below(root, path) if path.endswith("/") else (path,)
        yield from (FileState(name, untracked=True, modified_at=modified_at(root / name)) for name in inside)
    elif kind in "1u":
        fields = part.split(" ", 8 if kind == "1" else 10)
        index, tree, path = fields[1][0], fields[1][1], fields[-1]
        yield FileState(
            path,
            staged=kind == "1" and index != ".",
            modified=kind == "1" and tree != ".",
            deleted=kind == "1" and (tree == "D" or (index == "D" and tree == ".")),
            conflicted=kind == "u",
            modified_at=modified_at(root / path),
        )


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Files below an untracked folder, at most 300; a repository of its own stays one entry."""
    if (root / folder / ".git").exists():
        yield folder.rstrip("/")
        return
    yield from itertools.islice(_walk_files(root, root / folder), MAX_IN_FOLDER)


def _walk_files(root: Path, folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LITTER_FOLDERS)  # what os.walk then goes into
        for name in sorted(names):
            yield os.path.relpath(os.path.join(place, name), root)  # noqa: PTH118 (names that are no UTF-8 stay whole)


def modified_at(path: Path) -> datetime | None:
    """When a file was written; None when it is not there."""
    try:
        return to_datetime(path.lstat().st_mtime)
    except (OSError, ValueError):
        return None
