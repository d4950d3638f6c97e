"""Finds lost commits, which are on no branch, remote branch or tag.

Lost commits are found in the reflogs, and at a detached HEAD. A commit that was amended, rebased, squashed or
cherry-picked is not lost, because another commit on a branch has the same work. A commit of somebody else that was only
checked out here is not lost either, and neither is one whose work is in the files or on the base.

`inspection` asks for them, for the card that brings them back to a branch.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git import LITERAL_PATHS, Git
from engine.git.history import Commit, ReflogEntry, log_commits, read_file_at, read_reflog, try_merge
from engine.git.patch import read_patch
from engine.git.state import GitState

MAX_AGE = timedelta(days=30)
"""Commits that were left longer ago are not reported."""

MAX_LOGS = 300
"""Maximum number of branches whose reflog is read."""

MAX_UNREACHABLE = 300
"""Maximum number of unreachable commits that are read."""

MAX_COMPARED = 5_000
"""Maximum number of commits of branches with which lost ones are compared."""

MAX_REPORTED = 5
"""Maximum number of lines of commits that are reported."""

ONLY_UNREACHABLE = ("--not", "--branches", "--remotes", "--tags")
"""Arguments with which `git rev-list` and `git log` list only commits that are on no branch or tag."""

_MAKING_ACTION = re.compile(r"(commit|cherry-pick|revert|merge|am|rebase)\b")
"""The action of a reflog entry that made its commit."""
_REWRITING_ACTION = re.compile(r"commit \(amend\)|.*\((?:start|finish)\)")
"""The action of a reflog entry that replaced the commit before."""


@frozen
class LostCommits:
    """A line of commits that are on no branch."""

    tip: str
    """The last of them."""
    subject: str
    number: int
    """The number of commits, not counting merges."""
    left_at: datetime
    """When HEAD or a branch was last at `tip`."""
    is_checked_out: bool
    """Whether HEAD is detached and at `tip`."""


def read_lost_commits(git: Git, state: GitState, now: datetime) -> tuple[LostCommits, ...]:
    """The lines of lost commits, at most `MAX_REPORTED`. The one on a detached HEAD is first, then the one that was
    left last. While a merge or the like is unfinished, there are none. Raises `GitError`."""
    if not state.head or state.operation:
        return ()
    logs = [read_reflog(git, ref) for ref in ("HEAD", *_find_branches_with_log(git))]
    recent = (entry for log in logs for entry in log if entry.at >= now - MAX_AGE)
    reflog = sorted(recent, key=lambda entry: entry.at)
    left_at = {commit: entry.at for entry in reflog for commit in (entry.old, entry.new) if commit.strip("0")}
    if state.is_detached:
        left_at.setdefault(state.head, now)
    unreachable = _read_unreachable_commits(git, left_at)
    if not unreachable:
        return ()
    rewritten = _find_rewritten_commits(git, reflog, unreachable)
    lost = {commit: details for commit, details in unreachable.items() if commit not in rewritten}
    made_here = {entry.new for entry in reflog if _MAKING_ACTION.match(entry.action)}
    lines = _find_own_lines(state, lost, made_here, left_at)
    lines.sort(key=lambda line: (line.is_checked_out, line.left_at), reverse=True)
    missing = (
        line
        for line in lines[: 2 * MAX_REPORTED]
        if line.is_checked_out or not _is_work_present(git, state, lost, line.tip)
    )
    return tuple(itertools.islice(missing, MAX_REPORTED))


def is_reachable(git: Git, commit: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    return not git.text("rev-list", "-n1", commit, *ONLY_UNREACHABLE)


def _find_own_lines(
    state: GitState, lost: Mapping[str, Commit], made_here: Collection[str], left_at: Mapping[str, datetime]
) -> list[LostCommits]:
    """The lines of the `lost` commits with at least one that the operator committed, or that was `made_here`. Lines of
    merges alone are left out."""
    parents = {parent for commit in lost.values() for parent in commit.parents}
    lines = []
    for tip in [commit for commit in lost if commit not in parents]:
        commits = _collect_ancestry(lost, tip)
        committed_here = (
            commit.id in made_here or (state.user_email and commit.committer_email == state.user_email)
            for commit in commits
        )
        number = sum(len(commit.parents) < 2 for commit in commits)
        if number and any(committed_here):
            at, is_checked_out = left_at.get(tip, lost[tip].at), state.is_detached and tip == state.head
            lines.append(LostCommits(tip, lost[tip].subject, number, at, is_checked_out))
    return lines


def _find_branches_with_log(git: Git) -> list[str]:
    """The refs of at most `MAX_LOGS` branches that have a log."""
    top = git.repository.common / "logs"
    return sorted(str(file.relative_to(top)) for file in (top / "refs/heads").rglob("*") if file.is_file())[:MAX_LOGS]


def _read_unreachable_commits(git: Git, candidates: Iterable[str]) -> dict[str, Commit]:
    """The commits that no branch or tag reaches, among the candidates and their ancestors. Newest first, by id."""
    commits = log_commits(
        git, f"-n{MAX_UNREACHABLE}", "--ignore-missing", "--topo-order", "--stdin", *ONLY_UNREACHABLE,
        stdin="".join(f"{candidate}\n" for candidate in candidates).encode(),
    )  # fmt: skip
    return {commit.id: commit for commit in commits}


def _find_rewritten_commits(git: Git, reflog: Sequence[ReflogEntry], commits: Mapping[str, Commit]) -> set[str]:
    """Those of `commits` whose work is in another commit, by any of the rules."""
    amended = {entry.old for entry in reflog if entry.action.startswith("commit (amend)") and entry.old != entry.new}
    rebased_tips = _find_rebased_tips(reflog) - amended
    on_branches = _read_commits_on_branches(git, min(commit.at for commit in commits.values()))
    subjects = {subject for _, subject in on_branches}
    return {
        # A rebase or cherry-pick copied them: a commit on a branch has the same author date and subject.
        *(commit.id for commit in commits.values() if (commit.authored, commit.subject) in on_branches),
        # The fixup commits of a commit on a branch.
        *(commit.id for commit in commits.values() if commit.is_fixup and commit.target_subject in subjects),
        # HEAD left them by a rebase.
        *(commit.id for tip in rebased_tips for commit in _collect_ancestry(commits, tip)),
        *_find_recommitted(git, commits, reflog),
        # The empty commits without a message from which `git rebase --root` starts, and which it makes for itself.
        *(commit.id for commit in commits.values() if not commit.parents and not commit.subject),
        # The last of several amended commits has the work of all of them, whether it is lost or on a branch.
        *(amended & commits.keys()),
    }


def _read_commits_on_branches(git: Git, since: datetime) -> set[tuple[str, str]]:
    """(author date, subject) of the newest commits on branches and tags that were made since a time."""
    records = git.items(
        "log", f"-n{MAX_COMPARED}", "-z", "--no-show-signature", f"--since={int(since.timestamp()) - 1}",
        "--format=%at %s", "--branches", "--remotes", "--tags",
    )  # fmt: skip
    return {(authored, subject) for authored, _, subject in (record.partition(" ") for record in records)}


def _find_rebased_tips(reflog: Iterable[ReflogEntry]) -> set[str]:
    """The commits that HEAD left last by a rebase or by amending."""
    tips: set[str] = set()
    for entry in reflog:
        if _REWRITING_ACTION.match(entry.action):
            tips.add(entry.old)
        else:
            tips.discard(entry.old)  # HEAD came back to it later, and left it in another way
    return tips


def _find_recommitted(git: Git, commits: Mapping[str, Commit], reflog: Iterable[ReflogEntry]) -> set[str]:
    """Those that were squashed by a reset and a commit with all their messages."""
    recommitted: set[str] = set()
    tips: dict[str, str] = {}  # the commit that a reset left, by the commit to which it went
    for entry in reflog:
        if entry.action.startswith("reset:"):
            tips[entry.new] = entry.old
        elif entry.action.startswith("commit") and (tip := tips.get(entry.old)):
            line, span = _collect_ancestry(commits, tip), f"{entry.new}..{tip}"
            if len(line) > 1 and _count_message_lines(git, span) == _count_message_lines(git, "-1", entry.new):
                recommitted |= {replaced.id for replaced in line}
    return recommitted


def _count_message_lines(git: Git, *revisions: str) -> Counter[str]:
    """How often each line stands in the messages of these commits, without empty lines."""
    return Counter(filter(None, map(str.strip, git.lines("log", "--format=%B", *revisions))))


def _collect_ancestry(commits: Mapping[str, Commit], tip: str) -> list[Commit]:
    """The commit `tip` and its ancestors among `commits`."""
    ancestry: dict[str, Commit] = {}
    todo = [tip]
    while todo:
        commit = todo.pop()
        if commit in commits and commit not in ancestry:
            ancestry[commit] = commits[commit]
            todo += commits[commit].parents
    return list(ancestry.values())


# -- whether the work of lost commits is there already

MAX_FILES = 20
"""Maximum number of files of a line of commits that are compared."""

MAX_DIFF_CHARS = 500_000
"""Maximum number of characters of the patch of a line of commits. A longer one is not compared."""

MAX_FILE_BYTES = 1_000_000
"""Maximum size of a file that is compared."""

MIN_SURVIVING_SHARE = 0.6
"""The work of commits counts as present if at least this share of their added lines is found."""


def _is_work_present(git: Git, state: GitState, commits: dict[str, Commit], tip: str) -> bool:
    """Whether the work of the commits up to `tip` is in HEAD, on the base or in the files. It is if a merge would
    change nothing, or if most of the lines that they added are there."""
    if any(not try_merge(git.folder, onto, tip).changes_anything for onto in (state.head, state.base_tip) if onto):
        return True
    oldest = _collect_ancestry(commits, tip)[-1]
    if not oldest.parents:
        return False
    added = _read_added_lines(git, oldest.parents[0], tip)
    total = sum(map(len, added.values()))
    return bool(added) and any(
        sum(len(lines & _read_lines(git, path, place)) for path, lines in added.items()) >= MIN_SURVIVING_SHARE * total
        for place in ("", state.base_tip)
    )


def _read_added_lines(git: Git, old: str, new: str) -> dict[str, set[str]]:
    """The meaningful lines that the commits from `old` to `new` added, by file. Empty if there are too many lines to
    compare."""
    paths = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--")[:MAX_FILES]
    patch = git.text(
        "diff-tree", "-r", "--patch", "--unified=0", "--no-renames", "--no-color", "--no-prefix",
        old, new, "--", *paths, environment=LITERAL_PATHS,
    )  # fmt: skip
    if not paths or len(patch) > MAX_DIFF_CHARS:
        return {}
    added = {file.path: {line.text.strip() for line in file.added} for file in read_patch(patch.split("\n"))}
    meaningful = {path: {line for line in lines if sum(map(str.isalnum, line)) >= 4} for path, lines in added.items()}
    return {path: lines for path, lines in meaningful.items() if lines}


def _read_lines(git: Git, path: str, commit: str) -> set[str]:
    """The lines of a file in a commit, or on the disk if `commit` is ""."""
    if commit:
        text = read_file_at(git, commit, path)[:MAX_FILE_BYTES]
    else:
        text = read_plain_or_nothing(git.folder / path, MAX_FILE_BYTES, follow=False)
    return {line.strip() for line in text.decode(errors="surrogateescape").split("\n")}
