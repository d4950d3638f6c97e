"""Flows that write into the documents of a project: lessons into `AGENTS.md`, and new names for those that your changes
renamed into its documentation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners.flow import Facts, Flow, FlowResult, Job, Place, RepoFile, make_facts
from engine.execution.runners.flows.own_changes import MAX_FILE_BYTES, read_own_changes
from engine.files import LEARNT, read_plain, read_section, write_section
from engine.git.own_changes import Mention
from engine.model.text import count, join_names, one_line

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

_ESCAPED_CHARACTER = re.compile(r"&(lt|amp);")
"""The characters of a lesson that are escaped, and the escapes."""

_MARKDOWN_SIGN = re.compile(r"[\\#>*+\-`~|=_\[]")
"""A character with a meaning at the beginning of an item."""


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
        facts: Facts = {"file": AGENTS_FILE, "lessons": lessons, "new": new, "gone": removed}
        for sign, changed in (("+", new), ("-", removed)):
            for lesson in changed:
                job.say(f"{sign} {lesson}")
        after = write_section(before, format_section(lessons), LEARNT)
        if after == before:
            return FlowResult(f"{AGENTS_FILE} already contains all of it", facts=facts)
        (job.folder / AGENTS_FILE).write_bytes(after)
        return FlowResult(f"{AGENTS_FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new", facts=facts)


def format_section(lessons: list[str]) -> str:
    """The Markdown of the section: a list in which each lesson is one item, whatever its text is."""
    return SECTION_HEAD + "\n".join(f"- {_escape_markdown(lesson)}" for lesson in lessons)


def read_lessons(data: bytes) -> list[str]:
    """The lessons in the section of a file."""
    lines = read_section(data, LEARNT).split("\n")
    return [_parse_markdown(line.removeprefix("- ")) for line in lines if line.startswith("- ")]


def _escape_markdown(text: str) -> str:
    """One line of Markdown that shows `text`. It is escaped, so that it begins no comment, and its first character has
    no special meaning."""
    escaped = _NEEDS_ESCAPE.sub(lambda match: "&amp;" if match[0] == "&" else "&lt;", text)
    return f"\\{escaped}" if _MARKDOWN_SIGN.match(escaped) else escaped


def _parse_markdown(item: str) -> str:
    """The inverse of `_escape_markdown`."""
    escaped = item.removeprefix("\\")
    return _ESCAPED_CHARACTER.sub(lambda match: "<" if match[1] == "lt" else "&", escaped)


# -- documentation with names that your changes renamed or removed


class FindOutdatedDocs(Flow):
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
            job.say(f"      {finding.text}")
        renamed = [finding for finding in mentions if finding.new]
        if len(renamed) < len(mentions):
            job.say("Reword what is gone and has no new name.")
        names = join_names(dict.fromkeys(finding.old for finding in mentions), 3)
        files = count(len({finding.path for finding in mentions}), "file")
        verb = "name" if len(mentions) > 1 else "names"
        facts: Facts = {"mentions": make_facts(mentions, "path", "line", "old", "new")}
        if renamed:
            facts["next"] = "update_docs"
        summary = f"{count(len(mentions), 'line')} in {files} of documentation still {verb} {names}"
        return FlowResult(summary, sound=False, facts=facts)


class UpdateDocs(Flow):
    """Replaces old names with new ones on the lines that `FindOutdatedDocs` lists."""

    name = "update_docs"
    label = "Update the documentation"
    work = "docs"
    place = Place.CHANGE_SET
    paths: list[RepoFile] = Field(min_length=1, max_length=100, description="documents that contain renamed names")

    def describe(self) -> str:
        return f"Put the new names into {join_names(self.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        mentions = read_own_changes(job).mentions
        changed: dict[str, int] = {}
        for path in self.paths:
            renamed = [mention for mention in mentions if mention.path == path and mention.new]
            if renamed and self._rename_in_file(job, path, renamed):
                changed[path] = len(renamed)
        if not changed:
            return FlowResult("Nothing to update: no document contains a name with a clear replacement")
        summary = f"{count(sum(changed.values()), 'name')} updated in {join_names(changed, 3)}"
        unnamed = sum(not mention.new for mention in mentions)
        if unnamed:
            verb = "names" if unnamed == 1 else "name"
            summary += f"; {count(unnamed, 'line')} {verb} something that is gone and must be reworded"
        return FlowResult(summary, facts={"changed": list(changed)})

    def _rename_in_file(self, job: Job, path: str, mentions: Sequence[Mention]) -> bool:
        """Replace the names that a document mentions, longer names first. Returns False if the file cannot be read."""
        try:
            rows = read_plain(job.folder / path, MAX_FILE_BYTES, follow=False).decode().split("\n")
        except (OSError, ValueError) as error:
            job.say(f"{path} was not changed: {error!s}")
            return False
        for mention in sorted(mentions, key=lambda mention: -len(mention.old)):
            name = re.compile(rf"(?<![\w-]){re.escape(mention.old)}(?![\w-])")
            rows[mention.line - 1] = name.sub(mention.new.replace("\\", "\\\\"), rows[mention.line - 1])
            job.say(f"{path}:{mention.line}  {mention.old} → {mention.new}")
        (job.folder / path).write_bytes("\n".join(rows).encode())
        return True
