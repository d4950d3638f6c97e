"""Mutes that follow from dismissals (SPEC 2.9).

A dismissal mutes the subject of a card: its kind and what it is about, in a workspace. The third dismissal of a kind in
a workspace switches the kind off there. A dismissal because the work is already done mutes its subject too, but counts
neither for a longer mute nor for the kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import PurePath

from sqlmodel import Field, Session

from engine.events.work import MuteLifted
from engine.frozen import frozen, group_pairs
from engine.model import DismissReason, Mute, Refusal, Tier
from engine.prediction import kind_title
from engine.prediction.card_rows import CardRow
from engine.storage import Row, ask, load, shallow_dict
from engine.storage.database import Transaction
from engine.text import hex_hash

FIRST_MUTE = timedelta(days=7)
"""How long the first dismissal mutes a subject; each further one doubles the time."""

MAX_DISMISSALS = 3
"""Number of dismissals that switch a kind off in a workspace. An approval of the kind restarts the count."""

NEVER_REASONS = (DismissReason.NEVER_HERE, DismissReason.NEVER_ANYWHERE)
"""Reasons that switch a kind off at once."""

About = tuple[str, str, str]
"""(workspace, kind, subject) of a mute. The subject is "" for a whole kind, the workspace "" for all workspaces."""


class DismissalRow(Row, table=True):
    """A dismissed card. An undo of the dismissal removes the row; the end of its mute does not."""

    __tablename__ = "dismissals"
    prediction_id: str = Field(primary_key=True)
    workspace: str
    kind: str
    subject: str
    reason: str | None = None
    dismissed_at: datetime
    subject_lifted_at: datetime | None = None
    kind_lifted_at: datetime | None = None


@frozen
class Dismissal:
    """One dismissal that was not undone."""

    card: str
    workspace: str
    kind: str
    subject: str
    at: datetime
    reason: str | None = None
    subject_counts: bool = True
    """False after the operator ended the mute of its subject."""
    kind_counts: bool = True
    """False after the operator ended the mute of its kind, or approved a card of the kind in the workspace."""
    prompt: str = ""
    tier: int = 1


_SELECT_COUNTING = """
    SELECT prediction_id, dismissals.workspace, dismissals.kind, dismissals.subject, dismissed_at, reason,
           subject_lifted_at IS NULL, kind_lifted_at IS NULL, prompt, tier
    FROM dismissals JOIN predictions ON predictions.id = prediction_id
    WHERE subject_lifted_at IS NULL OR kind_lifted_at IS NULL
