"""What stays away because it was dismissed, and for how long (SPEC 2.9). Pure.

A dismissal is about the subject of a card: its kind and what it is about, in a workspace. The third of a kind in a
workspace switches the kind off there. Work that the operator says is already done keeps its subject away as well, but
is no rejection: it counts towards nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.model import DismissReason, Mute, Tier

AWAY = timedelta(days=7)
"""How long a subject stays away after its first dismissal; twice as long after each further one."""

OFF_AFTER = 3
"""So many dismissals of a kind in a workspace switch it off there. An approval of the kind begins the count anew."""

NEVER = (DismissReason.NEVER_HERE, DismissReason.NEVER_ANYWHERE)


@dataclass(frozen=True, slots=True)
class Dismissal:
    """One dismissal that was not taken back. `subject_counts` and `kind_counts` are False once the mute of its subject,
    or of its kind, was lifted; the latter also once a card of the kind was approved there."""

    card: str
    workspace: str
    kind: str
    subject: str
    at: datetime
    reason: DismissReason | None = None
    subject_counts: bool = True
    kind_counts: bool = True
    prompt: str = ""
    tier: int = 1


def away_for(dismissals: int) -> timedelta:
    """How long a subject stays away after so many dismissals of it, at least 1: 7, 14, 28, … days."""
    return AWAY * int(2 ** (dismissals - 1))


def mutes(dismissals: Iterable[Dismissal], now: datetime) -> list[Mute]:
    """What is muted at `now`, what was muted last first. At `until` itself a subject may come back."""
    subjects: dict[tuple[str, str, str], list[Dismissal]] = {}
    kinds: dict[tuple[str, str], list[Dismissal]] = {}
    never: dict[tuple[str, str], list[Dismissal]] = {}
    for one in sorted(dismissals, key=lambda one: (one.at, one.card)):
        if one.subject_counts:
            subjects.setdefault((one.workspace, one.kind, one.subject), []).append(one)
        if one.kind_counts and one.reason is not DismissReason.ALREADY_DONE:
            kinds.setdefault((one.workspace, one.kind), []).append(one)
            if one.reason in NEVER:
                place = one.workspace if one.reason is DismissReason.NEVER_HERE else ""
                never.setdefault((place, one.kind), []).append(one)
    found = []
    for (workspace, kind, subject), those in subjects.items():
        rejections = sum(one.reason is not DismissReason.ALREADY_DONE for one in those)
        until = those[-1].at + away_for(max(1, rejections))
        if now < until:
            found.append(_mute(workspace, kind, subject, those, until))
    off = {place: those for place, those in kinds.items() if len(those) >= OFF_AFTER} | never
    found += [_mute(workspace, kind, "", those, None) for (workspace, kind), those in off.items()]
    return sorted(found, key=lambda one: (one.at, one.subject == "", one.id), reverse=True)


def _mute(workspace: str, kind: str, subject: str, those: Sequence[Dismissal], until: datetime | None) -> Mute:
    last = those[-1]
    text = json.dumps([workspace, kind, subject])
    return Mute(
        id=f"mute_{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}",
        kind=kind,
        workspace=workspace,
        subject=subject,
        dismissals=len(those),
        at=last.at,
        until=until,
        reason=last.reason,
        card=last.card,
        prompt=last.prompt,
        tier=min(one.tier for one in those),
    )


class Muted:
    """Answers for many cards whether what is muted covers them."""

    def __init__(self, muted: Iterable[Mute]) -> None:
        self._tiers = {(one.workspace, one.kind, one.subject): one.tier for one in muted}

    def covers(self, workspace: str, kind: str, subject: str, tier: int) -> bool:
        """Whether a card of this kind and tier about this subject stays away. What was dismissed at a lower tier comes
        back once it is broken or about to be lost, unless its kind is switched off."""
        if not self._tiers.keys().isdisjoint({(workspace, kind, ""), ("", kind, "")}):
            return True
        dismissed = self._tiers.get((workspace, kind, subject))
        return dismissed is not None and not (tier == Tier.BROKEN < dismissed)
