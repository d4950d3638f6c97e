"""Finds commits and stashes that no branch, remote branch or tag holds.

Commits are known from the reflog, or from a detached HEAD. What was amended, rebased, squashed or cherry-picked away is
not lost: its like is on a branch. Neither is what somebody else committed and was only checked out here, nor what
stands in the files or on the base all the same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git
from engine.git.history import Commit, log_commits, read_file_at, to_datetime
from engine.git.merges import try_merge
from engine.git.patch import read_patch
from engine.git.state import GitState, modified_at

# -- reflogs


MAX_LOG_BYTES: Final = 8_000_000
"""Bytes of a reflog; a longer one, of about 40,000 entries, counts as none."""

MAX_LOGS: Final = 300

_ENTRY: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .*?> (\d+) [+-]\d{4}\t?(.*)")


@frozen
class ReflogEntry:
    """A ref went from the commit `old` to `new` (zeroes where there was none). `action`: `commit (amend): …`."""

    old: str
    new: str
    at: datetime
    action: str


def read_reflog(git: Git, ref: str = "HEAD") -> list[ReflogEntry]:
    """The entries of one ref's log, oldest first; none where it keeps none."""
    repository = git.repository
    file = (repository.git_dir if ref == "HEAD" else repository.common) / "logs" / ref
    try:
        lines = read_plain(file, MAX_LOG_BYTES, follow=False).split(b"\n")
    except (OSError, ValueError):
        return []
    entries = [match.groups() for line in lines if (match := _ENTRY.fullmatch(line))]
    return [
        ReflogEntry(old.decode(), new.decode(), to_datetime(at.decode()), action.decode(errors="surrogateescape"))
        for old, new, at, action in entries
    ]


def _branches_with_log(git: Git) -> list[str]:
    """The branches that have a log, as refs, at most 300."""
    top = git.repository.common / "logs"
    return sorted(str(file.relative_to(top)) for file in (top / "refs/heads").rglob("*") if file.is_file())[:MAX_LOGS]


def logs_stamp(git: Git) -> tuple[object, ...]:
    """Changes whenever HEAD's log does, and so whenever anything is committed, reset or checked out here, and whenever
    a stash is made or dropped."""
    repository = git.repository
    return modified_at(repository.git_dir / "logs/HEAD"), modified_at(repository.common / "logs/refs/stash")


# -- stashes, which are the reflog of refs/stash


MAX_STASHES: Final = 50
MAX_STASHED_FILES: Final = 300


@frozen
class Stash:
    """One stash: `stash@{number}`. `words`: what its message says after the branch, `branch` "" when it was made on a
    detached HEAD. `files`: at most 300 that it changes, untracked ones included."""

    number: int
    commit: str
    at: datetime
    branch: str
    words: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"stash@{{{self.number}}}"


def read_stashes(git: Git) -> tuple[Stash, ...]:
    """The newest 50. Raises `GitError`."""
    stashes = []
    for number, entry in enumerate(read_reflog(git, "refs/stash")[: -MAX_STASHES - 1 : -1]):
        # `WIP on main: 1a2b3c4 subject` and `On main: words` are what git writes
        where, _, words = entry.action.partition(": ")
        branch = where.removeprefix("WIP on ").removeprefix("On ").removeprefix("(no branch)")
        stashes.append(Stash(number, entry.new, entry.at, branch, words, _stashed_files(git, entry.new)))
    return tuple(stashes)


def _stashed_files(git: Git, commit: str) -> tuple[str, ...]:
    """The files that a stash changes; none when it is gone."""
    names = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit, allowed=(0, 128))
    names += git.items("ls-tree", "-r", "-z", "--name-only", f"{commit}^3", allowed=(0, 128))
    return tuple(names[:MAX_STASHED_FILES])


# -- lost commits


MAX_AGE: Final = timedelta(days=30)
"""A commit that was left longer ago is not brought up."""

