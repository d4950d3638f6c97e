"""Rounds (SPEC 5.3): what happened is read, the best of it drafted, and what waits is weighed by what came since.

A round costs nothing while nothing happened. What it does is done once: a candidate's key is unique, and how far
records were digested is stored only after they were. A crash in between has them digested again, to the same end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from engine.adaptation import candidates as table
from engine.adaptation.candidates import LIVING, CandidateRow, Candidates, sound
from engine.adaptation.deciding import Deciding
from engine.adaptation.digest import TOP, Opportunity, opportunities
from engine.adaptation.drafting import draft
from engine.adaptation.evaluation import Evaluation, evaluate, outweighs, same_change
from engine.adaptation.material import Draft, Material, NothingToDraft, NotYet
from engine.adaptation.records import Records
from engine.adaptation.reflection import Reflection
from engine.adaptation.weighing import OPPORTUNITY
from engine.clock import Clock
from engine.config import AdaptationMode, SettingsSource
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.values import Randomness, Refusal, Trust
from engine.values.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    Effect,
    LearningRecord,
    Lift,
    Overlay,
    RecordKind,
)

log = logging.getLogger(__name__)

DIGESTED = "adaptation.digested"
"""Under this key the `seq` of the newest record that was digested."""

LOOKED_BACK = timedelta(days=90)
"""Records that are older are no opportunities."""

MOST_RECORDS = 2_000
"""So many of the strongest recent records are looked through."""

MOST_TRIED = 25
"""So many opportunities are tried in a round until `TOP` of them could be drafted."""


JUDGED_BY = {
    CandidateType.POLICY_TWEAK: RecordKind.SUCCESSFUL_HEAL,
    CandidateType.ROUTING_HINT: RecordKind.FAILED_TDD,
}
"""What speaks against these is recorded for workspaces."""


class Trials(Protocol):
    """What overlays do to the work they are tried on (SPEC 5.7)."""

    def lift_of(self, overlay_id: str, /) -> Lift | None:
        """None for what was never on trial."""

    def harmful(self) -> Sequence[tuple[Overlay, Lift]]:
        """What is in force and does harm. Cheap while nothing changed."""


class Rounds:
    """One at a time, from any thread."""

    def __init__(
        self,
        database: Database,
        candidates: Candidates,
        deciding: Deciding,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        records: Records,
        reflection: Reflection,
        material: Material,
        trials: Trials,
        phase: Callable[[], int],
        held: Callable[[], str],
        objects: Callable[[Candidate], str],
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`phase` is that of SPEC 2.6; `held` says why nothing may be done by itself now, "" when it may; `objects`
        what a candidate says that only the operator may let into prompts and commands, "" for nothing; `secrets` are
        values that no candidate may hold."""
        self._database = database
        self._candidates = candidates
        self._deciding = deciding
        self._clock = clock
        self._settings = settings
        self._randomness = randomness
        self._records = records
        self._reflection = reflection
        self._material = material
        self._trials = trials
        self._phase = phase
        self._held = held
        self._objects = objects
        self._secrets = secrets
        self._busy = threading.Lock()
        self._pending = True
        self._in_review = False
        self.not_drafted: dict[str, str] = {}
        """Opportunities of the last round from which nothing could be drafted, by key, and why."""

    def reflect(self) -> int:
        """Make records of what happened since the last time; how many."""
        made = self._reflection.catch_up()
        if made or self._reflection.calls_waiting:
            self._pending = True
        return made

    def wanted(self) -> bool:
        """Whether a round has anything to do. Cheap."""
        if self._pending:
            return True
        if self._rolls_back() and self._trials.harmful():
            return True
        return self._in_review and not self.autonomous()

    def round(self) -> list[Candidate]:
        """One now: reflect, draft, weigh, and in autonomous mode promote. The candidates that were drafted."""
        with self._busy:
            self._pending = False
            try:
                self._reflection.catch_up()
                self._reflection.look_for_sequences()
                drafted = self._digest()
                self._act_by_itself()
                self._undo_harm()
            except BaseException:
                self._pending = True
                raise
            return drafted

    def _digest(self) -> list[Candidate]:
        last = self._records.last()
        with self._database.read() as session:
            digested = int(state.get(session, DIGESTED, 0))
        if last <= digested:
            return []
        touched = self._records.scopes_since(digested)
        ids = [one.id for one in self._draft()]
        drafted = [row for row in self._candidates.rows((CandidateStatus.DRAFTED,)) if row.id in ids]
        self._weigh(touched | {(row.scope_type, row.scope_id) for row in drafted})
        if not self._pending:  # else what is not all told yet is looked at again
            self._database.write(lambda tx: state.put(tx, DIGESTED, last))
        return [row.value for row in sound(self._candidates.rows()) if row.id in ids]

    def _draft(self) -> list[Candidate]:
        """Draft the best opportunities there is no candidate of yet."""
        since = self._clock.now() - LOOKED_BACK
        records = self._records.strong(OPPORTUNITY, since, MOST_RECORDS)
        drafted: list[Candidate] = []
        self.not_drafted = {}
        for one in opportunities(records, self._candidates.keys(), limit=MOST_TRIED):
            if len(drafted) == TOP:
                break
            try:
                found = draft(one, self._known(one), self._material, self._secrets())
                made = self._store(one, found)
            except (NothingToDraft, Refusal) as reason:
                self.not_drafted[one.key] = str(reason)
                self._pending = self._pending or isinstance(reason, NotYet)
            else:
                drafted += [made] if made else []
        return drafted

    def _known(self, one: Opportunity) -> list[LearningRecord]:
        """The records that a draft may look at: of its scope, or of all agents where it concerns them all."""
        if one.type is CandidateType.POLICY_TWEAK:
            agent = one.record.scope_id if one.record.scope_type == "agent" else ""
            kinds = (RecordKind.REPEATED_RETRY, RecordKind.SUCCESSFUL_HEAL)
            every = [record for kind in kinds for record in self._records.newest(kind=kind.value)]
            return [record for record in every if agent in ("", record.agent)]
        return self._records.of_scope(one.record.scope_type, one.record.scope_id)

    def _store(self, one: Opportunity, found: Draft) -> Candidate | None:
        record, now = one.record, self._clock.now()
        if other := self._elsewhere(one.type, (record.scope_type, record.scope_id), found.effect):
            raise NothingToDraft(f"{other} proposes that already")
        candidate = Candidate(
            id=self._randomness.new_id("cand"),
            type=one.type,
            scope_type=record.scope_type,
            scope_id=record.scope_id,
            source_label=record.source_label,
            title=found.title,
            status=CandidateStatus.DRAFTED,
            score=record.score,
            effect=found.effect,
            created_at=now,
            changed_at=now,
            agent_id=found.agent_id,
            run_kind=found.run_kind,
            workspace=found.workspace,
            drafted_from=(record.id,),
            trust=found.trust,
        )
        row = self._database.write(lambda tx: table.add(tx, candidate, f"drafted from {record.kind}: {record.reason}"))
        return None if row is None else row.value

    def _elsewhere(self, type: CandidateType, scope: tuple[str, str], effect: Effect, but: str = "") -> str:
        """The candidate of a scope that proposes the same change for another reason, and came up for review at least;
        "" for none."""
        for row in sound(self._candidates.of_scope(type, *scope)):
            if row.id != but and row.status != CandidateStatus.DRAFTED and same_change(row.value.effect, effect):
                return row.id
        return ""

    def _weigh(self, touched: set[tuple[str, str]]) -> None:
        """Weigh again those of which there are new records."""
        for row in sound(self._candidates.rows(LIVING)):
            if (row.scope_type, row.scope_id) in touched or row.type in JUDGED_BY:
                self._weigh_one(row)

    def _weigh_one(self, row: CandidateRow) -> None:
        one = row.value
        drafted = self._records.by_id(one.drafted_from)
        records = self._records.of_scope(one.scope_type, one.scope_id)
        if one.type in JUDGED_BY:  # what is red or healed is a workspace's; who did it may be theirs
            records = [*records, *self._records.newest(kind=JUDGED_BY[one.type].value)]
        promoted = row.last(CandidateStatus.PROMOTED) if one.status is CandidateStatus.PROMOTED else None
        found = evaluate(one, drafted, records, promoted_at=promoted)
        move = self._move(row, one, found, drafted, records)
        same = (found.corroborated_by, found.against) == (one.corroborated_by, one.against)
        if move is None and (one.status is CandidateStatus.REJECTED or (same and found.score == one.score)):
            return

        def work(tx: Transaction) -> None:
            present = table.row_of(tx, one.id)
            if present.status != row.status:  # somebody decided meanwhile
                return
            table.weigh(tx, present, found, move)
            if move is CandidateMove.REOPEN and found.passed:
                table.weigh(tx, present, found, CandidateMove.CORROBORATE)

        self._database.write(work)

    def _move(
        self,
        row: CandidateRow,
        one: Candidate,
        found: Evaluation,
        drafted: Sequence[LearningRecord],
        records: Sequence[LearningRecord],
    ) -> CandidateMove | None:
        match one.status:
            case CandidateStatus.DRAFTED if found.passed:
                if self._elsewhere(one.type, (one.scope_type, one.scope_id), one.effect, but=one.id):
                    return None  # it was asked, or decided, for another reason
                return CandidateMove.CORROBORATE
            case CandidateStatus.REVIEW if not found.passed:
                return CandidateMove.WEAKEN
            case CandidateStatus.REJECTED:
                rejected = row.last(CandidateStatus.REJECTED)
                if rejected is not None and outweighs(one, drafted, records, rejected):
                    return CandidateMove.REOPEN
        return None

    def autonomous(self) -> str:
        """Why nothing is promoted by itself, in words; "" when it is (SPEC 5.6)."""
        if self._settings.current.adaptation.mode is not AdaptationMode.AUTONOMOUS:
            return "adaptation.mode is manual"
        if held := self._held():
            return held
        return "" if self._phase() else "in phase 0 nothing is promoted by itself"

    def _act_by_itself(self) -> None:
        rows = sound(self._candidates.rows((CandidateStatus.REVIEW,)))
        waiting = [row for row in rows if row.trust != Trust.QUOTED]  # words of others wait for the operator (SPEC 6.8)
        self._in_review = bool(waiting)
        if not waiting or self.autonomous():
            return
        for row in waiting:
            if why := self._left_to_operator(row):
                log.info("candidate %s waits for the operator: %s", row.id, why)
                continue
            try:
                self._deciding.approve(row.id, by="autonomy")
            except Refusal as refusal:  # the operator was quicker, or its effect cannot be in force here
                log.warning("candidate %s was not promoted by itself: %s", row.id, refusal)

    def _left_to_operator(self, row: CandidateRow) -> str:
        """Why a candidate in review is none for the engine to decide; "" when it is one."""
        one = row.value
        if row.taken_back:
            return "a decision on it was taken back, and nothing has happened since"
        if len(one.against) >= len(one.corroborated_by):
            return "as much speaks against it"
        return self._objects(one)

    def _undo_harm(self) -> None:
        """In autonomous mode what does harm is rolled back (SPEC 5.7), whatever is held: what was done before is done
        again. In manual mode the operator is asked, see `Adaptation.waiting`."""
        if not self._rolls_back():
            return
        for overlay, lift in self._trials.harmful():
            words = f"it does harm: {shares(lift)}"
            try:
                self._deciding.roll_back(overlay.candidate_id, words, by="autonomy")
            except Refusal as refusal:
                log.warning("candidate %s was not rolled back by itself: %s", overlay.candidate_id, refusal)

    def _rolls_back(self) -> bool:
        return self._settings.current.adaptation.mode is AdaptationMode.AUTONOMOUS


def shares(lift: Lift) -> str:
    """What was seen, in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )
