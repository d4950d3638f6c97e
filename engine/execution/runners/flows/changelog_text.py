"""The text of a change log: the section of each commit, the file's own style, and new entries in that style (pure).

`changelog.toml` has the sections, with the words and the types of commits that belong to each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from engine.files import read_table
from engine.frozen import frozen

_TABLES = read_table(__file__, "changelog.toml")

SECTIONS = tuple(_TABLES["sections"])
"""The sections of Keep a Changelog, in their order."""

_SECTION_NAMES: Mapping[str, Sequence[str]] = {name: section["names"] for name, section in _TABLES["sections"].items()}
"""The names that projects use for each section."""

_SECTION_BY_TYPE = dict.fromkeys(_TABLES["silent_types"], "") | {
    kind: name for name, section in _TABLES["sections"].items() for kind in section.get("types", ())
}
"""The section of each type of conventional commit; "" if no user would notice such a commit."""

# -- The section and the entry of a commit ---------------------------------------------------------------------------


def classify(subject: str) -> tuple[str, str] | None:
    """(section, entry) for the subject of a commit; None if no user of the project would notice the commit."""
    subject = subject.strip()
    if not subject or re.match("".join(_TABLES["silent"]), subject, re.I):
        return None
    match = re.match(r"(?P<type>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)$", subject)
    section = _SECTION_BY_TYPE.get(match["type"].lower()) if match else None
    if match is None or section is None:
        asked = ((name, _TABLES["sections"][name]["words"]) for name in _TABLES["asked"])
        section = next((name for name, words in asked if re.search(words, subject, re.I)), "Changed")
        return section, _format_entry(subject)
    if not section and not match["breaking"]:
        return None
    entry = _format_entry(f"{match['scope']}: {match['text']}" if match["scope"] else match["text"])
    return section or "Changed", f"**Breaking:** {entry}" if match["breaking"] else entry


def _format_entry(text: str) -> str:
    """A sentence for the change log. It gets a capital letter, unless it begins with a name from the code."""
    text = text.strip().rstrip(".")
    first = text.partition(" ")[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


_LIST_ITEM = re.compile(r"^(?P<bullet> {0,3}[-*+] +)\S")


def is_mentioned(text: str, sha: str, entry: str) -> bool:
    """Whether a change log already mentions a commit.

    It does if it contains the id of the commit (7 digits or more), or an entry that begins with the same words. Four
    words or more may also be anywhere in the text.
    """
    if any(sha.startswith(word) for word in re.findall(r"\b[0-9a-f]{7,40}\b", text)):
        return True
    words = _normalise_words(entry)
    if any(_normalise_words(line).startswith(words) for line in text.splitlines() if _LIST_ITEM.match(line)):
        return True
    return len(words.split()) >= 4 and words in _normalise_words(text)


def _normalise_words(text: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9#]+', text.lower()))} "


# -- The style of a file ---------------------------------------------------------------------------------------------

_UNRELEASED = re.compile(r"unreleased|upcoming|next release", re.I)

_VERSION = r"\[?v?\d+\.\d+[\w.+-]*\]?|\[?unreleased\]?|next release|\[?upcoming\]?"

_HEADING = re.compile(rf"^(?:(?P<marks>#{{1,3}})\s+)?(?P<text>(?:[\w-]+ )?(?:{_VERSION})(?:$|[\s(:,–—-].*))$", re.I)

_UNDERLINE = re.compile(r"^(?P<mark>[=\-~^*+])(?P=mark){2,}\s*$")

_ANY_SECTION = "|".join(name for names in _SECTION_NAMES.values() for name in names)

_SECTION_HEADING = re.compile(
    rf"^(?P<before>#+\s+|\*\*|__|)(?:[^\w\s*_#]+\s*)?(?P<name>{_ANY_SECTION})(?P<after>:?\*\*:?|:?__|:|)\s*$",
    re.I,
)


@frozen
class Style:
    """The style of a change log. The default is that of Keep a Changelog."""

    marks: str = "##"
    """The `#` marks before the heading of a version; "" for an underlined heading."""
    rule: str = ""
    """The character that underlines a heading."""
    bracketed: bool = True
    """Whether versions are in brackets."""
    group: str = "### {}"
    """The format of the heading of a section; "" if the file has no sections."""
    bullet: str = "- "
    """The beginning of an entry."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of sections in the file, if they are different."""

    def heading_lines(self) -> list[str]:
        """The lines of the heading for unreleased changes."""
        title = "[Unreleased]" if self.bracketed else "Unreleased"
        return [f"{self.marks} {title}"] if self.marks else [title, self.rule * len(title)]