MAX_COMMITS: Final = 300
MAX_LINES: Final = 5
MAX_ALIKE: Final = 5_000  # commits of branches that are looked through for the like of a lost one
MAX_FILES: Final = 20  # files of a line of commits that are compared
MAX_DIFF_CHARACTERS: Final = 500_000  # of what a line of commits added that are compared
MAX_FILE_BYTES: Final = 1_000_000
MIN_SURVIVING_SHARE: Final = 0.6
"""The share of the added lines that must be there for the work to count as there."""

UNREACHABLE: Final = ("--not", "--branches", "--remotes", "--tags")
"""Arguments of `git rev-list` and `git log` for the commits that no branch or tag has."""

_MADE_HERE: Final = re.compile(r"(commit|cherry-pick|revert|merge|am|rebase)\b")
_REWRITES: Final = re.compile(r"commit \(amend\)|.*\((?:start|finish)\)")
_FIXUP: Final = re.compile(r"(?:fixup|squash|amend)! ")


@frozen
class LostCommits:
    """`number` commits that end in `tip` and are on no branch. `left_at`: when HEAD or a branch was last at `tip`;
    `is_checked_out`: HEAD is detached, and stands at it."""

    tip: str
    subject: str
    number: int
    left_at: datetime
    is_checked_out: bool


def read_lost_commits(git: Git, state: GitState, now: datetime) -> tuple[LostCommits, ...]:
    """The lines of lost commits: the one on a detached HEAD first, then the one left last; at most five. None are
    looked for while something is unfinished. Raises `GitError`."""
    if not state.head or state.operation:
        return ()
    reflog = _recent_entries(git, now - MAX_AGE)
    left_at = {commit: entry.at for entry in reflog for commit in (entry.old, entry.new) if commit.strip("0")}
    if state.detached:
        left_at.setdefault(state.head, now)
    unreachable = _unreachable_commits(git, left_at)
    if not unreachable:
        return ()
    rewritten = _rewritten_commits(git, reflog, unreachable)
    lost = {commit: details for commit, details in unreachable.items() if commit not in rewritten}
    made_here = {entry.new for entry in reflog if _MADE_HERE.match(entry.action)}
    parents = {parent for commit in lost.values() for parent in commit.parents}
    lines = []
    for tip in [commit for commit in lost if commit not in parents]:
        commits = _ancestry(lost, tip)
        is_own = any(commit.id in made_here or (state.me and commit.committer_email == state.me) for commit in commits)
        number = sum(len(commit.parents) < 2 for commit in commits)
        if is_own and number:
            at, is_checked_out = left_at.get(tip, lost[tip].at), state.detached and tip == state.head
            lines.append(LostCommits(tip, lost[tip].subject, number, at, is_checked_out))
    lines.sort(key=lambda line: (line.is_checked_out, line.left_at), reverse=True)
    missing = (
        line
        for line in lines[: 2 * MAX_LINES]
        if line.is_checked_out or not _is_work_present(git, state, lost, line.tip)
    )
    return tuple(itertools.islice(missing, MAX_LINES))


