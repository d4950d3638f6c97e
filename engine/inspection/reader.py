"""Reads a `GitState` with few git processes: two for a repository whose commits and refs have not moved.

`git status` and the plain list of refs are asked every time; everything that needs commits to be walked is bounded
and kept until HEAD or a ref moves. No optional locks, no hooks, no network, nothing is written.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, cast

from engine.git import Git, Repository, is_own_branch, submodule_paths
from engine.inspection.state import Branch, Commit, FileState, GitState, Touch, merged_into
from engine.inspection.status import (
    MOST_FILES,
    Status,
    instant,
    is_litter,
    modified_at,
    parts,
    read_status,
)
from engine.inspection.unpushed import NOTHING, Unpushed, read_commits, read_uncommitted, span_of
from engine.plain_files import read_plain

T = TypeVar("T")

WALKED: Final = 5_000  # commits looked through for tags, merged branches and ancestors
RECENT: Final = 50  # commits kept with their subjects
MOST_BRANCHES: Final = 300
UNTAGGED: Final = 301  # counting stops here when there is no tag
ANSWERS: Final = 512  # pairs of commits whose relation is remembered
LIMIT_SECONDS: Final = 15.0
LARGEST_CONFIG: Final = 4_000_000

_OPERATIONS: Final = (
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)
_USUAL_BASES: Final = ("main", "master", "trunk", "develop", "devel")


class GitReader:
    """Reads workspaces; safe to call from several threads. Remembers per workspace until its commits or refs move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history: dict[Path, tuple[str, GitState]] = {}
        self._answers: OrderedDict[tuple[str, ...], object] = OrderedDict()

    def read(self, workspace: Path) -> GitState:
        """The state of the working tree at `workspace` (its top folder). Raises `Refusal`: `bare_repository`,
        `no_folder`, `git_failed`, `no_git`."""
        git = Git(workspace, timeout=LIMIT_SECONDS).pin()
        repository = git.repository
        status = read_status(git)
        refs = git.output(
            "for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/remotes", "refs/tags"
        )
        key = hashlib.sha256(
            b"\0".join([refs, *(part.encode() for part in (status.head, status.branch, status.upstream))])
        ).hexdigest()
        with self._lock:
            known, history = self._history.get(workspace, ("", GitState()))
        if known != key:
            history = _history(git, repository, status, refs.decode(errors="surrogateescape"))
            with self._lock:
                self._history[workspace] = (key, history)
        config = _config(repository.common)
        return replace(
            history,
            files=status.files,
            more_files=status.more_files,
            operation=_operation(repository.git_dir),
            submodules=submodule_paths(workspace),
            has_remote=b"[remote " in config,
            on_github=b"github" in config,
            touches=_touches(repository.git_dir, status.files),
        )

    def is_ancestor(self, workspace: Path, older: str, newer: str) -> bool:
        """True when `older` is in the history of `newer`; False also when either is not there (any more)."""
        git = Git(workspace, timeout=LIMIT_SECONDS)
        return self._once(
            ("ancestor", str(workspace), older, newer),
            lambda: git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1, 128)).returncode == 0,
        )

    def files_between(self, workspace: Path, old: str, new: str) -> tuple[str, ...] | None:
        """Paths that differ between two commits or trees, at most 2,000, without what tools filled (a run saw a `.venv`
        that nobody ignores, and HEAD has none); None when one of the two is not there."""
        git = Git(workspace, timeout=LIMIT_SECONDS)

        def ask() -> tuple[str, ...] | None:
            done = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", allowed=(0, 128))
            if done.returncode:
                return None
            return tuple(itertools.islice(itertools.filterfalse(is_litter, parts(done.stdout)), MOST_FILES))

        return self._once(("files", str(workspace), old, new), ask)

    def unpushed(self, workspace: Path, state: GitState, now: datetime) -> Unpushed:
        """What is about to be pushed or committed and should not be; read again when commits, remote branches or
        tracked files changed."""
        git = Git(workspace, timeout=LIMIT_SECONDS)
        span = span_of(state, now)
        found = NOTHING
        if span is not None:
            remote = hashlib.sha256("".join(branch.tip for branch in state.branches if branch.remote).encode())
            key = ("unpushed", str(workspace), *span.arguments, str(span.shared), remote.hexdigest())
            found = self._once(key, lambda: read_commits(git, span))
        changed = [file for file in state.files if file.staged or file.modified]
        if not changed:
            return found
        index = [touch for touch in state.touches if touch.path == ".git/index"]
        key = ("uncommitted", str(workspace), state.head, hashlib.sha256(repr((changed, index)).encode()).hexdigest())
        return replace(found, uncommitted=self._once(key, lambda: read_uncommitted(git, state.head, changed)))

    def _once(self, key: tuple[str, ...], ask: Callable[[], T]) -> T:
        """Ask git once for what never changes between two ids; the oldest answers are forgotten."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return cast("T", self._answers[key])
        answer = ask()
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        return answer


def _history(git: Git, repository: Repository, status: Status, refs: str) -> GitState:
    """What only changes when HEAD or a ref moves; every walk is bounded."""
    tips: dict[str, str] = {}
    links: dict[str, str] = {}
    for line in refs.splitlines():
        tip, name, target = line.split(" ", 2)
        tips[name] = tip
        if target:
            links[name] = target
    dated = _branches(git, status.branch)
    base, base_tip = _base(dated, links)
    walked = git.text("rev-list", "-n", str(WALKED), status.head).split() if status.head else []
    if base_tip and base_tip != status.head:
        merged = merged_into(git.text("rev-list", "-n", str(WALKED), base_tip).split())
    else:
        merged = merged_into(walked if base_tip else ())
    upstream_tip = tips.get(f"refs/remotes/{status.upstream}", tips.get(f"refs/heads/{status.upstream}", ""))
    ahead, behind = _apart(git, status.head, upstream_tip)
    ahead_of_base, behind_base = _apart(git, status.head, base_tip)
    tag, previous_tag, since = _tags(git, status.head, walked, tips)
    return GitState(
        head=status.head,
        branch=status.branch,
        detached=bool(status.head) and not status.branch,
        upstream=status.upstream if upstream_tip else "",
        upstream_tip=upstream_tip,
        ahead=ahead,
        behind=behind,
        base=base,
        base_tip=base_tip,
        ahead_of_base=ahead_of_base,
        behind_base=behind_base,
        own_files=_own_files(git, status.head, upstream_tip or base_tip),
        me=git.text("config", "user.email", allowed=(0, 1)),
        recent=_recent(git, status.head),
        branches=tuple(replace(branch, merged=merged(branch.tip)) for branch in dated),
        tag=tag,
        previous_tag=previous_tag,
        commits_since_tag=since,
        subjects=_subjects(git, status.head, tag if since else previous_tag),
        shallow=(repository.common / "shallow").exists(),
    )


def _branches(git: Git, present: str) -> list[Branch]:
    """All but those that sessions' changes became: nobody left them, each waited to be asked for. One that is checked
    out is the operator's by now."""
    out = git.text(
        "for-each-ref",
        "--sort=-committerdate",
        f"--count={MOST_BRANCHES}",
        "--format=%(objectname) %(committerdate:unix) %(refname) %(symref)",
        "refs/heads",
        "refs/remotes",
    )
    branches = []
    for line in out.splitlines():
        tip, seconds, name, link = line.split(" ", 3)
        if link:
            continue  # origin/HEAD
        remote = name.startswith("refs/remotes/")
        short = name.removeprefix("refs/remotes/" if remote else "refs/heads/")
        bare = short.partition("/")[2] if remote else short
        if bare == present or not is_own_branch(bare):
            branches.append(Branch(short, tip, instant(seconds), remote=remote))
    return branches


