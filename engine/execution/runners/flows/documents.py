"""Flows about the documents of a project: they draft the unreleased section of its change log, say what a release would
hold, and write lessons into `AGENTS.md`.

A draft keeps the style of the change log, and changes nothing that was released. `changelog.toml` has the sections of a
change log, with the words and the types of commits that belong to each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from engine.execution.runners.flow import (
    CannotRun,
    Facts,
    Flow,
    FlowResult,
    Job,
    Mark,
    Place,
    Revision,
    WorkFailed,
    check_argument,
)
from engine.execution.runners.flows.git_steps import make_operator_git, resolve_commit
from engine.execution.runners.toolchains.projects import find_changelog
from engine.files import LEARNT, read_section, read_table, write_section
from engine.frozen import frozen
from engine.git.history import Commit, log_commits
from engine.model.text import count, join_names, one_line

MAX_COMMITS = 500
"""Maximum number of commits that are drafted."""

MAX_CHANGELOG_BYTES = 20_000_000
"""Maximum size of a change log."""

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
        name, text = self._read_file(job)
        sorted_commits = _sort_commits(commits, text)
        facts: Facts = {
            "file": name,
            "commits": len(commits),
            "entries": sorted_commits.entries,
            "left_out": sorted_commits.unnoticed,
            "already_there": sorted_commits.mentioned,
        }
        job.say(f"{count(len(commits), 'commit')}, {name} {'exists' if text else 'is new'}")
        for section, entries in sorted_commits.entries.items():
            for entry in entries:
                job.say(f"{section:<10}  {entry}")
        for title, subjects in (("left out", sorted_commits.unnoticed), ("already there", sorted_commits.mentioned)):
            if subjects:
                job.say(f"{title}: {join_names(subjects, 10)}")
        if not sorted_commits.entries:
            reason = "no commits that users would notice" if sorted_commits.unnoticed else "no commits"
            if sorted_commits.mentioned:
                reason = f"{count(len(sorted_commits.mentioned), 'commit')} already mentioned"
            return FlowResult(f"Nothing to add to {name}: {reason}", facts=facts)
        (job.folder / name).write_bytes(add_entries(text, sorted_commits.entries).encode())
        number = sum(map(len, sorted_commits.entries.values()))
        return FlowResult(f"{name}: {count(number, 'entry', 'entries')} under Unreleased", facts=facts)

    def _read_file(self, job: Job) -> tuple[str, str]:
        """The name and the text of the change log; the text is "" if it is to be created."""
        name = find_changelog(job.folder)
        if not name and not self.create:
            raise CannotRun("this project has no change log", "create one with create=true")
        name = name or "CHANGELOG.md"
        try:
            return name, job.read_document(name, MAX_CHANGELOG_BYTES).decode()
        except UnicodeDecodeError as error:
            raise WorkFailed(
                f"{name} is not UTF-8 (byte {error.start})", "convert it, for example with iconv"
            ) from error

    def _read_commits(self, job: Job) -> list[Commit]:
        """The commits, oldest first, without merges."""
        until = resolve_commit(job, "HEAD")
        newest_tag = ("describe", "--tags", "--abbrev=0", until)
        since = resolve_commit(job, self.since) if self.since else job.git.text(*newest_tag, allowed=(0, 128))
        span = f"{since}..{until}" if since else until
        return log_commits(job.git, "--no-merges", f"--max-count={MAX_COMMITS}", "--reverse", span, "--")


@frozen
class SortedCommits:
    """The commits since a release, by what they are for a change log."""

    entries: dict[str, list[str]]
    """The new entries by section."""
    unnoticed: list[str]
    """The subjects of commits that no user would notice."""
    mentioned: list[str]
    """The subjects of commits that the change log mentions already."""


def _sort_commits(commits: Sequence[Commit], text: str) -> SortedCommits:
    """Sort commits. `text` is the change log."""
    entries: dict[str, list[str]] = {section: [] for section in CHANGELOG_SECTIONS}
    unnoticed: list[str] = []
    mentioned: list[str] = []
    for commit in commits:
        subject = one_line(commit.subject)
        section, entry = classify_subject(subject) or ("", "")
        if not section:
            unnoticed.append(subject)
        elif is_mentioned(text, commit.id, entry) or entry in entries[section]:
            mentioned.append(subject)
        else:
            entries[section].append(entry)
    return SortedCommits({section: lines for section, lines in entries.items() if lines}, unnoticed, mentioned)


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
        subjects = make_operator_git(job).text("log", "--no-merges", "--format=%s", span).splitlines()
        entries: dict[str, list[str]] = {section: [] for section in CHANGELOG_SECTIONS}
        for entry in filter(None, map(classify_subject, subjects)):
            entries[entry[0]].append(entry[1])
        for section, lines in entries.items():
            if lines:
                job.say(f"{section}:")
                job.say_list(lines, MAX_SHOWN_ENTRIES, indent="- ")
        noticed = sum(map(len, entries.values()))
        sections = ", ".join(f"{len(lines)} {section.lower()}" for section, lines in entries.items() if lines)
        summary = f"{count(len(subjects), 'commit')} since {self.since}, {noticed} that users notice"
        facts = {"since": self.since, "commits": len(subjects), "entries": entries}
        return FlowResult(f"{summary}: {sections}" if noticed else summary, facts=facts)


# -- the section and the entry of a commit

_CHANGELOG_TABLES = read_table(__file__, "changelog.toml")

CHANGELOG_SECTIONS = tuple(_CHANGELOG_TABLES["sections"])
"""The sections of Keep a Changelog, in their order."""

_SECTION_NAMES: Mapping[str, Sequence[str]] = {
    name: section["names"] for name, section in _CHANGELOG_TABLES["sections"].items()
}
"""The names that projects use for each section."""

_SECTION_BY_TYPE = dict.fromkeys(_CHANGELOG_TABLES["silent_types"], "") | {
    kind: name for name, section in _CHANGELOG_TABLES["sections"].items() for kind in section.get("types", ())
}
"""The section of each type of conventional commit; "" if no user would notice such a commit."""

_CONVENTIONAL_SUBJECT = re.compile(r"(?P<type>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)$")
"""The subject of a conventional commit, such as `fix(cart)!: rounding`."""


def classify_subject(subject: str) -> tuple[str, str] | None:
    """(section, entry) for the subject of a commit; None if no user of the project would notice the commit."""
    subject = subject.strip()
    if not subject or re.match("".join(_CHANGELOG_TABLES["silent"]), subject, re.I):
        return None
    match = _CONVENTIONAL_SUBJECT.match(subject)
    section = _SECTION_BY_TYPE.get(match["type"].lower()) if match else None
    if match is None or section is None:  # its words say what it is
        sections = _CHANGELOG_TABLES["sections"]
        asked = (name for name in _CHANGELOG_TABLES["asked"] if re.search(sections[name]["words"], subject, re.I))
        return next(asked, "Changed"), _format_entry(subject)
    is_breaking = bool(match["breaking"])
    if not section and not is_breaking:
        return None
    entry = _format_entry(f"{match['scope']}: {match['text']}" if match["scope"] else match["text"])
    return section or "Changed", f"**Breaking:** {entry}" if is_breaking else entry


def _format_entry(text: str) -> str:
    """A sentence for the change log. It gets a capital letter, unless it begins with a name from the code."""
    text = text.strip().rstrip(".")
    first = text.partition(" ")[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


# -- the text of a change log

NEW_CHANGELOG = """# Changelog

