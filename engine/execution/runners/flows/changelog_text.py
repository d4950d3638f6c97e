"""Change logs as text: which section a commit belongs to, and how to add to a file in that file's own style.

Pure functions; the flow `draft_changelog` fetches and writes.
"""

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
"""Keep a Changelog's own, in its order."""

NAMES = {section: row["names"] for section, row in _TABLES["sections"].items()}
"""How projects call each section."""

_TYPES = {kind: section for section, row in _TABLES["sections"].items() for kind in row.get("types", ())}
_SILENT_TYPES = frozenset(_TABLES["silent_types"])
_KEYWORDS = [(section, _TABLES["sections"][section]["words"]) for section in _TABLES["asked"]]
_SILENT = re.compile("".join(_TABLES["silent"]), re.I)
_CONVENTIONAL = re.compile(r"^(?P<type>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)$")
_VERSION = r"\[?v?\d+\.\d+[\w.+-]*\]?|\[?unreleased\]?|next release|\[?upcoming\]?"
_ATX = re.compile(rf"^(?P<marks>#{{1,3}})\s+(?P<text>(?:[\w-]+ )?(?:{_VERSION})(?:$|[\s(:,–—-].*))$", re.I)
_PLAIN = re.compile(rf"^(?P<text>(?:[\w-]+ )?(?:{_VERSION})(?:$|[\s(:,–—-].*))$", re.I)
_RULE = re.compile(r"^(?P<mark>[=\-~^*+])(?P=mark){2,}\s*$")
_GROUP_NAMES = "|".join(sorted({name for names in NAMES.values() for name in names}, key=len, reverse=True))
_GROUP = re.compile(
    rf"^(?P<before>#+\s+|\*\*|__|)(?:[^\w\s*_#]+\s*)?(?P<name>{_GROUP_NAMES})(?P<after>:?\*\*:?|:?__|:|)\s*$", re.I
)
_BULLET = re.compile(r"^(?P<indent> {0,3})(?P<mark>[-*+])(?P<space> +)\S")


@frozen
class Style:
    """How a file writes: `marks` before a version's heading, or `rule` under it; `bracketed`: versions stand in
    brackets; `group` makes a section ("" when the file has plain lists), `names` are the sections' own names in this
    file; `bullet` begins an entry."""

    marks: str
    rule: str
    bracketed: bool
    group: str
    bullet: str
    names: Mapping[str, str]

    def heading(self) -> list[str]:
        """The lines of the heading of what is unreleased."""
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
    if not subject or _SILENT.match(subject):
        return None
    match = _CONVENTIONAL.match(subject)
    kind = match["type"].lower() if match else ""
    if match and (kind in _TYPES or kind in _SILENT_TYPES):
        if kind in _SILENT_TYPES and not match["breaking"]:
            return None
        text = f"{match['scope']}: {match['text']}" if match["scope"] else match["text"]
        section = _TYPES.get(kind, "Changed")
        return section, ("**Breaking:** " if match["breaking"] else "") + _entry(text)
    for section, pattern in _KEYWORDS:
        if re.search(pattern, subject, re.I):
            return section, _entry(subject)
    return "Changed", _entry(subject)


