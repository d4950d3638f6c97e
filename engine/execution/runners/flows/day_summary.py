"""The flow that summarises what was done on a day: commits by branch, sessions, checks, and what is not committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import AwareDatetime, Field

from engine.execution.runners import Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Line
from engine.execution.runners.flows.git_steps import find_main_branch, parse_line_count
from engine.frozen import frozen
from engine.wording import count, join_names

MAX_COMMITS = 500
"""Maximum number of commits of a summary."""

DAY_STARTS_AT = timedelta(hours=5)
"""Work before five in the morning belongs to the day before."""


class SummariseDay(Flow):
    """Lists commits by day and branch, sessions and checks, and uncommitted files."""

    name = "summarise_day"
    label = "Summarise the day"
    work = "summary"
    place = Place.OPERATOR_TREE
    since: AwareDatetime = Field(description="an ISO time with its offset, for example 2026-01-05T00:00:00+01:00")
    until: AwareDatetime | None = Field(default=None, description="the end of the period; none = now")
    sessions: list[Line] = Field(default=[], max_length=100, description="sessions that ran since, one line each")
    checks: list[Line] = Field(default=[], max_length=100, description="test runs since, one line each")

    def describe(self) -> str:
        if self.until is not None:
            return f"Summarise what was done on {self.since:%a %d %b}"
        return f"Summarise what was done since {self.since:%a %d %b %H:%M}"

    def run(self, job: Job) -> FlowResult:
        commits = _read_commits(job, self.since, self.until)
        entries = job.git.items("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
        uncommitted = [entry[3:] for entry in entries]
        days = sorted({commit.day for commit in commits}, reverse=True)
        by_day = {day: [commit for commit in commits if commit.day == day] for day in days}
        lines = [line for day, done in by_day.items() for line in _describe_day(day, done)] or ["No commits."]
        for title, items in (("Sessions", self.sessions), ("Checks", self.checks)):
            if items:
                lines += [f"{title}:", *(f"  - {item}" for item in items)]
        lines.append(
            f"Not committed yet: {join_names(uncommitted, 10)}." if uncommitted else "Everything is committed."
        )
        for line in lines:
            job.say(line)
        files = {file.path for commit in commits for file in commit.files}
        parts = [count(len(commits), "commit"), f"{count(len(files), 'file')} changed"]
        if self.sessions:
            parts.append(count(len(self.sessions), "session"))
        parts.append(f"{count(len(uncommitted), 'file')} not committed" if uncommitted else "everything is committed")
        return FlowResult(", ".join(parts))


def _describe_day(day: str, commits: Sequence[CommitSummary]) -> list[str]:
    """The commits of one day by branch, under a line with their number and size."""
    files = [file for commit in commits for file in commit.files]
    size = f"+{sum(file.added for file in files)} -{sum(file.removed for file in files)} lines"
    lines = [f"{datetime.fromisoformat(day):%A %d %B}: {count(len(commits), 'commit')}, {size}"]
    for branch in dict.fromkeys(commit.branch for commit in commits):
        on_branch = [commit for commit in commits if commit.branch == branch]
        lines.append(f"  {branch} ({join_names(dict.fromkeys(commit.author for commit in on_branch), 3)})")
        lines += [f"    - {commit.subject}" for commit in on_branch]
    return lines


@frozen
class CommitSummary:
    """One commit for a summary."""

    day: str
    """Its working day in the operator's time zone."""
    branch: str
    author: str
    subject: str
    files: tuple[ChangedFile, ...]


@frozen
class ChangedFile:
    """A file that a commit changed, with its numbers of lines, which are 0 for a binary file."""

    path: str
    added: int
    removed: int


def _read_commits(job: Job, since: datetime, until: datetime | None) -> list[CommitSummary]:
    """The commits of all local branches, newest first. A commit that is also on the main branch belongs to the main
    branch."""
    span = [f"--max-count={MAX_COMMITS}", f"--since={since.isoformat()}"]
    span += [f"--until={(until - timedelta(seconds=1)).isoformat()}"] if until is not None else []
    if not job.git.text("rev-parse", "--verify", "--quiet", "HEAD", allowed=(0, 1)):
        return []
    output = job.git.text(
        "log", "--branches", "HEAD", "--source", "--numstat", "-z", "--no-renames", *span,
        "--format=%x01%H%x02%cI%x02%S%x02%an%x02%s%x02", "--",
    )  # fmt: skip
    records = output.split("\x01")[1:]
    if not records:
        return []
    main = find_main_branch(job)
    shared = set(job.git.lines("rev-list", *span, f"refs/heads/{main}")) if main else set()
    commits = []
    for record in records:
        sha, date, source, author, subject, numbers = record.split("\x02", 5)
        rows = [entry.strip("\n").split("\t", 2) for entry in numbers.split("\0")]
        branch = main if main and sha in shared else source.removeprefix("refs/heads/")
        day = (datetime.fromisoformat(date).astimezone(since.tzinfo) - DAY_STARTS_AT).date().isoformat()
        files = tuple(
            ChangedFile(row[2], parse_line_count(row[0]), parse_line_count(row[1])) for row in rows if len(row) == 3
        )
        commits.append(CommitSummary(day, branch, author, subject, files))
    return commits
