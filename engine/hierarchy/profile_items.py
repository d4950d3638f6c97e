"""Reads leaders' profiles from `soul.md`, and converts them to and from one text for editing (SPEC 1.9). Pure.

The headings may have any level: Domain, Principles, Patterns (or Learned patterns), Guardrails, Recent decisions (or
Decisions). Each list item or line below a heading is an item. Fenced code and the section written by M2 are skipped. In
an edited text, a pattern or decision is written `key: text`. A known key changes the text of its item, a line without a
key adds an item, and a missing line removes one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator

from engine.model import LeaderDecision, LeaderProfile, Pattern, ProfileEdit, Refusal
from engine.model.learnings import lesson_id
from engine.model.text import INHERITED, plain, without_section

MAX_ITEMS = 60
MAX_DOMAIN = 200
MAX_ITEM_LENGTH = 600
"""Maximum number of characters of one item. A longer one is cut, with an ellipsis."""

_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)$")
NAMED_ITEM = re.compile(r"`?([A-Za-z0-9][A-Za-z0-9_-]{1,47})`?\s*:\s+(\S.*)$")
_SECTIONS = {
    "domain": "domain",
    "principles": "principles",
    "patterns": "patterns",
    "learned patterns": "patterns",
    "learnt patterns": "patterns",
    "guardrails": "guardrails",
    "decisions": "decisions",
    "recent decisions": "decisions",
}


def seed_profile(leader: str, soul: str) -> LeaderProfile:
    """The profile that a leader's `soul.md` describes. Lines that are not understood are ignored."""
    sections = _sections(soul)
    patterns: dict[str, Pattern] = {}
    for text in sections["patterns"][:MAX_ITEMS]:
        named = NAMED_ITEM.match(text)
        key, pattern_text = (slug(named[1]), named[2]) if named else (slug(text), text)
        patterns.setdefault(key, Pattern(key, pattern_text))
    decisions = enumerate(sections["decisions"][:MAX_ITEMS], 1)
    return LeaderProfile(
        leader=leader,
        domain=" ".join(sections["domain"])[:MAX_DOMAIN],
        principles=tuple(sections["principles"][:MAX_ITEMS]),
        patterns=tuple(patterns.values()),
        guardrails=tuple(sections["guardrails"][:MAX_ITEMS]),
        decisions=tuple(LeaderDecision(f"soul_{number}", text) for number, text in decisions),
    )


def _sections(text: str) -> dict[str, list[str]]:
    """The items of each section of a text."""
    sections: dict[str, list[str]] = {section: [] for section in _SECTIONS.values()}
    for section, item in read_items(text):
        sections[section].append(item)
    return sections


def lessons_in(soul: str) -> frozenset[str]:
    """The lessons in the lists of a soul."""
    listed = (_ITEM.match(line) for line in soul.splitlines())
    return frozenset(lesson_id(item_text(item[1])) for item in listed if item)


def without_lessons(soul: str, lessons: frozenset[str]) -> str:
    """A soul without the items of its lists that say one of these lessons; every other line stays."""

    def says(line: str) -> bool:
        listed = _ITEM.match(line)
        return listed is not None and lesson_id(item_text(listed[1])) in lessons

    return "".join(line for line in soul.splitlines(keepends=True) if not says(line)) if lessons else soul


def item_text(text: str) -> str:
    """The stored form of an item: one line of at most `MAX_ITEM_LENGTH` characters, without control characters and
    characters that XML forbids."""
    return plain(text.replace("\ufffe", "").replace("\uffff", ""), MAX_ITEM_LENGTH)


