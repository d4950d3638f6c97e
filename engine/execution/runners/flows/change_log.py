"""The change log of a project (SPEC 2.11): the flows that draft it, which entry a commit becomes, and where that goes.

The subject of a commit decides. `fix(cart)!: rounding` becomes `**Breaking:** Cart: rounding` under "Fixed", and
`chore: tidy up` becomes nothing, because no user would notice it. `changelog.toml` has the sections of a change log,
with the words and the types of commits that belong to each. New entries go into the unreleased section, in the style
that the file has already. All other lines stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from engine.execution.runners import CannotRun, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Mark, Revision, check_argument
from engine.execution.runners.flows.git_steps import make_operator_git, resolve_commit
from engine.execution.runners.toolchains.projects import find_changelog
from engine.files import read_table
from engine.frozen import frozen
from engine.git.history import Commit, log_commits
from engine.text import one_line
from engine.wording import count, join_names

# -- flows

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


# -- the entry of a commit

_TABLES = read_table(__file__, "changelog.toml")

CHANGELOG_SECTIONS = tuple(_TABLES["sections"])
"""The sections of Keep a Changelog, in their order."""

_SECTION_NAMES: Mapping[str, Sequence[str]] = {name: row["names"] for name, row in _TABLES["sections"].items()}
"""The names that projects use for each section."""

_SECTION_BY_TYPE = dict.fromkeys(_TABLES["silent_types"], "") | {
    kind: name for name, row in _TABLES["sections"].items() for kind in row.get("types", ())
}
"""The section of each type of conventional commit; "" if no user would notice such a commit."""

_CONVENTIONAL_SUBJECT = re.compile(r"(?P<type>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)$")
"""The subject of a conventional commit, such as `fix(cart)!: rounding`."""

_LIST_ITEM = re.compile(r"^(?P<bullet> {0,3}[-*+] +)\S")
"""The beginning of an entry."""


class Entry(NamedTuple):
    """The entry of one commit."""

    section: str
    text: str


@frozen
class SortedCommits:
    """The commits since a release, by what they are for a change log."""

    entries: dict[str, list[str]]
    """The new entries by section."""
    left_out: list[str]
    """The subjects of commits that no user would notice."""
    already_there: list[str]
    """The subjects of commits that the change log mentions already."""


def sort_commits(commits: Sequence[Commit], changelog: str) -> SortedCommits:
    """Sort the commits since a release, of which `changelog` may mention some."""
    entries: dict[str, list[str]] = {section: [] for section in CHANGELOG_SECTIONS}
    left_out: list[str] = []
    already_there: list[str] = []
    for commit in commits:
        subject = one_line(commit.subject)
        entry = make_entry(subject)
        if entry is None:
            left_out.append(subject)
        elif is_mentioned(changelog, commit.id, entry.text) or entry.text in entries[entry.section]:
            already_there.append(subject)
        else:
            entries[entry.section].append(entry.text)
    return SortedCommits({section: texts for section, texts in entries.items() if texts}, left_out, already_there)


def make_entry(subject: str) -> Entry | None:
    """The entry for the subject of a commit; None if no user of the project would notice the commit."""
    subject = subject.strip()
    if not subject or re.match("".join(_TABLES["silent"]), subject, re.I):
        return None
    match = _CONVENTIONAL_SUBJECT.match(subject)
    section = _SECTION_BY_TYPE.get(match["type"].lower()) if match else None
    if match is None or section is None:
        return Entry(_find_section_by_words(subject), _format_sentence(subject))
    is_breaking = match["breaking"]
    if not section and not is_breaking:
        return None
    text = _format_sentence(f"{match['scope']}: {match['text']}" if match["scope"] else match["text"])
    return Entry(section or "Changed", f"**Breaking:** {text}" if is_breaking else text)


def _find_section_by_words(subject: str) -> str:
    """The section of a commit whose subject does not begin with a known type."""
    sections = _TABLES["sections"]
    matching = (name for name in _TABLES["asked"] if re.search(sections[name]["words"], subject, re.I))
    return next(matching, "Changed")


def _format_sentence(text: str) -> str:
    """A sentence for the change log. It gets a capital letter, unless it begins with a name from the code."""
    text = text.strip().rstrip(".")
    first_word = text.partition(" ")[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if first_word.isalpha() and first_word.islower() else text


def is_mentioned(changelog: str, sha: str, entry: str) -> bool:
    """Whether a change log already has the id of a commit (7 digits or more), an entry that begins with the same words,
    or, if these are four or more, the same words anywhere."""
    if any(sha.startswith(word) for word in re.findall(r"\b[0-9a-f]{7,40}\b", changelog)):
        return True
    entry_words = _normalise_words(entry)
    if any(_normalise_words(line).startswith(entry_words) for line in changelog.splitlines() if _LIST_ITEM.match(line)):
        return True
    return len(entry_words.split()) >= 4 and entry_words in _normalise_words(changelog)


def _normalise_words(text: str) -> str:
    """The words of a text in lower case, each between spaces. Texts with the same words become equal."""
    return f" {' '.join(re.findall(r'[a-z0-9#]+', text.lower()))} "


# -- the place of the entries

NEW_CHANGELOG = """# Changelog

