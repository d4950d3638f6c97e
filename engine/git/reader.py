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
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, cast

from engine.frozen import frozen
from engine.git import Git, GitError, submodule_paths
from engine.git.co_changes import CoChanges, Partner
from engine.git.fixups import FIXUP, Fixups, read_fixups
from engine.git.history import read_history
from engine.git.inspection import NO_OWN_CHANGES, Inspection
from engine.git.lost_commits import LostCommits, read_lost_commits
from engine.git.merges import Collision, Merge, adds_changes, branch_pairs, due_merges, try_merge
from engine.git.operation import Operation, operation_name, operation_stamp, read_operation
from engine.git.own_changes import OwnChanges, own_changes
from engine.git.quarantine import Quarantined, quarantined
from engine.git.ref_state import read_ref_state
from engine.git.reflog import Stash, logs_stamp, read_reflog, read_stashes
from engine.git.releases import ReleaseRhythm, release_rhythm
from engine.git.state import FileState, GitState, Touch
from engine.git.status import (
    MAX_FILES,
    Status,
    is_litter,
    modified_at,
    read_status,
    split_nul,
)
from engine.git.unpushed import NOTHING_UNPUSHED, Unpushed, read_commits, read_uncommitted, span_of
from engine.model import Refusal, sanitise
from engine.plain_files import read_plain

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ANSWERS: Final = 512  # of one workspace: pairs of commits whose relation is remembered
RETRY_S: Final = 600.0  # until a look that failed is tried again, though nothing changed
TIMEOUT_S: Final = 15.0
MAX_COMPARED: Final = 300  # commits that are branch_pairs by what they change
MAX_CONFIG_BYTES: Final = 4_000_000


@frozen
class _Answer:
    """The answer of git to a question, or its error; `at` in seconds of the monotonic clock."""

    key: tuple[str, ...]
    at: float
    value: object = None
    error: Exception | None = None


