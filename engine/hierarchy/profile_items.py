"""The items of leaders' profiles (SPEC 1.9): as lists of `soul.md`, as one text for editing, and as stored versions.

A profile begins as the lists of `soul.md`. Each later change of an item is a row here, and `merge_profile` merges both.
The headings may have any level: Domain, Principles, Patterns (or Learned patterns), Guardrails, Recent decisions (or
Decisions). Each list item or line below a heading is an item. Fenced code, comments and the section written by M2 are
skipped. In an edited text, a pattern or decision is written `key: text`. A known key changes the text of its item, a
line without a key adds an item, and a missing line removes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Field, Session, col, func, select

from engine.files import INHERITED, remove_section
from engine.model import LeaderDecision, LeaderProfile, Pattern, PatternSource, ProfileEdit, Refusal, Trust
from engine.model.base import hex_hash, may_guide
from engine.model.learnings import make_lesson_id
from engine.model.text import plain, remove_code_and_comments
from engine.storage.rows import Row, json_field, utc_field

MAX_ITEMS = 60
"""Maximum number of items that a soul gives to a section."""

MAX_DOMAIN_CHARS = 200
"""Maximum number of characters of a domain."""

MAX_ITEM_CHARS = 600
"""Maximum number of characters of one item. A longer one is cut, with an ellipsis."""


PROFILE_SECTIONS = ("domain", "principles", "guardrails", "patterns", "decisions")
"""The sections of a profile."""

LIST_SECTIONS = ("principles", "guardrails")
"""Sections that are stored as a whole list."""

TRUST_KEY, APPROVED_KEY = "trust", "approved"
"""Keys in the body of a pattern: its trust, and whether the operator approved it if it is a quote. A quote without
approval is ignored, even if it comes from the shared database."""

MAX_DECISIONS = 5
"""Maximum number of decisions that count as recent."""

_HEADING_LINE = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_ITEM_LINE = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)$")
NAMED_ITEM = re.compile(r"`?([A-Za-z0-9][A-Za-z0-9_-]{1,47})`?\s*:\s+(\S.*)$")


_VERSION_COMMENT = re.compile(r"<!-- version ([0-9a-f]{12}) -->")
_SECTION_OF_HEADING = {
    "domain": "domain",
    "principles": "principles",
    "patterns": "patterns",
    "learned patterns": "patterns",
    "learnt patterns": "patterns",
    "guardrails": "guardrails",
    "decisions": "decisions",
    "recent decisions": "decisions",
}
"""The section under each heading of a soul, in lower case."""


# -- a profile as text


def seed_profile(leader: str, soul: str) -> LeaderProfile:
    """The profile that a leader's `soul.md` describes. Lines that are not understood are ignored."""
    sections = _group_items(soul)
    patterns: dict[str, Pattern] = {}
    for text in sections["patterns"][:MAX_ITEMS]:
        named_pattern = NAMED_ITEM.match(text)
        key, pattern_text = (
            (make_slug(named_pattern[1]), named_pattern[2]) if named_pattern else (make_slug(text), text)
        )
        patterns.setdefault(key, Pattern(key, pattern_text))
    decisions = enumerate(sections["decisions"][:MAX_ITEMS], 1)
    return LeaderProfile(
        leader=leader,
        domain=" ".join(sections["domain"])[:MAX_DOMAIN_CHARS],
        principles=tuple(sections["principles"][:MAX_ITEMS]),
        patterns=tuple(patterns.values()),
        guardrails=tuple(sections["guardrails"][:MAX_ITEMS]),
        decisions=tuple(LeaderDecision(f"soul_{number}", text) for number, text in decisions),
    )


def _group_items(text: str) -> dict[str, list[str]]:
    """The items of each section of a text; those of "" are below no heading of a profile."""
    sections: dict[str, list[str]] = {section: [] for section in ("", *_SECTION_OF_HEADING.values())}
    section = ""
    for line in _read_lines(text):
        if heading := _HEADING_LINE.match(line):
            section = _find_section(heading[1])
            continue
        list_item = _ITEM_LINE.match(line)
        item = clean_item(list_item[1] if list_item else line)
        if item and not item.startswith("<!--"):
            sections[section].append(item)
    return sections


