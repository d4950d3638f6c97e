"""Reads the unfinished operation of a repository: a merge, rebase, cherry-pick, revert, `git am` or bisect.

git keeps the state of an operation in files. `unfinished.toml` names them, and `inspection` asks for the operation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from engine.files import read_plain_or_nothing, read_table
from engine.frozen import frozen
from engine.git import Git
from engine.git.history import log_commits
from engine.git.state import read_modified_at

MAX_STATE_FILE_BYTES = 1_000_000
"""Maximum size of a file in which git keeps the state of an operation."""

MAX_GOOD_REVISIONS = 20
"""Maximum number of good revisions of a bisect that are named."""

CONFLICT_OPERATION = "conflict"
"""The name of an operation that has files in conflict and no state of its own. `git stash pop`, `git merge --squash`
and `git checkout -m` leave such files."""

_TABLE = read_table(__file__, "unfinished.toml")
_OPERATION_BY_FILE: Sequence[tuple[str, str]] = _TABLE["operation_by_file"]
_STATE_FILES: Sequence[str] = _TABLE["state_files"]
_HEAD_FILES: Mapping[str, str] = _TABLE["head"]
"""The files of git's that tell of operations; `unfinished.toml` explains them."""

_COMMIT_ID = re.compile(r"[0-9a-f]{7,64}")
"""The whole id of a commit, or the beginning of one."""


@frozen
class Side:
    """One side of an operation."""

    name: str
    """The name of a branch at the commit, or else the short id of the commit."""
    commit: str
    subject: str = ""


@frozen
class GitOperation:
    """An operation that was begun and is not finished."""

    name: str
    """The name of its git command, or `CONFLICT_OPERATION`."""
    ours: Side
    """The side of stage 2. In a rebase it is the new base, with the commits that were applied so far."""
    theirs: Side | None = None
    """The side that is merged into ours. None for a bisect, and if git does not record it."""
    unmerged: tuple[str, ...] = ()
    """Files that are still in conflict."""
    resolved: tuple[str, ...] = ()
    """Files whose conflict was marked as resolved."""
    rebased: str = ""
    """The branch that is rebased, or the short id of its last commit if it has no name; "" if git does not record
    it."""
    bad: str = ""
    """The bad revision of a bisect; "" if none is known yet."""
    good: tuple[str, ...] = ()
    """The good revisions of a bisect."""
    suspects: int = 0
    """The number of revisions that may be the first bad one, of which `bad` is one."""
    terms: tuple[str, str] = ("bad", "good")
    """The operator's words for bad and good."""
    begun_at: datetime | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are or were in conflict, sorted."""
        return tuple(sorted({*self.unmerged, *self.resolved}))

    @property
    def continue_command(self) -> str:
        """The command that continues it when all files are marked as resolved. A bisect has none."""
        return "git commit" if self.name == CONFLICT_OPERATION else f"git {self.name} --continue"

    @property
    def abort_command(self) -> str:
        """The command that restores the state before the operation."""
        if self.name == CONFLICT_OPERATION:
            return "git reset --merge"
        return "git bisect reset" if self.name == "bisect" else f"git {self.name} --abort"


class IndexStage(IntEnum):
    """The versions of a file in conflict, by their numbers in git's index."""

    COMMON = 1
    OURS = 2
    THEIRS = 3


class StagedVersion(NamedTuple):
    """One version of a file in conflict."""

    mode: str
    """git's mode of the entry, six octal digits."""
    blob: str
    """The id of its content."""


StagedVersions = dict[IndexStage, StagedVersion]
"""The versions of one file. A side that removed the file has none. A file that both sides added has no common one."""


def find_operation_name(git_dir: Path, *, conflicted: bool) -> str:
    """The name of the unfinished operation in a repository, "" for none. `conflicted` says whether files are in
    conflict."""
    name = next((name for file, name in _OPERATION_BY_FILE if (git_dir / file).exists()), "")
    if not name:  # several commits are being picked, and the present one was committed by hand
        first_step = _read_state_file(git_dir / "sequencer/todo").partition(" ")[0]
        name = {"pick": "cherry-pick", "revert": "revert"}.get(first_step, "")
    return name or (CONFLICT_OPERATION if conflicted else "")


def read_operation_stamp(git_dir: Path) -> tuple[object, ...]:
    """A value that changes whenever the operation in a repository does."""
    return tuple(read_modified_at(git_dir / name) for name in _STATE_FILES)


