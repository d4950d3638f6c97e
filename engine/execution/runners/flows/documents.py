"""Flows that write into a project's documents: its change log, its `AGENTS.md`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners.flow import CannotRun, Flow, FlowError, FlowResult, Job, Place
from engine.execution.runners.flows.changelog_text import SECTIONS, add_entries, classify, is_mentioned
from engine.execution.runners.flows.git_state import resolve_commit
from engine.execution.runners.flows.lint import is_own_file
from engine.execution.runners.flows.parameter_types import check_argument
from engine.execution.runners.flows.wording import count
from engine.frozen import frozen
from engine.model.sections import LEARNT, read_section, write_section
from engine.model.text import one_line
from engine.plain_files import read_plain


def _read_document(job: Job, name: str, max_bytes: int) -> bytes:
    """The content of a document, b"" for a new one. Raises `FlowError` for a link out of the repository and a file of
    more than `max_bytes`."""
    file = job.folder / name
    if not os.path.lexists(file):
        return b""
    if not is_own_file(job.folder, name):
        raise FlowError(f"{name} is not a regular file of this repository", "replace it with a regular file")
    try:
        return read_plain(file, max_bytes)
    except ValueError as error:
        raise FlowError(f"{name} {error}", "make it smaller") from error


# -- Draft the change log of the commits since a release ----------------------------------------------------------

CHANGELOG_FILES = (
    "CHANGELOG.md", "CHANGELOG", "CHANGES.md", "HISTORY.md", "NEWS.md", "CHANGES.rst", "CHANGELOG.rst", "HISTORY.rst",
    "CHANGES", "docs/CHANGELOG.md", "docs/changelog.md", "changelog.md",
)  # fmt: skip

MAX_COMMITS = 500

MAX_CHANGELOG_BYTES = 20_000_000


def changelog_of(folder: Path) -> str:
    """The file of a project's change log, "" for none."""
    return next((name for name in CHANGELOG_FILES if os.path.lexists(folder / name)), "")


def _check_since(text: str) -> str:
    return check_argument(text) if text else ""


@frozen
class _SortedCommits:
    """Commits for a change log."""

    entries: dict[str, list[str]]
    """New entries by section."""
    mentioned: list[str]
    """Subjects that the change log has already."""
    unnoticed: list[str]
    """Subjects that no user would notice."""

    @property
    def entry_count(self) -> int:
        """The number of new entries."""
        return sum(map(len, self.entries.values()))


class DraftChangelog(Flow):
    """Groups the commits and writes them into the unreleased section, under the file's own headings."""

    name = "draft_changelog"
    label = "Draft the change log"
    place = Place.CHANGE_SET
    since: Annotated[str, AfterValidator(_check_since)] = Field(
        default="", description='a tag or commit; "" = the last tag'
    )
    create: bool = Field(default=False, description="create CHANGELOG.md if the project has no change log")

    def describe(self) -> str:
        since = self.since or "the last tag"
        return f"Draft the change log of the commits since {since}"

    def run(self, job: Job) -> FlowResult:
        commits = self._read_commits(job)
        name = changelog_of(job.folder)
        if not name and not self.create:
            raise CannotRun("this project has no change log", "create one with create=true")
        name = name or "CHANGELOG.md"
        try:
            text = _read_document(job, name, MAX_CHANGELOG_BYTES).decode()
        except UnicodeDecodeError as error:
            raise FlowError(
                f"{name} is not UTF-8 (byte {error.start})", "convert it, for example with iconv"
            ) from error
        sorting = _sort_commits(commits, text)
        facts: dict[str, object] = {
            "file": name,
            "commits": len(commits),
            "entries": sorting.entries,
            "left_out": sorting.unnoticed,
            "already_there": sorting.mentioned,
        }
        job.say(f"{count(len(commits), 'commit')}, {name} {'exists' if text else 'is new'}")
        for section in SECTIONS:
            for entry in sorting.entries.get(section, ()):
                job.say(f"{section:<10}  {entry}")
        for words, subjects in (("left out", sorting.unnoticed), ("already there", sorting.mentioned)):
            if subjects:
                job.say(f"{words}: {'; '.join(subjects[:10])}" + (" …" if len(subjects) > 10 else ""))
        if not sorting.entry_count:
            return FlowResult(f"Nothing to add to {name}: {_nothing_to_add(sorting, commits)}", facts=facts)
        (job.folder / name).write_bytes(add_entries(text, sorting.entries).encode())
        return FlowResult(f"{name}: {count(sorting.entry_count, 'entry', 'entries')} under Unreleased", facts=facts)

    def _read_commits(self, job: Job) -> list[tuple[str, str]]:
        """Id and subject of each commit, oldest first, merges left out."""
        until = resolve_commit(job, "HEAD")
        newest_tag = ("describe", "--tags", "--abbrev=0", until)
        since = resolve_commit(job, self.since) if self.since else job.git.text(*newest_tag, allowed=(0, 128))
        span = f"{since}..{until}" if since else until
        out = job.git.text(
            "log", "--no-merges", f"--max-count={MAX_COMMITS}", "--reverse", "--format=%H%x00%s", span, "--"
        )
        pairs = [line.partition("\0") for line in out.split("\n") if line]
        return [(sha, one_line(subject)) for sha, _, subject in pairs]


