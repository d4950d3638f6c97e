"""Reads a `GitState` with few git processes: two for a repository whose commits and refs have not moved.

`git status` and the plain list of refs are asked every time; everything that needs commits to be walked is bounded
and kept until HEAD or a ref moves. No optional locks, no hooks, no network, nothing is written.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.git import Git, GitError
from engine.git.answers import GitAnswers
from engine.git.co_changes import CoChanges, Partner
from engine.git.commits import is_ancestor
from engine.git.history import read_history
from engine.git.inspection import Inspection
from engine.git.inspector import Inspector
from engine.git.nul_lists import split_nul
from engine.git.operation import operation_name
from engine.git.ref_state import read_ref_state
from engine.git.releases import ReleaseRhythm, release_rhythm
from engine.git.state import FileState, GitState, Touch
from engine.git.status import MAX_FILES, Status, is_litter, modified_at, read_status
from engine.plain_files import read_plain

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 15.0
MAX_CONFIG_BYTES: Final = 4_000_000


class GitReader:
    """Reads workspaces; safe to call from several threads. Remembers per workspace until its commits or refs move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Path, GitAnswers] = {}

    def read(self, workspace: Path) -> GitState:
        """The state of the working tree at `workspace` (its top folder). Raises `Refusal`: `bare_repository`,
        `no_folder`, `git_failed`, `no_git`."""
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        repository = git.repository
        answers = self._answers_of(workspace)
        status = read_status(git)
        refs = git.output(
            "for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/remotes", "refs/tags"
        )
        key = _digest(
            refs,
            _worktree_stamp(repository.common),
            *(part.encode() for part in (status.head, status.branch, status.upstream)),
        )
        history = answers.latest(
            "refs",
            (key,),
            lambda: read_ref_state(git, status, refs.decode(errors="surrogateescape")),
            keep_errors=False,
        )
        tags = [line for line in refs.splitlines() if b" refs/tags/" in line]
        habits, release = answers.latest(
            "habits", (_digest(status.head.encode(), *tags),), lambda: _read_habits(git, status.head)
        )
        config = _read_config(repository.common)
        return replace(
            history,
            partner=_find_partner(answers, habits, status, history),
            release=release,
            refs=key,
            files=status.files,
            more_files=status.more_files,
            operation=operation_name(repository.git_dir, conflicted=any(file.conflicted for file in status.files)),
            has_remote=b"[remote " in config,
            on_github=b"github" in config,
            touches=_list_touches(repository.git_dir, status.files),
        )

    def is_ancestor(self, workspace: Path, older: str, newer: str) -> bool:
        """True when `older` is in the history of `newer`; False also when either is not there (any more)."""
        git = Git(workspace, timeout=TIMEOUT_S)
        return self._answers_of(workspace).once(("ancestor", older, newer), lambda: is_ancestor(git, older, newer))

    def files_between(self, workspace: Path, old: str, new: str) -> tuple[str, ...] | None:
        """Paths that differ between two commits or trees, at most 2,000, without what tools filled (a run saw a `.venv`
        that nobody ignores, and HEAD has none); None when one of the two is not there."""
        git = Git(workspace, timeout=TIMEOUT_S)

        def ask() -> tuple[str, ...] | None:
            done = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", allowed=(0, 128))
            if done.returncode:
                return None
            paths = map(os.fsdecode, split_nul(done.stdout))
            return tuple(itertools.islice(itertools.filterfalse(is_litter, paths), MAX_FILES))

        return self._answers_of(workspace).once(("files", old, new), ask)

    def inspect(self, workspace: Path, state: GitState, now: datetime, today: datetime) -> Inspection:
        """The results of all checks of a workspace in that state; see `Inspector`. Never raises."""
        git = Git(workspace, timeout=TIMEOUT_S)
        return Inspector(git, self._answers_of(workspace), state, now, today).inspect()

    def _answers_of(self, workspace: Path) -> GitAnswers:
        with self._lock:
            return self._answers.setdefault(workspace, GitAnswers(workspace))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _read_habits(git: Git, head: str) -> tuple[CoChanges, ReleaseRhythm | None]:
    """The habits of the project: which files change together, and how it is released."""
    try:
        past = read_history(git, head) if head else ()
    except GitError as error:  # a clone without trees, or a history that takes too long: no habits are known
        log.warning("%s: its history cannot be read: %s", git.folder, error)
        past = ()
    return CoChanges(past), release_rhythm(past)


def _find_partner(answers: GitAnswers, habits: CoChanges, status: Status, history: GitState) -> Partner | None:
    """The file that usually changes with what is uncommitted, or else with what this branch changed."""
    changed = frozenset(file.path for file in status.files) or frozenset(history.own_files)
    if status.more_files or not changed:
        return None
    # Asked by the commits before this branch where nothing is uncommitted: its own say nothing of what it lacks.
    before = habits.length if status.files else max(0, habits.length - max(history.ahead, history.ahead_of_base))
    key = (status.head, str(before), _digest(*map(os.fsencode, sorted(changed))))
    partner = answers.latest("partner", key, lambda: habits.missing(changed, before))
    if partner is None or partner.path in history.own_files or not os.path.lexists(answers.workspace / partner.path):
        return None
    return partner


def _worktree_stamp(common: Path) -> bytes:
    """A value that changes when a branch is checked out in another worktree."""
    heads = sorted((common / "worktrees").glob("*/HEAD"))
    return repr([(str(head), modified_at(head)) for head in heads]).encode(errors="surrogateescape")


def _read_config(common: Path) -> bytes:
    """The repository's own configuration in lower case."""
    try:
        return read_plain(common / "config", MAX_CONFIG_BYTES).lower()
    except (OSError, ValueError):
        return b""


def _list_touches(folder: Path, files: tuple[FileState, ...]) -> tuple[Touch, ...]:
    touches = [Touch(file.path, file.modified_at, file.untracked) for file in files if file.modified_at is not None]
    for name, path in ((".git/index", "index"), (".git/HEAD", "logs/HEAD")):
        at = modified_at(folder / path)
        if at is not None:
            touches.append(Touch(name, at))
    return tuple(touches)
