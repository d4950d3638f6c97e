"""Reads the state of a workspace with few git processes, for the sensing of cards (SPEC 2.1).

`git status` and the list of refs are read every time. Results for which git must walk through commits are limited, and
kept until HEAD, a ref or a setting of git changes. Nothing is written, and neither hooks nor the network are used.

The reader of contexts has one `GitReader` for all workspaces.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from engine.files import read_plain_or_nothing
from engine.git import Git, GitError, is_in_tool_folder
from engine.git.environment import MAX_CONFIG_BYTES
from engine.git.habits import CoChanges, Partner, ReleaseRhythm, measure_release_rhythm
from engine.git.history import (
    Commit,
    count_apart,
    log_commits,
    read_changes,
    read_tags_by_commit,
    to_datetime,
)
from engine.git.inspection import CheckCache, Inspection, InspectionSubject, inspect_repository
from engine.git.state import (
    MAX_FILES,
    Branch,
    FileState,
    GitState,
    GitStatus,
    Touch,
    is_session_branch,
    read_modified_at,
    read_status,
    strip_remote,
)
from engine.git.unfinished import find_operation_name
from engine.text import hex_hash

log = logging.getLogger(__name__)

MAX_WALKED = 5_000
"""Maximum number of commits that are searched for tags, merged branches and ancestors."""

MAX_RECENT = 50
"""Maximum number of commits that are kept with their subjects."""

MAX_BRANCHES = 300
"""Maximum number of branches, the newest first."""

TIMEOUT_S = 15.0
"""Seconds for each git process."""

USUAL_BASES = ("main", "master", "trunk", "develop", "devel")
"""Names of branches that others usually start from, the most likely first."""


class GitReader:
    """Reads workspaces, and remembers the results for each as long as they cannot change. Thread-safe."""

    def __init__(self) -> None:
        self._cache = CheckCache()

    def read(self, workspace: Path) -> GitState:
        """The state of the working tree whose top folder is `workspace`. Raises `Refusal`: `no_folder`,
        `no_repository`, `git_failed`, `no_git`."""
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        repository = git.repository
        status = read_status(git)
        refs = git.lines(
            "for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/remotes", "refs/tags"
        )
        # A branch may be checked out in another worktree.
        heads = sorted((str(head), read_modified_at(head)) for head in (repository.common / "worktrees").glob("*/HEAD"))
        key = (refs, heads, status.head, status.branch, status.upstream)
        ref_state = self._cache.get(
            (workspace, "refs"),
            (key, repository.configuration_stamp),
            lambda: _read_ref_state(git, status, refs),
            keep_errors=False,
        )
        tags = [line for line in refs if " refs/tags/" in line]
        habits, release = self._cache.get(
            (workspace, "habits"), (status.head, tags), lambda: _read_habits(git, status.head)
        )
        config = read_plain_or_nothing(repository.common / "config", MAX_CONFIG_BYTES).lower()
        return replace(
            ref_state,
            partner=_find_partner(workspace, habits, status, ref_state),
            release=release,
            refs=hex_hash(repr(key)),
            files=status.files,
            more_files=status.more_files,
            operation=find_operation_name(repository.git_dir, conflicted=any(file.conflicted for file in status.files)),
            has_remote=b"[remote " in config,
            on_github=b"github" in config,
            touches=_list_touches(repository.git_dir, status.files),
        )

    def inspect(self, workspace: Path, state: GitState, now: datetime, today: datetime) -> Inspection:
        """The results of all checks of a workspace in this state (see `inspection`). Raises `Refusal` if the repository
        does not exist any more."""
        git = Git(workspace, timeout=TIMEOUT_S).pin()
        return inspect_repository(InspectionSubject(git, state, now, today), self._cache)


class _BaseBranch(NamedTuple):
    """The branch that others start from. Both are "" if it is unknown."""

    name: str
    tip: str


def _read_ref_state(git: Git, status: GitStatus, refs: list[str]) -> GitState:
    """The part of the state that changes only when HEAD, a ref or a setting of git does. `refs` has a line of object,
    name and link for each ref."""
    rows = [line.split(" ", 2) for line in refs]
    tips = {name: tip for tip, name, _ in rows}
    links = {name: target for _, name, target in rows if target}
    settings = _read_settings(git)
    branches = _read_branches(git, status.branch)
    base = _choose_base(branches, links, settings.get("init.defaultbranch", ""))
    walked = _list_history(git, status.head)
    merged = frozenset(walked if base.tip == status.head else _list_history(git, base.tip))
    upstream_tip = tips.get(f"refs/remotes/{status.upstream}", tips.get(f"refs/heads/{status.upstream}", ""))
    ahead, behind = count_apart(git, status.head, upstream_tip)
    ahead_of_base, behind_base = count_apart(git, status.head, base.tip)
    recent = tuple(log_commits(git, f"-n{MAX_RECENT}", status.head)) if status.head else ()
    tag, commits_since_tag = _find_newest_tag(git, status.head, walked, tips)
    return GitState(
        head=status.head,
        branch=status.branch,
        is_detached=bool(status.head) and not status.branch,
        upstream=status.upstream if upstream_tip else "",
        upstream_tip=upstream_tip,
        ahead=ahead,
        behind=behind,
        base=base.name,
        base_tip=base.tip,
        ahead_of_base=ahead_of_base,
        behind_base=behind_base,
        own_files=_read_own_files(git, status.head, upstream_tip or base.tip),
        user_email=settings.get("user.email", ""),
        recent=recent,
        recent_of_branches=_read_recent_of_branches(git, recent, tips),
        branches=_select_branches(branches, base, merged),
        tag=tag,
        commits_since_tag=commits_since_tag,
    )


def _select_branches(branches: list[Branch], base: _BaseBranch, merged: Collection[str]) -> tuple[Branch, ...]:
    """The newest `MAX_BRANCHES` branches, and the base if it is older. `merged` are the commits of the base."""
    selected = [*branches[:MAX_BRANCHES], *(branch for branch in branches[MAX_BRANCHES:] if branch.name == base.name)]
    return tuple(replace(branch, merged=branch.tip in merged) for branch in selected)


def _read_recent_of_branches(git: Git, recent: tuple[Commit, ...], tips: Mapping[str, str]) -> tuple[Commit, ...]:
    """The newest commits of HEAD, which are `recent`, and of the local branches. Without another branch than that of
    HEAD, these are the same."""
    has_other_tips = recent and any(tip != recent[0].id for name, tip in tips.items() if name.startswith("refs/heads/"))
    return tuple(log_commits(git, f"-n{MAX_RECENT}", "--branches", "HEAD")) if has_other_tips else recent


def _list_history(git: Git, tip: str) -> list[str]:
    """The newest commits in the history of `tip`; [] without a tip."""
    return git.text("rev-list", "-n", str(MAX_WALKED), tip).split() if tip else []


def _read_branches(git: Git, checked_out: str) -> list[Branch]:
    """All branches, the newest first, except those that were made of a session's changes, because the operator knows
    about them. If such a branch is checked out, it is the operator's own and is included."""
    output = git.text(
        "for-each-ref",
        "--sort=-committerdate",
        "--format=%(objectname) %(committerdate:unix) %(refname) %(symref)%00%(worktreepath)%00"
        "%(contents:trailers:key=Session,valueonly,unfold,separator=%2C)%00",
        "refs/heads",
        "refs/remotes",
    )
    branches = []
    fields = iter(output.split("\0"))  # not lines, because a commit's text may have any character but NUL
    for line, worktree, session in zip(fields, fields, fields, strict=False):
        tip, seconds, name, link = line.lstrip("\n").split(" ", 3)
        if link:
            continue  # origin/HEAD
        remote = name.startswith("refs/remotes/")
        short = name.removeprefix("refs/remotes/" if remote else "refs/heads/")
        bare = short.partition("/")[2] if remote else short
        if bare == checked_out or not is_session_branch(bare, session):
            branches.append(Branch(short, tip, to_datetime(seconds), remote=remote, has_worktree=bool(worktree)))
    return branches


