"""Trials of overlays: which sessions go with and without each, and how they ended (SPEC 5.4, 5.7).

An overlay is withheld from a share of the sessions, chosen by a hash. Each session is followed up to the operator's
decision on its changes: discarded work did not succeed, whatever its tests say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlmodel import Field, Session, col, func

from engine.config import SettingsSource
from engine.events import OverlayFoundHarmful
from engine.frozen import frozen
from engine.hierarchy.outcomes import SessionFollower
from engine.learning.candidates.candidate_rows import CandidateRow
from engine.learning.candidates.lift import measure_lift
from engine.learning.candidates.overlays import Overlays
from engine.model.adaptation import CandidateStatus, CandidateType, FixTemplate, Lift, LiftVerdict, Overlay
from engine.model.confidence_sequence import Arms
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.storage.rows import Row
from engine.storage.table_cache import TableCache
from engine.storage.types import utc_field

TRIAL_CURSOR = "adaptation.trials"

MAX_REPAIRS = 8
"""Maximum number of repairs that an agent gets at once, the newest."""

PROVENANCE = "overlays"
"""Key of a prompt's provenance that lists its overlays, the withheld ones too."""


class OverlayRun(Row, table=True):
    """A session in the trial of an overlay."""

    __tablename__ = "overlay_runs"

    overlay_id: str = Field(primary_key=True)
    session_id: str = Field(primary_key=True)
    agent: str
    workspace: str
    withheld: bool
    """Whether the session went without the overlay."""
    propensity: float
    """The probability of that."""
    state: str = ""
    """The result of the session, see `engine.hierarchy.outcomes.next_outcome`."""
    at: datetime = utc_field()


_LIFT_FIELDS = ("with_runs", "with_good", "without_runs", "without_good", "difference", "low", "high")


def is_withheld(run_id: str, overlay_id: str, share: float) -> bool:
    """Whether a run goes without an overlay; true for a `share`, 0 to 1, of all runs."""
    digest = hashlib.blake2b(f"{run_id}\0{overlay_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


@frozen
class Draw:
    """Whether an overlay is withheld from a run."""

    overlay: Overlay
    withheld: bool
    propensity: float

    def to_json(self) -> dict[str, Any]:
        """The draw for a prompt's provenance."""
        return {
            "id": self.overlay.id,
            "candidate": self.overlay.candidate_id,
            "withheld": self.withheld,
            "propensity": self.propensity,
        }


class Trials(SessionFollower[OverlayRun]):
    """Withholds overlays from a share of the sessions, and follows the results of all. Callable from any thread."""

    def __init__(self, database: Database, overlays: Overlays, settings: SettingsSource, *, facts: Ledger) -> None:
        super().__init__(database, facts, OverlayRun, cursor=TRIAL_CURSOR)
        self.overlays = overlays
        self._settings = settings
        self._lifts: TableCache[Mapping[str, Lift]] = TableCache(database, OverlayRun)

    def draw(self, overlays: Iterable[Overlay], run_id: str) -> list[Draw]:
        """Draw for each overlay whether this run goes without it. Without a run (`run_id` "") nothing is withheld."""
        share = self._settings.current.adaptation.withheld if run_id else 0.0
        return [Draw(overlay, is_withheld(run_id, overlay.id, share), share) for overlay in overlays]

    def applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, session_id: str, agent: str, workspace: str
    ) -> None:
        """Store the overlays in the provenance of a prompt that is sent, the withheld ones too; once for a session."""
        for overlay in provenance.get(PROVENANCE, ()):
            if tx.session.get(OverlayRun, (overlay["id"], session_id)) is None:
                tx.session.add(
                    OverlayRun(
                        overlay_id=overlay["id"],
                        session_id=session_id,
                        agent=agent,
                        workspace=workspace,
                        withheld=overlay["withheld"],
                        propensity=overlay["propensity"],
                        at=tx.now,
                    )
                )

    def repairs(self, *, agent: str, workspace: str, broken: Sequence[str], session_id: str = "") -> Sequence[str]:
        """Earlier repairs of the tests that fail now, newest first, each once. A trial withholds them from a share of
        the runs. Do not call inside a transaction."""
        matching = [
            overlay
            for overlay in self.overlays.of(CandidateType.FIX_TEMPLATE, agent, None, workspace)
            if isinstance(overlay.effect, FixTemplate) and not set(broken).isdisjoint(overlay.effect.failing)
        ]
        draws = self.draw(reversed(matching), session_id)
        if draws and session_id:
            provenance = {PROVENANCE: [draw.to_json() for draw in draws]}
            where = {"session_id": session_id, "agent": agent, "workspace": workspace}
            self._database.write(lambda tx: self.applied(tx, provenance, **where))
        effects = (draw.overlay.effect for draw in draws if not draw.withheld)
        lines = (line for effect in effects if isinstance(effect, FixTemplate) for line in effect.repairs)
        return tuple(dict.fromkeys(lines))[:MAX_REPAIRS]

    def lifts(self) -> Mapping[str, Lift]:
        """The lifts of all overlays, active or not, by id."""
        return self._lifts.get("", self._read)

    def harmful(self) -> list[tuple[Overlay, Lift]]:
        """The active overlays that do harm, most certain first."""
        lifts = self.lifts()
        measured = [(overlay, lifts[overlay.id]) for overlay in self.overlays.active() if overlay.id in lifts]
        return sorted(
            (pair for pair in measured if pair[1].verdict == LiftVerdict.HARMS), key=lambda pair: pair[1].high
        )

    def on_state_change(self, tx: Transaction, rows: Sequence[OverlayRun]) -> None:
        """Record the event of an overlay that does harm, once."""
        for overlay_id, measured in _lifts(tx.session, {row.overlay_id for row in rows}).items():
            row = tx.session.get(CandidateRow, overlay_id.rpartition(".")[0])
            if row is None or row.told_at is not None or measured.verdict != LiftVerdict.HARMS:
                continue
            if row.status != CandidateStatus.PROMOTED or overlay_id != f"{row.id}.{row.term}":
                continue
            row.told_at = tx.now
            tx.session.add(row)
            tx.record(
                OverlayFoundHarmful(
                    subject=overlay_id,
                    workspace=row.workspace,
                    candidate_id=row.id,
                    type=row.type,
                    agent=row.agent_id,
                    **{name: round(getattr(measured, name), 4) for name in _LIFT_FIELDS},
                )
            )

    def _read(self) -> Mapping[str, Lift]:
        with self._database.read() as session:
            return _lifts(session)


def _lifts(session: Session, overlays: Iterable[str] | None = None) -> dict[str, Lift]:
    """The lifts of these overlays, by default of all. Runs that could only fall into one arm are not counted."""
    id_column, propensity, withheld = col(OverlayRun.overlay_id), col(OverlayRun.propensity), col(OverlayRun.withheld)
    good, over = col(OverlayRun.state) == "good", col(OverlayRun.state).in_(["good", "bad"])
    counts = (func.count().filter(arm & state) for arm in (~withheld, withheld) for state in (over, good))
    stratum = (id_column, propensity)
    statement = sqlalchemy.select(*stratum, *counts).group_by(*stratum).order_by(*stratum)
    statement = statement.where(propensity > 0, propensity < 1)
    if overlays is not None:
        statement = statement.where(id_column.in_(sorted(overlays)))
    strata: dict[str, list[Arms]] = {}
    for overlay_id, *arms in session.execute(statement):
        strata.setdefault(overlay_id, []).append(Arms(*arms))
    return {overlay_id: measure_lift(overlay_id, arms) for overlay_id, arms in strata.items()}
