"""A leader's profile as a text (SPEC 1.9): the lists of its `soul.md`, one text to edit, and the edits in that. Pure.

A profile has items in five sections. The domain is one text; principles and guardrails are lists, which are replaced as
a whole; patterns and decisions have a key each, and are replaced one by one.

In a soul the headings may have any level: Domain, Principles, Patterns (or Learned patterns), Guardrails, Recent
decisions (or Decisions). Each list item or line below a heading is an item. Skipped are fenced code, comments, and the
section into which the engine writes the guidance of others (`engine.hierarchy.teaching`).

In an edited text, a pattern or decision is written `key: text`. A known key changes the text of its item, a line
without a key adds an item, and a missing line removes one.
"""

from __future__ import annotations

import re
from dataclasses import replace

from engine.files import GUIDANCE_MARKS, remove_section
from engine.lessons import make_lesson_id
from engine.model import LeaderProfile, ProfileEdit, ProfileItem, Refusal
from engine.text import hex_hash, plain, remove_code_and_comments

MAX_ITEMS = 60
"""Maximum number of items that a soul gives to a section."""

MAX_DOMAIN_CHARS = 200
"""Maximum number of characters of a domain."""

MAX_ITEM_CHARS = 600
"""Maximum number of characters of one item. A longer one is cut, with an ellipsis."""

LIST_SECTIONS = ("principles", "guardrails")
"""Sections that are stored as a whole list."""

ITEM_SECTIONS = ("patterns", "decisions")
"""Sections whose items are stored one by one, each with a key."""

PROFILE_SECTIONS = ("domain", *LIST_SECTIONS, *ITEM_SECTIONS)
"""The sections of a profile."""

_HEADING_LINE = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_ITEM_LINE = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)$")
_NAMED_ITEM = re.compile(r"`?([A-Za-z0-9][A-Za-z0-9_-]{1,47})`?\s*:\s+(\S.*)$")
_VERSION_COMMENT = re.compile(r"<!-- version ([0-9a-f]{12}) -->")
_SECTION_OF_HEADING = {section: section for section in PROFILE_SECTIONS} | {
    "learned patterns": "patterns",
    "learnt patterns": "patterns",
    "recent decisions": "decisions",
}
"""The section under each heading of a soul, in lower case."""


# -- a profile as text


def seed_profile(leader: str, soul: str) -> LeaderProfile:
    """The profile that a leader's `soul.md` describes. Lines that are not understood are ignored."""
    sections = _group_items(soul)
    patterns: dict[str, ProfileItem] = {}
    for line in sections["patterns"][:MAX_ITEMS]:
        name, text = _split_name(line)
        key = make_slug(name or text)
        patterns.setdefault(key, ProfileItem(key, text))
    decisions = enumerate(sections["decisions"][:MAX_ITEMS], 1)
    return LeaderProfile(
        leader=leader,
        domain=" ".join(sections["domain"])[:MAX_DOMAIN_CHARS],
        principles=tuple(sections["principles"][:MAX_ITEMS]),
        patterns=tuple(patterns.values()),
        guardrails=tuple(sections["guardrails"][:MAX_ITEMS]),
        decisions=tuple(ProfileItem(f"soul_{number}", text) for number, text in decisions),
    )


def _group_items(text: str) -> dict[str, list[str]]:
    """The items of each section of a text, also of those that no profile has; those of "" are below no heading."""
    sections: dict[str, list[str]] = {section: [] for section in PROFILE_SECTIONS}
    section = ""
    for line in remove_code_and_comments(remove_section(text, GUIDANCE_MARKS)).splitlines():
        if heading := _HEADING_LINE.match(line):
            section = _SECTION_OF_HEADING.get(" ".join(heading[1].lower().rstrip(":").split()), heading[1])
            sections.setdefault(section, [])
            continue
        listed = _ITEM_LINE.match(line)
        item = clean_item(listed[1] if listed else line)
        if item and not item.startswith("<!--"):
            sections.setdefault(section, []).append(item)
    return sections


def find_lessons_in_soul(soul: str) -> frozenset[str]:
    """The lessons in the lists of a soul."""
    return frozenset(map(_find_lesson, soul.splitlines())) - {""}


def remove_lessons_from_soul(soul: str, lessons: frozenset[str]) -> str:
    """A soul without the items of its lists that say one of these lessons; every other line stays."""
    return "".join(line for line in soul.splitlines(keepends=True) if _find_lesson(line) not in lessons)


def _find_lesson(line: str) -> str:
    """The lesson of a list item, "" for another line."""
    listed = _ITEM_LINE.match(line)
    return make_lesson_id(clean_item(listed[1])) if listed else ""


def clean_item(text: str) -> str:
    """The stored form of an item: one line of at most `MAX_ITEM_CHARS` characters, without control characters and
    characters that XML forbids."""
    return plain(text.replace("\ufffe", "").replace("\uffff", ""), MAX_ITEM_CHARS)