def find_lessons_in_soul(soul: str) -> frozenset[str]:
    """The lessons in the lists of a soul."""
    listed = (_ITEM_LINE.match(line) for line in soul.splitlines())
    return frozenset(make_lesson_id(clean_item(item[1])) for item in listed if item)


def remove_lessons_from_soul(soul: str, lessons: frozenset[str]) -> str:
    """A soul without the items of its lists that say one of these lessons; every other line stays."""

    def says(line: str) -> bool:
        listed = _ITEM_LINE.match(line)
        return listed is not None and make_lesson_id(clean_item(listed[1])) in lessons

    return "".join(line for line in soul.splitlines(keepends=True) if not says(line)) if lessons else soul


def clean_item(text: str) -> str:
    """The stored form of an item: one line of at most `MAX_ITEM_CHARS` characters, without control characters and
    characters that XML forbids."""
    return plain(text.replace("\ufffe", "").replace("\uffff", ""), MAX_ITEM_CHARS)


def make_slug(text: str) -> str:
    """A short name for a text: its first words in `[a-z0-9_]`, at most 48 characters; "pattern" if it has none."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:6]
    return "_".join(words)[:48].strip("_") or "pattern"


def _find_section(heading: str) -> str:
    return _SECTION_OF_HEADING.get(" ".join(heading.lower().rstrip(":").split()), "")


def _read_lines(soul: str) -> list[str]:
    """The lines without fenced code, comments and the section that M2 wrote."""
    return remove_code_and_comments(remove_section(soul, INHERITED)).splitlines()


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
    return f"{format_profile(profile)}\n<!-- version {_compute_version(profile)} -->\n"


def refuse_stale(profile: LeaderProfile, text: str) -> None:
    """Raise `Refusal` `stale_profile` if a text was printed from an older version of a profile: saving it would remove
    the findings that were added since. A text without a version is accepted."""
    version = _VERSION_COMMENT.search(text)
    if version and version[1] != _compute_version(profile):
        raise Refusal(
            "stale_profile",
            f"the guidance of {profile.leader} has changed since this text was printed",
            f"`clawpy profile {profile.leader}` prints it again; or delete its version line to save it anyway",
        )


def _compute_version(profile: LeaderProfile) -> str:
    return hex_hash(format_profile(profile), 12)


def parse_edits(before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
    """The edits that turn `before` into `text`, in the order of the sections. Raises `Refusal` `bad_profile` for an
    unknown heading and for text below no heading, because these lines would be lost."""
    headings = [heading[1] for line in _read_lines(text) if (heading := _HEADING_LINE.match(line))]
    lines = _group_items(text)
    lost_lines = [f"a profile has no heading “{heading}”" for heading in headings if not _find_section(heading)]
    lost_lines += [f"“{line[:60]}” is below no heading" for line in lines[""]]
    if lost_lines:
        raise Refusal("bad_profile", lost_lines[0], "use ## Domain, Principles, Guardrails, Patterns, Decisions")
    whole: dict[str, str | tuple[str, ...]] = {
        "domain": " ".join(lines["domain"])[:MAX_DOMAIN_CHARS],
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


# -- stored items


class ProfileEntry(Row, table=True):
    """One version of one item.

    `body` has `text`, or the `items` of a list. It is empty if the item was removed. `version` is derived from the
    content, so it is the same on every machine. It stays the same when the words are forgotten. `unsent` is True until
    the shared database has confirmed the row.
    """

    __tablename__ = "profile_entries"

    leader: str = Field(primary_key=True)
    section: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    body: dict[str, Any] = json_field()
    at: datetime = utc_field()
    origin: str
    sources: list[dict[str, str]] = json_field()
    unsent: bool = True

    @property
    def text(self) -> str:
        """The text of the item; "" for a list and for a removed item."""
        return str(self.body.get("text", ""))

    @property
    def findings(self) -> tuple[PatternSource, ...]:
        """The findings from which the item was made."""
        return tuple(PatternSource(**source) for source in self.sources)

    @property
    def trust(self) -> Trust:
        """The trust of the item; it is a quote by default."""
        stored = self.body.get(TRUST_KEY)
        return Trust(stored) if stored in list(Trust) else Trust.QUOTED


class PatternUse(Row, table=True):
    """How often prompts of one home contained a pattern."""

    __tablename__ = "pattern_uses"

    leader: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    uses: int
    last_used_at: datetime = utc_field()
    unsent: bool = True


def make_entry(
    leader: str,
    section: str,
    key: str,
    body: Mapping[str, Any],
    at: datetime,
    origin: str,
    sources: Iterable[PatternSource] = (),
) -> ProfileEntry:
    """A new version of an item."""
    source_fields = [asdict(source) for source in sources]
    identity = [leader, section, key, dict(body), at.astimezone(UTC).isoformat(), origin, *source_fields]
    version = hex_hash(json.dumps(identity, sort_keys=True), 32)
    return ProfileEntry(
        leader=leader,
        section=section,
        key=key,
        version=version,
        body=dict(body),
        at=at,
        origin=origin,
        sources=source_fields,
    )


def select_newest(entries: Iterable[ProfileEntry]) -> dict[tuple[str, str], ProfileEntry]:
    """The newest version of each item, by section and key."""
    return {
        (entry.section, entry.key): entry
        for entry in sorted(entries, key=lambda version: (version.at, version.version))
    }


def merge_profile(
    seed: LeaderProfile, entries: Sequence[ProfileEntry], uses: Mapping[tuple[str, str], tuple[int, datetime]]
) -> LeaderProfile:
    """Merge the profile of `soul.md` (`seed`) with the stored entries. `uses` is, by leader and key, how often prompts
    of all homes contained a pattern, and when they last did. Pure."""
    newest = select_newest(entries)
    patterns = []
    for pattern in _merge_patterns(seed, entries, newest).values():
        number, last_used = uses.get((seed.leader, pattern.key), (0, None))
        patterns.append(replace(pattern, uses=number, last_used=last_used))
    decisions = {decision.id: decision for decision in seed.decisions}
    other_sections: dict[str, Any] = {}
    for (section, key), entry in newest.items():
        if section == "decisions":
            decisions.pop(key, None)
            if entry.text:
                decisions[key] = LeaderDecision(key, entry.text, entry.at)
        elif section != "patterns" and entry.body:
            other_sections[section] = entry.text or tuple(map(str, entry.body.get("items", ())))
    return replace(
        seed,
        patterns=tuple(sorted(patterns, key=lambda item: (-item.uses, *_rank_by_age(item.at), item.key))),
        decisions=tuple(sorted(decisions.values(), key=lambda item: _rank_by_age(item.at))[:MAX_DECISIONS]),
        **other_sections,
    )


def _merge_patterns(
    seed: LeaderProfile, entries: Sequence[ProfileEntry], newest: Mapping[tuple[str, str], ProfileEntry]
) -> dict[str, Pattern]:
    """The patterns of `soul.md`, replaced by their newest entries. A pattern has the findings of all entries with its
    key and text, because two homes may have it from different agents."""
    findings: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for entry in entries:
        findings.setdefault((entry.key, entry.text), {}).update(dict.fromkeys(entry.findings))
    patterns = {pattern.key: pattern for pattern in seed.patterns}
    for (section, key), entry in newest.items():
        if section != "patterns":
            continue
        patterns.pop(key, None)
        if entry.text and may_guide(entry.trust, approved=bool(entry.body.get(APPROVED_KEY))):
            sources = tuple(findings[key, entry.text])
            patterns[key] = Pattern(key, entry.text, at=entry.at, sources=sources, trust=entry.trust)
    return patterns


def _rank_by_age(at: datetime | None) -> tuple[bool, float]:
    """Sort key: newest first, items without a date last."""
    return at is None, -at.timestamp() if at else 0.0


def match_item(leader: str, section: str, key: str) -> tuple[Any, Any, Any]:
    return col(ProfileEntry.leader) == leader, col(ProfileEntry.section) == section, col(ProfileEntry.key) == key


def find_newest_time(session: Session, leader: str, section: str, key: str) -> datetime | None:
    """The time of the newest version of an item."""
    return session.exec(select(func.max(col(ProfileEntry.at))).where(*match_item(leader, section, key))).one()
