"""Sorts commits into the sections of a change log, and adds entries to one in its own style. Pure functions."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.frozen import frozen

_UNRELEASED = re.compile(r"unreleased|upcoming|next release", re.I)

_TABLES = tomllib.loads(Path(__file__).with_name("changelog.toml").read_text(encoding="utf-8"))
SECTIONS = tuple(_TABLES["sections"])
"""The sections of Keep a Changelog, in their order."""

SECTION_NAMES = {section: row["names"] for section, row in _TABLES["sections"].items()}
"""The names that projects use for each section."""

_SECTION_BY_TYPE = {kind: section for section, row in _TABLES["sections"].items() for kind in row.get("types", ())}
_SILENT_TYPES = frozenset(_TABLES["silent_types"])
_SECTION_KEYWORDS = [(section, _TABLES["sections"][section]["words"]) for section in _TABLES["asked"]]
_SILENT_SUBJECT = re.compile("".join(_TABLES["silent"]), re.I)
_CONVENTIONAL = re.compile(r"^(?P<type>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)$")
_VERSION = r"\[?v?\d+\.\d+[\w.+-]*\]?|\[?unreleased\]?|next release|\[?upcoming\]?"
_HASH_HEADING = re.compile(rf"^(?P<marks>#{{1,3}})\s+(?P<text>(?:[\w-]+ )?(?:{_VERSION})(?:$|[\s(:,–—-].*))$", re.I)
_PLAIN_HEADING = re.compile(rf"^(?P<text>(?:[\w-]+ )?(?:{_VERSION})(?:$|[\s(:,–—-].*))$", re.I)
_UNDERLINE = re.compile(r"^(?P<mark>[=\-~^*+])(?P=mark){2,}\s*$")
_GROUP_NAMES = "|".join(sorted({name for names in SECTION_NAMES.values() for name in names}, key=len, reverse=True))
_SECTION_HEADING = re.compile(
    rf"^(?P<before>#+\s+|\*\*|__|)(?:[^\w\s*_#]+\s*)?(?P<name>{_GROUP_NAMES})(?P<after>:?\*\*:?|:?__|:|)\s*$", re.I
)
_LIST_ITEM = re.compile(r"^(?P<indent> {0,3})(?P<mark>[-*+])(?P<space> +)\S")


@frozen
class Style:
    """The style of one change log."""

    marks: str
    """`#` marks before a version's heading; "" for an underlined heading."""
    rule: str
    """The character under an underlined heading."""
    bracketed: bool
    """Versions are in brackets."""
    group: str
    """The format of a section's heading; "" when the file has plain lists."""
    bullet: str
    """The beginning of an entry."""
    names: Mapping[str, str]
    """The file's names for the sections."""

    def heading_lines(self) -> list[str]:
        """The lines of the heading for unreleased changes."""
        title = "[Unreleased]" if self.bracketed else "Unreleased"
        text = f"{self.marks} {title}" if self.marks else title
        return [text, self.rule * len(text)] if self.rule else [text]


KEEP_A_CHANGELOG = Style(
    marks="##", rule="", bracketed=True, group="### {}", bullet="- ", names={name: name for name in SECTIONS}
)

NEW_FILE = """# Changelog

All notable changes to this project are written down here,
in the manner of [Keep a Changelog](https://keepachangelog.com/en/1.1.0/).
"""


def classify(subject: str) -> tuple[str, str] | None:
    """The section and the entry for a commit's subject, or None when no user of the project would notice it."""
    subject = subject.strip()
    if not subject or _SILENT_SUBJECT.match(subject):
        return None
    match = _CONVENTIONAL.match(subject)
    kind = match["type"].lower() if match else ""
    if match and (kind in _SECTION_BY_TYPE or kind in _SILENT_TYPES):
        if kind in _SILENT_TYPES and not match["breaking"]:
            return None
        text = f"{match['scope']}: {match['text']}" if match["scope"] else match["text"]
        section = _SECTION_BY_TYPE.get(kind, "Changed")
        return section, ("**Breaking:** " if match["breaking"] else "") + _format_entry(text)
    for section, pattern in _SECTION_KEYWORDS:
        if re.search(pattern, subject, re.I):
            return section, _format_entry(subject)
    return "Changed", _format_entry(subject)


