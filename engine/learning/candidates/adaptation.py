"""The service `engine.adaptation`: turns learning records into candidates, and carries out your decisions (SPEC 5).

A round reads what happened, drafts candidates from the strongest records, and weighs the pending ones by newer
records. Rounds are idempotent: a candidate's key is unique, and the position up to which records were processed is
stored last. After a crash the same records are processed again, with the same result.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from engine.clock import Clock
from engine.config import AdaptationMode, SettingsSource
from engine.frozen import frozen
from engine.learning.candidates import candidates as table
from engine.learning.candidates.candidates import CandidateRow, Candidates
from engine.learning.candidates.drafting import Draft, NothingToDraft, NotYet, draft
from engine.learning.candidates.effects import effect_texts, preview_lines
from engine.learning.candidates.evaluation import (
    MAX_DRAFTS,
    Evaluation,
    Opportunity,
    evaluate,
    opportunities,
    outweighs,
    same_change,
)
from engine.learning.candidates.records import Records
from engine.learning.candidates.reflection import Reflection
from engine.learning.candidates.sources import Sources
from engine.learning.candidates.stations import stations_of
from engine.learning.candidates.trials import Trials
from engine.learning.candidates.weighing import OPPORTUNITY
from engine.model import Randomness, Refusal, Trust, Waiting, microusd
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    CandidateView,
    Effect,
    EffectPreview,
    FixTemplate,
    KnownFix,
    LearningRecord,
    Lift,
    RecordKind,
)
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger

log = logging.getLogger(__name__)

DIGESTED = "adaptation.digested"
"""Under this key the `seq` of the newest record that was digested."""

LOOK_BACK = timedelta(days=90)
"""Records that are older are no opportunities."""

MAX_RECORDS = 2_000
"""Maximum number of strong recent records that are read."""

MAX_TRIED = 25
"""Maximum number of opportunities tried in a round to reach `MAX_DRAFTS` drafts."""

PROPOSED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.PROMOTED)
LIVING = (*PROPOSED, CandidateStatus.REJECTED)
"""Statuses of candidates that new records can say something about."""

JUDGED_BY = {
    CandidateType.POLICY_TWEAK: RecordKind.SUCCESSFUL_HEAL,
    CandidateType.ROUTING_HINT: RecordKind.FAILED_TDD,
}
"""What speaks against these is recorded for workspaces, whosever work it was."""


@frozen
class Counts:
    """How many candidates there are of each status, and how many learning records there were."""

    statuses: dict[CandidateStatus, int]
    records: int


class Adaptation:
    """Callable from any thread; one round at a time."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        ledger: Ledger,
        sources: Sources,
        trials: Trials,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._randomness = randomness
        self._sources = sources
        self._trials = trials
        self._candidates = Candidates(database)
        self._records = Records(database)
        self._reflection = Reflection(database, self._records, ledger=ledger, sources=sources)
        self._busy = threading.Lock()
        self._pending = True
        self._in_review = False
        self._not_drafted: dict[str, str] = {}

    # -- looking

    def candidates(
        self, status: CandidateStatus | None = None, type: CandidateType | None = None, limit: int = 200
    ) -> list[Candidate]:
        """The latest change first; of one status, of one type."""
        rows = self._candidates.readable(*([] if status is None else [status]))
        return [row.value for row in rows if type in (None, row.type)][:limit]

    def view(self, candidate_id: str) -> CandidateView:
        """All about one, by its id or the beginning of it. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        row = self._candidates.get(candidate_id)
        candidate = row.value
        records = self._records.by_id([*candidate.drafted_from, *candidate.corroborated_by, *candidate.against])
        overlays = row.overlays
        return CandidateView(
            candidate,
            tuple(records),
            self._preview(row),
            self._trials.lifts().get(overlays[0].id) if overlays else None,
            overlays,
            stations_of(row, (record for record in records if record.id in candidate.drafted_from)),
        )

    def _preview(self, row: CandidateRow) -> EffectPreview:
        """How things are done without a candidate's effect, and with it: a question to what is in force now."""
        candidate, healing = row.value, self._settings.current.validation
        models = self._sources.models(candidate.agent_id) if candidate.type is CandidateType.ROUTING_HINT else None
        others = [
            other.effect
            for other in self._trials.overlays.active()
            if other.type is candidate.type
            and other.candidate_id != candidate.id
            and other.applies(candidate.agent_id, candidate.run_kind, candidate.workspace)
        ]
        model = models.present.model if models else "as configured"
        before, after = (
            preview_lines(
                candidate.type,
                effects,
                model=model,
                tries=healing.tries,
                cost=microusd(healing.cost_cap),
                flows=self._sources.flows(),
            )
            for effects in (others, [*others, candidate.effect])
        )
        return EffectPreview(tuple(before), tuple(after))

    def fixes(self, workspace: str) -> list[KnownFix]:
        """Landed diffs that turned red tests of a workspace green, those borne out most first, then the newest. Not
        those that were turned down or rolled back: as long as nobody did, a card may ask."""
        scored = []
        for row in self._candidates.readable(*PROPOSED):
            candidate = row.value
            if (
                candidate.workspace != workspace
                or not isinstance(candidate.effect, FixTemplate)
                or not candidate.effect.patch
            ):
                continue
            for record in self._records.by_id(candidate.drafted_from):
                title = self._sources.title(record.session_id)
                if title and "landed" in record.details:
                    scored.append((candidate.score, KnownFix(candidate.id, title, record.at, candidate.effect)))
        return [fix for _, fix in sorted(scored, key=lambda pair: (pair[0], pair[1].at), reverse=True)]

    def records(self, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """What was reflected on, the newest first; of one of the 15 kinds. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.newest(kind=kind, limit=limit)

    def counts(self) -> Counts:
        """How many candidates and records there are."""
        statuses = Counter(row.status for row in self._candidates.rows())
        return Counts({status: statuses[status] for status in CandidateStatus}, self._records.last())

    def not_drafted(self) -> dict[str, str]:
        """Opportunities of the last round from which nothing could be drafted, by key, and why."""
        return dict(self._not_drafted)

    def waiting(self) -> list[Waiting]:
        """What waits for the operator (SPEC 9.3): candidates in review, and overlays that do harm."""
        queue = [
            Waiting("candidate", row.id, f"promote? {row.title}", row.changed_at, text=_effect_text(row.value.effect))
            for row in self._candidates.readable(CandidateStatus.REVIEW)
        ]
        for overlay, lift in self._trials.harmful():
            row = self._candidates.get(overlay.candidate_id)
            queue.append(Waiting("candidate", row.id, f"roll back? {row.title}: {shares(lift)}", row.changed_at))
        return queue

    # -- the operator's word

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Put its effect in force; again, if it was rolled back. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `not_corroborated`, `already_decided`, `bad_effect`, `already_in_force`."""
        return self._decide(candidate_id, CandidateMove.APPROVE, by, "")

    def reject(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Turn it down. Raises as `approve`."""
        return self._decide(candidate_id, CandidateMove.REJECT, by, reason)

    def roll_back(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Take its effect back: what was done before is done again. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `nothing_to_roll_back`."""
        return self._decide(candidate_id, CandidateMove.ROLL_BACK, by, reason)

    def undo(self, candidate_id: str) -> Candidate:
        """Take the operator's last decision on it back: one that was promoted waits for review again, and was never
        judged by what it did. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_undo`."""
        return self._change(candidate_id, lambda tx, row: table.undo(tx, row, self._sources.flows()))

    def _decide(self, candidate_id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        return self._change(
            candidate_id, lambda tx, row: table.decide(tx, row, move, by, reason, self._sources.flows())
        )

    def _change(self, candidate_id: str, change: Callable[[Transaction, CandidateRow], None]) -> Candidate:
        row_id = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.row_of(tx, row_id)
            change(tx, row)
            return row.value

        return self._database.write(work)

    # -- rounds

    def reflect(self) -> int:
        """Make records of what happened since the last time; how many. Housekeeping calls it: quick, and nothing where
        nothing happened."""
        count = self._reflection.catch_up()
        self._pending = self._pending or bool(count) or self._reflection.calls_waiting
        return count

    def wanted(self) -> bool:
        """Whether `digest` has anything to do. Cheap."""
        harm = self._is_autonomous() and bool(self._trials.harmful())
        return self._pending or harm or (self._in_review and not self.autonomous())

    def catch_up(self) -> None:
        """Reflect and, where there is anything to do, digest: before cards are made of what was learnt."""
        self.reflect()
        if self.wanted():
            self.digest()

    def digest(self) -> list[Candidate]:
        """One round now: reflect, draft, weigh, and in autonomous mode promote (SPEC 5.6). The candidates that were
        drafted."""
        with self._busy:
            self._pending = False
            try:
                self._reflection.catch_up()
                self._reflection.look_for_sequences()
                drafted = self._digest()
                self._promote_autonomously()
                self._roll_back_harmful()
            except BaseException:
                self._pending = True
                raise
            return drafted

    def autonomous(self) -> str:
        """Why nothing is promoted by itself, in words; "" when it is (SPEC 5.6)."""
        if not self._is_autonomous():
            return "adaptation.mode is manual"
        hold = self._sources.block_reason()
        return hold or ("" if self._sources.phase() else "in phase 0 nothing becomes active without your approval")

    def _is_autonomous(self) -> bool:
        return self._settings.current.adaptation.mode is AdaptationMode.AUTONOMOUS

    def _digest(self) -> list[Candidate]:
        last = self._records.last()
        with self._database.read() as session:
            if last <= int(state.get(session, DIGESTED, 0)):
                return []
        ids = self._draft()
        for row in self._candidates.readable(*LIVING):
            self._weigh(row)
        if not self._pending:  # else what is not all told yet is looked at again
            self._database.write(lambda tx: state.put(tx, DIGESTED, last))
        return [row.value for row in self._candidates.readable() if row.id in ids]

    def _draft(self) -> list[str]:
        """Draft the best opportunities there is no candidate of yet; their ids."""
        records = self._records.with_min_score(OPPORTUNITY, self._clock.now() - LOOK_BACK, MAX_RECORDS)
        keys = {row.dedupe_key for row in self._candidates.rows()}
        drafted: list[str] = []
        self._not_drafted = {}
        for opportunity in opportunities(records, keys, limit=MAX_TRIED):
            if len(drafted) == MAX_DRAFTS:
                break
            try:
                drafted.append(
                    self._store(opportunity, draft(opportunity, self._related_records(opportunity), self._sources))
                )
            except (NothingToDraft, Refusal) as reason:
                self._not_drafted[opportunity.key] = str(reason)
                self._pending = self._pending or isinstance(reason, NotYet)
        return drafted

    def _related_records(self, opportunity: Opportunity) -> list[LearningRecord]:
        """The records that a draft may look at: of its scope, or of all scopes where it concerns an agent's healing."""
        if opportunity.type is not CandidateType.POLICY_TWEAK:
            return self._records.of_scope(opportunity.record.scope_type, opportunity.record.scope_id)
        agent = opportunity.record.scope_id if opportunity.record.scope_type == "agent" else ""
        kinds = (RecordKind.REPEATED_RETRY, RecordKind.SUCCESSFUL_HEAL)
        records = [record for kind in kinds for record in self._records.newest(kind=kind)]
        return [record for record in records if agent in ("", record.agent)]

    def _store(self, opportunity: Opportunity, proposal: Draft) -> str:
        record, now = opportunity.record, self._clock.now()
        candidate = Candidate(
            id=self._randomness.new_id("cand"),
            type=opportunity.type,
            scope_type=record.scope_type,
            scope_id=record.scope_id,
            source_label=record.source_label,
            title=proposal.title,
            status=CandidateStatus.DRAFTED,
            score=record.score,
            effect=proposal.effect,
            created_at=now,
            changed_at=now,
            agent_id=proposal.agent_id,
            run_kind=proposal.run_kind,
            workspace=proposal.workspace,
            drafted_from=(record.id,),
            trust=proposal.trust,
        )
        if other := self._duplicate_of(candidate):
            raise NothingToDraft(f"{other} already proposes that")
        self._database.write(lambda tx: table.add(tx, candidate, f"drafted from {record.kind}: {record.reason}"))
        return candidate.id

    def _duplicate_of(self, candidate: Candidate) -> str:
        """The candidate of a scope that proposes the same change for another reason, and came up for review at least;
        "" for none."""
        for row in self._candidates.readable():
            alike = (row.type, row.scope_type, row.scope_id) == (
                candidate.type,
                candidate.scope_type,
                candidate.scope_id,
            )
            open_ = row.status == CandidateStatus.DRAFTED or row.id == candidate.id
            if alike and not open_ and same_change(row.value.effect, candidate.effect):
                return row.id
        return ""

    def _weigh(self, row: CandidateRow) -> None:
        """By what records say of it now."""
        candidate = row.value
        drafted = self._records.by_id(candidate.drafted_from)
        records = self._records.of_scope(candidate.scope_type, candidate.scope_id)
        if candidate.type in JUDGED_BY:
            own = {record.id for record in records}
            more = self._records.newest(kind=JUDGED_BY[candidate.type])
            records += [record for record in more if record.id not in own]
        # A landing that was taken back bears nothing out.
        records = [each for each in records if "landed" not in each.details or self._sources.title(each.session_id)]
        promoted = row.since if candidate.status is CandidateStatus.PROMOTED else None
        evaluation = evaluate(candidate, drafted, records, promoted_at=promoted)
        move = self._move(row, candidate, evaluation, drafted, records)
        same = (evaluation.corroborated_by, evaluation.against, evaluation.score) == (
            candidate.corroborated_by,
            candidate.against,
            candidate.score,
        )
        if move is None and (candidate.status is CandidateStatus.REJECTED or same):
            return

        def work(tx: Transaction) -> None:
            present = table.row_of(tx, candidate.id)
            if present.status != row.status:  # somebody decided meanwhile
                return
            table.weigh(tx, present, evaluation, move)
            if move is CandidateMove.REOPEN and evaluation.passed:
                table.weigh(tx, present, evaluation, CandidateMove.CORROBORATE)

        self._database.write(work)

    def _move(
        self,
        row: CandidateRow,
        candidate: Candidate,
        evaluation: Evaluation,
        drafted: Sequence[LearningRecord],
        records: Sequence[LearningRecord],
    ) -> CandidateMove | None:
        match candidate.status:
            case CandidateStatus.DRAFTED if evaluation.passed and not self._duplicate_of(candidate):
                return CandidateMove.CORROBORATE  # else it was asked, or decided, for another reason
            case CandidateStatus.REVIEW if not evaluation.passed:
                return CandidateMove.WEAKEN
            case CandidateStatus.REJECTED:
                rejected = row.last(CandidateStatus.REJECTED)
                if rejected is not None and outweighs(candidate, drafted, records, rejected):
                    return CandidateMove.REOPEN
        return None

    def _promote_autonomously(self) -> None:
        rows = self._candidates.readable(CandidateStatus.REVIEW)
        waiting = [row for row in rows if row.trust != Trust.QUOTED]  # words of others wait for the operator (SPEC 6.8)
        self._in_review = bool(waiting)
        if self.autonomous():
            return
        for row in waiting:
            if why := self._reason_to_ask(row):
                log.info("candidate %s waits for the operator: %s", row.id, why)
                continue
            try:
                self.approve(row.id, by="autonomy")
            except Refusal as refusal:  # the operator was quicker, or its effect cannot be in force here
                log.warning("candidate %s was not promoted by itself: %s", row.id, refusal)

    def _reason_to_ask(self, row: CandidateRow) -> str:
        """Why a candidate in review is none for the engine to decide; "" when it is one."""
        if row.taken_back:
            return "you undid a decision on it, and there is no new evidence since"
        if len(row.against) >= len(row.corroborated_by):
            return "there is as much evidence against it as for it"
        return self._sources.objection_to(row.value)

    def _roll_back_harmful(self) -> None:
        """In autonomous mode what does harm is rolled back (SPEC 5.7), whatever is held: what was done before is done
        again. In manual mode the operator is asked, see `waiting`."""
        for overlay, lift in self._trials.harmful() if self._is_autonomous() else ():
            try:
                self.roll_back(overlay.candidate_id, f"it makes work worse: {shares(lift)}", by="autonomy")
            except Refusal as refusal:
                log.warning("candidate %s was not rolled back by itself: %s", overlay.candidate_id, refusal)


def shares(lift: Lift) -> str:
    """What was seen, in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )


def _effect_text(effect: Effect) -> str:
    """What an effect would say to agents; a diff is looked at as a diff."""
    return "\n".join(effect_texts(replace(effect, patch="") if isinstance(effect, FixTemplate) else effect))