All notable changes to this project are written down here,
in the manner of [Keep a Changelog](https://keepachangelog.com/en/1.1.0/).
"""
"""The beginning of a change log that is created."""

_UNRELEASED = re.compile(r"unreleased|upcoming|next release", re.I)
"""Matches the text of a heading whose section is not released yet."""

_VERSION_TEXT = r"\[?v?\d+\.\d+[\w.+-]*\]?|\[?unreleased\]?|next release|\[?upcoming\]?"
"""The expression for a version in a heading."""

_VERSION_HEADING = re.compile(
    rf"^(?:(?P<marks>#{{1,3}})\s+)?(?P<text>(?:[\w-]+ )?(?:{_VERSION_TEXT})(?:$|[\s(:,–—-].*))$", re.I
)
"""The heading of a version, with `#` marks or to be underlined by the next line."""

_UNDERLINE = re.compile(r"^(?P<mark>[=\-~^*+])(?P=mark){2,}\s*$")
"""The line below an underlined heading."""

_ANY_SECTION = "|".join(name for names in _SECTION_NAMES.values() for name in names)
"""The expression for the name of any section."""

_SECTION_HEADING = re.compile(
    rf"^(?P<before>#+\s+|\*\*|__|)(?:[^\w\s*_#]+\s*)?(?P<name>{_ANY_SECTION})(?P<after>:?\*\*:?|:?__|:|)\s*$",
    re.I,
)
"""The heading of a section, with `#` marks, in bold or plain, and perhaps with an emoji."""

_LINK_DEFINITION = re.compile(r"^\[[^\]]+\]: ")


@frozen
class _VersionHeading:
    """The heading of a version in a file."""

    line: int
    """The index of its line."""
    marks: str
    """Its `#` marks; "" if it is underlined."""
    text: str

    @property
    def is_unreleased(self) -> bool:
        """Whether the changes below it are not released yet."""
        return _UNRELEASED.search(self.text) is not None


@frozen
class _Style:
    """The style of a change log. The default is that of Keep a Changelog."""

    heading_lines: tuple[str, ...] = ("## [Unreleased]",)
    """The lines of the heading for unreleased changes."""
    section_format: str = "### {}"
    """The format of the heading of a section; "" if the file has no sections."""
    bullet: str = "- "
    """The beginning of an entry."""
    own_names: Mapping[str, str] = field(default_factory=dict)
    """The names of sections in the file, if they are different."""


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """Add `entries` (by section) to the unreleased section of `text`. If `text` is "", a new file is begun.

    If there is no unreleased section, it is added above the newest version. All other lines, such as those of released
    versions, stay unchanged.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = (text or NEW_CHANGELOG).replace("\r\n", "\n").splitlines()
    headings = _find_headings(lines)
    style = _detect_style(lines, headings) if text else _Style()
    unreleased = next((heading for heading in headings if heading.is_unreleased), None)
    if unreleased is None:
        begin = end = headings[0].line if headings else _find_end_of_text(lines, 0)
        blank = [""] if begin and lines[begin - 1].strip() else []
        above = [*lines[:begin], *blank, *style.heading_lines]
    else:
        begin = unreleased.line + (1 if unreleased.marks else 2)
        older = (heading.line for heading in headings if heading.line > unreleased.line)
        end = next(older, None) or _find_end_of_text(lines, begin)
        above = lines[:begin]
    body = _merge_entries(lines[begin:end], entries, style)
    below = ["", *lines[end:]] if lines[end:] else []
    return newline.join([*above, "", *body, *below]) + newline


def _find_headings(lines: Sequence[str]) -> list[_VersionHeading]:
    """The headings of versions. Code blocks are skipped."""
    headings = []
    is_in_code = False
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        is_in_code ^= line.startswith("```")
        match = None if is_in_code else _VERSION_HEADING.match(line)
        if match and (match["marks"] or _UNDERLINE.match(following)):
            headings.append(_VersionHeading(number, match["marks"] or "", match["text"]))
    return headings


def _detect_style(lines: Sequence[str], headings: Sequence[_VersionHeading]) -> _Style:
    """The style of an existing file. `headings` are those of its versions, newest first. If the file does not show a
    part of its style, that part is as in Keep a Changelog."""
    below = lines[headings[0].line :] if headings else lines[1:]  # the title of a file may be "Changes", too
    sections = [match for line in below if (match := _SECTION_HEADING.match(line))]
    bullets = [match["bullet"] for line in lines if (match := _LIST_ITEM.match(line))]
    usual = _Style()
    heading, section = usual.heading_lines, usual.section_format
    if headings:
        heading = _make_unreleased_heading(lines, headings)
        without_entries = f"{headings[0].marks}# {{}}" if headings[0].marks else "**{}**"
        section = "" if bullets else without_entries
    if sections:
        section = f"{sections[0]['before']}{{}}{sections[0]['after']}"
    return _Style(heading, section, bullets[0] if bullets else usual.bullet, _find_own_section_names(sections))


def _make_unreleased_heading(lines: Sequence[str], headings: Sequence[_VersionHeading]) -> tuple[str, ...]:
    """The lines of a heading for unreleased changes, in the style of the newest version."""
    newest = headings[0]
    sample = next((heading for heading in headings if not heading.is_unreleased), newest)
    title = "[Unreleased]" if "[" in sample.text else "Unreleased"
    if newest.marks:
        return (f"{newest.marks} {title}",)
    return title, lines[newest.line + 1].strip()[:1] * len(title)


def _find_own_section_names(headings: Sequence[re.Match[str]]) -> dict[str, str]:
    """The names of the sections in a file with these `headings`."""
    names_in_use = {match["name"].lower(): match["name"] for match in reversed(headings)}
    return {
        section: names_in_use[name.lower()]
        for section, names in _SECTION_NAMES.items()
        for name in reversed(names)  # the first one counts
        if name.lower() in names_in_use
    }


def _merge_entries(body: Sequence[str], entries: Mapping[str, Sequence[str]], style: _Style) -> list[str]:
    """Add entries to the lines of the unreleased section. Each goes to the end of its section, and new sections come
    last."""
    text = "\n".join(body).strip("\n")
    lines = text.split("\n") if text else []
    for section in CHANGELOG_SECTIONS:
        items = [f"{style.bullet}{entry}" for entry in entries.get(section, ())]
        name = style.own_names.get(section, section)
        end = _find_end_of_section(lines, name) if style.section_format else len(lines)
        if end is not None:
            lines[end:end] = items
        elif items:
            blank = [""] if style.section_format.startswith("#") else []
            lines += [*([""] if lines else []), style.section_format.format(name), *blank, *items]
    return lines


def _find_end_of_section(lines: Sequence[str], section: str) -> int | None:
    """The index of the line after the last entry of a section; None if there is no such section."""
    end = None
    for number, line in enumerate(lines, 1):
        if heading := _SECTION_HEADING.match(line):
            if end is not None:
                break
            end = number if heading["name"].lower() == section.lower() else None
        elif end is not None and line.strip():
            end = number
    return end


def _find_end_of_text(lines: Sequence[str], begin: int) -> int:
    """The index of the first link definition at the end of a file, or of the end if there is none."""
    end = len(lines)
    while end > begin and (not lines[end - 1].strip() or _LINK_DEFINITION.match(lines[end - 1])):
        end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end
