"""Commits that no branch, remote branch or tag holds: on a detached HEAD, or known from the reflog alone.

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

from engine.frozen import frozen
from engine.git import Git
from engine.git.merges import adds_nothing, objects_aside
from engine.git.reflog import Step, branch_logs, read_reflog
from engine.git.state import GitState
from engine.git.status import instant, parts
from engine.plain_files import read_plain

REMEMBERED: Final = timedelta(days=30)
"""A commit that was left longer ago is not brought up."""

MOST_COMMITS: Final = 300
MOST_LINES: Final = 5
MOST_ALIKE: Final = 5_000  # commits of branches that are looked through for the like of a lost one
MOST_FILES: Final = 20  # files of a line of commits that are compared
MOST_DIFF: Final = 500_000  # bytes of what a line of commits added that are compared
LARGEST_FILE: Final = 1_000_000
SURVIVED: Final = 0.6
"""The share of the added lines that must be there for the work to count as there."""

_MADE: Final = re.compile(r"(commit|cherry-pick|revert|merge|am|rebase)\b")
_REWRITTEN: Final = re.compile(r"commit \(amend\)|.*\((?:start|finish)\)")
_FIXUP: Final = re.compile(r"(?:fixup|squash|amend)! ")


@frozen
class LostCommits:
    """`number` commits that end in `tip` and are on no branch. `left_at`: when HEAD or a branch was last there;
    `here`: it is what is checked out, on a detached HEAD."""

    tip: str
    subject: str
    number: int
    left_at: datetime
    here: bool


@frozen
class _Commit:
    id: str
    parents: tuple[str, ...]
    written: str
    at: datetime
    email: str
    subject: str


def read_lost_commits(git: Git, state: GitState, now: datetime) -> tuple[LostCommits, ...]:
    """The lines of lost commits, that on a detached HEAD first, then the one left last; at most five.
    Raises `GitError`."""
    steps = _steps(git, now - REMEMBERED)
    seen = {one: step.at for step in steps for one in (step.former, step.commit) if one.strip("0")}
    if state.detached:
        seen.setdefault(state.head, now)
    lost = _unheld(git, seen)
    if not lost:
        return ()
    explained = _explained(git, state, steps, lost)
    mine = {step.commit for step in steps if _MADE.match(step.action)}
    left = {one.id: one for one in lost.values() if one.id not in explained}
    below = {parent for one in left.values() for parent in one.parents}
    lines = []
    for tip in [one for one in left if one not in below]:
        line = _line(left, tip)
        own = any(one.id in mine or (state.me and one.email == state.me) for one in line)
        if not own or all(len(one.parents) > 1 for one in line):
            continue
        here = state.detached and tip == state.head
        number = sum(len(one.parents) < 2 for one in line)
        lines.append(LostCommits(tip, left[tip].subject, number, seen.get(tip, left[tip].at), here))
    lines.sort(key=lambda line: (line.here, line.left_at), reverse=True)
    gone = (line for line in lines[: 2 * MOST_LINES] if line.here or not _there(git, state, left, line))
    return tuple(itertools.islice(gone, MOST_LINES))


def is_reachable(git: Git, commit: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    return not git.text("rev-list", "-n1", commit, "--not", "--branches", "--remotes", "--tags")


def _steps(git: Git, since: datetime) -> list[Step]:
    logs = [read_reflog(git), *(read_reflog(git, ref) for ref in branch_logs(git))]
    return sorted((step for log in logs for step in log if step.at >= since), key=lambda step: step.at)


def _unheld(git: Git, candidates: Iterable[str]) -> dict[str, _Commit]:
    """Of the candidates and what leads to them, the commits that nothing holds, newest first."""
    out = git.output(
        "log", f"-n{MOST_COMMITS}", "-z", "--no-show-signature", "--ignore-missing", "--topo-order",
        "--format=%H%n%P%n%at%n%ct%n%ce%n%s", "--stdin", "--not", "--branches", "--remotes", "--tags",
        stdin="".join(f"{candidate}\n" for candidate in candidates).encode(),
    )  # fmt: skip
    found = {}
    for record in parts(out):
        commit, parents, written, committed, email, subject = record.split("\n", 5)
        found[commit] = _Commit(commit, tuple(parents.split()), written, instant(committed), email, subject)
    return found


def _explained(git: Git, state: GitState, steps: list[Step], lost: dict[str, _Commit]) -> set[str]:
    """Lost commits whose like is on a branch: the same author's date and subject, amended, rebased, folded into it."""
    since = int(min(one.at for one in lost.values()).timestamp()) - 1
    out = git.output(
        "log", f"-n{MOST_ALIKE}", "-z", "--no-show-signature", f"--since={since}", "--format=%at %s",
        "--branches", "--remotes", "--tags",
    )  # fmt: skip
    alike = {(written, subject) for written, _, subject in (part.partition(" ") for part in parts(out))}
    subjects = {subject for _, subject in alike}
    gone = {one.id for one in lost.values() if (one.written, one.subject) in alike}
    gone |= {
        one.id
        for one in lost.values()
        if _FIXUP.match(one.subject) and _FIXUP.sub("", one.subject, count=3) in subjects
    }
    rebased: set[str] = set()
    amended: dict[str, str] = {}
    for step in steps:
        if step.action.startswith("commit (amend)"):
            amended[step.former] = step.commit
        if _REWRITTEN.match(step.action):
            rebased.add(step.former)
        else:
            rebased.discard(step.former)  # it was gone back to, and left in another way
    for tip in rebased & lost.keys() - amended.keys():
        gone |= {one.id for one in _line(lost, tip)}
    for former in amended.keys() & lost.keys():
        last, seen = former, {former}
        while (follower := amended.get(last)) and follower not in seen:
            last = follower
            seen.add(last)
        if last != former:  # the last one stands for all: lost itself, or on a branch
            gone.add(former)
    return gone