NEW_FILE = """# Changelog

All notable changes to this project are written down here,
in the manner of [Keep a Changelog](https://keepachangelog.com/en/1.1.0/).
"""


def detect_style(lines: Sequence[str], headings: Sequence[tuple[int, re.Match[str]]]) -> Style:
    """The style of an existing file. `headings` are those of its versions, newest first. If the file does not show a
    part of its style, that part is as in Keep a Changelog."""
    below = lines[headings[0][0] :] if headings else lines[1:]  # the title of a file may be "Changes", too
    bullets = [match["bullet"] for line in lines if (match := _LIST_ITEM.match(line))]
    groups = [match for line in below if (match := _SECTION_HEADING.match(line))]
    used = {match["name"].lower(): match["name"] for match in reversed(groups)}
    own = {
        section: [used[name.lower()] for name in names if name.lower() in used]
        for section, names in _SECTION_NAMES.items()
    }
    style = Style(
        bullet=bullets[0] if bullets else "- ", names={section: names[0] for section, names in own.items() if names}
    )
    if groups:
        style = replace(style, group=f"{groups[0]['before']}{{}}{groups[0]['after']}")
    if not headings:
        return style
    index, newest = headings[0]
    marks = newest["marks"] or ""
    if not groups:
        style = replace(style, group="" if bullets else f"{marks}# {{}}" if marks else "**{}**")
    released = [match["text"] for _, match in headings if not _UNRELEASED.search(match["text"])]
    rule = "" if marks else lines[index + 1].strip()[:1]
    return replace(style, marks=marks, rule=rule, bracketed="[" in (released or [newest["text"]])[0])


def find_headings(lines: Sequence[str]) -> list[tuple[int, re.Match[str]]]:
    """(index of the line, match) of each heading of a version. Code blocks are skipped."""
    headings = []
    fenced = False
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        fenced ^= line.startswith("```")
        match = None if fenced else _HEADING.match(line)
        if match and (match["marks"] or _UNDERLINE.match(following)):
            headings.append((number, match))
    return headings


# -- New entries ---------------------------------------------------------------------------------------------------


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """Add `entries` (by section) to the unreleased section of `text`. If `text` is "", a new file is begun.

    If there is no unreleased section, it is added above the newest version. All other lines, such as those of released
    versions, stay unchanged.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = (text or NEW_FILE).replace("\r\n", "\n").splitlines()
    headings = find_headings(lines)
    style = detect_style(lines, headings) if text else Style()
    at = next((number for number, (_, match) in enumerate(headings) if _UNRELEASED.search(match["text"])), None)
    if at is None:
        begin = end = headings[0][0] if headings else _end_of_text(lines, 0)
        heading = [*([""] if begin and lines[begin - 1].strip() else []), *style.heading_lines()]
    else:
        begin = headings[at][0] + (1 if headings[at][1]["marks"] else 2)
        end = headings[at + 1][0] if at + 1 < len(headings) else _end_of_text(lines, begin)
        heading = []
    body = _merge_entries(lines[begin:end], entries, style)
    lines = [*lines[:begin], *heading, "", *body, *([""] if lines[end:] else []), *lines[end:]]
    return newline.join(lines) + newline


def _end_of_text(lines: Sequence[str], start: int) -> int:
    """The index of the first link definition at the end of a file, or of the end if there is none."""
    end = len(lines)
    while end > start and (not lines[end - 1].strip() or re.match(r"^\[[^\]]+\]: ", lines[end - 1])):
        end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


def _merge_entries(body: Sequence[str], entries: Mapping[str, Sequence[str]], style: Style) -> list[str]:
    """Add entries to the lines of the unreleased section. Each goes to the end of its section, and new sections come
    last."""
    text = "\n".join(body).strip("\n")
    lines = text.split("\n") if text else []
    for section in SECTIONS:
        bullets = [f"{style.bullet}{entry}" for entry in entries.get(section, ())]
        if not bullets:
            continue
        at = _end_of_section(lines, style.names.get(section, section)) if style.group else len(lines)
        if at is not None:
            lines[at:at] = bullets
        else:
            gap = [""] if lines else []
            after = [""] if style.group.startswith("#") else []
            lines += [*gap, style.group.format(style.names.get(section, section)), *after, *bullets]
    return lines


def _end_of_section(lines: Sequence[str], section: str) -> int | None:
    """The index of the line after the last entry of a section; None if there is no such section."""
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