def is_reachable(git: Git, commit: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    return not git.text("rev-list", "-n1", commit, *UNREACHABLE)


def _recent_entries(git: Git, since: datetime) -> list[ReflogEntry]:
    """What happened to HEAD and to the branches, oldest first."""
    logs = [read_reflog(git, ref) for ref in ("HEAD", *_branches_with_log(git))]
    return sorted((entry for log in logs for entry in log if entry.at >= since), key=lambda entry: entry.at)


def _unreachable_commits(git: Git, candidates: Iterable[str]) -> dict[str, Commit]:
    """Of the candidates and what leads to them, the commits that no branch or tag reaches, newest first."""
    commits = log_commits(
        git, f"-n{MAX_COMMITS}", "--ignore-missing", "--topo-order", "--stdin", *UNREACHABLE,
        stdin="".join(f"{candidate}\n" for candidate in candidates).encode(),
    )  # fmt: skip
    return {commit.id: commit for commit in commits}


def _rewritten_commits(git: Git, reflog: list[ReflogEntry], commits: dict[str, Commit]) -> set[str]:
    """Those of `commits` whose like is on a branch: the same author's date and subject, amended, rebased, folded into
    it."""
    since = int(min(commit.at for commit in commits.values()).timestamp()) - 1
    records = git.items(
        "log", f"-n{MAX_ALIKE}", "-z", "--no-show-signature", f"--since={since}", "--format=%at %s",
        "--branches", "--remotes", "--tags",
    )  # fmt: skip
    on_branches = {(authored, subject) for authored, _, subject in (record.partition(" ") for record in records)}
    subjects = {subject for _, subject in on_branches}
    rewritten = {
        commit.id
        for commit in commits.values()
        if (commit.authored, commit.subject) in on_branches
        or (_FIXUP.match(commit.subject) and _FIXUP.sub("", commit.subject, count=3) in subjects)
    }
    rebased: set[str] = set()
    amended: set[str] = set()
    for entry in reflog:
        if entry.action.startswith("commit (amend)") and entry.old != entry.new:
            amended.add(entry.old)
        if _REWRITES.match(entry.action):
            rebased.add(entry.old)
        else:
            rebased.discard(entry.old)  # HEAD went back to it, and left it in another way
    for tip in (rebased & commits.keys()) - amended:
        rewritten |= {commit.id for commit in _ancestry(commits, tip)}
    # Of commits that amend each other the last stands for all: lost itself, or on a branch.
    return rewritten | (amended & commits.keys())


def _ancestry(commits: dict[str, Commit], tip: str) -> list[Commit]:
    """Of `commits`, `tip` and those that lead to it."""
    ancestry: dict[str, Commit] = {}
    todo = [tip]
    while todo:
        commit = todo.pop()
        if commit in commits and commit not in ancestry:
            ancestry[commit] = commits[commit]
            todo += commits[commit].parents
    return list(ancestry.values())


def _is_work_present(git: Git, state: GitState, commits: dict[str, Commit], tip: str) -> bool:
    """Whether what the commits up to `tip` did is in HEAD, on the base or in the files: merging them changes nothing,
    or most lines that they added are there."""
    if any(not try_merge(git.folder, onto, tip).adds for onto in (state.head, state.base_tip) if onto):
        return True
    oldest = _ancestry(commits, tip)[-1]
    if not oldest.parents:
        return False
    added = _added_lines(git, oldest.parents[0], tip)
    total = sum(map(len, added.values()))
    return bool(added) and any(
        sum(len(lines & _read_lines(git, path, place)) for path, lines in added.items()) >= MIN_SURVIVING_SHARE * total
        for place in ("", state.base_tip)
    )


def _added_lines(git: Git, old: str, new: str) -> dict[str, set[str]]:
    """The meaningful lines that the commits from `old` to `new` added, by file; none where that is too much to
    compare."""
    paths = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--")[:MAX_FILES]
    patch = git.text(
        "diff-tree", "-r", "--patch", "--unified=0", "--no-renames", "--no-color", "--no-prefix",
        old, new, "--", *paths, environment={"GIT_LITERAL_PATHSPECS": "1"},
    )  # fmt: skip
    if not paths or len(patch) > MAX_DIFF_CHARACTERS:
        return {}
    added = {file.path: {line.text.strip() for line in file.added} for file in read_patch(patch.split("\n"))}
    return {path: meaningful for path, lines in added.items() if (meaningful := set(filter(_is_meaningful, lines)))}


def _is_meaningful(line: str) -> bool:
    return sum(character.isalnum() for character in line) >= 4


def _read_lines(git: Git, path: str, commit: str) -> set[str]:
    """The lines of a file in a commit, or, with "", on the disk."""
    try:
        if commit:
            text = read_file_at(git, commit, path)[:MAX_FILE_BYTES]
        else:
            text = read_plain(git.folder / path, MAX_FILE_BYTES, follow=False)
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in text.decode(errors="surrogateescape").split("\n")}