All notable changes to this project are written down here,
in the manner of [Keep a Changelog](https://keepachangelog.com/en/1.1.0/).
"""
"""The beginning of a change log that is created."""

_LIST_ITEM = re.compile(r"^(?P<bullet> {0,3}[-*+] +)\S")
"""The beginning of an entry."""

_UNRELEASED_HEADING = re.compile(r"unreleased|upcoming|next release", re.I)
"""Matches the heading of the section that is not released yet."""

_VERSION_TEXT = r"\[?v?\d+\.\d+[\w.+-]*\]?|\[?unreleased\]?|next release|\[?upcoming\]?"
"""The expression for a version in a heading."""

_VERSION_HEADING = re.compile(
    rf"^(?:(?P<marks>#{{1,3}})\s+)?(?P<text>(?:[\w-]+ )?(?:{_VERSION_TEXT})(?:$|[\s(:,–—-].*))$", re.I
)
"""The heading of a version, with `#` marks or to be underlined by the next line."""

_HEADING_UNDERLINE = re.compile(r"^(?P<mark>[=\-~^*+])(?P=mark){2,}\s*$")
"""The line below an underlined heading."""

_ANY_SECTION = "|".join(name for names in _SECTION_NAMES.values() for name in names)
"""The expression for the name of any section."""

_SECTION_HEADING = re.compile(
    rf"^(?P<before>#+\s+|\*\*|__|)(?:[^\w\s*_#]+\s*)?(?P<name>{_ANY_SECTION})(?P<after>:?\*\*:?|:?__|:|)\s*$",
    re.I,
)
"""The heading of a section, with `#` marks, in bold or plain, and perhaps with an emoji."""


def is_mentioned(changelog: str, sha: str, entry: str) -> bool:
    """Whether a change log already mentions a commit.

    It does if it contains the id of the commit (7 digits or more), or an entry that begins with the same words. Four
    words or more may also be anywhere in the change log.
    """
    if any(sha.startswith(word) for word in re.findall(r"\b[0-9a-f]{7,40}\b", changelog)):
        return True
    entry_words = _normalise_words(entry)
    if any(_normalise_words(line).startswith(entry_words) for line in changelog.splitlines() if _LIST_ITEM.match(line)):
        return True
    return len(entry_words.split()) >= 4 and entry_words in _normalise_words(changelog)


def _normalise_words(text: str) -> str:
    """The words of a text in lower case, each between spaces. Texts with the same words become equal."""
    return f" {' '.join(re.findall(r'[a-z0-9#]+', text.lower()))} "


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """Add `entries` (by section) to the unreleased section of `text`. If `text` is "", a new file is begun.

    If there is no unreleased section, it is added above the newest version. All other lines, such as those of released
    versions, stay unchanged.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = (text or NEW_CHANGELOG).replace("\r\n", "\n").splitlines()
    headings = _find_headings(lines)
    style = _detect_style(lines, headings) if text else Style()
    at = next((number for number, (_, match) in enumerate(headings) if _UNRELEASED_HEADING.search(match["text"])), None)
    if at is None:
        begin = end = headings[0][0] if headings else _find_end_of_text(lines, 0)
        heading = [*([""] if begin and lines[begin - 1].strip() else []), *style.heading]
    else:
        begin = headings[at][0] + (1 if headings[at][1]["marks"] else 2)
        end = headings[at + 1][0] if at + 1 < len(headings) else _find_end_of_text(lines, begin)
        heading = []
    body = _merge_entries(lines[begin:end], entries, style)
    lines = [*lines[:begin], *heading, "", *body, *([""] if lines[end:] else []), *lines[end:]]
    return newline.join(lines) + newline


def _find_headings(lines: Sequence[str]) -> list[tuple[int, re.Match[str]]]:
    """(index of the line, match) of each heading of a version. Code blocks are skipped."""
    headings = []
    fenced = False
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        fenced ^= line.startswith("```")
        match = None if fenced else _VERSION_HEADING.match(line)
        if match and (match["marks"] or _HEADING_UNDERLINE.match(following)):
            headings.append((number, match))
    return headings


@frozen
class Style:
    """The style of a change log. The default is that of Keep a Changelog."""

    heading: tuple[str, ...] = ("## [Unreleased]",)
    """The lines of the heading for unreleased changes."""
    group: str = "### {}"
    """The format of the heading of a section; "" if the file has no sections."""
    bullet: str = "- "
    """The beginning of an entry."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of sections in the file, if they are different."""


def _detect_style(lines: Sequence[str], headings: Sequence[tuple[int, re.Match[str]]]) -> Style:
    """The style of an existing file. `headings` are those of its versions, newest first. If the file does not show a
    part of its style, that part is as in Keep a Changelog."""
    below = lines[headings[0][0] :] if headings else lines[1:]  # the title of a file may be "Changes", too
    bullets = [match["bullet"] for line in lines if (match := _LIST_ITEM.match(line))]
    groups = [match for line in below if (match := _SECTION_HEADING.match(line))]
    style = Style(bullet=bullets[0] if bullets else "- ", names=_find_own_section_names(groups))
    if groups:
        style = replace(style, group=f"{groups[0]['before']}{{}}{groups[0]['after']}")
    if not headings:
        return style
    index, newest = headings[0]
    marks = newest["marks"] or ""
    if not groups:
        style = replace(style, group="" if bullets else f"{marks}# {{}}" if marks else "**{}**")
    released = [match["text"] for _, match in headings if not _UNRELEASED_HEADING.search(match["text"])]
    title = "[Unreleased]" if "[" in (released or [newest["text"]])[0] else "Unreleased"
    if marks:
        return replace(style, heading=(f"{marks} {title}",))
    return replace(style, heading=(title, lines[index + 1].strip()[:1] * len(title)))


def _find_own_section_names(groups: Sequence[re.Match[str]]) -> dict[str, str]:
    """The names of the sections in a file that has the headings `groups`."""
    names_in_use = {match["name"].lower(): match["name"] for match in reversed(groups)}
    return {
        section: names_in_use[name.lower()]
        for section, names in _SECTION_NAMES.items()
        for name in reversed(names)  # the first one counts
        if name.lower() in names_in_use
    }


def _merge_entries(body: Sequence[str], entries: Mapping[str, Sequence[str]], style: Style) -> list[str]:
    """Add entries to the lines of the unreleased section. Each goes to the end of its section, and new sections come
    last."""
    text = "\n".join(body).strip("\n")
    lines = text.split("\n") if text else []
    for section in CHANGELOG_SECTIONS:
        bullets = [f"{style.bullet}{entry}" for entry in entries.get(section, ())]
        name = style.names.get(section, section)
        at = _find_end_of_section(lines, name) if style.group else len(lines)
        if at is not None:
            lines[at:at] = bullets
        elif bullets:
            after = [""] if style.group.startswith("#") else []
            lines += [*([""] if lines else []), style.group.format(name), *after, *bullets]
    return lines


def _find_end_of_section(lines: Sequence[str], section: str) -> int | None:
    """The index of the line after the last entry of a section; None if there is no such section."""
    headings = [(number, match) for number, line in enumerate(lines) if (match := _SECTION_HEADING.match(line))]
    ends = [*(number for number, _ in headings[1:]), len(lines)]
    for (number, heading), end in zip(headings, ends, strict=False):
        if heading["name"].lower() == section.lower():
            while end > number + 1 and not lines[end - 1].strip():
                end -= 1
            return end
    return None


def _find_end_of_text(lines: Sequence[str], begin: int) -> int:
    """The index of the first link definition at the end of a file, or of the end if there is none."""
    end = len(lines)
    while end > begin and (not lines[end - 1].strip() or re.match(r"^\[[^\]]+\]: ", lines[end - 1])):
        end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


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