def _sort_commits(commits: list[tuple[str, str]], text: str) -> _SortedCommits:
    entries: dict[str, list[str]] = {}
    mentioned: list[str] = []
    unnoticed: list[str] = []
    for sha, subject in commits:
        classified = classify(subject)
        if classified is None:
            unnoticed.append(subject)
        elif is_mentioned(text, sha, classified[1]) or classified[1] in entries.get(classified[0], ()):
            mentioned.append(subject)
        else:
            entries.setdefault(classified[0], []).append(classified[1])
    return _SortedCommits(
        {section: entries[section] for section in SECTIONS if section in entries},
        mentioned,
        unnoticed,
    )


def _nothing_to_add(sorting: _SortedCommits, commits: list[tuple[str, str]]) -> str:
    if not commits:
        return "no commits"
    if sorting.mentioned:
        return f"{count(len(sorting.mentioned), 'commit')} already mentioned"
    return "no commits that users would notice"


# -- Write a project's lessons into one marked section of its `AGENTS.md` (SPEC 1.12) -----------------------------

FILE = "AGENTS.md"

MAX_LESSONS = 60

MAX_AGENTS_MD_BYTES = 1024 * 1024

SECTION_HEAD = (
    "## What was learned here\n\nWritten by Clawpy with your approval; the text between the marks is overwritten.\n\n"
)

_NEEDS_ESCAPE = re.compile(r"&(?=(?:lt|amp);)|<(?=!--)")

_ESCAPED = re.compile(r"&(lt|amp);")

_MARKDOWN_SIGN = re.compile(r"[\\#>*+\-`~|=_\[]")


def _check_lesson(text: str) -> str:
    lesson = one_line(text)
    if not lesson:
        raise ValueError("must not be empty")
    return lesson


Lesson = Annotated[str, StringConstraints(max_length=700), AfterValidator(_check_lesson)]


class WriteAgentsMd(Flow):
    """Replaces the section; every other byte of the file stays."""

    name = "write_agents_md"
    label = f"Write what was learned into {FILE}"
    place = Place.CHANGE_SET
    lessons: list[Lesson] = Field(min_length=1, max_length=MAX_LESSONS, description="what was learned, one entry each")

    def describe(self) -> str:
        entries = "\n".join(f"- {lesson}" for lesson in self.lessons)
        return f"Write what was learned here into {FILE}, {count(len(self.lessons), 'lesson')}:\n{entries}"

    def run(self, job: Job) -> FlowResult:
        before = _read_document(job, FILE, MAX_AGENTS_MD_BYTES)
        lessons = list(dict.fromkeys(self.lessons))
        present = lessons_in(before)
        new = [lesson for lesson in lessons if lesson not in present]
        removed = [lesson for lesson in present if lesson not in lessons]
        facts: dict[str, object] = {"file": FILE, "lessons": lessons, "new": new, "gone": removed}
        for sign, changed in (("+", new), ("-", removed)):
            for lesson in changed:
                job.say(f"{sign} {lesson}")
        after = write_section(before, format_section(lessons), LEARNT)
        if after == before:
            return FlowResult(f"{FILE} already contains all of it", facts=facts)
        (job.folder / FILE).write_bytes(after)
        return FlowResult(f"{FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new", facts=facts)


def format_section(lessons: list[str]) -> str:
    """The section's Markdown: a list in which a lesson can be nothing but an item. Pure."""
    return SECTION_HEAD + "\n".join(f"- {_to_markdown(lesson)}" for lesson in lessons)


def lessons_in(data: bytes) -> list[str]:
    """The lessons in a file's section. Pure."""
    lines = read_section(data, LEARNT).split("\n")
    return [_from_markdown(line.removeprefix("- ")) for line in lines if line.startswith("- ")]


def _to_markdown(text: str) -> str:
    """One line of Markdown that shows `text`: it begins no comment, and its first character has no special meaning."""
    shown = _NEEDS_ESCAPE.sub(lambda match: "&amp;" if match[0] == "&" else "&lt;", text)
    return f"\\{shown}" if _MARKDOWN_SIGN.match(shown) else shown


def _from_markdown(item: str) -> str:
    shown = item.removeprefix("\\")
    return _ESCAPED.sub(lambda match: "<" if match[1] == "lt" else "&", shown)