def _format_entry(text: str) -> str:
    """A sentence of the change log with a capital letter, unless it begins with a name of code."""
    text = text.strip().rstrip(".")
    first = text.partition(" ")[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def is_mentioned(text: str, sha: str, entry: str) -> bool:
    """Whether a change log already mentions a commit: by its id (7 digits or more), by an entry that begins with the
    same words, or, if these are at least four, by the same words anywhere."""
    if any(sha.startswith(word) for word in re.findall(r"\b[0-9a-f]{7,40}\b", text)):
        return True
    words = _normalise_words(entry)
    if any(_normalise_words(line).startswith(words) for line in text.splitlines() if _LIST_ITEM.match(line)):
        return True
    return len(words.split()) >= 4 and words in _normalise_words(text)


def _normalise_words(text: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9#]+', text.lower()))} "


@frozen
class Heading:
    """The heading of one version."""

    index: int
    """The index of its line."""
    text: str
    marks: str
    """Its `#` marks; "" for an underlined heading."""


def detect_style(lines: Sequence[str]) -> Style:
    """The style of an existing file, from its newest version; for the rest that of Keep a Changelog."""
    headings = find_headings(lines)
    bullet = next((m["indent"] + m["mark"] + m["space"] for m in map(_LIST_ITEM.match, lines) if m), "- ")
    below = lines[headings[0].index :] if headings else lines[1:]  # the title of a file may be "Changes", too
    group = next((m["before"] + "{}" + m["after"] for m in map(_SECTION_HEADING.match, below) if m), None)
    names = _section_names(below)
    if not headings:
        return replace(KEEP_A_CHANGELOG, group=group or KEEP_A_CHANGELOG.group, bullet=bullet, names=names)
    newest = headings[0]
    released = [heading.text for heading in headings if not _UNRELEASED.search(heading.text)] or [newest.text]
    if group is None:
        group = f"{newest.marks}# {{}}" if newest.marks else "**{}**"
        if any(map(_LIST_ITEM.match, lines[newest.index :])):
            group = ""
    return Style(
        marks=newest.marks,
        rule="" if newest.marks else lines[newest.index + 1].strip()[:1],
        bracketed="[" in released[0],
        group=group,
        bullet=bullet,
        names=names,
    )


def _section_names(lines: Sequence[str]) -> dict[str, str]:
    """The file's name for each section: the one that it uses most often, else that of Keep a Changelog."""
    used = Counter(match["name"] for match in map(_SECTION_HEADING.match, lines) if match)
    own_names = {}
    for section, names in SECTION_NAMES.items():
        used_aliases = [name for name, _ in used.most_common() if name.lower() in {alias.lower() for alias in names}]
        own_names[section] = next(iter(used_aliases), section)
    return own_names


def find_headings(lines: Sequence[str]) -> list[Heading]:
    """The headings of versions, outside of code blocks."""
    headings: list[Heading] = []
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced:
            continue
        if match := _HASH_HEADING.match(line):
            headings.append(Heading(number, match["text"], match["marks"]))
        elif (match := _PLAIN_HEADING.match(line)) and number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]):
            headings.append(Heading(number, match["text"], ""))
    return headings


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """`text` with `entries` (by section) in its unreleased section, which is added above the newest version if it is
    missing. Sections of released versions, and all other lines, stay byte for byte. "" begins a new file."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = (text or NEW_FILE).replace("\r\n", "\n").splitlines()
    style = detect_style(lines) if text else KEEP_A_CHANGELOG
    headings = find_headings(lines)
    unreleased = next((number for number, head in enumerate(headings) if _UNRELEASED.search(head.text)), None)
    if unreleased is not None:
        heading = headings[unreleased]
        start = heading.index + (1 if heading.marks else 2)
        is_last = unreleased + 1 == len(headings)
        end = _end_of_text(lines, start) if is_last else headings[unreleased + 1].index
        body = _merge_entries(lines[start:end], entries, style)
        gap = [""] if lines[end:] else []
        lines = [*lines[:start], "", *body, *gap, *lines[end:]]
    else:
        at = headings[0].index if headings else _end_of_text(lines, 0)
        above = [""] if at and lines[at - 1].strip() else []
        below = [""] if lines[at:] else []
        body = _merge_entries([], entries, style)
        lines = [*lines[:at], *above, *style.heading_lines(), "", *body, *below, *lines[at:]]
    return newline.join(lines) + newline


def _end_of_text(lines: Sequence[str], start: int) -> int:
    """The index of the link definitions at the end of a file, or of its end."""
    end = len(lines)
    while end > start and (not lines[end - 1].strip() or re.match(r"^\[[^\]]+\]: ", lines[end - 1])):
        end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


def _merge_entries(body: Sequence[str], entries: Mapping[str, Sequence[str]], style: Style) -> list[str]:
    """The unreleased section with new entries, each at the end of its section; new sections come last."""
    lines = list(body)
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    for section in SECTIONS:
        bullets = [f"{style.bullet}{entry}" for entry in entries.get(section, ())]
        if not bullets:
            continue
        at = _end_of_section(lines, style.names[section]) if style.group else len(lines)
        if at is not None:
            lines[at:at] = bullets
        else:
            gap = [""] if lines else []
            after = [""] if style.group.startswith("#") else []
            lines += [*gap, style.group.format(style.names[section]), *after, *bullets]
    return lines


def _end_of_section(lines: Sequence[str], section: str) -> int | None:
    """The line after a section's last entry, or None when the body has no such section."""
    names = [
        (number, match["name"].lower()) for number, line in enumerate(lines) if (match := _SECTION_HEADING.match(line))
    ]
    for position, (number, name) in enumerate(names):
        if name == section.lower():
            end = names[position + 1][0] if position + 1 < len(names) else len(lines)
            while end > number + 1 and not lines[end - 1].strip():
                end -= 1
            return end
    return None