def _read_settings(git: Git) -> dict[str, str]:
    """`user.email` and `init.defaultbranch` of git, as far as they are set."""
    names = r"^(user\.email|init\.defaultbranch)$"
    rows = git.items("config", "-z", "--get-regexp", names, allowed=(0, 1))
    return dict(row.partition("\n")[::2] for row in rows)


def _choose_base(branches: list[Branch], links: dict[str, str], default_branch: str) -> _BaseBranch:
    """The branch that others start from. `links` are the targets of symbolic refs by their names.

    Its name is that of the HEAD of a remote (of origin first), or else `init.defaultBranch`, or else a usual name, or
    else that of the only branch. If a local branch and remote ones have that name, the newest is chosen, or the local
    one if they are equally new.
    """
    remote_heads = sorted(
        (name.split("/", 3)[2] != "origin", target.split("/", 3)[3])
        for name, target in links.items()
        if name.startswith("refs/remotes/") and name.endswith("/HEAD") and target.count("/") >= 3
    )
    local = [branch for branch in branches if not branch.remote]
    remote = [branch for branch in branches if branch.remote]
    for name in [*(name for _, name in remote_heads), default_branch, *USUAL_BASES]:
        candidates = [branch for branch in [*local, *remote] if strip_remote(branch) == name]
        if candidates:
            newest = max(candidates, key=lambda branch: branch.at)
            return _BaseBranch(newest.name, newest.tip)
    return _BaseBranch(local[0].name, local[0].tip) if len(local) == 1 else _BaseBranch("", "")