def read_operation(git: Git) -> GitOperation | None:
    """The unfinished operation, or None. Runs git about eight times. Raises `GitError`."""
    folder = git.repository.git_dir
    unmerged = tuple(read_conflicted_files(git))
    name = find_operation_name(folder, conflicted=bool(unmerged))
    if not name:
        return None
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    begun_at = read_modified_at(
        folder / next((file for file, operation in _OPERATION_BY_FILE if operation == name), "index")
    )
    if name == "bisect":
        return _read_bisect(git, folder, head, begun_at)
    progress = _read_progress(folder, name)
    ours, theirs = _read_sides(git, name, progress, head)
    resolved = {entry.partition("\t")[2] for entry in git.items("ls-files", "--resolve-undo", "-z")} - {*unmerged}
    return GitOperation(
        name,
        ours=ours,
        theirs=theirs,
        unmerged=unmerged,
        resolved=tuple(sorted(resolved)),
        rebased=progress.rebased or _name_branch_or_id(git, progress.original),
        begun_at=begun_at,
    )


@frozen
class _Progress:
    """How far an operation other than a bisect has come, by git's state files."""

    theirs: str
    """The commit that is being applied; "" if git does not record it."""
    onto: str = ""
    """The new base of a rebase."""
    rebased: str = ""
    """The branch that is rebased, or the short id of a detached HEAD."""
    original: str = ""
    """The last commit of that branch before the rebase."""


def _read_progress(folder: Path, name: str) -> _Progress:
    """What git recorded of an operation other than a bisect."""
    theirs = _read_commit_id(folder / _HEAD_FILES[name]) if name in _HEAD_FILES else ""
    if name == "rebase":
        state = folder / "rebase-merge"
        if not state.exists():
            state = folder / "rebase-apply"
        original, head_name = _read_commit_id(state / "orig-head"), _read_state_file(state / "head-name")
        return _Progress(
            theirs or _read_commit_id(state / "stopped-sha") or _read_commit_id(state / "original-commit"),
            onto=_read_commit_id(state / "onto"),
            rebased=head_name.partition("refs/heads/")[2] or (head_name and original[:10]),  # a detached HEAD
            original=original,
        )
    return _Progress(theirs)


def _read_sides(git: Git, name: str, progress: _Progress, head: str) -> tuple[Side, Side | None]:
    """Our side and their side of an operation other than a bisect; see `GitOperation`."""
    onto, theirs = progress.onto, progress.theirs
    subjects = _read_subjects(git, [head, onto, theirs])
    our_name = _name_branch_or_id(git, onto) or git.text("symbolic-ref", "-q", "--short", "HEAD", allowed=(0, 1))
    their_name = _name_branch_or_id(git, theirs) if name == "merge" else theirs[:10]
    ours = Side(our_name or head[:10], head, subjects.get(onto or head, ""))
    return ours, Side(their_name, theirs, subjects.get(theirs, "")) if theirs else None


def read_conflicted_files(git: Git) -> dict[str, StagedVersions]:
    """The files in conflict, sorted, each with its versions."""
    files: dict[str, StagedVersions] = {}
    for entry in git.items("ls-files", "--unmerged", "-z"):
        fields, _, path = entry.partition("\t")
        mode, blob, stage = fields.split()
        files.setdefault(path, {})[IndexStage(int(stage))] = StagedVersion(mode, blob)
    return dict(sorted(files.items()))


def _read_bisect(git: Git, folder: Path, head: str, begun_at: datetime | None) -> GitOperation:
    """An unfinished bisect."""
    bad_term, good_term = (*_read_state_file(folder / "BISECT_TERMS").split(), "bad", "good")[:2]
    lines = git.lines("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/bisect")
    tips = dict(line.split(" ") for line in lines)
    bad = tips.get(bad_term, "")
    good = tuple(tip for name, tip in tips.items() if name.startswith(f"{good_term}-"))
    suspects = int(git.text("rev-list", "--count", bad, "--not", *good)) if bad and good else 0
    return GitOperation(
        "bisect",
        ours=Side(head[:10], head, _read_subjects(git, [head]).get(head, "")),
        bad=bad,
        good=good[:MAX_GOOD_REVISIONS],
        suspects=suspects,
        terms=(bad_term, good_term),
        begun_at=begun_at,
    )


def _name_branch_or_id(git: Git, commit: str) -> str:
    """The name of a branch at `commit`, or else the short id of the commit; "" for no commit."""
    if not commit:
        return ""
    names = git.lines(
        "for-each-ref", "--count=20", f"--points-at={commit}", "--format=%(refname:lstrip=2)", "refs/heads",
        "refs/remotes",
    )  # fmt: skip
    return next((name for name in names if not name.endswith("/HEAD")), commit[:10])


def _read_subjects(git: Git, commits: list[str]) -> dict[str, str]:
    ids = dict.fromkeys(filter(None, commits))
    return {commit.id: commit.subject for commit in log_commits(git, "--no-walk=unsorted", *ids)} if ids else {}


def _read_commit_id(file: Path) -> str:
    """The commit that is named in one of git's state files; "" for none."""
    first = _read_state_file(file).partition("\n")[0]
    return first if _COMMIT_ID.fullmatch(first) else ""


def _read_state_file(file: Path) -> str:
    return read_plain_or_nothing(file, MAX_STATE_FILE_BYTES).decode(errors="replace").strip()
