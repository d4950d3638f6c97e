"""What was done since a moment, as a text to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import ClassVar

from pydantic import AwareDatetime, BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Line, Parameters, clean, count, listed, main_branch

MAX_COMMITS = 500

NIGHT = timedelta(hours=5)
"""Work before five in the morning belongs to the day before."""


class SummariseDayParameters(Parameters):
    """Which time, and what the engine knows beside git."""

    since: AwareDatetime = Field(description="an ISO time with its offset, for example 2026-01-05T00:00:00+01:00")
    until: AwareDatetime | None = Field(default=None, description="the end of the period; none = now")
    sessions: list[Line] = Field(default=[], max_length=100, description="sessions that ran since, one line each")
    checks: list[Line] = Field(default=[], max_length=100, description="test runs since, one line each")


@dataclass(frozen=True, slots=True)
class Done:
    """One commit: its working day in the operator's time, its branch, what it touched."""

    day: str
    branch: str
    author: str
    subject: str
    files: frozenset[str]
    added: int
    removed: int


class SummariseDay:
    """Commits by day and branch, sessions and checks, and what is not committed yet."""

    name: ClassVar = "summarise_day"
    title: ClassVar = "Summarise the day"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = SummariseDayParameters

    def describe(self, parameters: SummariseDayParameters) -> str:
        if parameters.until is not None:
            return f"Summarise what was done on {parameters.since:%a %d %b}"
        return f"Summarise what was done since {parameters.since:%a %d %b %H:%M}"

    def run(self, job: Job) -> FlowResult:
        since: datetime = job.parameters.since
        commits = _commits(job, since, job.parameters.until)
        waiting = _uncommitted(job)
        text = worded(commits, job.parameters.sessions, job.parameters.checks, waiting)
        for line in text.splitlines():
            job.say(line)
        files = {file for one in commits for file in one.files}
        parts = [count(len(commits), "commit"), f"{count(len(files), 'file')} changed"]
        if job.parameters.sessions:
            parts.append(count(len(job.parameters.sessions), "session"))
        parts.append(f"{count(len(waiting), 'file')} not committed" if waiting else "everything is committed")
        return FlowResult(", ".join(parts), facts={"text": text, "commits": len(commits), "uncommitted": waiting})


def worded(commits: Sequence[Done], sessions: Sequence[str], checks: Sequence[str], waiting: Sequence[str]) -> str:
    """The summary as plain text, the newest day first."""
    lines: list[str] = []
    for day in sorted({one.day for one in commits}, reverse=True):
        mine = [one for one in commits if one.day == day]
        size = f"+{sum(one.added for one in mine)} -{sum(one.removed for one in mine)}"
        lines.append(f"{datetime.fromisoformat(day):%A %d %B}: {count(len(mine), 'commit')}, {size} lines")
        for branch in dict.fromkeys(one.branch for one in mine):
            there = [one for one in mine if one.branch == branch]
            authors = listed(dict.fromkeys(one.author for one in there), 3)
            lines.append(f"  {branch} ({authors})")
            lines += [f"    - {one.subject}" for one in there]
    if not commits:
        lines.append("No commits.")
    for title, items in (("Sessions", sessions), ("Checks", checks)):
        if items:
            lines += [f"{title}:", *(f"  - {item}" for item in items)]
    lines.append(f"Not committed yet: {listed(waiting, 10)}." if waiting else "Everything is committed.")
    return "\n".join(lines)


def _commits(job: Job, since: datetime, until: datetime | None) -> list[Done]:
    """The commits of all local branches, newest first; one that the main branch has too counts as the main branch's."""
    span = [f"--max-count={MAX_COMMITS}", f"--since={since.isoformat()}"]
    span += [f"--until={(until - timedelta(seconds=1)).isoformat()}"] if until is not None else []
    if not job.git.text("rev-parse", "--verify", "--quiet", "HEAD", allowed=(0, 1)):
        return []
    out = job.git.text(
        "log", "--branches", "HEAD", "--source", "--numstat", "-z", "--no-renames", *span,
        "--format=%x01%H%x02%cI%x02%S%x02%an%x02%s%x02", "--",
    )  # fmt: skip
    records = out.split("\x01")[1:]
    if not records:
        return []
    main = main_branch(job)
    shared = set(job.git.text("rev-list", *span, f"refs/heads/{main}").split()) if main else set()
    return [_commit(record, main, shared, since.tzinfo) for record in records]


def _commit(record: str, main: str | None, shared: set[str], zone: tzinfo | None) -> Done:
    sha, date, source, author, subject, numbers = record.split("\x02", 5)
    files: set[str] = set()
    added = removed = 0
    for entry in numbers.split("\0"):
        parts = entry.strip("\n").split("\t", 2)
        if len(parts) == 3:
            files.add(clean(parts[2]))
            added += int(parts[0]) if parts[0].isdigit() else 0
            removed += int(parts[1]) if parts[1].isdigit() else 0
    branch = clean(main if main and sha in shared else source.removeprefix("refs/heads/"))
    day = (datetime.fromisoformat(date).astimezone(zone) - NIGHT).date().isoformat()
    return Done(day, branch, clean(author), clean(subject), frozenset(files), added, removed)


def _uncommitted(job: Job) -> list[str]:
    """Files that differ from HEAD and untracked ones, as `git status` names them."""
    out = job.git.text("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    return [clean(entry[3:]) for entry in out.split("\0") if len(entry) > 3]
