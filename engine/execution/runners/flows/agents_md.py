"""The flow that writes what was learned into one section of `AGENTS.md`, the file that coding agents read (SPEC 1.12).
It leaves every other byte as it is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners import Place
from engine.execution.runners.flow import Flow, FlowResult, Job
from engine.files import LEARNT, read_section, write_section
from engine.text import one_line
from engine.wording import count

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
