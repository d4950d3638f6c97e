"""Is what is read off a history right? Judged by what happened next in real histories.

CLAWPY_DATA=FOLDER pytest tests/benchmarks/test_replay.py -m benchmark -s

`FOLDER/histories/*.jsonl`: a commit a line, oldest first: {"t": seconds, "parents": number, "subject", "tags": [names],
"files": [[path, lines added, lines deleted], ...]}, the lines null for a binary file. Each is rebuilt as a git
repository with stand-in contents, read by the real code, and its second half is walked through with only the past
known.

*Changes together.* Of each commit with 2 to 12 files each file is left out in turn, and what is missing is asked of the
rest; right is who names the file that was left out. A commit of n files weighs n questions. Then the whole commit is
asked: whoever names anything there is wrong. Beside it the plain association rule (confidence 0.9, support 5), with all
commits of up to 30 files as its transactions.

*Release due.* Once between two releases it may say that one is due; right is that a release follows within the usual
wait. Beside it the plain rule that one is due each time the usual wait is over.

*Change log.* The same moments, where the log does not speak of the release yet; right is that the log is changed within
the next ten commits. Beside it: how often that holds after any commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.git import Git
from engine.git.co_changes import MAX_CHANGED, MAX_FILES, CoChanges
from engine.git.history import Change, read_history
from engine.git.releases import DAY, ReleaseRhythm, is_release_tag, release_rhythm

pytestmark = pytest.mark.benchmark

MEASURED = {"posting": 0.49, "harlequin": 0.80, "lazygit": 0.64, "click": 0.90}
"""How often the plain rule was right when it spoke, as measured before this was written."""

CONFIDENCE, SUPPORT = 0.9, 5
AS_OFTEN = 1.5
WHOLE = 0.03
SAMPLES = 12
"""So many moments of each walk are asked of the repository as it was then, by the function that sensing calls."""

NEXT_COMMITS = 10
CHANGE_LOG = re.compile(r"(?i)(?:^|/)(?:change(?:s|log)|history|news)(?:\.\w+)?$")


def histories() -> list[Path]:
    folder = os.environ.get("CLAWPY_DATA")
    found = sorted((Path(folder) / "histories").glob("*.jsonl")) if folder else []
    if not found:
        pytest.skip("set CLAWPY_DATA to the folder with histories/*.jsonl")
    return found


# -- the repository ---------------------------------------------------------------------------------------------------


def rebuilt(file: Path, folder: Path) -> Git:
    """A repository with the commits, merges, tags and files of a history. A file holds as many lines as it should, or
    one less or more so that it differs; one that has none left is deleted."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    stream = b"".join(_stream(json.loads(line) for line in file.read_text().splitlines()))
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream, check=True)
    subprocess.run(["git", "-C", str(folder), "symbolic-ref", "HEAD", "refs/heads/main"], check=True)
    return Git(folder)


def _stream(commits: Iterable[dict]) -> Iterable[bytes]:
    lines: Counter[str] = Counter()
    for number, commit in enumerate(commits, 1):
        subject = commit["subject"].encode()
        who = f"A <a@example.org> {commit['t']} +0000"
        yield f"commit refs/heads/main\nmark :{number}\nauthor {who}\ncommitter {who}\ndata {len(subject)}\n".encode()
        yield subject + b"\n"
        if number > 1:
            yield f"from :{number - 1}\n".encode()
            # Where a merge came from is not known: from the commit before, which changes no file.
            yield from (f"merge :{max(1, number - 1 - k)}\n".encode() for k in range(1, commit["parents"]))
        for path, added, deleted in commit["files"]:
            lines[path] += (added or 0) - (deleted or 0)
            if added is not None and deleted and lines[path] <= 0:
                lines[path] = 0
                yield b"D " + _quoted(path) + b"\n"
                continue
            text = f"{number}\n".encode() + b"line\n" * min(lines[path], 50)
            yield b"M 100644 inline " + _quoted(path) + f"\ndata {len(text)}\n".encode() + text + b"\n"
        for tag in commit["tags"]:
            yield f"reset refs/tags/{tag}\nfrom :{number}\n\n".encode()