def slug(text: str) -> str:
    """A short name for a text: its first words in `[a-z0-9_]`, at most 48 characters; "pattern" if it has none."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:6]
    return "_".join(words)[:48].strip("_") or "pattern"


def read_items(soul: str) -> Iterator[tuple[str, str]]:
    """Each item of a text with its section, in the order of the text."""
    section = ""
    for line in _lines(soul):
        if heading := _HEADING.match(line):
            section = _section(heading[1])
            continue
        listed = _ITEM.match(line)
        text = item_text(listed[1] if listed else line)
        if section and text and not text.startswith("<!--"):
            yield section, text


def unknown_headings(text: str) -> list[str]:
    """The headings of a text that are not sections of a profile."""
    headings = [heading[1] for line in _lines(text) if (heading := _HEADING.match(line))]
    return [heading for heading in headings if not _section(heading)]


def _section(heading: str) -> str:
    return _SECTIONS.get(" ".join(heading.lower().rstrip(":").split()), "")


def _lines(soul: str) -> Iterator[str]:
    """The lines without fenced code and without the section that M2 wrote."""
    fence = ""
    for line in without_section(soul, INHERITED).splitlines():
        opened = re.match(r"\s{0,3}(```+|~~~+)", line)
        if fence:
            fence = "" if opened and opened[1].startswith(fence) else fence
        elif opened:
            fence = opened[1]
        else:
            yield line


_VERSION = re.compile(r"<!-- version ([0-9a-f]{12}) -->")


def format_profile(profile: LeaderProfile) -> str:
    """The profile as a text."""
    listed = {
        "Principles": profile.principles,
        "Guardrails": profile.guardrails,
        "Patterns": [f"{pattern.key}: {pattern.text}" for pattern in profile.patterns],
        "Decisions": [f"{decision.id}: {decision.text}" for decision in profile.decisions],
    }
    parts = [f"## Domain\n\n{profile.domain}".rstrip()]
    for title, lines in listed.items():
        parts.append("\n".join([f"## {title}", "", *(f"- {line}" for line in lines)]).rstrip())
    return "\n\n".join(parts) + "\n"


def print_profile(profile: LeaderProfile) -> str:
    """The profile as a text that names its version, for a file that is edited elsewhere."""
    return f"{format_profile(profile)}\n<!-- version {_version(profile)} -->\n"


def refuse_stale(profile: LeaderProfile, text: str) -> None:
    """Raise `Refusal` `stale_profile` if a text was printed from an older version of a profile: saving it would remove
    the findings that were added since. A text without a version is accepted."""
    version = _VERSION.search(text)
    if version and version[1] != _version(profile):
        raise Refusal(
            "stale_profile",
            f"the guidance of {profile.leader} has changed since this text was printed",
            f"`clawpy profile {profile.leader}` prints it again; or delete its version line to save it anyway",
        )


def _version(profile: LeaderProfile) -> str:
    return hashlib.sha256(format_profile(profile).encode()).hexdigest()[:12]


def parse_edits(before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
    """The edits that turn `before` into `text`, in the order of the sections. Raises `Refusal` `bad_profile` for an
    unknown heading, because the lines below it would be lost."""
    if unknown := unknown_headings(text):
        raise Refusal(
            "bad_profile",
            f"a profile has no heading “{unknown[0]}”",
            "use Domain, Principles, Guardrails, Patterns, Decisions",
        )
    lines = _sections(text)
    whole: dict[str, str | tuple[str, ...]] = {
        "domain": " ".join(lines["domain"])[:MAX_DOMAIN],
        "principles": tuple(lines["principles"]),
        "guardrails": tuple(lines["guardrails"]),
    }
    changes = [ProfileEdit(section, value) for section, value in whole.items() if value != getattr(before, section)]
    new: list[ProfileEdit] = []
    texts_by_section = {
        "patterns": {pattern.key: pattern.text for pattern in before.patterns},
        "decisions": {decision.id: decision.text for decision in before.decisions},
    }
    for section, texts in texts_by_section.items():
        keyed, without_key = _split_by_key(lines[section], texts)
        edited = dict.fromkeys(texts, "") | keyed
        changes += [ProfileEdit(section, text, key) for key, text in edited.items() if text != texts[key]]
        new += [ProfileEdit(section, line) for line in without_key]
    return (*changes, *new)


def _split_by_key(lines: Iterable[str], keys: Container[str]) -> tuple[dict[str, str], list[str]]:
    """(texts of the lines `key: text` by their key, lines without one of these `keys`)."""
    keyed: dict[str, str] = {}
    without_key: list[str] = []
    for line in lines:
        key, _, text = line.partition(": ")
        if key in keys:
            keyed[key] = text.strip()
        else:
            without_key.append(line)
    return keyed, without_key
