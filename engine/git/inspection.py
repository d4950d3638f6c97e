"""The result of an inspection: a field for each check. A check that fails costs no other."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from engine.frozen import frozen
from engine.git.command import Git
from engine.git.leftovers import Quarantined, quarantined
from engine.git.lost_commits import (
    FIXUP,
    Fixups,
    LostCommits,
    Stash,
    logs_stamp,
    read_fixups,
    read_lost_commits,
    read_reflog,
    read_stashes,
)
from engine.git.merges import (
    Collision,
    Merge,
    Operation,
    adds_changes,
    branch_pairs,
    due_merges,
    operation_stamp,
    read_operation,
    try_merge,
)
from engine.git.own_changes import OwnChanges, own_changes
from engine.git.state import GitState, modified_at
from engine.git.unpushed import NOTHING_UNPUSHED, Unpushed, read_commits, read_uncommitted, span_of
from engine.model import Refusal, sanitise

# Remembers what git answered about a workspace, so that it is asked again only when something changed.


log = logging.getLogger(__name__)

T = TypeVar("T")
Key = tuple[str, ...]

MAX_ANSWERS: Final = 512
"""Answers of one workspace that are remembered, most of them on pairs of commits."""
RETRY_S: Final = 600.0
"""Seconds until a question that failed is asked again, though nothing changed."""


@frozen
class _Answer:
    """The answer to a question, or its error; `at` in seconds of the monotonic clock."""

    key: Key
    at: float
    value: object = None
    error: Exception | None = None


class GitAnswers:
    """The answers about one workspace. Safe to call from several threads."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, _Answer] = OrderedDict()

    def once(self, key: Key, ask: Callable[[], T]) -> T:
        """Ask once for what never changes between two ids; the oldest answers are forgotten."""
        return self._remember(key, key, ask, keep_errors=False)

    def latest(self, name: str, key: Key, ask: Callable[[], T], *, keep_errors: bool = True) -> T:
        """Ask once for what holds while `key` does; only the last answer of that name is kept, for it may be large.
        With `keep_errors` an error is an answer, too, for `RETRY_S`."""
        return self._remember((name,), key, ask, keep_errors=keep_errors)

    def _remember(self, slot: Key, key: Key, ask: Callable[[], T], *, keep_errors: bool) -> T:
        with self._lock:
            answer = self._answers.get(slot)
            if answer is not None:
                self._answers.move_to_end(slot)
        if answer is None or answer.key != key or (answer.error and time.monotonic() - answer.at > RETRY_S):
            try:
                answer = _Answer(key, time.monotonic(), ask())
            except Exception as error:
                if not keep_errors:
                    raise
                log.warning("%s: reading %s failed: %s", self.workspace, slot[0], error)
                answer = _Answer(key, time.monotonic(), error=error)
            with self._lock:
                self._answers[slot] = answer
                while len(self._answers) > MAX_ANSWERS:
                    self._answers.popitem(last=False)
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return cast("T", answer.value)


NO_OWN_CHANGES = OwnChanges()


