"""Finds commits that no branch, remote branch or tag holds (on a detached HEAD, or known from the reflog alone), and
`fixup!` commits that still wait to be folded into another.

What was amended, rebased, squashed or cherry-picked away is not lost: its like is on a branch. Neither is what somebody
else committed and was only checked out here, nor what stands in the files or on the base all the same.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import Commit, log_commits, read_file_at, to_datetime
from engine.git.merges import is_merged, separate_objects
from engine.git.patch import read_patch
from engine.git.state import GitState, modified_at

MAX_BYTES: Final = 8_000_000
"""Bytes of a reflog; a longer one, of about 40,000 entries, counts as none."""

MAX_LOGS: Final = 300

_ENTRY: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .*?> (\d+) [+-]\d{4}\t?(.*)")


@frozen
class Step:
    """One entry: a ref went from `former` to `commit` (zeroes where there was none). `action`: `commit (amend): …`."""

    former: str
    commit: str
    at: datetime
    action: str


def read_reflog(git: Git, ref: str = "HEAD") -> list[Step]:
    """The entries of one ref's log, oldest first; none where it keeps none."""
    repository = git.repository
    file = (repository.git_dir if ref == "HEAD" else repository.common) / "logs" / ref
    try:
        lines = read_plain(file, MAX_BYTES, follow=False).split(b"\n")
    except (OSError, ValueError):
        return []
    entries = [match.groups() for line in lines if (match := _ENTRY.fullmatch(line))]
    return [
        Step(former.decode(), commit.decode(), to_datetime(at.decode()), action.decode(errors="surrogateescape"))
        for former, commit, at, action in entries
    ]


def branch_logs(git: Git) -> list[str]:
    """The branches that have a log, as refs, at most 300."""
    top = git.repository.common / "logs"
    return sorted(str(file.relative_to(top)) for file in (top / "refs/heads").rglob("*") if file.is_file())[:MAX_LOGS]


def logs_stamp(git: Git) -> tuple[object, ...]:
    """Changes whenever HEAD's log does, and so whenever anything is committed, reset or checked out here, and whenever
    a stash is made or dropped."""
    repository = git.repository
    return modified_at(repository.git_dir / "logs/HEAD"), modified_at(repository.common / "logs/refs/stash")


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
    steps = read_reflog(git, "refs/stash")[: -MAX_STASHES - 1 : -1]
    stashes = []
    for number, step in enumerate(steps):  # `WIP on main: 1a2b3c4 subject` and `On main: words` are what git writes
        where, _, words = step.action.partition(": ")
        branch = where.removeprefix("WIP on ").removeprefix("On ").removeprefix("(no branch)")
        stashes.append(Stash(number, step.commit, step.at, branch, words, stash_files(git, step.commit)))
    return tuple(stashes)


def stash_files(git: Git, commit: str) -> tuple[str, ...]:
    """The files that a stash changes; none when it is gone."""
    names = git.items("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^", commit, allowed=(0, 128))
    names += git.items("ls-tree", "-r", "-z", "--name-only", f"{commit}^3", allowed=(0, 128))
    return tuple(names[:MAX_STASHED_FILES])


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
_REWRITTEN: Final = re.compile(r"commit \(amend\)|.*\((?:start|finish)\)")
_FIXUP: Final = re.compile(r"(?:fixup|squash|amend)! ")


@frozen
class LostCommits:
    """`number` commits that end in `tip` and are on no branch. `left_at`: when HEAD or a branch was last at `tip`;
    `here`: it is checked out, on a detached HEAD."""

    tip: str
    subject: str
    number: int
    left_at: datetime
    here: bool


def read_lost_commits(git: Git, state: GitState, now: datetime) -> tuple[LostCommits, ...]:
    """The lines of lost commits: the one on a detached HEAD first, then the one left last; at most five.
    Raises `GitError`."""
    steps = _recent_steps(git, now - MAX_AGE)
    visited = {commit: step.at for step in steps for commit in (step.former, step.commit) if commit.strip("0")}
    if state.detached:
        visited.setdefault(state.head, now)
    lost = _unreachable_commits(git, visited)
    if not lost:
        return ()
    explained = _commits_with_a_like(git, steps, lost)
    made_here = {step.commit for step in steps if _MADE_HERE.match(step.action)}
    remaining = {commit.id: commit for commit in lost.values() if commit.id not in explained}
    parents = {parent for commit in remaining.values() for parent in commit.parents}
    lines = []
    for tip in [commit for commit in remaining if commit not in parents]:
        commits = _ancestry(remaining, tip)
        is_own = any(commit.id in made_here or (state.me and commit.committer_email == state.me) for commit in commits)
        if not is_own or all(len(commit.parents) > 1 for commit in commits):
            continue
        here = state.detached and tip == state.head
        number = sum(len(commit.parents) < 2 for commit in commits)
        lines.append(LostCommits(tip, remaining[tip].subject, number, visited.get(tip, remaining[tip].at), here))
    lines.sort(key=lambda line: (line.here, line.left_at), reverse=True)
    candidates = lines[: 2 * MAX_LINES]
    missing = (line for line in candidates if line.here or not _is_work_present(git, state, remaining, line))
    return tuple(itertools.islice(missing, MAX_LINES))