def _quoted(path: str) -> bytes:
    return b'"' + path.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


# -- changes together -------------------------------------------------------------------------------------------------


class Rule:
    """The plain association rule: of the files that came with one of these in at least nine of ten commits, and that
    one at least five times, the surest."""

    def __init__(self) -> None:
        self._alone: Counter[str] = Counter()
        self._pairs: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def missing(self, files: Iterable[str]) -> str | None:
        present = set(files)
        found = [
            (together / self._alone[one], together, other)
            for one in present
            if self._alone[one] >= SUPPORT
            for other, together in self._pairs[one].items()
            if other not in present and together >= CONFIDENCE * self._alone[one]
        ]
        return max(found)[2] if found else None

    def learn(self, files: Sequence[str]) -> None:
        if len(files) <= MAX_FILES:
            for file in files:
                self._alone[file] += 1
                self._pairs[file].update(other for other in files if other != file)


@dataclass
class Score:
    """How often somebody was asked, spoke, was right, and spoke of a whole commit."""

    asked: int = 0
    spoke: int = 0
    right: int = 0
    commits: int = 0
    alarms: int = 0

    def left_out(self, told: str | None, gone: str) -> None:
        self.asked += 1
        self.spoke += told is not None
        self.right += told == gone

    def whole(self, told: str | None) -> None:
        self.commits += 1
        self.alarms += told is not None

    def add(self, other: Score) -> None:
        self.asked, self.spoke, self.right = (
            self.asked + other.asked,
            self.spoke + other.spoke,
            self.right + other.right,
        )
        self.commits, self.alarms = self.commits + other.commits, self.alarms + other.alarms

    @property
    def precision(self) -> float:
        return self.right / self.spoke if self.spoke else 0.0

    @property
    def alarm_rate(self) -> float:
        return self.alarms / self.commits if self.commits else 0.0

    def __str__(self) -> str:
        return (
            f"spoke {self.spoke:4} of {self.asked:4} ({self.spoke / max(1, self.asked):5.1%})"
            f"  right {self.precision:.2f}  whole {self.alarms:2} of {self.commits} ({self.alarm_rate:.1%})"
        )


