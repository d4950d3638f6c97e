"""Merges that would conflict, tried in git's own memory, so that no file, branch or object of the repository changes;
and a merge, rebase, cherry-pick, revert, `git am` or bisect that was begun and not finished."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Final

from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.command import split_nul
from engine.git.commits import log_commits
from engine.git.state import Branch, GitState, modified_at

# -- operations that were begun

MAX_BYTES: Final = 1_000_000  # bytes of a file in which git keeps the state of an operation
MAX_REMAINING: Final = 100  # commits still to apply that are named
MAX_GOOD: Final = 20  # good revisions of a bisect that are named

CONFLICT: Final = "conflict"
"""Files in conflict without an operation: `git stash pop`, `git merge --squash` and `git checkout -m` leave it so."""

_OPERATION_BY_FILE: Final = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)
_STATE_FILES: Final = (
    "index", "HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "sequencer/todo", "BISECT_LOG",
    "BISECT_TERMS", "rebase-merge/git-rebase-todo", "rebase-apply/next",
)  # fmt: skip
_HEAD_FILES: Final = {"merge": "MERGE_HEAD", "cherry-pick": "CHERRY_PICK_HEAD", "revert": "REVERT_HEAD"}
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{7,64}")
_TODO_STEP: Final = re.compile(r"(?:pick|p|revert|reword|r|edit|e|squash|s|fixup|f)(?: -[cC])? ([0-9a-f]{7,64})\b")


@frozen
class Side:
    """One side of an operation: a branch, or a short id where no branch is there, its commit and what that says."""

    name: str
    commit: str
    subject: str = ""


@frozen
class Operation:
    """An operation that was begun and not finished. `name`: as git's command is called, or `CONFLICT`.

    `ours` is what stages 2 come from (in a rebase the branch that is rebased onto, as far as it has come), `theirs`
    what is brought in, None for a bisect and where git does not say; `base` is where they parted, "" for unknown.
    `unmerged`: files still in conflict, `resolved`: those that were and are marked as resolved. `rebased` is the
    branch that is rebased. `remaining`: commits that follow the present one, at most 100.
    For a bisect: `bad` ("" for none yet), `good`, how many revisions are `suspects`, and what the operator calls the
    two (`terms`: bad, good).
    """

    name: str
    ours: Side
    theirs: Side | None = None
    base: str = ""
    unmerged: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    rebased: str = ""
    remaining: tuple[str, ...] = ()
    bad: str = ""
    good: tuple[str, ...] = ()
    suspects: int = 0
    terms: tuple[str, str] = ("bad", "good")
    begun_at: datetime | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All that are or were in conflict, sorted."""
        return tuple(sorted({*self.unmerged, *self.resolved}))

    @property
    def continue_command(self) -> str:
        """The command that goes on once every file is marked as resolved."""
        if self.name == CONFLICT:
            return "git commit"
        return f"git bisect {self.terms[1]}" if self.name == "bisect" else f"git {self.name} --continue"

    @property
    def abort_command(self) -> str:
        """The command that brings back what was before."""
        if self.name == CONFLICT:
            return "git reset --merge"
        return "git bisect reset" if self.name == "bisect" else f"git {self.name} --abort"


Stage = tuple[str, str]
"""Mode and id of one version of a file in conflict."""


def operation_name(folder: Path, *, conflicted: bool) -> str:
    """The name of the unfinished operation in the repository whose `.git` is `folder`, "" for nothing. `conflicted`:
    whether files are in conflict."""
    name = next((name for file, name in _OPERATION_BY_FILE if (folder / file).exists()), "")
    if not name:  # several commits to pick, the present one of them committed by hand
        name = {"pick": "cherry-pick", "revert": "revert"}.get(
            _read_state_file(folder / "sequencer/todo").partition(" ")[0], ""
        )
    return name or (CONFLICT if conflicted else "")


def operation_stamp(folder: Path) -> tuple[object, ...]:
    """Changes whenever the operation in the `.git` folder `folder` does."""
    return tuple(modified_at(folder / name) for name in _STATE_FILES)


