"""Active effects (overlays), the sessions with and without them, and the lift measured from both (SPEC 5.4, 5.5, 5.7).

`Overlays` answers on every prompt, model choice and failing test, so it caches until a candidate changes. `Trials`
withholds an overlay from a share of the sessions, chosen by a hash, and follows how each session ended up to the
operator's decision on its changes: discarded work did not succeed, whatever its tests say.

The lift is read after every session, so its interval is a confidence sequence (`confidence_sequence`). Measured over
200 sessions, a fifth of them without the overlay (`tests/benchmarks/test_lift_looks.py`): of effects that do nothing,
0 to 6 % are called harmful; of those that help by 15 points, 1 %; of those that cost 50 points all, half of them by
the 32nd session; of those that cost 30 points five in six; of those that cost 20 points half.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy
from sqlalchemy import CheckConstraint, Index
from sqlmodel import Field, Session, SQLModel, col, func

from engine.config import SettingsSource
from engine.events import OverlayFoundHarmful
from engine.frozen import frozen
from engine.hierarchy.outcomes import FollowedSessions
from engine.learning.candidates.candidates import CandidateRow, Candidates
from engine.model import Refusal
from engine.model.adaptation import CandidateStatus, CandidateType, FixTemplate, Lift, Overlay, PolicyTweak, RoutingHint
from engine.model.confidence_sequence import Arms, upper_end
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.storage.table_cache import TableCache
from engine.storage.types import utc_column

log = logging.getLogger(__name__)


class Overlays:
    """Answers what is in force, by agent, kind of run and workspace. From any thread; no disk once it was asked."""

    def __init__(self, database: Database) -> None:
        self._candidates = Candidates(database)
        self._related_records: TableCache[list[Overlay]] = TableCache(database, CandidateRow)

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for prompts of an agent's runs of a kind, the oldest first. `workspace` "" is none: what is bound
        to one does not apply then."""
        return self.of(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def model(
        self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str = ""
    ) -> tuple[str, str] | None:
        """The model of the newest hint that fits, and why; None without one."""
        for overlay in reversed(self.of(CandidateType.ROUTING_HINT, agent, run_kind, workspace)):
            hint = overlay.effect
            if not isinstance(hint, RoutingHint) or hint.channel not in ("", channel):
                continue
            if hint.longest_prompt is None or len(prompt) <= hint.longest_prompt:
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {overlay.candidate_id})"
        return None

    def tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Bounds of the validation loop for an agent's work in a workspace; all of them hold."""
        overlays = self.of(CandidateType.POLICY_TWEAK, agent, None, workspace)
        return [overlay.effect for overlay in overlays if isinstance(overlay.effect, PolicyTweak)]

    def flows(self) -> Sequence[Overlay]:
        """Every flow in force, the oldest first."""
        return [overlay for overlay in self.active() if overlay.type is CandidateType.FLOW_OFFLOAD]

    def of(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        """What is in force of a type for an agent, a kind of runs (None where kinds do not matter) and a workspace, the
        oldest first."""
        return [
            overlay
            for overlay in self.active()
            if overlay.type is type and overlay.applies(agent_id, run_kind, workspace)
        ]

    def active(self) -> Sequence[Overlay]:
        """Everything in force, the oldest first."""
        return self._related_records.get("", self._read)

    def _read(self) -> list[Overlay]:
        overlays = []
        for row in self._candidates.rows(CandidateStatus.PROMOTED):
            try:
                overlays.append(row.overlay)
            except Refusal as refusal:  # damaged, or emptied by forgetting: it takes no other with it, and no prompt
                log.warning("candidate %s is active and left out: %s", row.id, refusal)
        return sorted(overlays, key=lambda overlay: (overlay.since, overlay.id))


DOUBT = 0.1
"""In so many of all cases an end of the interval is wrong at some time, at most."""

NEGLIGIBLE = 0.1
"""An interval within this on both sides of 0 means that it makes no difference."""

NOT_ENOUGH, HELPS, HARMS, NO_DIFFERENCE = "not enough evidence", "helps", "harms", "makes no difference"


def withheld(run_id: str, overlay_id: str, share: float) -> bool:
    """Whether a run goes without an overlay; true of a `share`, 0 to 1, of all runs."""
    drawn = hashlib.blake2b(f"{run_id}\0{overlay_id}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn) < share * 2**64


def lift(overlay_id: str, strata: Sequence[Arms]) -> Lift:
    """What runs say; those that were drawn alike are a stratum. While the interval is too wide for any other verdict,
    it is "not enough evidence"."""
    difference, low, high = _reckoned(tuple(strata))
    return Lift(
        overlay_id,
        sum(arms.with_runs for arms in strata),
        sum(arms.with_good for arms in strata),
        sum(arms.without_runs for arms in strata),
        sum(arms.without_good for arms in strata),
        difference,
        low,
        high,
        verdict(low, high),
    )


def verdict(low: float, high: float) -> str:
    """What an interval says, in words."""
    if high < 0:
        return HARMS
    if low > 0:
        return HELPS
    return NO_DIFFERENCE if low >= -NEGLIGIBLE and high <= NEGLIGIBLE else NOT_ENOUGH


@lru_cache(maxsize=1_000)
def _reckoned(strata: tuple[Arms, ...]) -> tuple[float, float, float]:
    """Difference and interval. It takes milliseconds, and is asked again with every prompt."""
    low, high = -upper_end([arms.swapped for arms in strata], DOUBT), upper_end(strata, DOUBT)
    return min(high, max(low, _difference(strata))), low, high


def _difference(strata: Sequence[Arms]) -> float:
    """The difference of the shares, as the mean of the strata where each weighs what it says; the even prior draws it
    a little to 0 while there are few runs."""
    total, weight = 0.0, 0.0
    for arms in strata:
        with_share = (arms.with_good + 1) / (arms.with_runs + 2)
        without_share = (arms.without_good + 1) / (arms.without_runs + 2)
        precision = 1 / (1 / (arms.with_runs + 2) + 1 / (arms.without_runs + 2))
        total, weight = total + precision * (with_share - without_share), weight + precision
    return total / weight if weight else 0.0


CURSOR = "adaptation.trials"

MAX_REPAIRS = 8
"""Maximum number of repairs that an agent gets at once, those learnt last."""

PROVENANCE = "overlays"
"""Under this name a prompt's provenance says which overlays it carries, or carries not by way of a trial."""


class OverlayRun(SQLModel, table=True):
    """A session that had an overlay, or that was chosen to do without it (`withheld`). `propensity` is how probable
    the latter was; `state` how it stands (see `engine.model.work.judged`)."""

    __tablename__ = "overlay_runs"
    __table_args__ = (
        CheckConstraint("state IN ('','open','good','bad')", name="ck_overlay_runs_state"),
        CheckConstraint("propensity >= 0 AND propensity <= 1", name="ck_overlay_runs_propensity"),
        Index("ix_overlay_runs_session", "session_id"),
    )

    overlay_id: str = Field(primary_key=True)
    session_id: str = Field(primary_key=True)
    agent: str
    workspace: str
    withheld: bool
    propensity: float
    state: str = ""
    at: datetime = Field(sa_column=utc_column())


_MEASURED = ("with_runs", "with_good", "without_runs", "without_good", "difference", "low", "high")


@frozen
class Drawn:
    """What was drawn for one overlay and one run."""

    overlay: Overlay
    withheld: bool
    propensity: float

    def to_json(self) -> dict[str, Any]:
        """As a prompt's provenance has it."""
        return {
            "id": self.overlay.id,
            "candidate": self.overlay.candidate_id,
            "withheld": self.withheld,
            "propensity": self.propensity,
        }


class Trials(FollowedSessions[OverlayRun]):
    """Draws, writes down, follows. Callable from any thread."""

    def __init__(self, database: Database, overlays: Overlays, settings: SettingsSource, *, facts: Ledger) -> None:
        super().__init__(database, facts, OverlayRun, cursor=CURSOR)
        self.overlays = overlays
        self._settings = settings
        self._lifts: TableCache[Mapping[str, Lift]] = TableCache(database, OverlayRun)

    def draw(self, overlays: Iterable[Overlay], run_id: str) -> list[Drawn]:
        """For each overlay whether this run goes without it. What belongs to no run (`run_id` "") has everything."""
        share = self._settings.current.adaptation.withheld if run_id else 0.0
        return [Drawn(overlay, bool(run_id) and withheld(run_id, overlay.id, share), share) for overlay in overlays]

    def applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, session_id: str, agent: str, workspace: str
    ) -> None:
        """A prompt with this provenance is sent: its overlays, carried and withheld, are written down. A run that is
        written down stays as it is, however many prompts it makes."""
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
        """What mended the like before, for the tests that are red now: those learnt last first, each once. A share of
        runs goes without by way of a trial. Not inside a transaction."""
        red = set(broken)
        newest_first = reversed(self.overlays.of(CandidateType.FIX_TEMPLATE, agent, None, workspace))
        drawn = self.draw(
            [
                overlay
                for overlay in newest_first
                if isinstance(overlay.effect, FixTemplate) and red & {*overlay.effect.failing}
            ],
            session_id,
        )
        if drawn and session_id:
            provenance = {PROVENANCE: [draw.to_json() for draw in drawn]}
            where = {"session_id": session_id, "agent": agent, "workspace": workspace}
            self._database.write(lambda tx: self.applied(tx, provenance, **where))
        carried = (draw.overlay.effect for draw in drawn if not draw.withheld)
        lines = (line for overlay in carried if isinstance(overlay, FixTemplate) for line in overlay.repairs)
        return tuple(dict.fromkeys(lines))[:MAX_REPAIRS]

    def lifts(self) -> Mapping[str, Lift]:
        """Of every overlay that was ever on trial, by its id."""
        return self._lifts.get("", self._read)

    def harmful(self) -> list[tuple[Overlay, Lift]]:
        """What is in force and does harm: to be rolled back. The surest harm first."""
        lifts = self.lifts()
        measured = [(overlay, lifts[overlay.id]) for overlay in self.overlays.active() if overlay.id in lifts]
        return sorted((pair for pair in measured if pair[1].verdict == HARMS), key=lambda pair: pair[1].high)

    def moved(self, tx: Transaction, rows: Sequence[OverlayRun]) -> None:
        """Tell once of an overlay that does harm."""
        for overlay_id, measured in _lifts(tx.session, {row.overlay_id for row in rows}).items():
            row = tx.session.get(CandidateRow, overlay_id.rpartition(".")[0])
            if row is None or row.told_at is not None or measured.verdict != HARMS:
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
                    **{name: round(getattr(measured, name), 4) for name in _MEASURED},
                )
            )

    def _read(self) -> Mapping[str, Lift]:
        with self._database.read() as session:
            return _lifts(session)


def _lifts(session: Session, overlays: Iterable[str] | None = None) -> dict[str, Lift]:
    """Lifts from what is counted now. Runs that had no chance to fall into the other arm prove nothing; they are not
    counted. Those that had the same chance are a stratum: the settings may change, and work with them."""
    run, number = OverlayRun, func.count()
    good, over = col(run.state) == "good", col(run.state).in_(["good", "bad"])
    arms = (number.filter(arm & state) for arm in (~col(run.withheld), col(run.withheld)) for state in (over, good))
    key = (col(run.overlay_id), col(run.propensity))
    statement = sqlalchemy.select(*key, *arms).group_by(*key).order_by(*key).where(key[1] > 0, key[1] < 1)
    if overlays is not None:
        statement = statement.where(key[0].in_(sorted(overlays)))
    strata: dict[str, list[Arms]] = {}
    for overlay_id, *counted in session.execute(statement):
        strata.setdefault(overlay_id, []).append(Arms(*counted))
    return {overlay_id: lift(overlay_id, arms_of_overlay) for overlay_id, arms_of_overlay in strata.items()}