def replayed(history: Sequence[Change], git: Git) -> tuple[Score, Score]:
    """What ours and the rule's answers were worth in the second half."""
    habits, rule = CoChanges(history), Rule()
    ours, plain = Score(), Score()
    begin = sum(change.parents < 2 for change in history[: len(history) // 2])
    changes = [change for change in history if change.parents < 2]
    fit = [at for at in range(begin, len(changes)) if 2 <= len(changes[at].files) <= MAX_CHANGED]
    samples = set(fit[:: max(1, len(fit) // SAMPLES)])
    for at, change in enumerate(changes):
        if at in set(fit):
            for gone in change.files:
                rest = [path for path in change.files if path != gone]
                found = habits.missing(rest, at)
                ours.left_out(found.path if found else None, gone)
                plain.left_out(rule.missing(rest), gone)
            found = habits.missing(change.files, at)
            ours.whole(found.path if found else None)
            plain.whole(rule.missing(change.files))
        if at in samples:
            then = CoChanges(read_history(git, f"{change.id}^"))
            assert then.missing(change.files[1:]) == habits.missing(change.files[1:], at)
        rule.learn(change.files)
    return ours, plain


def test_what_changes_together(tmp_path: Path) -> None:
    every, rules, named = Score(), Score(), []
    print()
    for file in histories():
        git = rebuilt(file, tmp_path / file.stem)
        history = read_history(git, most=1_000_000)
        ours, plain = replayed(history, git)
        named.append((file.stem, ours))
        ratio = ours.spoke / plain.spoke if plain.spoke else 0.0
        print(f"{file.stem:10} ours  {ours}\n{'':10} rule  {plain}\n{'':10} ours spoke {ratio:.1f} x as often")
        every.add(ours)
        rules.add(plain)
    print(
        f"{'together':10} ours  {every}\n{'':10} rule  {rules}\n"
        f"{'':10} ours spoke {every.spoke / rules.spoke:.1f} x as often"
    )
    assert every.precision >= rules.precision
    assert every.spoke >= AS_OFTEN * rules.spoke
    for name, ours in named:
        assert ours.alarm_rate <= WHOLE, name
        assert ours.precision >= MEASURED.get(name, 0.0), name


# -- releases ---------------------------------------------------------------------------------------------------------


@dataclass
class Calls:
    """How often something was said, of how many times it could have been, and how often it was right."""

    times: int = 0
    said: int = 0
    right: int = 0

    def __str__(self) -> str:
        return f"said {self.said:3} of {self.times:3}  right {self.right / max(1, self.said):.2f}"


def walked(history: Sequence[Change]) -> tuple[Calls, Calls, Calls, Calls]:
    """Release due and the plain rule, change log due and how often any commit is followed by a change of the log."""
    due, wait, log, base = Calls(), Calls(), Calls(), Calls()
    releases = [(at, change.at) for at, change in enumerate(history) if any(map(is_release_tag, change.tags))]
    logged = [any(map(CHANGE_LOG.search, change.files)) for change in history]
    clock = FakeClock(datetime.fromtimestamp(history[0].at, UTC))
    said: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for at in range(len(history) // 2, len(history)):
        found = release_rhythm(history[max(0, at - 2_999) : at + 1])
        following = next((second for place, second in releases if place > at), None)
        if found is None or following is None:
            continue  # what came next is not known
        clock.advance(max(timedelta(0), datetime.fromtimestamp(history[at].at, UTC) - clock.now()))
        now = clock.now().timestamp()
        soon = following - now <= max(1.0, found.usual_days) * DAY
        if found.tag not in seen:
            seen.add(found.tag)
            due.times, wait.times = due.times + 1, wait.times + 1
        for name, calls, speaks in (
            ("due", due, found.is_due(now)), ("wait", wait, found.days(now) >= found.usual_days),
        ):  # fmt: skip
            if speaks and (name, found.tag) not in said:
                said.add((name, found.tag))
                calls.said, calls.right = calls.said + 1, calls.right + soon
        touched = any(logged[at + 1 : at + 1 + NEXT_COMMITS])
        base.times, base.said, base.right = base.times + 1, base.said + 1, base.right + touched
        log.times = due.times
        if _log_due(found, now) and ("log", found.tag) not in said:
            said.add(("log", found.tag))
            log.said, log.right = log.said + 1, log.right + touched
    return due, wait, log, base


def _log_due(found: ReleaseRhythm, now: float) -> bool:
    kept = [path for path in found.usual_files if CHANGE_LOG.search(path)]
    return found.commits > 0 and found.is_due(now) and bool(kept) and found.files.isdisjoint(kept)


def test_releases(tmp_path: Path) -> None:
    right = Counter[str]()
    print()
    for file in histories():
        git = rebuilt(file, tmp_path / file.stem)
        history = read_history(git, most=1_000_000)
        due, wait, log, base = walked(history)
        print(f"{file.stem:10} release due  {due}   each usual wait  {wait}")
        print(f"{'':10} change log   {log}   after any commit {base}")
        for name, calls in (("due", due), ("wait", wait)):
            right[f"{name} said"] += calls.said
            right[f"{name} right"] += calls.right
    ours, plain = right["due right"] / right["due said"], right["wait right"] / right["wait said"]
    print(
        f"together: release due right {ours:.2f} of {right['due said']}, "
        f"each usual wait {plain:.2f} of {right['wait said']}"
    )
    assert ours >= plain
