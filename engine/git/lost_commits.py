"""Finds stashes, and lost commits, which are on no branch, remote branch or tag.

Lost commits are found in the reflogs, and at a detached HEAD. A commit that was amended, rebased, squashed or
cherry-picked is not lost, because another commit on a branch has the same work. A commit of somebody else that was only
checked out here is not lost either, and neither is one whose work is in the files or on the base.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git import Git
from engine.git.command import LITERAL_PATHS
from engine.git.history import Commit, log_commits, read_file_at, to_datetime
from engine.git.operations import try_merge
from engine.git.patch import read_patch
from engine.git.state import GitState, read_modified_at

# -- reflogs

MAX_LOG_BYTES = 8_000_000
"""Maximum size of a reflog, which is about 40,000 entries. A longer one counts as none."""

MAX_LOGS = 300
"""Maximum number of branches whose reflog is read."""

_LOG_LINE = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .*?> (\d+) [+-]\d{4}\t?(.*)")


@frozen
class ReflogEntry:
    """One move of a ref from the commit `old` to the commit `new`."""

    old: str
    """Zeroes when the ref was new."""
    new: str
    """Zeroes when the ref was deleted."""
    at: datetime
    action: str
    """For example `commit (amend): the subject`."""


def read_reflog(git: Git, ref: str = "HEAD") -> list[ReflogEntry]:
    """The entries of the log of a ref, oldest first. Empty when it has no log."""
    repository = git.repository
    file = (repository.git_dir if ref == "HEAD" else repository.common) / "logs" / ref
    lines = read_plain_or_nothing(file, MAX_LOG_BYTES, follow=False).split(b"\n")
    entries = [match.groups() for line in lines if (match := _LOG_LINE.fullmatch(line))]
    return [
        ReflogEntry(old.decode(), new.decode(), to_datetime(at.decode()), action.decode(errors="surrogateescape"))
        for old, new, at, action in entries
    ]


def _find_branches_with_log(git: Git) -> list[str]:
    """The refs of at most `MAX_LOGS` branches that have a log."""
    top = git.repository.common / "logs"
    return sorted(str(file.relative_to(top)) for file in (top / "refs/heads").rglob("*") if file.is_file())[:MAX_LOGS]


def read_logs_stamp(git: Git) -> tuple[object, ...]:
    """A value that changes whenever something is committed, reset or checked out here, or a stash is made or
    dropped."""
    repository = git.repository
    return read_modified_at(repository.git_dir / "logs/HEAD"), read_modified_at(repository.common / "logs/refs/stash")


# -- stashes, which are the reflog of refs/stash

MAX_STASHES = 50
"""Maximum number of stashes that are read."""

MAX_STASHED_FILES = 300
"""Maximum number of files of a stash that are named."""


@frozen
class Stash:
    """One stash."""

    number: int
    commit: str
    at: datetime
    branch: str
    """The branch on which it was made; "" for a detached HEAD."""
    message: str
    """Its message without the branch at the beginning."""
    files: tuple[str, ...]
    """At most `MAX_STASHED_FILES` files that it changes, untracked ones included."""

    @property
    def name(self) -> str:
        """Its name for git: `stash@{NUMBER}`."""
        return f"stash@{{{self.number}}}"


def read_stashes(git: Git) -> tuple[Stash, ...]:
    """The newest `MAX_STASHES` stashes. Raises `GitError`."""
    stashes = []
    for number, entry in enumerate(read_reflog(git, "refs/stash")[: -MAX_STASHES - 1 : -1]):
        # git writes `WIP on main: 1a2b3c4 subject` or `On main: message`.
        where, _, message = entry.action.partition(": ")
        branch = where.removeprefix("WIP on ").removeprefix("On ").removeprefix("(no branch)")
        stashes.append(Stash(number, entry.new, entry.at, branch, message, _read_stashed_files(git, entry.new)))
    return tuple(stashes)


def _read_stashed_files(git: Git, commit: str) -> tuple[str, ...]:
    """The files that a stash changes; () when the stash is gone."""
    names = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit, allowed=(0, 128))
    names += git.items("ls-tree", "-r", "-z", "--name-only", f"{commit}^3", allowed=(0, 128))
    return tuple(names[:MAX_STASHED_FILES])


# -- lost commits

MAX_AGE = timedelta(days=30)
"""Commits that were left longer ago are not reported."""

MAX_COMMITS = 300
"""Maximum number of unreachable commits that are read."""

MAX_LINES = 5
"""Maximum number of lines of commits that are reported."""

MAX_ALIKE = 5_000
"""Maximum number of commits of branches with which lost ones are compared."""

MAX_FILES = 20
"""Maximum number of files of a line of commits that are compared."""

MAX_DIFF_CHARS = 500_000
"""Maximum number of characters of the patch of a line of commits. A longer one is not compared."""

MAX_FILE_BYTES = 1_000_000
"""Maximum size of a file that is compared."""

MIN_SURVIVING_SHARE = 0.6
"""The work of commits counts as present if at least this share of their added lines is found."""

ONLY_UNREACHABLE = ("--not", "--branches", "--remotes", "--tags")
"""Arguments with which `git rev-list` and `git log` list only commits that are on no branch or tag."""

_MAKING_ACTION = re.compile(r"(commit|cherry-pick|revert|merge|am|rebase)\b")
_REWRITING_ACTION = re.compile(r"commit \(amend\)|.*\((?:start|finish)\)")
FIXUP_PREFIX = re.compile(r"(?:(?:fixup|squash|amend)! )+")
"""Begins the subject of a commit that is to be squashed into the one with the rest of the subject."""


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
    """The lines of lost commits, at most `MAX_LINES`. The one on a detached HEAD is first, then the one that was left
    last. While a merge or the like is unfinished, there are none. Raises `GitError`."""
    if not state.head or state.operation:
        return ()
    reflog = _read_recent_entries(git, now - MAX_AGE)
    left_at = {commit: entry.at for entry in reflog for commit in (entry.old, entry.new) if commit.strip("0")}
    if state.detached:
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
        for line in lines[: 2 * MAX_LINES]
        if line.is_checked_out or not _is_work_present(git, state, lost, line.tip)
    )
    return tuple(itertools.islice(missing, MAX_LINES))


def _find_own_lines(
    state: GitState, lost: Mapping[str, Commit], made_here: Collection[str], left_at: Mapping[str, datetime]
) -> list[LostCommits]:
    """The lines of the `lost` commits with at least one that the operator committed, or that was `made_here`. Lines of
    merges alone are left out."""
    parents = {parent for commit in lost.values() for parent in commit.parents}
    lines = []
    for tip in [commit for commit in lost if commit not in parents]:
        commits = _collect_ancestry(lost, tip)
        is_own = any(commit.id in made_here or (state.me and commit.committer_email == state.me) for commit in commits)
        number = sum(len(commit.parents) < 2 for commit in commits)
        if is_own and number:
            at, is_checked_out = left_at.get(tip, lost[tip].at), state.detached and tip == state.head
            lines.append(LostCommits(tip, lost[tip].subject, number, at, is_checked_out))
    return lines


def is_reachable(git: Git, commit: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    return not git.text("rev-list", "-n1", commit, *ONLY_UNREACHABLE)


def _read_recent_entries(git: Git, since: datetime) -> list[ReflogEntry]:
    """The reflog entries of HEAD and of the branches since a time, oldest first."""
    logs = [read_reflog(git, ref) for ref in ("HEAD", *_find_branches_with_log(git))]
    return sorted((entry for log in logs for entry in log if entry.at >= since), key=lambda entry: entry.at)


def _read_unreachable_commits(git: Git, candidates: Iterable[str]) -> dict[str, Commit]:
    """The commits that no branch or tag reaches, among the candidates and their ancestors. Newest first, by id."""
    commits = log_commits(
        git, f"-n{MAX_COMMITS}", "--ignore-missing", "--topo-order", "--stdin", *ONLY_UNREACHABLE,
        stdin="".join(f"{candidate}\n" for candidate in candidates).encode(),
    )  # fmt: skip
    return {commit.id: commit for commit in commits}


def _find_rewritten_commits(git: Git, reflog: list[ReflogEntry], commits: dict[str, Commit]) -> set[str]:
    """Those of `commits` whose work is in another commit on a branch. That commit has the same subject and author date,
    or they were amended, rebased or squashed into it, also by a reset and a commit with all their messages."""
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
        or (FIXUP_PREFIX.match(commit.subject) and FIXUP_PREFIX.sub("", commit.subject, count=1) in subjects)
    }
    rebased, amended = _find_rewritten_tips(reflog)
    for tip in (rebased & commits.keys()) - amended:
        rewritten |= {commit.id for commit in _collect_ancestry(commits, tip)}
    for tip, commit in _find_tips_reset_before_commits(reflog):
        line = _collect_ancestry(commits, tip)
        if len(line) > 1 and _count_message_lines(git, f"{commit}..{tip}") == _count_message_lines(git, "-1", commit):
            rewritten |= {replaced.id for replaced in line}
    # `git rebase --root` starts from an empty commit without a message that it makes for itself.
    starts = {entry.new for entry in reflog if entry.action.startswith("rebase (start)")} & commits.keys()
    rewritten |= {start for start in starts if not commits[start].parents and not commits[start].subject}
    # The last of several amended commits has the work of all of them, whether it is lost or on a branch.
    return rewritten | (amended & commits.keys())


def _find_rewritten_tips(reflog: Iterable[ReflogEntry]) -> tuple[set[str], set[str]]:
    """The commits that HEAD left last by a rebase or by amending, and those that were amended."""
    rebased: set[str] = set()
    amended: set[str] = set()
    for entry in reflog:
        if entry.action.startswith("commit (amend)") and entry.old != entry.new:
            amended.add(entry.old)
        if _REWRITING_ACTION.match(entry.action):
            rebased.add(entry.old)
        else:
            rebased.discard(entry.old)  # HEAD came back to it later, and left it in another way
    return rebased, amended


def _find_tips_reset_before_commits(reflog: Iterable[ReflogEntry]) -> list[tuple[str, str]]:
    """(tip, commit) for each commit that was made just after a reset had left the commit `tip`."""
    tips: dict[str, str] = {}
    pairs = []
    for entry in reflog:
        if entry.action.startswith("reset:"):
            tips[entry.new] = entry.old
        elif entry.action.startswith("commit") and entry.old in tips:
            pairs.append((tips[entry.old], entry.new))
    return pairs


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


def _is_work_present(git: Git, state: GitState, commits: dict[str, Commit], tip: str) -> bool:
    """Whether the work of the commits up to `tip` is in HEAD, on the base or in the files. It is if a merge would
    change nothing, or if most of the lines that they added are there."""
    if any(not try_merge(git.folder, onto, tip).adds for onto in (state.head, state.base_tip) if onto):
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
    return {path: meaningful for path, lines in added.items() if (meaningful := set(filter(_is_meaningful, lines)))}


def _is_meaningful(line: str) -> bool:
    return sum(character.isalnum() for character in line) >= 4


def _read_lines(git: Git, path: str, commit: str) -> set[str]:
    """The lines of a file in a commit, or on the disk if `commit` is ""."""
    if commit:
        text = read_file_at(git, commit, path)[:MAX_FILE_BYTES]
    else:
        text = read_plain_or_nothing(git.folder / path, MAX_FILE_BYTES, follow=False)
    return {line.strip() for line in text.decode(errors="surrogateescape").split("\n")}