def _line(commits: dict[str, _Commit], tip: str) -> list[_Commit]:
    """Of `commits`, `tip` and those that lead to it."""
    line, todo, seen = [], [tip], set()
    while todo:
        one = todo.pop()
        if one in commits and one not in seen:
            seen.add(one)
            line.append(commits[one])
            todo += commits[one].parents
    return line


# -- is the work there all the same? ----------------------------------------------------------------------------------


def _there(git: Git, state: GitState, commits: dict[str, _Commit], line: LostCommits) -> bool:
    """Whether what these commits did is in HEAD, on the base or in the files: merging them changes nothing, or most
    lines that they added are there."""
    onto = dict.fromkeys(tip for tip in (state.head, state.base_tip) if tip)
    with tempfile.TemporaryDirectory(prefix="clawpy-merge-") as folder:
        aside = objects_aside(git, Path(folder))
        if any(adds_nothing(git, tip, line.tip, aside) for tip in onto):
            return True
    oldest = _line(commits, line.tip)[-1]
    if not oldest.parents:
        return False
    added = _added(git, oldest.parents[0], line.tip)
    if not added:
        return False
    total = sum(map(len, added.values()))
    return any(
        sum(len(lines & _lines(git, state, path, tip)) for path, lines in added.items()) >= SURVIVED * total
        for tip in ("", state.base_tip)
    )


def _added(git: Git, old: str, new: str) -> dict[str, set[bytes]]:
    """The lines that say something which a line of commits added, by file; none where that is too much to compare."""
    out = git.output("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--")
    added: dict[str, set[bytes]] = {}
    read = 0
    for path in itertools.islice(parts(out), MOST_FILES):
        patch = git.output(
            "diff-tree", "-p", "-U0", "--no-renames", "--no-color", old, new, "--", path,
            environment={"GIT_LITERAL_PATHSPECS": "1"},
        )  # fmt: skip
        read += len(patch)
        if read > MOST_DIFF:
            return {}
        lines = patch.partition(b"\n@@ ")[2].split(b"\n")
        if said := {line[1:].strip() for line in lines if line[:1] == b"+" and _says(line)}:
            added[path] = said
    return added


def _says(line: bytes) -> bool:
    return sum(chr(byte).isalnum() for byte in line) >= 4


def _lines(git: Git, state: GitState, path: str, tip: str) -> set[bytes]:
    """The lines of a file in `tip`, or, with "", on the disk."""
    try:
        if tip:
            done = git.run("cat-file", "blob", f"{tip}:{path}", allowed=(0, 128))
            text = done.stdout[:LARGEST_FILE] if done.returncode == 0 else b""
        else:
            text = read_plain(git.folder / path, LARGEST_FILE, follow=False)
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in text.split(b"\n")}
