"""Flows that keep the documentation of a project up to date: `AGENTS.md`, which tells coding agents what was learned
(SPEC 1.12), and the names that your changes renamed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners import Place
from engine.execution.runners.flow import Flow, FlowResult, Job, RepoFile
from engine.execution.runners.flows.git_steps import read_own_changes
from engine.files import LEARNINGS_MARKS, read_plain, read_section, write_section
from engine.frozen import group_pairs
from engine.git.stale_mentions import Mention
from engine.text import one_line
from engine.wording import count, join_names

# -- one section of AGENTS.md; every other byte of the file stays as it is

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
        after = write_section(before, format_section(lessons), LEARNINGS_MARKS)
        if after == before:
            return FlowResult(f"{AGENTS_FILE} already contains all of it")
        (job.folder / AGENTS_FILE).write_bytes(after)
        return FlowResult(f"{AGENTS_FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new")


def format_section(lessons: list[str]) -> str:
    """The Markdown of the section: a list in which each lesson is one item, whatever its text is."""
    return SECTION_HEAD + "\n".join(f"- {_escape_markdown(lesson)}" for lesson in lessons)


def read_lessons(data: bytes) -> list[str]:
    """The lessons in the section of a file."""
    lines = read_section(data, LEARNINGS_MARKS).split("\n")
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


# -- documentation with names that your changes renamed or removed

MAX_DOCUMENT_BYTES = 5_000_000
"""Maximum size of a document that is changed."""


class LookAtMentions(Flow):
    """Lists each line of documentation with a name that is gone, and the new name where there is one."""

    name = "look_at_mentions"
    label = "Look at the documentation"
    work = "docs"
    place = Place.OPERATOR_TREE

    def describe(self) -> str:
        return "Show the documentation that names what your changes renamed or removed"

    def run(self, job: Job) -> FlowResult:
        mentions = read_own_changes(job).mentions
        if not mentions:
            return FlowResult("The documentation names nothing that your changes renamed or removed")
        for finding in mentions:
            replacement = f"now {finding.new}" if finding.new else "gone"
            job.say(f"{finding.path}:{finding.line}  {finding.old} ({replacement})")
            job.say(f"      {finding.excerpt}")
        renamed = [finding for finding in mentions if finding.new]
        if len(renamed) < len(mentions):
            job.say("Reword what is gone and has no new name.")
        names = join_names(dict.fromkeys(finding.old for finding in mentions), 3)
        files = count(len({finding.path for finding in mentions}), "file")
        summary = f"{count(len(mentions), 'line')} in {files} of documentation with outdated names: {names}"
        return FlowResult(summary, has_problem=True, facts={"next": "update_docs"} if renamed else {})


class UpdateDocs(Flow):
    """Replaces old names with new ones on the lines that `LookAtMentions` lists."""

    name = "update_docs"
    label = "Update the documentation"
    work = "docs"
    place = Place.CHANGE_SET
    paths: list[RepoFile] = Field(min_length=1, max_length=100, description="documents that contain renamed names")

    def describe(self) -> str:
        return f"Put the new names into {join_names(self.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        mentions = read_own_changes(job).mentions
        renamed = group_pairs((mention.path, mention) for mention in mentions if mention.new)
        numbers = {path: self._rename_in_file(job, path, renamed.get(path, ())) for path in self.paths}
        changed = {path: number for path, number in numbers.items() if number}
        if not changed:
            return FlowResult("Nothing to update: no document contains a name with a clear replacement")
        summary = f"{count(sum(changed.values()), 'name')} updated in {join_names(changed, 3)}"
        if unnamed := sum(mention.path in self.paths and not mention.new for mention in mentions):
            summary += f"; {count(unnamed, 'line')} left for you: the name is gone and has no new one"
        return FlowResult(summary)

    def _rename_in_file(self, job: Job, path: str, mentions: Sequence[Mention]) -> int:
        """Replace the names that a document mentions, longer names first. Returns the number of replaced names."""
        if not mentions:
            return 0
        try:
            rows = read_plain(job.folder / path, MAX_DOCUMENT_BYTES, follow=False).decode().split("\n")
        except (OSError, ValueError) as error:
            job.say(f"{path} was not changed: {error!s}")
            return 0
        replaced = 0
        still_there = [mention for mention in mentions if mention.line <= len(rows)]  # your file may have grown since
        for mention in sorted(still_there, key=lambda mention: -len(mention.old)):
            name = re.compile(rf"(?<![\w-]){re.escape(mention.old)}(?![\w-])")
            row = rows[mention.line - 1]
            rows[mention.line - 1] = name.sub(mention.new.replace("\\", "\\\\"), row)
            if rows[mention.line - 1] != row:
                replaced += 1
                job.say(f"{path}:{mention.line}  {mention.old} → {mention.new}")
        (job.folder / path).write_bytes("\n".join(rows).encode())
        return replaced
