"""Flows about two documents of a project: its change log, and the `AGENTS.md` that coding agents read.

`DraftChangelog` writes the commits since a release into the unreleased section, and `LookAtRelease` only lists what a
release would hold. `change_log` has the rules of both, as functions on texts. `WriteAgentsMd` writes what was learned
into one section of `AGENTS.md`, and leaves every other byte as it is.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners import CannotRun, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Mark, Revision, check_argument
from engine.execution.runners.flows.change_log import (
    SortedCommits,
    add_entries,
    sort_commits,
)
from engine.execution.runners.flows.git_steps import make_operator_git, resolve_commit
from engine.execution.runners.toolchains.projects import find_changelog
from engine.files import LEARNT, read_section, write_section
from engine.git.history import Commit, log_commits
from engine.text import one_line
from engine.wording import count, join_names

# -- the change log

MAX_COMMITS = 500
"""Maximum number of commits that are drafted."""

MAX_CHANGELOG_BYTES = 20_000_000
"""Maximum size of a change log."""

MAX_NAMED_SUBJECTS = 10
"""Maximum number of subjects of commits that get no entry, in the transcript."""

MAX_SHOWN_ENTRIES = 8
"""Maximum number of entries of a section in the transcript."""


class DraftChangelog(Flow):
    """Groups the commits and writes them into the unreleased section, under the file's own headings."""

    name = "draft_changelog"
    label = "Draft the change log"
    work = "release"
    place = Place.CHANGE_SET
    since: Annotated[str, AfterValidator(lambda text: check_argument(text) if text else ""), Mark.DATA] = Field(
        default="", description='a tag or commit; "" = the last tag'
    )
    create: bool = Field(default=False, description="create CHANGELOG.md if the project has no change log")

    def describe(self) -> str:
        since = self.since or "the last tag"
        return f"Draft the change log of the commits since {since}"

    def run(self, job: Job) -> FlowResult:
        commits = self._read_commits(job)
        name = find_changelog(job.folder)
        if not name and not self.create:
            raise CannotRun("this project has no change log", "create one with create=true")
        name = name or "CHANGELOG.md"
        text = job.read_document(name, MAX_CHANGELOG_BYTES).decode(errors="surrogateescape")
        sorted_commits = sort_commits(commits, text)
        job.say(f"{count(len(commits), 'commit')}, {name} {'exists' if text else 'is new'}")
        _report_sorted_commits(job, sorted_commits)
        if not sorted_commits.entries:
            mentioned = len(sorted_commits.already_there)
            return FlowResult(
                f"Nothing to add to {name}: {mentioned} of {count(len(commits), 'commit')} already mentioned, and no "
                "other that users would notice"
            )
        (job.folder / name).write_bytes(add_entries(text, sorted_commits.entries).encode(errors="surrogateescape"))
        number = sum(map(len, sorted_commits.entries.values()))
        return FlowResult(f"{name}: {count(number, 'entry', 'entries')} under Unreleased")

    def _read_commits(self, job: Job) -> list[Commit]:
        """The commits, oldest first, without merges."""
        until = resolve_commit(job, "HEAD")
        newest_tag = ("describe", "--tags", "--abbrev=0", until)
        since = resolve_commit(job, self.since) if self.since else job.git.text(*newest_tag, allowed=(0, 128))
        span = f"{since}..{until}" if since else until
        return log_commits(job.git, "--no-merges", f"--max-count={MAX_COMMITS}", "--reverse", span, "--")


def _report_sorted_commits(job: Job, commits: SortedCommits) -> None:
    for section, entries in commits.entries.items():
        for entry in entries:
            job.say(f"{section:<10}  {entry}")
    if commits.left_out:
        job.say(f"left out: {join_names(commits.left_out, MAX_NAMED_SUBJECTS)}")
    if commits.already_there:
        job.say(f"already there: {join_names(commits.already_there, MAX_NAMED_SUBJECTS)}")


class LookAtRelease(Flow):
    """Lists the changes since a tag that users of the project would notice."""

    name = "look_at_release"
    label = "Look at what a release would hold"
    work = "release"
    place = Place.OPERATOR_TREE
    since: Revision = Field(description="the tag of the last release")

    def describe(self) -> str:
        return f"List what a release would hold since {self.since}"

    def run(self, job: Job) -> FlowResult:
        span = f"{resolve_commit(job, self.since)}..HEAD"
        commits = log_commits(make_operator_git(job), "--no-merges", span)
        entries = sort_commits(commits, "").entries
        for section, texts in entries.items():
            job.say(f"{section}:")
            job.say_list(texts, MAX_SHOWN_ENTRIES, indent="- ")
        noticed = sum(map(len, entries.values()))
        sections = ", ".join(f"{len(texts)} {section.lower()}" for section, texts in entries.items())
        summary = f"{count(len(commits), 'commit')} since {self.since}, {noticed} that users notice"
        return FlowResult(f"{summary}: {sections}" if noticed else summary)