def _base(branches: list[Branch], links: dict[str, str]) -> tuple[str, str]:
    """The branch that others start from, and its tip: what the remote calls its HEAD, else a usual name, else the only
    branch there is. Of the local and the remote one the newer counts, the local one if they are as new."""
    pointed = next((target for name, target in links.items() if name == "refs/remotes/origin/HEAD"), "")
    local = {branch.name: branch for branch in branches if not branch.remote}
    remote = {branch.name: branch for branch in branches if branch.remote}
    names = [pointed.removeprefix("refs/remotes/origin/")] if pointed else []
    for name in [*names, *_USUAL_BASES]:
        both = [branch for branch in (local.get(name), remote.get(f"origin/{name}")) if branch is not None]
        if both:
            newest = max(both, key=lambda branch: branch.at)
            return newest.name, newest.tip
    if len(local) == 1:
        only = next(iter(local.values()))
        return only.name, only.tip
    return "", ""


def _apart(git: Git, head: str, other: str) -> tuple[int, int]:
    """Commits that only `head` has, and that only `other` has."""
    if not head or not other or head == other:
        return 0, 0
    ahead, behind = git.text("rev-list", "--left-right", "--count", f"{head}...{other}").split()
    return int(ahead), int(behind)


def _tags(git: Git, head: str, walked: list[str], tips: dict[str, str]) -> tuple[str, str, int]:
    """The newest tag in HEAD's history, the one before it, and the commits since (see `GitState`).

    Found like `git describe --tags` finds it, without its walk through a whole history that has no tag.
    """
    if not head:
        return "", "", 0
    tagged: dict[str, str] = {}
    if any(name.startswith("refs/tags/") for name in tips):
        out = git.text("for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/tags")
        for line in out.splitlines():
            tip, peeled, name = line.split(" ", 2)
            tagged[peeled or tip] = name.removeprefix("refs/tags/")
    found = [(commit, tagged[commit]) for commit in walked if commit in tagged][:2]
    if not found:
        return "", "", min(len(walked), UNTAGGED)
    since = 0 if found[0][0] == head else int(git.text("rev-list", "--count", f"{found[0][0]}..{head}"))
    return found[0][1], found[1][1] if len(found) > 1 else "", since


