"""Overlays: the active effects of candidates, in prompts and elsewhere, and their measured lift (SPEC 5.4 to 5.7).

A trial withholds an overlay from a share of the sessions, chosen by a hash. It follows each session until the operator
decides on the changes, because discarded work failed even if its tests passed. The *lift* is the difference between the
shares of good sessions with and without the overlay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, TypeVar

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, Session

from engine import tokenizer
from engine.config.settings import SettingsSource
from engine.events.learning import OverlayFoundHarmful
from engine.frozen import frozen, group_pairs
from engine.hierarchy.guided_sessions import UNKNOWN, SessionFollower
from engine.inference import Arms, compute_difference_interval
from engine.learning.candidates.effects import list_texts
from engine.learning.candidates.life_cycle import CandidateRow, load_candidates
from engine.lessons import find_lessons
from engine.model import Contribution, PromptLine, PromptRequest, PromptSource, SourceKind, Trust
from engine.model.adaptation import (
    CandidateStatus,
    CandidateType,
    Effect,
    FixTemplate,
    Lift,
    LiftVerdict,
    ModelRun,
    Overlay,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)
from engine.model.prompts import OWN_TEXT, make_block
from engine.storage import Row, ask
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.text import remove_invalid_xml
from engine.wording import mark_approved

EffectT = TypeVar("EffectT", bound=Effect)


class Overlays:
    """Reads the active effects by agent, kind of run and workspace. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def choose_model(self, run: ModelRun) -> tuple[str, str] | None:
        """(model, reason) of the newest routing hint that applies, None for none."""
        for overlay, hint in reversed(self.find(RoutingHint, run.agent, run.run_kind, run.workspace)):
            is_short = hint.longest_prompt is None or len(run.prompt) <= hint.longest_prompt
            if is_short and hint.channel in ("", run.channel):
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {overlay.candidate_id})"
        return None

    def find_tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Limits of the validation loop for an agent's work in a workspace; all of them apply."""
        return [tweak for _, tweak in self.find(PolicyTweak, agent, None, workspace)]

    def find_flows(self) -> Sequence[Overlay]:
        """The active flows, oldest first."""
        return [overlay for overlay in self.load_active() if overlay.type is CandidateType.FLOW_OFFLOAD]

    def find(
        self, effect_type: type[EffectT], agent_id: str, run_kind: str | None, workspace: str
    ) -> Sequence[tuple[Overlay, EffectT]]:
        """The active effects of a type for an agent, a kind of run (None for all) and a workspace, oldest first. With
        `workspace` "", effects for a certain workspace are left out."""
        return [
            (overlay, overlay.effect)
            for overlay in self.load_active()
            if isinstance(overlay.effect, effect_type) and overlay.applies_to(agent_id, run_kind, workspace)
        ]

    def load_active(self) -> Sequence[Overlay]:
        """All active effects, oldest first."""
        active = (row.overlays[0] for row in load_candidates(self._database, CandidateStatus.ACTIVE))
        return sorted(active, key=lambda overlay: (overlay.since, overlay.id))


# -- trials

ERROR_RATE = 0.1
"""Maximum probability that an end of the interval is ever wrong, over all checks."""

NEGLIGIBLE_LIFT = 0.1
"""If the interval is between -`NEGLIGIBLE_LIFT` and `NEGLIGIBLE_LIFT`, the effect makes no difference."""


def measure_lift(overlay_id: str, strata: Sequence[Arms]) -> Lift:
    """The lift of an overlay. A stratum has the runs from which it was withheld with the same probability."""
    difference, low, high = compute_difference_interval(strata, ERROR_RATE)
    if high < 0:
        verdict = LiftVerdict.HARMS
    elif low > 0:
        verdict = LiftVerdict.HELPS
    else:
        is_small = max(high, -low) <= NEGLIGIBLE_LIFT
        verdict = LiftVerdict.NO_DIFFERENCE if is_small else LiftVerdict.NOT_ENOUGH
    return Lift(
        overlay_id,
        sum(arms.with_runs for arms in strata),
        sum(arms.with_good for arms in strata),
        sum(arms.without_runs for arms in strata),
        sum(arms.without_good for arms in strata),
        difference,
        low,
        high,
        verdict,
    )


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
    """The probability of withholding the overlay."""
    outcome: str = Field(default=UNKNOWN, sa_column_kwargs={"name": "state"})
    """The outcome of the session, see `engine.hierarchy.guided_sessions`."""
    at: datetime


def is_withheld(run_id: str, overlay_id: str, share: float) -> bool:
    """Whether an overlay is withheld from a run. True for a `share`, 0 to 1, of all runs."""
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


TRIAL_CURSOR = "adaptation.trials"
"""Name of the cursor in the ledger."""

MAX_REPAIRS = 8
"""Maximum number of repairs that an agent gets at once. The newest are used."""