def make_slug(text: str) -> str:
    """A short name for a text: its first words in `[a-z0-9_]`, at most 48 characters; "pattern" if it has none."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:6]
    return "_".join(words)[:48].strip("_") or "pattern"


def _split_name(line: str) -> tuple[str, str]:
    """(name of a pattern, its text); the name is "" for a line without one."""
    named = _NAMED_ITEM.match(line)
    return (named[1], named[2]) if named else ("", line)


def format_profile(profile: LeaderProfile) -> str:
    """The profile as a text."""
    parts = [f"## Domain\n\n{profile.domain}"]
    for section in (*LIST_SECTIONS, *ITEM_SECTIONS):
        values = getattr(profile, section)
        lines = [f"{item.key}: {item.text}" for item in values] if section in ITEM_SECTIONS else values
        parts.append("\n".join([f"## {section.capitalize()}", "", *(f"- {line}" for line in lines)]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def format_versioned_profile(profile: LeaderProfile) -> str:
    """The profile as a text that names its version, for a file that is edited elsewhere."""
    return f"{format_profile(profile)}\n<!-- version {_compute_version(profile)} -->\n"


def _compute_version(profile: LeaderProfile) -> str:
    return hex_hash(format_profile(profile), 12)


# -- edits


def parse_edits(before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
    """The edits that turn `before` into `text`, in the order of the sections. Raises `Refusal`: `bad_profile` for an
    unknown heading and for text below no heading, because these lines would be lost; and `stale_profile` if the text
    was printed from an older version of the profile, because the findings that were added since would be removed. A
    text without a version is accepted."""
    version = _VERSION_COMMENT.search(text)
    if version and version[1] != _compute_version(before):
        raise Refusal(
            "stale_profile",
            f"the guidance of {before.leader} has changed since this text was printed",
            f"`clawpy profile {before.leader}` prints it again; or delete its version line to save it anyway",
        )
    lines = _group_items(text)
    for heading in lines:
        if heading not in PROFILE_SECTIONS:
            lost = f"a profile has no heading “{heading}”" if heading else f"“{lines[''][0][:60]}” is below no heading"
            raise Refusal("bad_profile", lost, "use ## Domain, Principles, Guardrails, Patterns, Decisions")
    whole: dict[str, str | tuple[str, ...]] = {"domain": " ".join(lines["domain"])[:MAX_DOMAIN_CHARS]}
    whole |= {section: tuple(lines[section]) for section in LIST_SECTIONS}
    changes = [ProfileEdit(section, value) for section, value in whole.items() if value != getattr(before, section)]
    new: list[ProfileEdit] = []
    for section in ITEM_SECTIONS:
        texts = {item.key: item.text for item in getattr(before, section)}
        edited = dict.fromkeys(texts, "")
        for line in lines[section]:
            key, _, rest = line.partition(": ")
            if key in texts:
                edited[key] = rest.strip()
            else:
                new.append(ProfileEdit(section, line))
        changes += [ProfileEdit(section, edited[key], key) for key in texts if edited[key] != texts[key]]
    return (*changes, *new)


def normalise_edit(seed: LeaderProfile, edit: ProfileEdit) -> ProfileEdit:
    """An edit with the key of its item, and with its texts as they are stored: none if it removes the item, or restores
    a section from the soul, whose profile is `seed`. Raises `Refusal`: `bad_section`, `bad_profile`."""
    section, key, value = edit.section, edit.key, edit.value
    if section not in PROFILE_SECTIONS:
        raise Refusal("bad_section", f"a profile has no {section}", "one of " + ", ".join(PROFILE_SECTIONS))
    if section in LIST_SECTIONS:
        if isinstance(value, str):
            raise Refusal("bad_profile", f"{section} must be a list of strings", "write one string per item")
        texts = tuple(filter(None, map(clean_item, value)))
        return ProfileEdit(section, texts if texts != getattr(seed, section) else ())
    if not isinstance(value, str):
        raise Refusal("bad_profile", f"{section} must be a string", "write one string")
    text = clean_item(value)
    if section == "domain":
        text = text if text != seed.domain else ""
    elif not key:
        if not text:
            raise Refusal("bad_profile", f"which of the {section}?", "give its key, or a new text")
        name, text = _split_name(text) if section == "patterns" else ("", text)
        key = make_slug(name) if name else make_lesson_id(text)
    return ProfileEdit(section, (text,) if text else (), key)


def make_inverse(profile: LeaderProfile, edit: ProfileEdit) -> ProfileEdit:
    """The edit that restores what a normalised edit of a profile changes."""
    section = edit.section
    value = profile.find_text(section, edit.key) if section in ITEM_SECTIONS else getattr(profile, section)
    return replace(edit, value=value)