@frozen
class Inspection:
    """`unfinished`: the merge, rebase or the like that is not over. `unknown`: why a check failed, by the name of its
    field: what it would have found neither exists nor is gone."""

    unfinished: Operation | None = None
    lost: tuple[LostCommits, ...] = ()
    fixups: Fixups | None = None
    stashes: tuple[Stash, ...] = ()
    merges: tuple[Merge, ...] = ()
    collisions: tuple[Collision, ...] = ()
    unpushed: Unpushed = NOTHING_UNPUSHED
    own: OwnChanges = NO_OWN_CHANGES
    quarantined: tuple[Quarantined, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


NOTHING_INSPECTED = Inspection()


# The checks of an inspection: each asks git only when what it depends on has changed.


MAX_COMPARED: Final = 300
"""Commits that are compared by what they change."""


@frozen
class Inspector:
    """Inspects the repository of `git` in the state `state`. `today`: when the operator's day began."""

    git: Git
    answers: GitAnswers
    state: GitState
    now: datetime
    today: datetime

    def inspect(self) -> Inspection:
        """The results of all checks. Never raises: a check that fails is named in `unknown`."""
        checks: Mapping[str, Callable[[], object]] = {
            "unfinished": self._unfinished,
            "lost": self._lost,
            "fixups": self._fixups,
            "stashes": self._stashes,
            "merges": self._merges,
            "collisions": self._collisions,
            "unpushed": self._unpushed,
            "own": self._own_changes,
            "quarantined": self._quarantined,
        }
        results: dict[str, Any] = {}
        unknown: dict[str, str] = {}
        for name, check in checks.items():
            try:
                results[name] = check()
            except Exception as error:
                unknown[name] = sanitise(error.message if isinstance(error, Refusal) else repr(error))
        return Inspection(**results, unknown=unknown)

    def _unfinished(self) -> Operation | None:
        if not self.state.operation:
            return None
        git = self.git.pin()
        stamp = repr(operation_stamp(git.repository.git_dir))
        return self.answers.latest("operation", (self.state.refs, stamp), lambda: read_operation(git))

    def _lost(self) -> tuple[LostCommits, ...]:
        """See `read_lost_commits`. None are looked for while something is unfinished."""
        if not self.state.head or self.state.operation:
            return ()
        git = self.git.pin()
        key = (self.state.refs, repr(logs_stamp(git)), f"{self.now:%F}")
        return self.answers.latest("lost", key, lambda: read_lost_commits(git, self.state, self.now))

    def _fixups(self) -> Fixups | None:
        if self.state.operation or not any(FIXUP.match(commit.subject) for commit in self.state.recent):
            return None
        return self.answers.latest("fixups", (self.state.refs,), lambda: read_fixups(self.git, self.state))

    def _stashes(self) -> tuple[Stash, ...]:
        git = self.git.pin()
        stamp = modified_at(git.repository.common / "logs/refs/stash")
        if stamp is None:
            return ()
        return self.answers.latest("stashes", (str(stamp),), lambda: read_stashes(git))

    def _merges(self) -> tuple[Merge, ...]:
        """The merges that are due, those that would conflict first. None where the other side has all of it already, as
        after a squashed merge, and none of an upstream that was rewritten here: you mean to push over it."""
        state = self.state
        due = [
            merge
            for merge in due_merges(state)
            if self._adds_changes(state.head, merge.tip)
            and (merge.source != state.upstream or not self._is_rewritten())
        ]
        tried = [replace(merge, files=self._conflicts(state.head, merge.tip)) for merge in due]
        return tuple(sorted(tried, key=lambda merge: not merge.files))

    def _collisions(self) -> tuple[Collision, ...]:
        """Open branches that change the same lines, in pairs; none that was squashed into the base already."""
        pairs = branch_pairs(self.state)
        tried = [(first, second, self._conflicts(first.tip, second.tip)) for first, second in pairs]
        return tuple(
            Collision(first, second, files)
            for first, second, files in tried
            if files and all(self._adds_changes(self.state.base_tip, branch.tip) for branch in (first, second))
        )

    def _adds_changes(self, onto: str, other: str) -> bool:
        return self.answers.once(("adds", onto, other), lambda: adds_changes(self.git.folder, onto, other))

    def _conflicts(self, ours: str, theirs: str) -> tuple[str, ...] | None:
        return self.answers.once(("conflicts", ours, theirs), lambda: try_merge(self.git.folder, ours, theirs))

    def _is_rewritten(self) -> bool:
        """Whether the branch once stood where its upstream stands, and was rebased or amended since."""
        state = self.state

        def ask() -> bool:
            if state.upstream_tip in (step.commit for step in read_reflog(self.git, f"refs/heads/{state.branch}")):
                return True
            if state.ahead + state.behind > MAX_COMPARED:
                return False
            span = f"{state.head}...{state.upstream_tip}"
            return self.git.text("rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only", span) == "0"

        return self.answers.once(("rewritten", state.branch, state.head, state.upstream_tip), ask)

    def _own_changes(self) -> OwnChanges:
        """See `own_changes`. Asked once for the same commits, files and times of writing."""
        state = self.state
        files = [f"{file.path}\0{file.modified_at}\0{file.conflicted}" for file in state.files]
        inputs = (state.head, state.upstream_tip, state.base_tip, state.operation, self.today.isoformat(), *files)
        return self.answers.latest(
            "own", (_digest("\n".join(inputs)),), lambda: own_changes(self.git.pin(), state, self.today)
        )

    def _quarantined(self) -> tuple[Quarantined, ...]:
        """See `quarantine.quarantined`; asked once a commit."""
        head = self.state.head
        return self.answers.latest("quarantined", (head,), lambda: quarantined(self.git, head)) if head else ()

    def _unpushed(self) -> Unpushed:
        """Problems in what is about to be pushed or committed; read again when commits, remote branches or
        tracked files changed."""
        state = self.state
        span = span_of(state, self.now)
        unpushed = NOTHING_UNPUSHED
        if span is not None:
            remote = _digest("".join(branch.tip for branch in state.branches if branch.remote))
            key = (*span.arguments, str(span.shared), remote)
            unpushed = self.answers.latest("unpushed", key, lambda: read_commits(self.git, span))
        changed = [file for file in state.files if file.staged or file.modified]
        if not changed:
            return unpushed
        index = [touch for touch in state.touches if touch.path == ".git/index"]
        key = (state.head, _digest(repr((changed, index))))
        uncommitted = self.answers.latest("uncommitted", key, lambda: read_uncommitted(self.git, state.head, changed))
        return replace(unpushed, uncommitted=uncommitted)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