def is_reachable(git: Git, commit: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    return not git.text("rev-list", "-n1", commit, *UNREACHABLE)


def _recent_steps(git: Git, since: datetime) -> list[Step]:
    logs = [read_reflog(git), *(read_reflog(git, ref) for ref in branch_logs(git))]
    return sorted((step for log in logs for step in log if step.at >= since), key=lambda step: step.at)


def _unreachable_commits(git: Git, candidates: Iterable[str]) -> dict[str, Commit]:
    """Of the candidates and what leads to them, the commits that no branch or tag reaches, newest first."""
    commits = log_commits(
        git, f"-n{MAX_COMMITS}", "--ignore-missing", "--topo-order", "--stdin", *UNREACHABLE,
        stdin="".join(f"{candidate}\n" for candidate in candidates).encode(),
    )  # fmt: skip
    return {commit.id: commit for commit in commits}


def _commits_with_a_like(git: Git, steps: list[Step], lost: dict[str, Commit]) -> set[str]:
    """Lost commits whose like is on a branch: the same author's date and subject, amended, rebased, folded into it."""
    since = int(min(commit.at for commit in lost.values()).timestamp()) - 1
    records = git.items(
        "log", f"-n{MAX_ALIKE}", "-z", "--no-show-signature", f"--since={since}", "--format=%at %s",
        "--branches", "--remotes", "--tags",
    )  # fmt: skip
    alike = {(authored, subject) for authored, _, subject in (record.partition(" ") for record in records)}
    subjects = {subject for _, subject in alike}
    explained = {commit.id for commit in lost.values() if (commit.authored, commit.subject) in alike}
    explained |= {
        commit.id
        for commit in lost.values()
        if _FIXUP.match(commit.subject) and _FIXUP.sub("", commit.subject, count=3) in subjects
    }
    rebased: set[str] = set()
    amended: dict[str, str] = {}
    for step in steps:
        if step.action.startswith("commit (amend)"):
            amended[step.former] = step.commit
        if _REWRITTEN.match(step.action):
            rebased.add(step.former)
        else:
            rebased.discard(step.former)  # HEAD went back to it, and left it in another way
    for tip in rebased & lost.keys() - amended.keys():
        explained |= {commit.id for commit in _ancestry(lost, tip)}
    # Of commits that amend each other the last stands for all: lost itself, or on a branch.
    return explained | {former for former in amended.keys() & lost.keys() if amended[former] != former}


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


def _is_work_present(git: Git, state: GitState, commits: dict[str, Commit], line: LostCommits) -> bool:
    """Whether what these commits did is in HEAD, on the base or in the files: merging them changes nothing, or most
    lines that they added are there."""
    onto = dict.fromkeys(tip for tip in (state.head, state.base_tip) if tip)
    with tempfile.TemporaryDirectory(prefix="clawpy-merge-") as folder:
        aside = separate_objects(git, Path(folder))
        if any(is_merged(git, tip, line.tip, aside) for tip in onto):
            return True
    oldest = _ancestry(commits, line.tip)[-1]
    if not oldest.parents:
        return False
    added = _added_lines(git, oldest.parents[0], line.tip)
    if not added:
        return False
    total = sum(map(len, added.values()))
    return any(
        sum(len(lines & _read_lines(git, path, tip)) for path, lines in added.items()) >= MIN_SURVIVING_SHARE * total
        for tip in ("", state.base_tip)
    )


def _added_lines(git: Git, old: str, new: str) -> dict[str, set[str]]:
    """The meaningful lines that these commits added, by file; none where that is too much to compare."""
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


def _read_lines(git: Git, path: str, tip: str) -> set[str]:
    """The lines of a file in `tip`, or, with "", on the disk."""
    try:
        if tip:
            text = read_file_at(git, tip, path)[:MAX_FILE_BYTES]
        else:
            text = read_plain(git.folder / path, MAX_FILE_BYTES, follow=False)
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in text.decode(errors="surrogateescape").split("\n")}


# -- `fixup!`, `squash!` and `amend!` commits


FIXUP: Final = re.compile(r"(?:(?:fixup|squash|amend)! )+")
MAX_UNPUSHED_COMMITS: Final = 200
"""Maximum number of unpushed commits that are looked through."""


@frozen
class Fixups:
    """`subjects` of the fixup commits, the newest first, and the subjects they name (`targets`). `onto`: the parent of
    the oldest commit that changes, "" when that is the very first. `at`: when the oldest fixup was committed."""

    subjects: tuple[str, ...]
    targets: tuple[str, ...]
    onto: str
    at: datetime


def read_fixups(git: Git, state: GitState) -> Fixups | None:
    """The fixup commits of HEAD that no remote branch has, nor the base when another branch is checked out; None when
    there are none, or when what they mend is pushed already. Commits before a merge are left alone. Raises
    `GitError`."""
    base = [state.base_tip] if state.base_tip and state.base_name != state.branch else []
    commits = log_commits(git, f"-n{MAX_UNPUSHED_COMMITS}", state.head, "--not", "--remotes", *base)
    own = list(itertools.takewhile(lambda commit: len(commit.parents) < 2, commits))
    fixups: list[Commit] = []
    targets: dict[str, None] = {}
    oldest = -1
    for number, commit in enumerate(own):
        if not FIXUP.match(commit.subject):
            continue
        wanted = FIXUP.sub("", commit.subject, count=1)
        match = next((older for older in range(number + 1, len(own)) if _is_target(wanted, own[older])), None)
        if match is not None:
            fixups.append(commit)
            targets[own[match].subject] = None
            oldest = max(oldest, match)
    if not fixups:
        return None
    subjects = tuple(fixup.subject for fixup in fixups)
    return Fixups(subjects, tuple(targets), "".join(own[oldest].parents), min(fixup.at for fixup in fixups))


def _is_target(wanted: str, commit: Commit) -> bool:
    """As git finds it: by the subject, its beginning, or the id."""
    if FIXUP.match(commit.subject):
        return False
    return commit.subject.startswith(wanted) or (len(wanted) >= 7 and commit.id.startswith(wanted))
