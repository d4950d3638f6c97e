"""The flow that writes a project's lessons into one marked section of its `AGENTS.md` (SPEC 1.12)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners.flow import Facts, Flow, FlowResult, Job, Place
from engine.model.text import LEARNT, count, one_line, read_section, write_section

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
        before = job.read_document(FILE, MAX_AGENTS_MD_BYTES)
        lessons = list(dict.fromkeys(self.lessons))
        present = lessons_in(before)
        new = [lesson for lesson in lessons if lesson not in present]
        removed = [lesson for lesson in present if lesson not in lessons]
        facts: Facts = {"file": FILE, "lessons": lessons, "new": new, "gone": removed}
        for sign, changed in (("+", new), ("-", removed)):
            for lesson in changed:
                job.say(f"{sign} {lesson}")
        after = write_section(before, format_section(lessons), LEARNT)
        if after == before:
            return FlowResult(f"{FILE} already contains all of it", facts=facts)
        (job.folder / FILE).write_bytes(after)
        return FlowResult(f"{FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new", facts=facts)


def format_section(lessons: list[str]) -> str:
    """The Markdown of the section: a list in which each lesson is one item, whatever its text is."""
    return SECTION_HEAD + "\n".join(f"- {_to_markdown(lesson)}" for lesson in lessons)


def lessons_in(data: bytes) -> list[str]:
    """The lessons in the section of a file."""
    lines = read_section(data, LEARNT).split("\n")
    return [_from_markdown(line.removeprefix("- ")) for line in lines if line.startswith("- ")]


def _to_markdown(text: str) -> str:
    """One line of Markdown that shows `text`. It is escaped, so that it begins no comment, and its first character has
    no special meaning."""
    shown = _NEEDS_ESCAPE.sub(lambda match: "&amp;" if match[0] == "&" else "&lt;", text)
    return f"\\{shown}" if _MARKDOWN_SIGN.match(shown) else shown


def _from_markdown(item: str) -> str:
    shown = item.removeprefix("\\")
    return _ESCAPED.sub(lambda match: "<" if match[1] == "lt" else "&", shown)
