"""Inspects a repository for what cards are offered about, for `GitReader`.

Each check has a function, and a field of `Inspection` for its result. A check that fails does not stop the others. The
result of a check is kept until the refs or files on which it depends change. Due merges, branches that collide, fixup
commits and tests in quarantine are found here, the rest in modules of their own.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from engine.frozen import frozen, group_pairs
from engine.git import Git
from engine.git.history import Commit, Stash, log_commits, read_reflog, read_stashes, try_merge
from engine.git.leftovers import Leftover, find_own_leftovers
from engine.git.lost_commits import LostCommits, read_lost_commits
from engine.git.patch import read_own_patch
from engine.git.push_problems import (
    NOTHING_UNPUSHED,
    PushProblem,
    UnpushedWork,
    mark_edited_out,
    read_uncommitted,
    read_unpushed,
)
from engine.git.stale_mentions import Mention, find_stale_mentions
from engine.git.state import Branch, GitState, read_modified_at
from engine.git.unfinished import GitOperation, read_operation, read_operation_stamp
from engine.model import Refusal
from engine.text import sanitise

Value = TypeVar("Value")

MAX_COMPARED_COMMITS = 300
"""Maximum number of commits that are compared by what they change."""

ACTIVE_WITHIN = timedelta(days=90)
"""A branch is active if its last commit was made at most this long before the newest commit of any branch."""

MAX_TRIED_BRANCHES = 5
"""Maximum number of branches that are tried with each other, which are ten pairs."""

MAX_COLLIDING = 4
"""Maximum number of branches that one forecast is about. Their number of orders grows fast."""

RETRY_S = 600.0
"""Seconds until a check that failed is tried again although nothing has changed."""


@frozen
class DueMerge:
    """A merge that is due: `source` into the branch that is checked out."""

    source: str
    tip: str
    behind: int
    """Number of commits that only `source` has."""
    ahead: int
    """Number of commits that only the branch has."""
    files: tuple[str, ...] | None = None
    """The files that would conflict; None if git could not merge."""


@frozen
class Collision:
    """Two branches that change the same lines of `files`."""

    first: Branch
    second: Branch
    files: tuple[str, ...]


@frozen
class OwnChanges:
    """The findings in your own commits and uncommitted files."""

    digest: str = ""
    """See `Patch.digest`."""
    leftovers: tuple[Leftover, ...] = ()
    mentions: tuple[Mention, ...] = ()
    added_lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The numbers of the added lines of each changed file, by its path."""