def read_operation(git: Git) -> Operation | None:
    """The unfinished operation, None for none. Asks git about eight times. Raises `GitError`."""
    folder = git.repository.git_dir
    unmerged = tuple(conflicted(git))
    name = operation_name(folder, conflicted=bool(unmerged))
    if not name:
        return None
    begun_at = modified_at(
        folder / next((mark for mark, operation in _OPERATION_BY_FILE if operation == name), "index")
    )
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    branch = git.text("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1))
    if name == "bisect":
        return _read_bisect(git, folder, head, begun_at)
    resolved = {_path_of_entry(entry) for entry in git.items("ls-files", "--resolve-undo", "-z")} - {*unmerged}
    rebased, onto, theirs = "", "", _read_commit_id(folder / _HEAD_FILES.get(name, "REBASE_HEAD"))
    remaining: tuple[str, ...] = ()
    if name == "rebase":
        state = next(folder / name for name in ("rebase-merge", "rebase-apply") if (folder / name).exists())
        rebased = _read_state_file(state / "head-name").removeprefix("refs/heads/")
        onto = _read_commit_id(state / "onto")
        theirs = theirs or _read_commit_id(state / "stopped-sha") or _read_commit_id(state / "original-commit")
        remaining = _parse_todo(_read_state_file(state / "git-rebase-todo"))
    elif name in ("cherry-pick", "revert"):
        remaining = _parse_todo(_read_state_file(folder / "sequencer/todo"))
        remaining = remaining[1:] if theirs and remaining and theirs.startswith(remaining[0]) else remaining
    elif name in ("am", CONFLICT):
        theirs = ""
    subjects = _subjects_of(git, [commit for commit in (head, onto, theirs) if commit])
    return Operation(
        name,
        ours=Side(_branch_or_id(git, onto) if onto else branch or head[:10], head, subjects.get(onto or head, "")),
        theirs=Side(_branch_or_id(git, theirs) if name == "merge" else theirs[:10], theirs, subjects.get(theirs, ""))
        if theirs
        else None,
        base=_find_base(git, name, head, theirs) if theirs else "",
        unmerged=unmerged,
        resolved=tuple(sorted(resolved)),
        rebased=rebased,
        remaining=remaining[:MAX_REMAINING],
        begun_at=begun_at,
    )


def conflicted(git: Git) -> dict[str, dict[int, Stage]]:
    """The files in conflict, sorted, each with the versions that there are: 1 the common one, 2 ours, 3 theirs."""
    files: dict[str, dict[int, Stage]] = {}
    for entry in git.items("ls-files", "--unmerged", "-z"):
        mode, oid, stage = entry.partition("\t")[0].split()
        files.setdefault(_path_of_entry(entry), {})[int(stage)] = (mode, oid)
    return {path: files[path] for path in sorted(files)}


def _read_bisect(git: Git, folder: Path, head: str, begun_at: datetime | None) -> Operation:
    terms = (*_read_state_file(folder / "BISECT_TERMS").split(), "", "")
    bad_term, good_term = terms[0] or "bad", terms[1] or "good"
    lines = git.text("for-each-ref", "--format=%(objectname) %(refname)", "refs/bisect").split("\n")
    marks = [(tip, name.removeprefix("refs/bisect/")) for tip, name in (line.split(" ", 1) for line in lines if line)]
    bad = next((tip for tip, name in marks if name == bad_term), "")
    good = tuple(tip for tip, name in marks if name.startswith(f"{good_term}-"))
    suspects = int(git.text("rev-list", "--count", bad, "--not", *good)) if bad and good else 0
    subjects = _subjects_of(git, [commit for commit in (head, bad, *good[:MAX_GOOD]) if commit])
    return Operation(
        "bisect",
        ours=Side(head[:10], head, subjects.get(head, "")),
        bad=bad,
        good=good[:MAX_GOOD],
        suspects=suspects,
        terms=(bad_term, good_term),
        begun_at=begun_at,
    )


def _parse_todo(todo: str) -> tuple[str, ...]:
    """The commits of a list of steps."""
    return tuple(step[1] for step in map(_TODO_STEP.match, todo.split("\n")) if step)


def _find_base(git: Git, name: str, head: str, theirs: str) -> str:
    if name == "merge":
        return git.text("merge-base", head, theirs, allowed=(0, 1)).partition("\n")[0]
    if name == "revert":
        return theirs
    return git.text("rev-parse", "--verify", "--quiet", f"{theirs}^", allowed=(0, 1))


def _branch_or_id(git: Git, commit: str) -> str:
    """A branch that stands at `commit`, else its short id."""
    names = git.text(
        "for-each-ref", "--count=20", f"--points-at={commit}", "--format=%(refname)", "refs/heads", "refs/remotes"
    ).split("\n")
    short = [name.removeprefix("refs/heads/").removeprefix("refs/remotes/") for name in names]
    return next((name for name in short if name and not name.endswith("/HEAD")), commit[:10])


def _subjects_of(git: Git, commits: list[str]) -> dict[str, str]:
    if not commits:
        return {}
    return {commit.id: commit.subject for commit in log_commits(git, "--no-walk=unsorted", *dict.fromkeys(commits))}


def _path_of_entry(entry: str) -> str:
    return entry.partition("\t")[2]


def _read_commit_id(file: Path) -> str:
    """The commit that a file of git's own names, "" for none."""
    first = _read_state_file(file).split("\n", 1)[0]
    return first if _COMMIT_ID.fullmatch(first) else ""


def _read_state_file(file: Path) -> str:
    try:
        return read_plain(file, MAX_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError):
        return ""


ACTIVE_WITHIN: Final = timedelta(days=90)
"""A branch counts as being worked on when its last commit is at most so much older than the newest of any branch."""

MAX_COMPARED: Final = 5  # branches that are tried with each other: at most ten pairs
MAX_COLLIDING: Final = 4  # branches that one forecast is about
MAX_TRIALS: Final = 512  # outcomes that are remembered
TIMEOUT_S: Final = 5.0  # until one merge that takes longer is given up


@frozen
class Merge:
    """A merge that is due: `source` into the branch that is checked out. `lacking` commits are only in `source`, `own`
    only here. `files` would conflict; None when git could not tell."""

    source: str
    tip: str
    lacking: int
    own: int
    files: tuple[str, ...] | None = None


@frozen
class Collision:
    """Two branches that change the same lines of `files`."""

    first: Branch
    second: Branch
    files: tuple[str, ...]


def separate_objects(git: Git, folder: Path) -> dict[str, str]:
    """The environment in which what git writes goes to `folder`/objects, not into the repository."""
    own = folder / "objects"
    own.mkdir(exist_ok=True)
    # git reads a path in this variable as C-quoted when it begins with a quote; `:` would part it otherwise.
    quoted = str(git.repository.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(own), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def merge_trees(git: Git, ours: str, theirs: str, objects: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The tree of merging `theirs` into `ours`, and the files in conflict, which it holds with git's marks; none when
    the merge is clean. Raises `GitError`, also when the two have no common history."""
    done = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs,
        environment=objects, allowed=(0, 1),
    )  # fmt: skip
    tree, *names = map(os.fsdecode, split_nul(done.stdout))
    return tree, tuple(dict.fromkeys(names)) if done.returncode else ()


@frozen
class MergeTrial:
    """The outcome of a merge that was tried: the files that conflict, None when git could not tell, and whether it
    would change anything."""

    files: tuple[str, ...] | None
    adds: bool


@lru_cache(MAX_TRIALS)
def try_merge(workspace: Path, onto: str, other: str) -> MergeTrial:
    """Merge the commit `other` into `onto`, within `TIMEOUT_S`. It is the same whenever it is asked."""
    git = Git(workspace, timeout=TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="clawpy-merge-") as folder:
        try:
            tree, files = merge_trees(git, onto, other, separate_objects(git, Path(folder)))
            return MergeTrial(files, adds=bool(files) or tree != git.text("rev-parse", f"{onto}^{{tree}}"))
        except GitError:
            return MergeTrial(None, adds=True)


def is_merged(git: Git, onto: str, other: str, objects: Mapping[str, str]) -> bool:
    """Whether `onto` has all that `other` did, be it as other commits: merging it would change nothing. False where
    git cannot say so."""
    try:
        tree, conflicts = merge_trees(git, onto, other, objects)
        return not conflicts and tree == git.text("rev-parse", f"{onto}^{{tree}}")
    except GitError:
        return False


def due_merges(state: GitState) -> list[Merge]:
    """The merges of the base and of the upstream that the branch lacks while it has commits of its own."""
    if not state.branch or state.operation:
        return []
    due = []
    if state.behind_base and state.ahead_of_base and state.base_name != state.branch:
        due.append(Merge(state.base, state.base_tip, state.behind_base, state.ahead_of_base))
    if state.behind and state.ahead and state.upstream_tip not in (merge.tip for merge in due):
        due.append(Merge(state.upstream, state.upstream_tip, state.behind, state.ahead))
    return due


def branch_pairs(state: GitState) -> list[tuple[Branch, Branch]]:
    """The pairs of open branches worth trying: the newest that are worked on, one of the two a local one."""
    if state.operation or not state.base or not state.branches:
        return []
    newest = max(branch.at for branch in state.branches)
    active = [branch for branch in state.open_branches if newest - branch.at <= ACTIVE_WITHIN]
    active.sort(key=lambda branch: branch.remote)  # stable: the newest first among each
    pairs = combinations(active[:MAX_COMPARED], 2)
    return [
        (first, second) for first, second in pairs if first.tip != second.tip and not (first.remote and second.remote)
    ]