def _find_newest_tag(git: Git, head: str, walked: list[str], tips: dict[str, str]) -> tuple[str, int]:
    """The newest tag in HEAD's history, of which `walked` are the newest commits, and the number of commits since. See
    `GitState`.

    `git describe --tags` finds the same tag, but walks through the whole history if there is no tag.
    """
    tags = read_tags_by_commit(git) if walked and any(name.startswith("refs/tags/") for name in tips) else {}
    tagged = next((commit for commit in walked if commit in tags), "")
    if not tagged:
        return "", 0
    return tags[tagged][-1], int(git.text("rev-list", "--count", f"{tagged}..{head}"))


def _read_own_files(git: Git, head: str, other_tip: str) -> tuple[str, ...]:
    """The files that the commits of this branch changed and that still exist; () if there is no other branch to compare
    with."""
    if not head or not other_tip or head == other_tip:
        return ()
    names = git.items(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AM", "--merge-base",
        other_tip, head, "--",
        allowed=(0, 128),  # two histories that never met have no base
    )  # fmt: skip
    return tuple(itertools.islice(itertools.filterfalse(is_in_tool_folder, names), MAX_FILES))


def _read_habits(git: Git, head: str) -> tuple[CoChanges, ReleaseRhythm | None]:
    """The habits of the project: which files change together, and how it is released."""
    try:
        past = read_changes(git, head) if head else ()
    except GitError as error:  # the clone has no trees, or the history takes too long, so no habits are known
        log.warning("%s: its history cannot be read: %s", git.folder, error)
        past = ()
    return CoChanges(past), measure_release_rhythm(past)


def _find_partner(workspace: Path, habits: CoChanges, status: GitStatus, ref_state: GitState) -> Partner | None:
    """The file that usually changes with the uncommitted files, or if there are none, with those that this branch
    changed. None if that file has changed, too."""
    if status.more_files:
        return None
    # If nothing is uncommitted, only the commits before this branch are used, because its own commits are compared.
    before = habits.length if status.files else max(0, habits.length - max(ref_state.ahead, ref_state.ahead_of_base))
    partner = habits.find_missing_partner([file.path for file in status.files] or ref_state.own_files, before)
    is_there = partner is not None and os.path.lexists(workspace / partner.path)
    return partner if partner and is_there and partner.path not in ref_state.own_files else None


def _list_touches(git_dir: Path, files: tuple[FileState, ...]) -> tuple[Touch, ...]:
    """The last writes to the changed files and to the parts of git's folder that a person's commands write."""
    touches = [(file.path, file.modified_at, file.untracked) for file in files]
    touches += [
        (".git/index", read_modified_at(git_dir / "index"), False),
        (".git/HEAD", read_modified_at(git_dir / "logs/HEAD"), False),
    ]
    return tuple(Touch(path, at, untracked) for path, at, untracked in touches if at is not None)