"""
"""Selects the fields of `Dismissal` for all dismissals that count for their subject or their kind."""


def find_active_mutes(dismissals: Iterable[Dismissal], now: datetime) -> list[Mute]:
    """The mutes at `now`, newest first. A mute is over at its `until`."""
    ordered = sorted(dismissals, key=lambda dismissal: (dismissal.at, dismissal.card))
    of_kinds = [
        dismissal for dismissal in ordered if dismissal.kind_counts and dismissal.reason != DismissReason.ALREADY_DONE
    ]
    of_subjects = [dismissal for dismissal in ordered if dismissal.subject_counts]
    everywhere = [dismissal for dismissal in of_kinds if dismissal.reason == DismissReason.NEVER_ANYWHERE]
    by_subject = group_pairs(
        ((dismissal.workspace, dismissal.kind, dismissal.subject), dismissal) for dismissal in of_subjects
    )
    by_kind = group_pairs(((dismissal.workspace, dismissal.kind, ""), dismissal) for dismissal in of_kinds)
    by_kind |= group_pairs((("", dismissal.kind, ""), dismissal) for dismissal in everywhere)
    mutes = (
        *(_make_mute_of_subject(about, group, now) for about, group in by_subject.items()),
        *(_make_mute_of_kind(about, group) for about, group in by_kind.items()),
    )
    active = [mute for mute in mutes if mute is not None]
    return sorted(active, key=lambda mute: (mute.at, mute.subject == "", mute.id), reverse=True)


def _make_mute_of_subject(about: About, dismissals: list[Dismissal], now: datetime) -> Mute | None:
    """The mute of a subject, None if it is over."""
    unwanted = sum(dismissal.reason != DismissReason.ALREADY_DONE for dismissal in dismissals)
    until = dismissals[-1].at + FIRST_MUTE * 2 ** max(0, unwanted - 1)
    return _make_mute(about, dismissals, until) if now < until else None


def _make_mute_of_kind(about: About, dismissals: list[Dismissal]) -> Mute | None:
    """The mute that switches a kind off in a workspace, or with "" for the workspace everywhere. None if there are too
    few dismissals and none says "never"."""
    is_everywhere = not about[0]
    never = [dismissal for dismissal in dismissals if is_everywhere or dismissal.reason == DismissReason.NEVER_HERE]
    if not never and len(dismissals) < MAX_DISMISSALS:
        return None
    return _make_mute(about, never or dismissals, None)


def _make_mute(about: About, dismissals: list[Dismissal], until: datetime | None) -> Mute:
    """The mute that follows from these dismissals, the last of which is the newest."""
    workspace, kind, subject = about
    last = dismissals[-1]
    return Mute(
        id=f"mute_{hex_hash(json.dumps(about), 12)}",
        kind=kind,
        workspace=workspace,
        subject=subject,
        dismissals=len(dismissals),
        at=last.at,
        until=until,
        reason=DismissReason(last.reason) if last.reason else None,
        card=last.card,
        prompt=last.prompt,
        tier=min(dismissal.tier for dismissal in dismissals),
    )


def describe_switch_off(mute: Mute) -> str:
    """Say in words which kind is switched off, where, and why."""
    where = f"in {PurePath(mute.workspace).name}" if mute.workspace else "everywhere"
    return f"cards “{kind_title(mute.kind)}” are switched off {where}: {mute.why}"


class MuteIndex:
    """Looks up whether a card is muted."""

    def __init__(self, muted: Iterable[Mute]) -> None:
        self._tiers = {(mute.workspace, mute.kind, mute.subject): mute.tier for mute in muted}

    def covers(self, workspace: str, kind: str, subject: str, tier: int) -> bool:
        """Whether a card is muted. A card that was dismissed in a lower tier is shown again once it is in tier 1,
        unless its kind is switched off."""
        if not self._tiers.keys().isdisjoint({(workspace, kind, ""), ("", kind, "")}):
            return True
        dismissed = self._tiers.get((workspace, kind, subject))
        return dismissed is not None and not (tier == Tier.AT_RISK < dismissed)


def read_mutes(session: Session, now: datetime) -> list[Mute]:
    """The mutes at `now`, newest first."""
    dismissals = (
        Dismissal(card, workspace, kind, subject, datetime.fromisoformat(at), *others)
        for card, workspace, kind, subject, at, *others in ask(session, _SELECT_COUNTING)
    )
    return find_active_mutes(dismissals, now)


def read_mute_index(session: Session, now: datetime) -> MuteIndex:
    """The mutes at `now`, to look cards up in."""
    return MuteIndex(read_mutes(session, now))


def store_dismissal(tx: Transaction, row: CardRow, reason: DismissReason | None) -> None:
    """Store the dismissal of a card. If it is stored already, replace its reason."""
    stored = load(tx.session, DismissalRow, row.id)
    if stored is None:
        stored = DismissalRow(
            prediction_id=row.id, workspace=row.workspace, kind=row.kind, subject=row.subject, dismissed_at=tx.now
        )
        tx.session.add(stored)
    stored.reason = reason
    tx.session.flush()


def remove_dismissal(tx: Transaction, card_id: str) -> None:
    """Remove the dismissal of a card, because it was undone."""
    if (stored := load(tx.session, DismissalRow, card_id)) is not None:
        tx.session.delete(stored)
        tx.session.flush()


def restart_dismissal_count(tx: Transaction, workspace: str, kind: str) -> None:
    """Stop counting earlier dismissals of this kind in the workspace, because a card of the kind was approved there.
    Dismissals with a reason in `NEVER_REASONS` still count."""
    statement = """
        UPDATE dismissals SET kind_lifted_at = :now
        WHERE workspace = :workspace AND kind = :kind AND kind_lifted_at IS NULL
        AND (reason IS NULL OR reason NOT IN (SELECT value FROM json_each(:never)))
    """
    ask(tx.session, statement, {"now": tx.now, "workspace": workspace, "kind": kind, "never": NEVER_REASONS})


def end_mute(tx: Transaction, mute_id: str) -> Mute:
    """End a mute and return it. Ending the mute of a subject does not end that of its kind, nor the other way round.
    Raises `Refusal` `unknown_mute`."""
    mute = next((mute for mute in read_mutes(tx.session, tx.now) if mute.id == mute_id), None)
    if mute is None:
        raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
    if mute.subject:
        change = "subject_lifted_at = :now WHERE workspace = :workspace AND subject = :subject"
    elif mute.workspace:
        change = "kind_lifted_at = :now WHERE workspace = :workspace AND reason IS NOT :everywhere"
    else:
        change = "kind_lifted_at = :now WHERE reason = :everywhere"
    values = shallow_dict(mute) | {"now": tx.now, "everywhere": DismissReason.NEVER_ANYWHERE}
    ask(tx.session, f"UPDATE dismissals SET {change} AND kind = :kind", values)
    tx.record(MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind)))
    return mute
