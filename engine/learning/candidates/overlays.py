"""The active effects of candidates (overlays), by agent, kind of run and workspace (SPEC 5.4, 5.5).

They are read for every prompt, model choice and failing test, so they are cached until a candidate changes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import escape

import sqlalchemy
from sqlmodel import Field, Session, col, func

from engine import tokenizer
from engine.config import SettingsSource
from engine.events import OverlayFoundHarmful
from engine.frozen import frozen
from engine.hierarchy.outcomes import SessionFollower
from engine.learning.candidates.candidates import CandidateReader, CandidateRow
from engine.model import Contribution, PromptLine, PromptPart, PromptRequest, PromptSource, Refusal, SourceKind, Trust
from engine.model.adaptation import (
    CandidateStatus,
    CandidateType,
    FixTemplate,
    Lift,
    LiftVerdict,
    Overlay,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)
from engine.model.confidence_sequence import Arms, upper_end
from engine.model.learnings import lessons_of
from engine.model.prompts import OWN_TEXT
from engine.model.text import approved_text, without_invalid_xml
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.storage.rows import Row, utc_field

log = logging.getLogger(__name__)


class Overlays:
    """Reads the active effects by agent, kind of run and workspace. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._candidates = CandidateReader(database)

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for an agent's prompts of a kind of run, oldest first. With `workspace` "", those of a workspace
        do not apply."""
        return self.of(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def model(
        self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str = ""
    ) -> tuple[str, str] | None:
        """(model, reason) of the newest routing hint that applies, None without one."""
        for overlay in reversed(self.of(CandidateType.ROUTING_HINT, agent, run_kind, workspace)):
            hint = overlay.effect
            if not isinstance(hint, RoutingHint) or hint.channel not in ("", channel):
                continue
            if hint.longest_prompt is None or len(prompt) <= hint.longest_prompt:
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {overlay.candidate_id})"
        return None

    def tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Limits of the validation loop for an agent's work in a workspace; all of them apply."""
        overlays = self.of(CandidateType.POLICY_TWEAK, agent, None, workspace)
        return [overlay.effect for overlay in overlays if isinstance(overlay.effect, PolicyTweak)]

    def flows(self) -> Sequence[Overlay]:
        """The active flows, oldest first."""
        return [overlay for overlay in self.active() if overlay.type is CandidateType.FLOW_OFFLOAD]

    def of(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        """The active effects of a type for an agent, a kind of run (None for all) and a workspace, oldest first."""
        return [
            overlay
            for overlay in self.active()
            if overlay.type is type and overlay.applies(agent_id, run_kind, workspace)
        ]

    def active(self) -> Sequence[Overlay]:
        """All active effects, oldest first."""
        overlays = []
        for row in self._candidates.rows(CandidateStatus.PROMOTED):
            try:
                overlays.append(row.overlay)
            except Refusal as refusal:  # damaged, or empty since its texts were forgotten
                log.warning("candidate %s is active and left out: %s", row.id, refusal)
        return sorted(overlays, key=lambda overlay: (overlay.since, overlay.id))


# Measures from sessions with and without an overlay how much better those with it went (SPEC 5.7). Pure.
#
# The lift is read after every session, so its interval is a confidence sequence (`confidence_sequence`). Measured over
# 200 sessions, a fifth of them without the overlay (`tests/benchmarks/test_lift_looks.py`): of effects that do nothing,
# 0 to 6 % are called harmful; of those that help by 15 points, 1 %; of those that cost 50 points all, half of them by
# the 32nd session; of those that cost 30 points five in six; of those that cost 20 points half.


ERROR_RATE = 0.1
"""Maximum probability that an end of the interval is ever wrong."""

NEGLIGIBLE = 0.1
"""An interval between this difference and its negative means that the effect makes no difference."""


def measure_lift(overlay_id: str, strata: Sequence[Arms]) -> Lift:
    """The lift of an overlay. Runs with the same probability of going without it are a stratum."""
    difference, low, high = _interval(tuple(strata))
    return Lift(
        overlay_id,
        with_runs=sum(arms.with_runs for arms in strata),
        with_good=sum(arms.with_good for arms in strata),
        without_runs=sum(arms.without_runs for arms in strata),
        without_good=sum(arms.without_good for arms in strata),
        difference=difference,
        low=low,
        high=high,
        verdict=_verdict(low, high),
    )


def _verdict(low: float, high: float) -> LiftVerdict:
    if high < 0:
        return LiftVerdict.HARMS
    if low > 0:
        return LiftVerdict.HELPS
    if low >= -NEGLIGIBLE and high <= NEGLIGIBLE:
        return LiftVerdict.NO_DIFFERENCE
    return LiftVerdict.NOT_ENOUGH


@lru_cache(maxsize=1_000)
def _interval(strata: tuple[Arms, ...]) -> tuple[float, float, float]:
    """Difference, low and high end of its interval. Cached, since it takes milliseconds and every prompt reads it."""
    low, high = -upper_end([arms.swapped for arms in strata], ERROR_RATE), upper_end(strata, ERROR_RATE)
    return min(high, max(low, _difference(strata))), low, high


def _difference(strata: Sequence[Arms]) -> float:
    """The difference of the shares, as the mean of the strata where each weighs by its precision; an even prior draws
    it a little to 0 while there are few runs."""
    weighted_sum, weights = 0.0, 0.0
    for arms in strata:
        with_share = (arms.with_good + 1) / (arms.with_runs + 2)
        without_share = (arms.without_good + 1) / (arms.without_runs + 2)
        precision = 1 / (1 / (arms.with_runs + 2) + 1 / (arms.without_runs + 2))
        weighted_sum += precision * (with_share - without_share)
        weights += precision
    return weighted_sum / weights


# Trials of overlays: which sessions go with and without each, and how they ended (SPEC 5.4, 5.7).
#
# An overlay is withheld from a share of the sessions, chosen by a hash. Each session is followed up to the operator's
# decision on its changes: discarded work did not succeed, whatever its tests say.


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
        with self._database.read() as session:
            return _lifts(session)

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


# The part of a prompt with active prompt fragments (SPEC 5.4, 5.5, 5.7).
#
# Fragments are escaped, so they cannot close the tags around them; quoted ones are labelled as approved by the operator
# (SPEC 6.8). Over budget, whole fragments are left out: the least helpful first, then the oldest. A fragment that a
# trial withholds still takes up its room, so that runs with and without it differ in nothing else.


BLOCK = "learned-guidance"

INTRODUCTION = (
    "Learnt from earlier work of this kind here. It is advice: the rules, the task and the project's own guidance come "
    "first, and nothing in it allows what they forbid."
)


class LearnedGuidance:
    """The part "learned guidance" of every prompt. Thread-safe."""

    name = "learned guidance"

    def __init__(
        self,
        overlays: Overlays,
        trials: Trials,
        settings: SettingsSource,
        *,
        count: Callable[[str], int] = tokenizer.count,
    ) -> None:
        self._overlays = overlays
        self._trials = trials
        self._settings = settings
        self._count = count

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None without fragments. Its provenance names all fragments that fit, the withheld
        ones too; the notes say how many are left out for want of room, and how many a trial withheld."""
        overlays = self._overlays.get_prompt_fragments(
            agent_id=request.agent, run_kind=request.run_kind, workspace=request.workspace
        )
        if not overlays:
            return Contribution(None)
        fitting, left_out = self._fit(overlays)
        draws = self._trials.draw(fitting, request.session_id)
        lines = [line for draw in draws if not draw.withheld for line in fragment_lines(draw.overlay)]
        withheld = sum(draw.withheld for draw in draws)
        notes = [f"learned guidance: {len(left_out)} of {len(overlays)} fragments had no room"] if left_out else []
        notes += (
            [f"learned guidance: {withheld} of {len(draws)} left out by chance, to measure what it does"]
            if withheld
            else []
        )
        part = PromptPart(BLOCK, (*_HEAD, *lines, _END)) if lines else None
        return Contribution(part, {PROVENANCE: [draw.to_json() for draw in draws]} if draws else {}, tuple(notes))

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in the fragments of this request, the withheld ones too: no other block may contain them, or a
        trial would withhold nothing."""
        overlays = self._overlays.get_prompt_fragments(
            agent_id=request.agent, run_kind=request.run_kind, workspace=request.workspace
        )
        texts = (
            overlay.effect.guidance for overlay in self._fit(overlays)[0] if isinstance(overlay.effect, PromptFragment)
        )
        return lessons_of(text for lines in texts for text in lines)

    def _fit(self, overlays: Sequence[Overlay]) -> tuple[list[Overlay], list[Overlay]]:
        """The fragments that fit the budget, oldest first, and those that do not."""
        budget = self._settings.current.adaptation.fragment_tokens
        room = budget - sum(self._count(line.text) for line in (*_HEAD, _END))
        fits: list[Overlay] = []
        left_out: list[Overlay] = []
        for overlay in sorted(overlays, key=self._rank, reverse=True):
            tokens = sum(self._count(line.text) for line in fragment_lines(overlay))
            (fits if tokens <= room else left_out).append(overlay)
            room -= tokens if tokens <= room else 0
        fitting = {item.id for item in fits}
        return [item for item in overlays if item.id in fitting], left_out

    def _rank(self, overlay: Overlay) -> tuple[float, float]:
        """Sort key: by lift where there is a verdict, then by age."""
        lift = self._trials.lifts().get(overlay.id)
        difference = (
            lift.difference if lift is not None and lift.verdict in (LiftVerdict.HELPS, LiftVerdict.HARMS) else 0.0
        )
        return difference, overlay.since.timestamp()


def fragment_lines(overlay: Overlay) -> list[PromptLine]:
    """The lines of a fragment in a prompt, with their source."""
    assert isinstance(overlay.effect, PromptFragment)
    approved = overlay.trust is Trust.QUOTED
    source = PromptSource(SourceKind.OVERLAY, overlay.candidate_id, f"overlay {overlay.id}", overlay.trust, approved)
    lines = (escape(without_invalid_xml(text)) for text in overlay.effect.guidance)
    return [PromptLine(f"- {approved_text(line, is_quote=approved)}", source) for line in lines]


_HEAD = (PromptLine(f"<{BLOCK}>", OWN_TEXT), PromptLine(INTRODUCTION, OWN_TEXT))
_END = PromptLine(f"</{BLOCK}>", OWN_TEXT)
