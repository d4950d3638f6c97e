"""A leader's profile as a text to edit, and what an edited text changes (SPEC 1.9). Pure.

The text has the headings that `soul.md` has. Patterns and decisions stand after their keys: a line with a known key
rewords that one, a line without a key is a new one, and a line that is gone takes it out.
"""

from __future__ import annotations

import hashlib
import re

from engine.hierarchy.seeds import items, seed_profile, unknown_headings
from engine.model import LeaderProfile, ProfileEdit, Refusal

KEYED = ("patterns", "decisions")
_VERSION = re.compile(r"<!-- version ([0-9a-f]{12}) -->")


def written(profile: LeaderProfile) -> str:
    """The profile as a text."""
    listed = {
        "Principles": profile.principles,
        "Guardrails": profile.guardrails,
        "Patterns": [f"{one.key}: {one.text}" for one in profile.patterns],
        "Decisions": [f"{one.id}: {one.text}" for one in profile.decisions],
    }
    parts = [f"## Domain\n\n{profile.domain}".rstrip()]
    for title, lines in listed.items():
        parts.append("\n".join([f"## {title}", "", *(f"- {line}" for line in lines)]).rstrip())
    return "\n\n".join(parts) + "\n"


def printed(profile: LeaderProfile) -> str:
    """The profile as a text that names its version, for a file that is edited elsewhere."""
    return f"{written(profile)}\n<!-- version {_version(profile)} -->\n"


def refuse_stale(profile: LeaderProfile, text: str) -> None:
    """Raises `Refusal` (`stale_profile`) where a text was printed of another version of the profile: what came up from
    below since then would be taken out unseen. A text that names no version is taken as it is."""
    made_of = _VERSION.search(text)
    if made_of and made_of[1] != _version(profile):
        raise Refusal(
            "stale_profile",
            f"the guidance of {profile.leader} has changed since this text was printed",
            f"`clawpy profile {profile.leader}` prints it again; or delete its version line to save it anyway",
        )


def _version(profile: LeaderProfile) -> str:
    return hashlib.sha256(written(profile).encode()).hexdigest()[:12]


def edits(before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
    """What makes `before` say what `text` says, in the order of the sections. Raises `Refusal` `bad_profile` for a
    heading that no profile has: what stands below it would be lost."""
    if unknown := unknown_headings(text):
        raise Refusal(
            "bad_profile",
            f"a profile has no heading “{unknown[0]}”",
            "use Domain, Principles, Guardrails, Patterns, Decisions",
        )
    wanted = seed_profile(before.leader, text)
    found: list[ProfileEdit] = []
    if wanted.domain != before.domain:
        found.append(ProfileEdit("domain", wanted.domain))
    if wanted.principles != before.principles:
        found.append(ProfileEdit("principles", wanted.principles))
    if wanted.guardrails != before.guardrails:
        found.append(ProfileEdit("guardrails", wanted.guardrails))
    known = {
        "patterns": {one.key: one.text for one in before.patterns},
        "decisions": {one.id: one.text for one in before.decisions},
    }
    kept: dict[str, dict[str, str]] = {section: {} for section in KEYED}
    new: list[ProfileEdit] = []
    for section, line in items(text):
        if section in KEYED:
            key, _, said = line.partition(": ")
            if key in known[section]:
                kept[section][key] = said.strip()
            else:
                new.append(ProfileEdit(section, line))
    for section in KEYED:
        for key, said in known[section].items():
            if kept[section].get(key, "") != said:
                found.append(ProfileEdit(section, kept[section].get(key, ""), key))
    return (*found, *new)
