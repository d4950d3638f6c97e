"""Flows that look back at the commits of a repository: what was done on a day, and which commits changed two files
together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import dropwhile

from pydantic import AwareDatetime, Field

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, Line, RepoPath
from engine.execution.runners.flows.git_steps import find_main_branch, make_operator_git, parse_line_count
from engine.frozen import frozen
from engine.git import Git
from engine.git.habits import is_group
from engine.git.leftovers import scan_line
from engine.text import sanitise
from engine.wording import count, join_names

# -- what was done on a day

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


# -- a file that usually changes with yours

MAX_SHOWN_COMMITS = 3
"""Maximum number of commits in the transcript in which both files changed."""

MAX_SHOWN_LINES = 12
"""Maximum number of the partner's changed lines in the transcript, of the newest of these commits."""

MAX_SEARCHED_COMMITS = 2_000
"""Maximum number of commits of each file that are searched."""


class FindJointChanges(Flow):
    """Shows the last commits in which both files changed."""

    name = "look_together"
    label = "Look at what changed together"
    work = "review"
    place = Place.OPERATOR_TREE
    path: RepoPath = Field(description="the file that changed, or `folder/*.ending` for files that lie together")
    partner: RepoPath = Field(description="the file that usually changes with it")

    def describe(self) -> str:
        return f"Show how {self.partner} changed with {self.path}"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        path, partner = self.path, self.partner
        log = ("log", "--no-merges", f"-n{MAX_SEARCHED_COMMITS}", "--format=%H", "HEAD", "--")
        partner_commits = set(git.lines(*log, _make_pathspec(partner)))
        commits = [sha for sha in git.lines(*log, _make_pathspec(path)) if sha in partner_commits]
        if not commits:
            raise WorkFailed(f"no commit changed both {path} and {partner}")
        changes = [_read_joint_change(git, sha, partner) for sha in commits[:MAX_SHOWN_COMMITS]]
        for commit in changes:
            job.say(f"{commit.date}  {commit.sha[:10]}  {commit.subject}  (+{commit.added} −{commit.deleted})")
        newest = changes[0]
        job.say("")
        job.say(f"{partner} in {newest.sha[:10]}:")
        job.say_list(_read_changed_lines(git, newest.sha, partner), MAX_SHOWN_LINES)
        lines = count(parse_line_count(newest.added) + parse_line_count(newest.deleted), "line")
        last = f"the last on {newest.date}: “{newest.subject}”, {lines} of {partner}"
        return FlowResult(f"{count(len(commits), 'commit')} changed both {path} and {partner}, {last}")


@frozen
class JointChange:
    """A commit that changed both files."""

    sha: str
    date: str
    subject: str
    added: str
    """The number of the partner's added lines, "-" for a binary file."""
    deleted: str
    """The number of its deleted lines, in the same form."""


def _make_pathspec(path: str) -> str:
    """The path for git: a group of files as a pattern, any other name as it stands."""
    return f":(top,glob){path}" if is_group(path) else f":(top,literal){path}"


def _read_joint_change(git: Git, sha: str, partner: str) -> JointChange:
    form = "--format=%H%x00%cs%x00%s%x00"
    output = git.text("show", "--no-renames", "--numstat", "-z", form, sha, "--", _make_pathspec(partner))
    commit, date, subject, numbers = output.split("\0", 3)
    added, deleted = numbers.lstrip("\0\n").split("\t")[:2]
    return JointChange(commit, date, subject, added, deleted)


def _read_changed_lines(git: Git, sha: str, partner: str) -> list[str]:
    """The lines of the partner that the commit changed, without the header of the patch."""
    patch = git.lines("show", "--no-renames", "--unified=0", "--format=", sha, "--", _make_pathspec(partner))
    hunks = dropwhile(lambda line: not line.startswith("@@"), patch)
    return [_format_patch_line(line, partner) for line in hunks if line[:1] in ("+", "-")]


def _format_patch_line(line: str, partner: str) -> str:
    """A line of a patch for the transcript. Its white space stays, and a line with a likely secret is replaced."""
    if any(hit.is_secret for hit in scan_line(partner, line[1:])):
        return f"{line[:1]} (a likely secret, not shown)"
    return line[:1] + sanitise(line[1:].replace("\t", "    "))[:200]