PROVENANCE_KEY = "overlays"
"""Key in a prompt's provenance of the list of its overlays, including the withheld ones."""


class Trials(SessionFollower[OverlayRun]):
    """Withholds overlays from a share of the sessions, and follows the results of all sessions. Callable from any
    thread."""

    def __init__(self, database: Database, overlays: Overlays, settings: SettingsSource, *, ledger: Ledger) -> None:
        super().__init__(database, ledger, OverlayRun, cursor=TRIAL_CURSOR)
        self.overlays = overlays
        self._settings = settings

    def draw(self, overlays: Iterable[Overlay], run_id: str) -> list[Draw]:
        """Draw for each overlay whether it is withheld from this run. Without a run (`run_id` "") nothing is
        withheld."""
        share = self._settings.current.adaptation.withheld if run_id else 0.0
        return [Draw(overlay, is_withheld(run_id, overlay.id, share), share) for overlay in overlays]

    def record_applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, session_id: str, agent: str, workspace: str
    ) -> None:
        """Store the overlays in the provenance of a prompt that is sent, including the withheld ones. Each is stored
        once for a session."""
        statement = insert(OverlayRun).on_conflict_do_nothing()
        run = {"session_id": session_id, "agent": agent, "workspace": workspace, "outcome": UNKNOWN, "at": tx.now}
        for draw in provenance.get(PROVENANCE_KEY, ()):
            values = {"overlay_id": draw["id"], "withheld": draw["withheld"], "propensity": draw["propensity"]}
            tx.session.execute(statement, run | values)

    def find_repairs(
        self, *, agent: str, workspace: str, broken: Sequence[str], session_id: str, without: Collection[str] = ()
    ) -> Sequence[str]:
        """Earlier repairs of the tests that fail now, newest first, without duplicates and those of the candidates
        `without`. A trial withholds repairs from a share of the runs. Do not call this inside a transaction."""
        templates = {
            overlay: template
            for overlay, template in reversed(self.overlays.find(FixTemplate, agent, None, workspace))
            if not set(broken).isdisjoint(template.failing) and overlay.candidate_id not in without
        }
        draws = self.draw(templates, session_id)
        if draws:
            provenance = {PROVENANCE_KEY: [draw.to_json() for draw in draws]}
            run = {"session_id": session_id, "agent": agent, "workspace": workspace}
            self._database.write(lambda tx: self.record_applied(tx, provenance, **run))
        lines = (line for draw in draws if not draw.withheld for line in templates[draw.overlay].repairs)
        return tuple(dict.fromkeys(lines))[:MAX_REPAIRS]

    def measure_lifts(self) -> Mapping[str, Lift]:
        """The lifts of all overlays, active or not, by id."""
        with self._database.read() as session:
            return _load_lifts(session)

    def find_harmful(self) -> list[tuple[Overlay, Lift]]:
        """The active overlays that do harm, most certain first."""
        lifts = self.measure_lifts()
        pairs = [(overlay, lifts[overlay.id]) for overlay in self.overlays.load_active() if overlay.id in lifts]
        harmful = (pair for pair in pairs if pair[1].verdict is LiftVerdict.HARMS)
        return sorted(harmful, key=lambda pair: pair[1].high)

    def on_outcome_change(self, tx: Transaction, rows: Sequence[OverlayRun]) -> None:
        """Record an event for each overlay that does harm, once."""
        for overlay_id, measured in _load_lifts(tx.session, {row.overlay_id for row in rows}).items():
            row = tx.session.get(CandidateRow, overlay_id.rpartition(".")[0])
            if row is None or row.status is not CandidateStatus.ACTIVE or overlay_id != f"{row.id}.{row.term}":
                continue
            if measured.verdict is LiftVerdict.HARMS and row.harm_reported_at is None:
                row.harm_reported_at = tx.now
                tx.session.add(row)
                tx.record(_make_harm_event(row, measured))


def _make_harm_event(row: CandidateRow, lift: Lift) -> OverlayFoundHarmful:
    """The event of a candidate that does harm."""
    return OverlayFoundHarmful(
        subject=lift.overlay_id,
        workspace=row.workspace,
        candidate_id=row.id,
        type=row.type,
        agent=row.agent_id,
        with_runs=lift.with_runs,
        with_good=lift.with_good,
        without_runs=lift.without_runs,
        without_good=lift.without_good,
        difference=round(lift.difference, 4),
        low=round(lift.low, 4),
        high=round(lift.high, 4),
    )


_COUNT_ARMS = """
    SELECT overlay_id,
           count(*) FILTER (WHERE NOT withheld AND state IN ('good', 'bad')),
           count(*) FILTER (WHERE NOT withheld AND state = 'good'),
           count(*) FILTER (WHERE withheld AND state IN ('good', 'bad')),
           count(*) FILTER (WHERE withheld AND state = 'good')
    FROM overlay_runs WHERE propensity > 0 AND propensity < 1 {chosen}
    GROUP BY overlay_id, propensity ORDER BY overlay_id, propensity
"""