def _entry(text: str) -> str:
    """A sentence of the change log; a name of code that it begins with keeps its spelling."""
    text = text.strip().rstrip(".")
    first = text.partition(" ")[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def is_mentioned(text: str, sha: str, entry: str) -> bool:
    """Whether a change log already speaks of a commit: by its id (7 digits or more), by an entry that begins with
    the same words, or, when these are at least four and so no coincidence, anywhere."""
    if any(sha.startswith(word) for word in re.findall(r"\b[0-9a-f]{7,40}\b", text)):
        return True
    words = _words(entry)
    if any(_words(line).startswith(words) for line in text.splitlines() if _BULLET.match(line)):
        return True
    return len(words.split()) >= 4 and words in _words(text)


def _words(text: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9#]+', text.lower()))} "


def detect_style(lines: Sequence[str]) -> Style:
    """The style of an existing file, from its newest version; what it does not show is Keep a Changelog's."""
    heads = version_headings(lines)
    bullet = next((m["indent"] + m["mark"] + m["space"] for m in map(_BULLET.match, lines) if m), "- ")
    below = lines[heads[0][0] :] if heads else lines[1:]  # the title of a file may be "Changes", too
    group = next((m["before"] + "{}" + m["after"] for m in map(_GROUP.match, below) if m), None)
    names = _section_names(below)
    if not heads:
        return replace(KEEP_A_CHANGELOG, group=group or KEEP_A_CHANGELOG.group, bullet=bullet, names=names)
    at, text, marks = heads[0]
    released = [head[1] for head in heads if not _UNRELEASED.search(head[1])] or [text]
    plain = group is None and any(map(_BULLET.match, lines[at:]))
    return Style(
        marks=marks,
        rule="" if marks else lines[at + 1].strip()[:1],
        bracketed="[" in released[0],
        group="" if plain else group or (f"{marks}# {{}}" if marks else "**{}**"),
        bullet=bullet,
        names=names,
    )


def _section_names(lines: Sequence[str]) -> dict[str, str]:
    """What the file calls each section: the name that it uses most, else Keep a Changelog's."""
    used = Counter(match["name"] for match in map(_GROUP.match, lines) if match)
    own_names = {}
    for section, names in NAMES.items():
        used_aliases = [name for name, _ in used.most_common() if name.lower() in {alias.lower() for alias in names}]
        own_names[section] = next(iter(used_aliases), section)
    return own_names


def version_headings(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """Where versions begin: line number from 0, text, and the `#` marks ("" for an underlined heading)."""
    headings: list[tuple[int, str, str]] = []
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced:
            continue
        if match := _ATX.match(line):
            headings.append((number, match["text"], match["marks"]))
        elif (match := _PLAIN.match(line)) and number + 1 < len(lines) and _RULE.match(lines[number + 1]):
            headings.append((number, match["text"], ""))
    return headings


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """`text` with `entries` (by section) in its unreleased section, which is made when it is missing, above the newest
    version. A section of a released version is never written into.

    "" begins a new file. All that was there stays, byte for byte, but for the lines that are put in.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = (text or NEW_FILE).replace("\r\n", "\n").splitlines()
    style = detect_style(lines) if text else KEEP_A_CHANGELOG
    heads = version_headings(lines)
    unreleased = next((index for index, head in enumerate(heads) if _UNRELEASED.search(head[1])), None)
    if unreleased is not None:
        at, _, marks = heads[unreleased]
        start = at + (1 if marks else 2)
        end = heads[unreleased + 1][0] if unreleased + 1 < len(heads) else _end_of_text(lines, start)
        body = _merge_entries(lines[start:end], entries, style)
        gap = [""] if lines[end:] else []
        lines = [*lines[:start], "", *body, *gap, *lines[end:]]
    else:
        at = heads[0][0] if heads else _end_of_text(lines, 0)
        above = [""] if at and lines[at - 1].strip() else []
        below = [""] if lines[at:] else []
        body = _merge_entries([], entries, style)
        lines = [*lines[:at], *above, *style.heading(), "", *body, *below, *lines[at:]]
    return newline.join(lines) + newline


def _end_of_text(lines: Sequence[str], start: int) -> int:
    """Where the link definitions at the end of a file begin, or its end."""
    end = len(lines)
    while end > start and (not lines[end - 1].strip() or re.match(r"^\[[^\]]+\]: ", lines[end - 1])):
        end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


def _merge_entries(body: Sequence[str], entries: Mapping[str, Sequence[str]], style: Style) -> list[str]:
    """An unreleased body with the new entries, each at the end of its section; new sections after the old ones."""
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
    names = [(number, match["name"].lower()) for number, line in enumerate(lines) if (match := _GROUP.match(line))]
    for position, (number, name) in enumerate(names):
        if name == section.lower():
            end = names[position + 1][0] if position + 1 < len(names) else len(lines)
            while end > number + 1 and not lines[end - 1].strip():
                end -= 1
            return end
    return None
