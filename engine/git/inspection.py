"""Inspects a repository: what is unfinished, lost, in conflict, about to be pushed. A field and a function for each
check; a check that fails costs no other, and is asked again only when what it depends on has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

from engine.frozen import frozen
from engine.git.command import Git
from engine.git.leftovers import Quarantined, quarantined
from engine.git.lost_commits import (
    LostCommits,
    Stash,
    logs_stamp,
    read_lost_commits,
    read_reflog,
    read_stashes,
)
from engine.git.merges import (
    Collision,
    Merge,
    branch_pairs,
    due_merges,
    try_merge,
)
from engine.git.operations import Operation, operation_stamp, read_operation
from engine.git.own_changes import OwnChanges, own_changes
from engine.git.state import GitState
from engine.git.unpushed import (
    FIXUP,
    NOTHING_UNPUSHED,
    Fixups,
    Unpushed,
    UnpushedProblem,
    read_commits,
    read_fixups,
    read_uncommitted,
    span_of,
)
from engine.model import Refusal, sanitise

T = TypeVar("T")

MAX_COMPARED: Final = 300
"""Commits that are compared by what they change."""
RETRY_S: Final = 600.0
"""Seconds until a question that failed is asked again, though nothing changed."""
NO_OWN_CHANGES: Final = OwnChanges()


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
    uncommitted: tuple[UnpushedProblem, ...] = ()
    """Problems of the index and of tracked files; secrets first."""
    own: OwnChanges = NO_OWN_CHANGES
    quarantined: tuple[Quarantined, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


NOTHING_INSPECTED: Final = Inspection()


class Answers:
    """Remembers the last answer to each question, while its key is the same. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[object, tuple[object, float, object, Exception | None]] = {}

    def latest(self, question: object, key: object, ask: Callable[[], T], *, keep_errors: bool = True) -> T:
        """Ask once for what holds while `key` does. With `keep_errors` an error is an answer, too, for `RETRY_S`."""
        with self._lock:
            last = self._last.get(question)
        if last is None or last[0] != key or (last[3] and time.monotonic() - last[1] > RETRY_S):
            try:
                last = (key, time.monotonic(), ask(), None)
            except Exception as error:
                if not keep_errors:
                    raise
                last = (key, time.monotonic(), None, error)
            with self._lock:
                self._last[question] = last
        if last[3] is not None:
            raise last[3].with_traceback(None)
        return cast("T", last[2])


@frozen
class Look:
    """What all checks go by. `today`: when the operator's day began."""

    git: Git
    state: GitState
    now: datetime
    today: datetime


def inspect(look: Look, answers: Answers) -> Inspection:
    """The results of all checks. Never raises: a check that fails is named in `unknown`."""
    git, state = look.git, look.state
    refs = (state.refs, state.operation, logs_stamp(git), look.today)
    index = [touch.at for touch in state.touches if touch.path == ".git/index"]
    files = (*refs, state.files, index, operation_stamp(git.repository.git_dir))
    results: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for key, checks in ((refs, CHECKS_OF_REFS), (files, CHECKS_OF_FILES)):
        for name, check in checks.items():
            try:
                results[name] = answers.latest((git.folder, name), key, partial(check, look))
            except Exception as error:
                unknown[name] = sanitise(error.message if isinstance(error, Refusal) else repr(error))
    return Inspection(**results, unknown=unknown)


def _lost(look: Look) -> tuple[LostCommits, ...]:
    """None are looked for while something is unfinished."""
    if not look.state.head or look.state.operation:
        return ()
    return read_lost_commits(look.git, look.state, look.now)


def _fixups(look: Look) -> Fixups | None:
    if look.state.operation or not any(FIXUP.match(commit.subject) for commit in look.state.recent):
        return None
    return read_fixups(look.git, look.state)


def _stashes(look: Look) -> tuple[Stash, ...]:
    return read_stashes(look.git)


def _merges(look: Look) -> tuple[Merge, ...]:
    """The merges that are due, those that would conflict first. None where the other side has all of it already, as
    after a squashed merge, and none of an upstream that was rewritten here: you mean to push over it."""
    state = look.state
    due = [(merge, try_merge(look.git.folder, state.head, merge.tip)) for merge in due_merges(state)]
    tried = [
        replace(merge, files=trial.files)
        for merge, trial in due
        if trial.adds and (merge.source != state.upstream or not _is_rewritten(look))
    ]
    return tuple(sorted(tried, key=lambda merge: not merge.files))


def _is_rewritten(look: Look) -> bool:
    """Whether the branch once stood where its upstream stands, and was rebased or amended since."""
    git, state = look.git, look.state
    if state.upstream_tip in (entry.new for entry in read_reflog(git, f"refs/heads/{state.branch}")):
        return True
    if state.ahead + state.behind > MAX_COMPARED:
        return False
    span = f"{state.head}...{state.upstream_tip}"
    return git.text("rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only", span) == "0"


def _collisions(look: Look) -> tuple[Collision, ...]:
    """Open branches that change the same lines, in pairs; none that was squashed into the base already."""
    folder, base = look.git.folder, look.state.base_tip
    pairs = branch_pairs(look.state)
    tried = [(first, second, try_merge(folder, first.tip, second.tip).files) for first, second in pairs]
    return tuple(
        Collision(first, second, files)
        for first, second, files in tried
        if files and all(try_merge(folder, base, branch.tip).adds for branch in (first, second))
    )


def _unpushed(look: Look) -> Unpushed:
    span = span_of(look.state, look.now)
    return NOTHING_UNPUSHED if span is None else read_commits(look.git, span)


def _quarantined(look: Look) -> tuple[Quarantined, ...]:
    return quarantined(look.git, look.state.head) if look.state.head else ()


def _unfinished(look: Look) -> Operation | None:
    return read_operation(look.git) if look.state.operation else None


def _uncommitted(look: Look) -> tuple[UnpushedProblem, ...]:
    return read_uncommitted(look.git, look.state.head, look.state.files)


def _own(look: Look) -> OwnChanges:
    return own_changes(look.git, look.state, look.today)


CHECKS_OF_REFS: Final[Mapping[str, Callable[[Look], object]]] = {
    "lost": _lost,
    "fixups": _fixups,
    "stashes": _stashes,
    "merges": _merges,
    "collisions": _collisions,
    "unpushed": _unpushed,
    "quarantined": _quarantined,
}
"""The checks of what changes only when a ref or a reflog does, by the field that has their result."""

CHECKS_OF_FILES: Final[Mapping[str, Callable[[Look], object]]] = {
    "unfinished": _unfinished,
    "uncommitted": _uncommitted,
    "own": _own,
}
"""The checks of what changes with the files, too."""
