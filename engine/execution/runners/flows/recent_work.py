"""Flows that look at your recent work and change nothing: what was done on a day, and what is not committed yet, with
the commits to make of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import PurePosixPath

from pydantic import AwareDatetime, Field

from engine.execution.runners import Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Line
from engine.execution.runners.flows.git_steps import find_main_branch, parse_line_count, quote_paths, resolve_commit
from engine.execution.runners.toolchains import TEST_FILE
from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git.state import FileState, is_byproduct, read_status
from engine.git.unpushed import read_uncommitted, read_untracked
from engine.model import group_pairs
from engine.wording import count, join_names

# -- the work of a day

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


# -- what is not committed

MAX_COUNTED_BYTES = 1_000_000
"""Maximum size of an untracked file whose lines are counted."""

MAX_GROUPS = 8
"""Maximum number of suggested commits in the transcript."""

_TEST_STEM = re.compile(r"^(?:test[_-])?(.+?)(?:[._-](?:test|tests|spec))?$", re.I)
"""The name of a test file without its ending; the group is the name of what it tests."""

_PROSE_FILE = re.compile(r"\.(?:md|rst|adoc|txt)$|(?:^|/)docs?/", re.I)

_SETTINGS_FILE = re.compile(
    r"\.(?:toml|ya?ml|cfg|ini|lock|mod|sum|gradle|properties)$|(?:^|/)(?:package(?:-lock)?\.json|\.[^/]+)$"
)

_SOURCE_FILE = re.compile(
    r"\.(?:py|js|jsx|ts|tsx|mjs|cjs|go|rs|java|kt|rb|php|ex|exs|cs|c|cc|cpp|h|hpp|swift|scala|vue|svelte)$"
)


@frozen
class UncommittedFile:
    """One uncommitted file with its numbers of lines, which are 0 for a file that is not text."""

    file: FileState
    added: int
    removed: int

    @property
    def letter(self) -> str:
        """The letter of its state: ? for an untracked file, D for a deleted one, M for any other."""
        if self.file.untracked:
            return "?"
        return "D" if self.file.deleted else "M"


class LookAtChanges(Flow):
    """Reads the differences from HEAD; nothing is run, staged or written."""

    name = "look_at_changes"
    label = "Look at uncommitted changes"
    work = "review"
    place = Place.OPERATOR_TREE

    def describe(self) -> str:
        return "Look at what is not committed yet and suggest commits"

    def run(self, job: Job) -> FlowResult:
        head = resolve_commit(job, "HEAD")
        status = read_status(job.git)
        changes = _read_changes(job, head, status.files)
        if not changes:
            return FlowResult("Nothing to commit: everything is committed")
        groups = _group_by_topic(changes)
        _report_groups(job, groups)
        untracked = [change.file.path for change in changes if change.file.untracked]
        risks = (*read_uncommitted(job.git, head, status.files), *read_untracked(job.git, untracked))
        for risk in risks:
            job.say(f"Do not commit: {risk.description_with_commit}")
        sentences = [f"{count(len(changes), 'file')} not committed"]
        sentences.append(f"could be {count(len(groups), 'commit')}: {join_names(groups, 3)}")
        if risks:
            sentences.append(f"do not commit: {risks[0].description}")
        next_step = "secret" if any(risk.is_secret for risk in risks) else "run_tests"
        return FlowResult("; ".join(sentences), sound=not risks, facts={"next": next_step})


def _report_groups(job: Job, groups: Mapping[str, list[UncommittedFile]]) -> None:
    """Show the first groups, each with its files and the command that commits them."""
    for number, (topic, members) in enumerate(islice(groups.items(), MAX_GROUPS), 1):
        lines = f"+{sum(change.added for change in members)} -{sum(change.removed for change in members)}"
        job.say(f"{number}. {topic}: {count(len(members), 'file')}, {lines}")
        for change in members:
            job.say(f"   {change.letter} {change.file.path}  +{change.added} -{change.removed}")
        job.say(f"   git add -- {quote_paths(change.file.path for change in members)} && git commit")
    if len(groups) > MAX_GROUPS:
        job.say(f"and {len(groups) - MAX_GROUPS} more")


def _read_changes(job: Job, head: str, files: Iterable[FileState]) -> list[UncommittedFile]:
    """The uncommitted files with their numbers of lines, without byproducts of tools."""
    numbers = {}
    for field in job.git.items("diff-index", "--numstat", "-z", "--no-renames", head):
        added, removed, path = field.split("\t", 2)
        numbers[path] = parse_line_count(added), parse_line_count(removed)
    changes = []
    for file in files:
        if not file.untracked:
            changes.append(UncommittedFile(file, *numbers.get(file.path, (0, 0))))
        elif not is_byproduct(file.path):
            data = read_plain_or_nothing(job.folder / file.path, MAX_COUNTED_BYTES, follow=False)
            changes.append(UncommittedFile(file, 0 if b"\0" in data else len(data.splitlines()), 0))
    return changes


def _group_by_topic(changes: Sequence[UncommittedFile]) -> Mapping[str, list[UncommittedFile]]:
    """The changes by topic, the topic with the most files first. A topic is a folder together with the tests of its
    files, documentation, or settings."""
    sources = [change.file.path for change in changes if _is_code(change.file.path)]
    folders = {_find_subject(path): _find_topic_folder(path) for path in sources}
    groups = group_pairs((_find_topic(change.file.path, folders), change) for change in changes)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _find_topic(path: str, folders: Mapping[str, str]) -> str:
    """The topic of a changed file. `folders` are those of the changed sources, by what each is about."""
    if _is_code(path):
        return _find_topic_folder(path)
    if _SOURCE_FILE.search(path):  # a test
        return folders.get(_find_subject(path), "tests")
    if _PROSE_FILE.search(path):
        return "documentation"
    return "settings" if _SETTINGS_FILE.search(path) else _find_topic_folder(path)


def _find_subject(path: str) -> str:
    """What a file is about: `cart` for `cart.py`, `tests/test_cart.py` and `cart.spec.ts`."""
    name = PurePosixPath(path).stem.lower()
    match = _TEST_STEM.match(name)
    return (match[1] if match else name).removesuffix("test")


def _is_code(path: str) -> bool:
    """Whether a path is a source file and not a test."""
    return bool(_SOURCE_FILE.search(path)) and not TEST_FILE.search(path)


def _find_topic_folder(path: str) -> str:
    folders = PurePosixPath(path).parts[:-1]
    return "/".join(folders[:3]) if folders else PurePosixPath(path).stem