# -- lessons in AGENTS.md

AGENTS_FILE = "AGENTS.md"
"""The file that coding agents read in a repository."""

MAX_SECTION_LESSONS = 60
"""Maximum number of lessons in the section."""

MAX_AGENTS_MD_BYTES = 1024 * 1024
"""Maximum size of the file."""

SECTION_HEAD = (
    "## What was learned here\n\nWritten by Clawpy with your approval; the text between the marks is overwritten.\n\n"
)
"""The text above the list of lessons."""

_NEEDS_ESCAPE = re.compile(r"&(?=(?:lt|amp);)|<(?=!--)")
"""The characters of a lesson that are escaped: the beginning of a comment, and of what looks like an escape."""

_ESCAPED_CHARACTER = re.compile(r"&(lt|amp);")
"""Their escapes."""

_MARKDOWN_SIGN = re.compile(r"(?=[\\#<>*+\-`~|=_\[])|[0-9]+(?=[\\.)])")
"""The place before a character with a meaning at the beginning of an item, or after the number of a list."""

_ESCAPED_SIGN = re.compile(r"^([0-9]*)\\")
"""The backslash that was put there."""


def _check_lesson(text: str) -> str:
    """Check a lesson, and return it in one line."""
    lesson = one_line(text)
    if not lesson:
        raise ValueError("must not be empty")
    return lesson


Lesson = Annotated[str, StringConstraints(max_length=700), AfterValidator(_check_lesson)]
"""A lesson in one line of at most 700 characters."""


class WriteAgentsMd(Flow):
    """Writes the lessons of a project into one marked section; every other byte of the file stays (SPEC 1.12)."""

    name = "write_agents_md"
    label = f"Write what was learned into {AGENTS_FILE}"
    work = "docs"
    place = Place.CHANGE_SET
    lessons: list[Lesson] = Field(
        min_length=1, max_length=MAX_SECTION_LESSONS, description="what was learned, one entry each"
    )

    def describe(self) -> str:
        entries = "\n".join(f"- {lesson}" for lesson in self.lessons)
        return f"Write what was learned here into {AGENTS_FILE}, {count(len(self.lessons), 'lesson')}:\n{entries}"

    def run(self, job: Job) -> FlowResult:
        before = job.read_document(AGENTS_FILE, MAX_AGENTS_MD_BYTES)
        lessons = list(dict.fromkeys(self.lessons))
        present = read_lessons(before)
        new = [lesson for lesson in lessons if lesson not in present]
        removed = [lesson for lesson in present if lesson not in lessons]
        for lesson in new:
            job.say(f"+ {lesson}")
        for lesson in removed:
            job.say(f"- {lesson}")
        after = write_section(before, format_section(lessons), LEARNT)
        if after == before:
            return FlowResult(f"{AGENTS_FILE} already contains all of it")
        (job.folder / AGENTS_FILE).write_bytes(after)
        return FlowResult(f"{AGENTS_FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new")


def format_section(lessons: list[str]) -> str:
    """The Markdown of the section: a list in which each lesson is one item, whatever its text is."""
    return SECTION_HEAD + "\n".join(f"- {_escape_markdown(lesson)}" for lesson in lessons)


def read_lessons(data: bytes) -> list[str]:
    """The lessons in the section of a file."""
    lines = read_section(data, LEARNT).split("\n")
    return [_parse_markdown(line.removeprefix("- ")) for line in lines if line.startswith("- ")]


def _escape_markdown(text: str) -> str:
    """One line of Markdown that shows `text`. It is escaped, so that it begins no comment, and its beginning has no
    special meaning, such as that of a list or of HTML."""
    escaped = _NEEDS_ESCAPE.sub(lambda match: "&amp;" if match[0] == "&" else "&lt;", text)
    sign = _MARKDOWN_SIGN.match(escaped)
    return f"{sign[0]}\\{escaped[sign.end() :]}" if sign else escaped


def _parse_markdown(item: str) -> str:
    """The inverse of `_escape_markdown`."""
    escaped = _ESCAPED_SIGN.sub(r"\1", item)
    return _ESCAPED_CHARACTER.sub(lambda match: "<" if match[1] == "lt" else "&", escaped)
