"""Write what was learnt in a project into one marked section of its `AGENTS.md` (SPEC 1.12)."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, clean, count
from engine.execution.runners.flows.lint import is_own_file
from engine.model.sections import LEARNT, read_section, write_section
from engine.plain_files import read_plain

FILE = "AGENTS.md"
MOST = 60
LARGEST_FILE = 1024 * 1024

HEAD = (
    "## What was learned here\n\nWritten by Clawpy with your approval; the text between the marks is overwritten.\n\n"
)

_HIDES = re.compile(r"&(?=(?:lt|amp);)|<(?=!--)")
_HIDDEN = re.compile(r"&(lt|amp);")
_SIGN = re.compile(r"[\\#>*+\-`~|=_\[]")


def _lesson(text: str) -> str:
    said = clean(text)
    if not said:
        raise ValueError("must not be empty")
    return said


Lesson = Annotated[str, StringConstraints(max_length=700), AfterValidator(_lesson)]


class WriteAgentsMdParameters(Parameters):
    """What is written."""

    lessons: list[Lesson] = Field(min_length=1, max_length=MOST, description="what was learned, one entry each")


class WriteAgentsMd:
    """Writes the section anew; every other byte of the file stays."""

    name: ClassVar = "write_agents_md"
    title: ClassVar = f"Write what was learned into {FILE}"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = WriteAgentsMdParameters

    def describe(self, parameters: WriteAgentsMdParameters) -> str:
        said = "\n".join(f"- {one}" for one in parameters.lessons)
        return f"Write what was learned here into {FILE}, {count(len(parameters.lessons), 'lesson')}:\n{said}"

    def run(self, job: Job) -> FlowResult:
        file = job.folder / FILE
        if (file.exists() or file.is_symlink()) and not is_own_file(job.folder, FILE):
            raise FlowUnable(f"{FILE} is not a regular file of this repository", "replace it with a regular file")
        try:
            before = read_plain(file, LARGEST_FILE) if file.exists() else b""
        except ValueError as error:
            raise FlowUnable(f"{FILE} {error}", "make it smaller") from error
        lessons = list(dict.fromkeys(job.parameters.lessons))
        known = lessons_in(before)
        new, gone = [one for one in lessons if one not in known], [one for one in known if one not in lessons]
        facts: dict[str, object] = {"file": FILE, "lessons": lessons, "new": new, "gone": gone}
        for sign, some in (("+", new), ("-", gone)):
            for one in some:
                job.say(f"{sign} {one}")
        after = write_section(before, section(lessons), LEARNT)
        if after == before:
            return FlowResult(f"{FILE} already contains all of it", facts=facts)
        file.write_bytes(after)
        return FlowResult(f"{FILE}: {count(len(lessons), 'lesson')}, {len(new)} of them new", facts=facts)


def section(lessons: list[str]) -> str:
    """The lessons as the section's Markdown: a list of which no item can be anything else. Pure."""
    return HEAD + "\n".join(f"- {_item(one)}" for one in lessons)


def lessons_in(data: bytes) -> list[str]:
    """The lessons that a file's section has. Pure."""
    said = read_section(data, LEARNT).split("\n")
    return [_text(line.removeprefix("- ")) for line in said if line.startswith("- ")]


def _item(text: str) -> str:
    """One line of Markdown that shows `text`: no comment begins in it, and no sign at its beginning means anything."""
    shown = _HIDES.sub(lambda found: "&amp;" if found[0] == "&" else "&lt;", text)
    return f"\\{shown}" if _SIGN.match(shown) else shown


def _text(item: str) -> str:
    shown = item.removeprefix("\\")
    return _HIDDEN.sub(lambda found: "<" if found[1] == "lt" else "&", shown)