def _subjects(git: Git, head: str, since: str) -> tuple[str, ...]:
    """What the commits since a tag say, at most `RECENT`, merges left out; none without a tag."""
    if not since:
        return ()
    span = f"refs/tags/{since}..{head}"
    out = git.text("log", f"-n{RECENT}", "--no-merges", "--no-show-signature", "--format=%s", span)
    return tuple(filter(None, out.splitlines()))


def _recent(git: Git, head: str) -> tuple[Commit, ...]:
    if not head:
        return ()
    out = git.text("log", "-z", f"-n{RECENT}", "--no-show-signature", "--format=%H%n%ct%n%P%n%an%n%ae%n%s", head)
    commits = []
    for record in filter(None, out.split("\0")):
        commit, seconds, parents, author, email, subject = record.split("\n", 5)
        commits.append(Commit(commit, instant(seconds), author, subject, tuple(parents.split()), email))
    return tuple(commits)


def _own_files(git: Git, head: str, other: str) -> tuple[str, ...]:
    """Files that the commits of this branch changed and that are still there; none where nothing is to compare with."""
    if not head or not other or head == other:
        return ()
    out = git.run(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AM", "--merge-base", other, head, "--",
        allowed=(0, 128),
    )  # fmt: skip
    if out.returncode:
        return ()  # two histories that never met
    return tuple(itertools.islice(itertools.filterfalse(is_litter, parts(out.stdout)), MOST_FILES))


def _operation(folder: Path) -> str:
    return next((name for file, name in _OPERATIONS if (folder / file).exists()), "")


def _config(common: Path) -> bytes:
    """The repository's own configuration in lower case."""
    try:
        return read_plain(common / "config", LARGEST_CONFIG).lower()
    except (OSError, ValueError):
        return b""


def _touches(folder: Path, files: tuple[FileState, ...]) -> tuple[Touch, ...]:
    touches = [Touch(file.path, file.modified_at, file.untracked) for file in files if file.modified_at is not None]
    for name, path in ((".git/index", "index"), (".git/HEAD", "logs/HEAD")):
        at = modified_at(folder / path)
        if at is not None:
            touches.append(Touch(name, at))
    return tuple(touches)