class GitReader:
    """Reads workspaces; safe to call from several threads. Remembers per workspace until its commits or refs move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history: dict[Path, tuple[str, GitState]] = {}
        self._answers: dict[Path, OrderedDict[tuple[str, ...], _Answer]] = {}
        self._habits: dict[Path, tuple[str, CoChanges, ReleaseRhythm | None]] = {}

    def read(self, workspace: Path) -> GitState:
        """The state of the working tree at `workspace` (its top folder). Raises `Refusal`: `bare_repository`,
        `no_folder`, `git_failed`, `no_git`."""
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        repository = git.repository
        status = read_status(git)
        refs = git.output(
            "for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/remotes", "refs/tags"
        )
        key = hashlib.sha256(
            b"\0".join(
                [
                    refs,
                    _worktrees(repository.common),
                    *(part.encode() for part in (status.head, status.branch, status.upstream)),
                ]
            )
        ).hexdigest()
        with self._lock:
            cached_key, history = self._history.get(workspace, ("", GitState()))
        if cached_key != key:
            history = read_ref_state(git, repository, status, refs.decode(errors="surrogateescape"))
            with self._lock:
                self._history[workspace] = (key, history)
        habits, release = self._habits_of(git, workspace, status.head, refs)
        config = _config(repository.common)
        return replace(
            history,
            partner=self._partner(workspace, habits, status, history),
            release=release,
            refs=key,
            files=status.files,
            more_files=status.more_files,
            operation=operation_name(repository.git_dir, conflicted=any(file.conflicted for file in status.files)),
            submodules=submodule_paths(workspace),
            has_remote=b"[remote " in config,
            on_github=b"github" in config,
            touches=_touches(repository.git_dir, status.files),
        )

    def _habits_of(self, git: Git, workspace: Path, head: str, refs: bytes) -> tuple[CoChanges, ReleaseRhythm | None]:
        """The history of the project, read again when HEAD or a tag moved."""
        tags = b"\n".join(line for line in refs.splitlines() if b" refs/tags/" in line)
        key = hashlib.sha256(head.encode() + tags).hexdigest()
        with self._lock:
            cached = self._habits.get(workspace)
        if cached is None or cached[0] != key:
            try:
                past = read_history(git, head) if head else ()
            except GitError as error:  # a clone without trees, or a history that takes too long: no habits are known
                log.warning("%s: its history cannot be read: %s", workspace, error)
                past = ()
            cached = key, CoChanges(past), release_rhythm(past)
            with self._lock:
                self._habits[workspace] = cached
        return cached[1], cached[2]

    def _partner(self, workspace: Path, habits: CoChanges, status: Status, history: GitState) -> Partner | None:
        """The file that usually changes with what is uncommitted, or else with what this branch changed."""
        changed = frozenset(file.path for file in status.files) or frozenset(history.own_files)
        if status.more_files or not changed:
            return None
        done = hashlib.sha256("\0".join(sorted(changed)).encode(errors="surrogateescape")).hexdigest()
        # Asked by the commits before this branch where nothing is uncommitted: its own say nothing of what it lacks.
        before = habits.length if status.files else max(0, habits.length - max(history.ahead, history.ahead_of_base))
        key = (status.head, str(before), done)
        partner = self._latest(workspace, "partner", key, lambda: habits.missing(changed, before))
        if partner is None or partner.path in history.own_files or not os.path.lexists(workspace / partner.path):
            return None
        return partner

    def is_ancestor(self, workspace: Path, older: str, newer: str) -> bool:
        """True when `older` is in the history of `newer`; False also when either is not there (any more)."""
        git = Git(workspace, timeout=TIMEOUT_S)
        return self._once(
            workspace,
            ("ancestor", older, newer),
            lambda: git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1, 128)).returncode == 0,
        )

    def files_between(self, workspace: Path, old: str, new: str) -> tuple[str, ...] | None:
        """Paths that differ between two commits or trees, at most 2,000, without what tools filled (a run saw a `.venv`
        that nobody ignores, and HEAD has none); None when one of the two is not there."""
        git = Git(workspace, timeout=TIMEOUT_S)

        def ask() -> tuple[str, ...] | None:
            done = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", allowed=(0, 128))
            if done.returncode:
                return None
            return tuple(itertools.islice(itertools.filterfalse(is_litter, split_nul(done.stdout)), MAX_FILES))

        return self._once(workspace, ("files", old, new), ask)

    def inspect(self, workspace: Path, state: GitState, now: datetime, today: datetime) -> Inspection:
        """What else there is to see in a workspace of that state. `today`: when the operator's day began. Never raises:
        a look that fails is named in `unknown`, and not tried again for `RETRY_S` unless something changed."""
        unknown: dict[str, str] = {}

        def look(name: str, ask: Callable[[], T], nothing: T) -> T:
            try:
                return ask()
            except Exception as error:
                unknown[name] = sanitise(error.message if isinstance(error, Refusal) else repr(error))
                return nothing

        return Inspection(
            unfinished=look("unfinished", lambda: self._operation(workspace, state), None),
            lost=look("lost", lambda: self._lost(workspace, state, now), ()),
            fixups=look("fixups", lambda: self._fixups(workspace, state), None),
            stashes=look("stashes", lambda: self._stashes(workspace), ()),
            merges=look("merges", lambda: self._merges(workspace, state), ()),
            collisions=look("collisions", lambda: self._collisions(workspace, state), ()),
            unpushed=look("unpushed", lambda: self._unpushed(workspace, state, now), NOTHING_UNPUSHED),
            own=look("own", lambda: self._own(workspace, state, today), NO_OWN_CHANGES),
            quarantined=look("quarantined", lambda: self._quarantined(workspace, state), ()),
            unknown=unknown,
        )

    def _operation(self, workspace: Path, state: GitState) -> Operation | None:
        """The unfinished operation there, None for none."""
        if not state.operation:
            return None
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        stamp = repr(operation_stamp(git.repository.git_dir))
        return self._latest(workspace, "operation", (state.refs, stamp), lambda: read_operation(git))

    def _lost(self, workspace: Path, state: GitState, now: datetime) -> tuple[LostCommits, ...]:
        """Commits that no branch holds; see `read_lost_commits`. None are looked for while something is unfinished."""
        if not state.head or state.operation:
            return ()
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        key = (state.refs, repr(logs_stamp(git)), f"{now:%F}")
        return self._latest(workspace, "lost", key, lambda: read_lost_commits(git, state, now))

    def _fixups(self, workspace: Path, state: GitState) -> Fixups | None:
        """Fixup commits that are not pushed yet, with the commits they belong to; see `read_fixups`."""
        if state.operation or not any(FIXUP.match(commit.subject) for commit in state.recent):
            return None
        git = Git(workspace, timeout=TIMEOUT_S)
        return self._latest(workspace, "fixups", (state.refs,), lambda: read_fixups(git, state))

    def _stashes(self, workspace: Path) -> tuple[Stash, ...]:
        """The stashes, the newest first."""
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        stamp = modified_at(git.repository.common / "logs/refs/stash")
        if stamp is None:
            return ()
        return self._latest(workspace, "stashes", (str(stamp),), lambda: read_stashes(git))

    def _merges(self, workspace: Path, state: GitState) -> tuple[Merge, ...]:
        """The merges that are due, those that would conflict first. None where the other side has all of it already, as
        after a squashed merge, and none of an upstream that was rewritten here: you mean to push over it."""
        due = [
            merge
            for merge in due_merges(state)
            if self._adds(workspace, merge.tip, state.head)
            and (merge.source != state.upstream or not self._rewritten(workspace, state))
        ]
        tried = [replace(merge, files=self._conflicts(workspace, state.head, merge.tip)) for merge in due]
        return tuple(sorted(tried, key=lambda merge: not merge.files))

    def _collisions(self, workspace: Path, state: GitState) -> tuple[Collision, ...]:
        """Open branches that change the same lines, in pairs; none that was squashed into the base already."""
        tried = [
            (first, second, self._conflicts(workspace, first.tip, second.tip)) for first, second in branch_pairs(state)
        ]
        return tuple(
            Collision(first, second, files)
            for first, second, files in tried
            if files and all(self._adds(workspace, state.base_tip, branch.tip) for branch in (first, second))
        )

    def _adds(self, workspace: Path, onto: str, other: str) -> bool:
        key = ("adds", onto, other)
        return self._once(workspace, key, lambda: adds_changes(workspace, onto, other))

    def _conflicts(self, workspace: Path, ours: str, theirs: str) -> tuple[str, ...] | None:
        key = ("conflicts", ours, theirs)
        return self._once(workspace, key, lambda: try_merge(workspace, ours, theirs))

    def _rewritten(self, workspace: Path, state: GitState) -> bool:
        """Whether the branch once stood where its upstream stands, and was rebased or amended since."""
        git = Git(workspace, timeout=TIMEOUT_S)

        def ask() -> bool:
            if state.upstream_tip in (step.commit for step in read_reflog(git, f"refs/heads/{state.branch}")):
                return True
            if state.ahead + state.behind > MAX_COMPARED:
                return False
            span = f"{state.head}...{state.upstream_tip}"
            return git.text("rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only", span) == "0"

        return self._once(workspace, ("rewritten", state.branch, state.head, state.upstream_tip), ask)

    def _own(self, workspace: Path, state: GitState, since: datetime) -> OwnChanges:
        """See `own_changes`. Asked once for the same commits, files and times of writing."""
        files = [f"{file.path}\0{file.modified_at}\0{file.conflicted}" for file in state.files]
        inputs = (state.head, state.upstream_tip, state.base_tip, state.operation, since.isoformat(), *files)
        key = hashlib.sha256("\n".join(inputs).encode(errors="surrogateescape")).hexdigest()

        git = Git(workspace, timeout=TIMEOUT_S)
        return self._latest(workspace, "own", (key,), lambda: own_changes(git.pin(), state, since))

    def _quarantined(self, workspace: Path, state: GitState) -> tuple[Quarantined, ...]:
        """See `quarantine.quarantined`; asked once a commit."""
        if not state.head:
            return ()
        git = Git(workspace, timeout=TIMEOUT_S)
        return self._latest(workspace, "quarantined", (state.head,), lambda: quarantined(git, state.head))

    def _unpushed(self, workspace: Path, state: GitState, now: datetime) -> Unpushed:
        """What is about to be pushed or committed and should not be; read again when commits, remote branches or
        tracked files changed."""
        git = Git(workspace, timeout=TIMEOUT_S)
        span = span_of(state, now)
        unpushed = NOTHING_UNPUSHED
        if span is not None:
            remote = hashlib.sha256("".join(branch.tip for branch in state.branches if branch.remote).encode())
            key = (*span.arguments, str(span.shared), remote.hexdigest())
            unpushed = self._latest(workspace, "unpushed", key, lambda: read_commits(git, span))
        changed = [file for file in state.files if file.staged or file.modified]
        if not changed:
            return unpushed
        index = [touch for touch in state.touches if touch.path == ".git/index"]
        key = (state.head, hashlib.sha256(repr((changed, index)).encode()).hexdigest())
        uncommitted = self._latest(workspace, "uncommitted", key, lambda: read_uncommitted(git, state.head, changed))
        return replace(unpushed, uncommitted=uncommitted)

    def _once(self, workspace: Path, key: tuple[str, ...], ask: Callable[[], T]) -> T:
        """Ask git once for what never changes between two ids; the oldest answers of the workspace are forgotten."""
        return self._kept(workspace, key, key, ask)

    def _latest(self, workspace: Path, name: str, key: tuple[str, ...], ask: Callable[[], T]) -> T:
        """Ask git once for what holds while `key` does; only the last answer of that name is kept, for it may be large.
        A failure is an answer, too, for `RETRY_S`."""
        return self._kept(workspace, (name,), key, ask, failures=True)

    def _kept(
        self,
        workspace: Path,
        slot: tuple[str, ...],
        key: tuple[str, ...],
        ask: Callable[[], T],
        *,
        failures: bool = False,
    ) -> T:
        with self._lock:
            answers = self._answers.setdefault(workspace, OrderedDict())
            answer = answers.get(slot)
            if answer is not None:
                answers.move_to_end(slot)
        if answer is None or answer.key != key or (answer.error and time.monotonic() - answer.at > RETRY_S):
            answer = _Answer(key, time.monotonic())
            try:
                answer = replace(answer, value=ask())
            except Exception as error:
                if not failures:
                    raise
                log.warning("%s: reading %s failed: %s", workspace, slot[0], error)
                answer = replace(answer, error=error)
            with self._lock:
                answers[slot] = answer
                while len(answers) > MAX_ANSWERS:
                    answers.popitem(last=False)
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return cast("T", answer.value)


def _worktrees(common: Path) -> bytes:
    """A value that changes when a branch is checked out in another worktree."""
    heads = sorted((common / "worktrees").glob("*/HEAD"))
    return repr([(str(head), modified_at(head)) for head in heads]).encode(errors="surrogateescape")


def _config(common: Path) -> bytes:
    """The repository's own configuration in lower case."""
    try:
        return read_plain(common / "config", MAX_CONFIG_BYTES).lower()
    except (OSError, ValueError):
        return b""


def _touches(folder: Path, files: tuple[FileState, ...]) -> tuple[Touch, ...]:
    touches = [Touch(file.path, file.modified_at, file.untracked) for file in files if file.modified_at is not None]
    for name, path in ((".git/index", "index"), (".git/HEAD", "logs/HEAD")):
        at = modified_at(folder / path)
        if at is not None:
            touches.append(Touch(name, at))
    return tuple(touches)