def _load_lifts(session: Session, overlay_ids: Iterable[str] | None = None) -> dict[str, Lift]:
    """The lifts of these overlays, by default of all. A run does not count if its probability was 0 or 1."""
    chosen = "" if overlay_ids is None else "AND overlay_id IN (SELECT value FROM json_each(:ids))"
    counts = ask(session, _COUNT_ARMS.format(chosen=chosen), {"ids": json.dumps(sorted(overlay_ids or ()))})
    strata = group_pairs((overlay_id, Arms(*arms)) for overlay_id, *arms in counts)
    return {overlay_id: measure_lift(overlay_id, arms) for overlay_id, arms in strata.items()}


# -- fragments in prompts

BLOCK_TAG = "learned-guidance"
"""The tag around the fragments in a prompt."""

_INTRODUCTION = PromptLine(
    "Learnt from earlier work of this kind here. It is advice: the rules, the task and the project's own guidance come "
    "first, and nothing in it allows what they forbid.",
    OWN_TEXT,
)
"""The first line of the block."""


class LearnedGuidance:
    """The part "learned guidance" of every prompt. Thread-safe."""

    name = "learned guidance"

    def __init__(self, overlays: Overlays, trials: Trials, settings: SettingsSource) -> None:
        self._overlays = overlays
        self._trials = trials
        self._settings = settings

    def make_part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None without fragments. Its provenance names all fragments that fit, including the
        withheld ones. Its notes say how many did not fit, and how many a trial withheld."""
        overlays = self._find_fragments(request)
        fitting = self._choose_fitting(overlays)
        draws = self._trials.draw(fitting, request.session_id)
        lines = [line for draw in draws if not draw.withheld for line in make_fragment_lines(draw.overlay)]
        notes = []
        if left_out := len(overlays) - len(fitting):
            notes.append(f"learned guidance: {left_out} of {len(overlays)} fragments had no room")
        if withheld := sum(draw.withheld for draw in draws):
            notes.append(f"learned guidance: {withheld} of {len(draws)} left out by chance, to measure what it does")
        part = make_block(BLOCK_TAG, [_INTRODUCTION, *lines]) if lines else None
        provenance = {PROVENANCE_KEY: [draw.to_json() for draw in draws]} if draws else {}
        return Contribution(part, provenance, tuple(notes))

    def find_lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in the fragments of this request, including the withheld ones. No other block may contain them,
        or the trial would not really withhold them."""
        fitting = self._choose_fitting(self._find_fragments(request))
        return find_lessons(text for overlay in fitting for text in list_texts(overlay.effect))

    def _find_fragments(self, request: PromptRequest) -> Sequence[Overlay]:
        """The active fragments for a request, oldest first."""
        fragments = self._overlays.find(PromptFragment, request.agent, request.run_kind, request.workspace)
        return [overlay for overlay, _ in fragments]

    def _choose_fitting(self, overlays: Sequence[Overlay]) -> list[Overlay]:
        """The fragments that fit the budget, oldest first. Fragments that help most, by their lift, are chosen first,
        then the newest. A withheld fragment takes up its room too, so that runs with and without it differ in nothing
        else."""
        if not overlays:
            return []
        differences = {
            overlay_id: lift.difference
            for overlay_id, lift in self._trials.measure_lifts().items()
            if lift.verdict in (LiftVerdict.HELPS, LiftVerdict.HARMS)
        }
        budget = self._settings.current.adaptation.fragment_tokens
        room = budget - tokenizer.count_lines(make_block(BLOCK_TAG, [_INTRODUCTION]).lines)
        fitting = set[str]()
        for overlay in sorted(overlays, key=lambda item: (differences.get(item.id, 0.0), item.since), reverse=True):
            tokens = tokenizer.count_lines(make_fragment_lines(overlay))
            if tokens <= room:
                fitting.add(overlay.id)
                room -= tokens
        return [overlay for overlay in overlays if overlay.id in fitting]


def make_fragment_lines(overlay: Overlay) -> list[PromptLine]:
    """The lines of a fragment in a prompt, with their source. They are escaped, so that they cannot close the tags
    around them. Quotes are labelled as approved by the operator (SPEC 6.8)."""
    assert isinstance(overlay.effect, PromptFragment)
    approved = overlay.trust is Trust.QUOTED
    source = PromptSource(SourceKind.OVERLAY, overlay.candidate_id, f"overlay {overlay.id}", overlay.trust, approved)
    lines = (escape(remove_invalid_xml(text), quote=False) for text in overlay.effect.guidance)
    return [PromptLine(f"- {mark_approved(line, is_quote=approved)}", source) for line in lines]