@frozen
class Inspection:
    """The results of the checks of one repository."""

    unfinished: GitOperation | None = None
    """The merge, rebase or other operation that is not finished."""
    lost: tuple[LostCommits, ...] = ()
    fixups: Fixups | None = None
    stashes: tuple[Stash, ...] = ()
    merges: tuple[DueMerge, ...] = ()
    collisions: tuple[Collision, ...] = ()
    unpushed: UnpushedWork = NOTHING_UNPUSHED
    uncommitted: tuple[PushProblem, ...] = ()
    """Problems of the index and of tracked files, secrets first."""
    own: OwnChanges = OwnChanges()
    quarantined: tuple[QuarantinedTest, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a check failed, by the name of its field. Its result is then unknown."""


NOTHING_INSPECTED = Inspection()
"""Stands for the results of a repository that was not inspected."""


@frozen
class _CachedResult:
    """The last result of a check."""

    key: object
    """The state of what the result depends on."""
    value: object = None
    error: Exception | None = None
    """The error that was raised instead of a result."""
    at: float = field(default_factory=time.monotonic)


class CheckCache:
    """Keeps the last result of each check, as long as its key is the same. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[object, _CachedResult] = {}

    def get(self, name: object, key: object, compute: Callable[[], Value], *, keep_errors: bool = True) -> Value:
        """The result of the check `name`. It is computed if `key` has changed since the last time. With `keep_errors`,
        an error is kept, too, for `RETRY_S` seconds."""
        with self._lock:
            last = self._results.get(name)
        is_to_retry = last is not None and last.error is not None and time.monotonic() - last.at > RETRY_S
        if last is None or last.key != key or is_to_retry:
            try:
                last = _CachedResult(key, compute())
            except Exception as error:
                if not keep_errors:
                    raise
                last = _CachedResult(key, error=error)
            with self._lock:
                self._results[name] = last
        if last.error is not None:
            raise last.error.with_traceback(None)
        return cast("Value", last.value)


@frozen
class InspectionSubject:
    """The repository that is inspected."""

    git: Git
    state: GitState
    """The state that was read from it."""
    now: datetime
    today: datetime
    """When the operator's day began."""


def inspect_repository(subject: InspectionSubject, cache: CheckCache) -> Inspection:
    """The results of all checks. Never raises: a check that fails is named in `unknown`."""
    git, state = subject.git, subject.state
    repository = git.repository
    # These files change whenever something is committed, reset or checked out here, or a stash is made or dropped.
    logs = (repository.git_dir / "logs/HEAD", repository.common / "logs/refs/stash")
    refs = (state.refs, state.operation, *map(read_modified_at, logs), subject.today)
    index = [touch.at for touch in state.touches if touch.path == ".git/index"]
    files = (*refs, state.files, index, read_operation_stamp(repository.git_dir))
    results: dict[str, Any] = {}
    unknown: dict[str, str] = {}

    def run_checks(key: object, checks: Mapping[str, Check], variant: str = "") -> None:
        for name, check in checks.items():
            try:
                results[name] = cache.get((git.folder, name, variant), key, partial(check, subject))
            except Exception as error:
                unknown[name] = sanitise(error.message if isinstance(error, Refusal) else repr(error))

    run_checks(refs, CHECKS_OF_REFS)
    run_checks(files, CHECKS_OF_FILES)
    if unpushed := results.get("unpushed"):
        run_checks(files, {"unpushed": lambda _: mark_edited_out(git, unpushed, state.files)}, "with marks")
    return Inspection(**results, unknown=unknown)


# -- merges that are due, and branches that collide


def _find_due_merges(subject: InspectionSubject) -> tuple[DueMerge, ...]:
    """The merges that are due. Those that would conflict come first.

    A merge is left out if the branch has all the changes already, as after a squashed merge. A merge of the upstream is
    left out if its commits were rewritten here, because then you mean to push over it.
    """
    state = subject.state
    merges = []
    for merge in _list_due_merges(state):
        trial = try_merge(subject.git.folder, state.head, merge.tip)
        if trial.changes_anything and (merge.source != state.upstream or not _is_rewritten(subject)):
            merges.append(replace(merge, files=trial.files))
    return tuple(sorted(merges, key=lambda merge: not merge.files))


def _list_due_merges(state: GitState) -> list[DueMerge]:
    """The merges of the base and of the upstream whose commits the branch lacks, if it also has commits of its own."""
    if not state.branch or state.operation:
        return []
    due = []
    if state.behind_base and state.ahead_of_base and state.base_name != state.branch:
        due.append(DueMerge(state.base, state.base_tip, state.behind_base, state.ahead_of_base))
    if state.behind and state.ahead and state.upstream_tip not in (merge.tip for merge in due):
        due.append(DueMerge(state.upstream, state.upstream_tip, state.behind, state.ahead))
    return due


def _is_rewritten(subject: InspectionSubject) -> bool:
    """Whether the branch was once where its upstream is, and was rebased or amended since."""
    git, state = subject.git, subject.state
    if state.upstream_tip in (entry.new for entry in read_reflog(git, f"refs/heads/{state.branch}")):
        return True
    if state.ahead + state.behind > MAX_COMPARED_COMMITS:
        return False
    span = f"{state.head}...{state.upstream_tip}"
    return git.text("rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only", span) == "0"


def _find_collisions(subject: InspectionSubject) -> tuple[Collision, ...]:
    """The pairs of open branches that change the same lines. A branch that was squashed into the base is left out."""
    folder, base = subject.git.folder, subject.state.base_tip
    collisions = []
    for first, second in _pair_branches(subject.state):
        files = try_merge(folder, first.tip, second.tip).files
        if files and all(try_merge(folder, base, branch.tip).changes_anything for branch in (first, second)):
            collisions.append(Collision(first, second, files))
    return tuple(collisions)


def _pair_branches(state: GitState) -> list[tuple[Branch, Branch]]:
    """The pairs of open branches whose merge should be tried. These are the newest active branches, and at least one of
    each pair is local."""
    if state.operation or not state.base or not state.branches:
        return []
    newest = max(branch.at for branch in state.branches)
    active = [branch for branch in state.open_branches if newest - branch.at <= ACTIVE_WITHIN]
    active.sort(key=lambda branch: branch.remote)  # local ones first; within both groups the newest stay first
    return [
        (first, second)
        for first, second in itertools.combinations(active[:MAX_TRIED_BRANCHES], 2)
        if first.tip != second.tip and not (first.remote and second.remote)
    ]


# -- your own changes


def find_own_changes(git: Git, state: GitState, since: datetime | None) -> OwnChanges:
    """The findings in your own commits and uncommitted files. A TODO counts if its file is not committed and was
    written after `since`, and not at all if that is None. Raises `GitError`."""
    patch = read_own_patch(git, state)
    leftovers = find_own_leftovers(git, state, patch, since)
    if state.operation:  # during a merge or the like, nothing else is of interest
        return OwnChanges(patch.digest, leftovers)
    added_lines = {path: [line.line for line in lines] for path, lines in patch.lines_of.items()}
    return OwnChanges(patch.digest, leftovers, find_stale_mentions(git, patch), added_lines)


# -- the checks

Check = Callable[[InspectionSubject], object]

CHECKS_OF_REFS: Mapping[str, Check] = {
    "lost": lambda subject: read_lost_commits(subject.git, subject.state, subject.now),
    "fixups": lambda subject: read_fixups(subject.git, subject.state),
    "stashes": lambda subject: read_stashes(subject.git),
    "merges": _find_due_merges,
    "collisions": _find_collisions,
    "unpushed": lambda subject: read_unpushed(subject.git, subject.state, subject.now),
    "quarantined": lambda subject: read_quarantined_tests(subject.git, subject.state.head),
}
"""The checks whose results change only with a ref or a reflog, by the field for the result."""

CHECKS_OF_FILES: Mapping[str, Check] = {
    "unfinished": lambda subject: read_operation(subject.git) if subject.state.operation else None,
    "uncommitted": lambda subject: read_uncommitted(subject.git, subject.state.head, subject.state.files),
    "own": lambda subject: find_own_changes(subject.git, subject.state, subject.today),
}
"""The checks whose results also change with the files."""


# -- fixup commits

MAX_FIXUP_COMMITS = 200
"""Maximum number of unpushed commits that are searched for fixup commits."""


@frozen
class Fixups:
    """The fixup commits of a branch."""

    subjects: tuple[str, ...]
    """Their subjects, newest first."""
    targets: tuple[str, ...]
    """The subjects of the commits that they change."""
    onto: str
    """The parent of the oldest commit that they change; "" if that commit has no parent."""
    at: datetime
    """When the oldest fixup was committed."""


def read_fixups(git: Git, state: GitState) -> Fixups | None:
    """The fixup commits in the history of HEAD that no remote branch has. Raises `GitError`.

    If another branch than the base is checked out, commits that the base has are left out. Commits before a merge are
    always left out. None if there are no fixup commits, if the commits that they change are pushed already, or while an
    operation is unfinished.
    """
    if state.operation or not any(commit.is_fixup for commit in state.recent):
        return None
    base = [state.base_tip] if state.base_tip and state.base_name != state.branch else []
    commits = log_commits(git, f"-n{MAX_FIXUP_COMMITS}", state.head, "--not", "--remotes", *base)
    own = list(itertools.takewhile(lambda commit: len(commit.parents) < 2, commits))
    pairs: list[tuple[Commit, Commit]] = []
    for index, commit in enumerate(own):
        if commit.is_fixup:
            pairs += [(commit, older) for older in own[index + 1 :] if _is_target(commit.target_subject, older)][:1]
    if not pairs:
        return None
    oldest = max((target for _, target in pairs), key=own.index)
    return Fixups(
        tuple(fixup.subject for fixup, _ in pairs),
        tuple(dict.fromkeys(target.subject for _, target in pairs)),
        onto=oldest.parents[0] if oldest.parents else "",
        at=min(fixup.at for fixup, _ in pairs),
    )


def _is_target(target: str, commit: Commit) -> bool:
    """Whether a fixup with the subject `target` changes this commit. As in git, `target` is the beginning of the
    commit's subject or of its id."""
    if commit.is_fixup:
        return False
    return commit.subject.startswith(target) or (len(target) >= 7 and commit.id.startswith(target))


# -- tests in quarantine: skipped until a day, because they are unreliable

GREP_TIMEOUT_S = 5.0
"""Maximum time in seconds that git may search."""

MAX_QUARANTINED = 50
"""Maximum number of tests in quarantine that are returned."""

MAX_LINES_OF_FILE = 2_000
"""Maximum number of lines of one file that are read."""

MAX_GREP_BYTES = 4_000_000
"""Maximum size of the lines of all files together."""

QUARANTINE_WORDS = "quarantined until"
"""The words in the reason of a skip mark after which the day stands."""

_QUARANTINE_MARK = re.compile(rf"^\s*(?:@|reason\s*=).*{QUARANTINE_WORDS} (\d{{4}}-\d\d-\d\d)")
"""Matches a decorator, or an argument of a decorator on its own line, but not the same words in other text."""

_TEST_DEFINITION = re.compile(r"^(\s*)(?:async\s+)?def\s+(\w+)")
_CLASS_DEFINITION = re.compile(r"^(\s*)class\s+(\w+)")
"""The lines that define a test or a class, with their indents."""


@frozen
class QuarantinedTest:
    """A test that is skipped until a day."""

    test: str
    """Its name, as pytest has it."""
    until: date
    """The first day on which it runs again."""


class _MarkedClass(NamedTuple):
    """A class of tests, and until when a mark on it skips them; None for no mark."""

    name: str
    indent: int
    until: date | None


def find_quarantined_tests(path: str, rows: Sequence[str]) -> list[QuarantinedTest]:
    """The tests of one file that are in quarantine. `rows` are the lines with marks and definitions of tests and
    classes."""
    tests: list[QuarantinedTest] = []
    scopes: list[_MarkedClass] = []
    marked_until: date | None = None
    for row in rows:
        if match := _QUARANTINE_MARK.search(row):
            with suppress(ValueError):  # no day of any month
                marked_until = date.fromisoformat(match[1])
        elif match := _CLASS_DEFINITION.match(row):
            scopes = [scope for scope in scopes if scope.indent < len(match[1])]
            scopes.append(_MarkedClass(match[2], len(match[1]), marked_until))
            marked_until = None
        elif match := _TEST_DEFINITION.match(row):
            inside = [scope for scope in scopes if scope.indent < len(match[1])]
            by_class = (scope.until for scope in reversed(inside) if match[2].startswith("test"))
            if until := marked_until or next(filter(None, by_class), None):
                tests.append(QuarantinedTest("::".join([path, *(scope.name for scope in inside), match[2]]), until))
            marked_until = None
    return tests


def read_quarantined_tests(git: Git, revision: str) -> tuple[QuarantinedTest, ...]:
    """At most `MAX_QUARANTINED` tests of a commit that are in quarantine, including those whose quarantine is over.
    `revision` is "" if there is no commit yet. Raises `GitError`.

    One git process finds the files with quarantined tests, and prints their lines that define tests and classes.
    """
    if not revision:
        return ()
    output = git.run(
        "grep", "-z", "-I", "-E", "--all-match", f"--max-count={MAX_LINES_OF_FILE}",
        "-e", QUARANTINE_WORDS, "-e", "^[[:space:]]*(async[[:space:]]+)?(def|class)[[:space:]]",
        revision, "--", ":(glob)**/test_*.py", ":(glob)**/*_test.py",
        allowed=(0, 1), timeout=GREP_TIMEOUT_S,
    ).stdout[:MAX_GREP_BYTES].decode(errors="surrogateescape")  # fmt: skip
    parts = (line.partition("\0") for line in output.split("\n"))
    rows = group_pairs((name.removeprefix(f"{revision}:"), row) for name, _, row in parts)
    tests = (test for path, lines in rows.items() for test in find_quarantined_tests(path, lines))
    return tuple(itertools.islice(tests, MAX_QUARANTINED))
