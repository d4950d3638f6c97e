"""The service `engine.adaptation`: turns learning records into candidates, and carries out your decisions (SPEC 5).

A round reads what happened, drafts candidates from the strongest records, and evaluates the pending ones by newer
records. Rounds are idempotent: a candidate's key is unique, and the position up to which records were processed is
stored last. After a crash the same records are processed again, with the same result.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from engine.clock import Clock
from engine.config import AdaptationMode, SettingsSource
from engine.frozen import frozen
from engine.learning.candidates.candidates import (
    CandidateReader,
    CandidateRow,
    add_candidate,
    decide_candidate,
    load_candidate,
    store_evaluation,
    undo_decision,
)
from engine.learning.candidates.drafting import Draft, NothingToDraft, StillRunning, draft_candidate
from engine.learning.candidates.evaluation import (
    MAX_DRAFTS,
    PROPOSED,
    Evaluation,
    Opportunity,
    evaluate,
    has_new_evidence,
    same_change,
    select_opportunities,
)
from engine.learning.candidates.overlays import Trials
from engine.learning.candidates.records import Records, Sources
from engine.learning.candidates.reflection import Reflection
from engine.learning.candidates.scoring import OPPORTUNITY
from engine.learning.candidates.views import CandidateViews, describe_lift
from engine.model import Randomness, Refusal, Trust
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    CandidateView,
    LearningRecord,
    RecordKind,
)
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger

log = logging.getLogger(__name__)

LAST_PROCESSED = "adaptation.digested"
"""Key in the state table: `seq` of the newest record that was processed."""

MAX_AGE = timedelta(days=90)
"""Maximum age of a record that becomes a candidate."""

MAX_RECORDS = 2_000
"""Maximum number of such records that are read."""

MAX_OPPORTUNITIES = 25
"""Maximum number of opportunities that a round tries to reach `MAX_DRAFTS` drafts."""

COUNTER_EVIDENCE = {
    CandidateType.POLICY_TWEAK: RecordKind.SUCCESSFUL_HEAL,
    CandidateType.ROUTING_HINT: RecordKind.FAILED_TDD,
}
"""Kinds of records against these types that are stored for workspaces, not for agents."""


@frozen
class Counts:
    """The number of candidates of each status, and of learning records."""

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
        self._reader = CandidateReader(database)
        self._records = Records(database)
        self._reflection = Reflection(database, self._records, ledger=ledger, sources=sources)
        views = CandidateViews(self._reader, self._records, settings=settings, sources=sources, trials=trials)
        self._views = views
        self.fixes, self.waiting = views.fixes, views.waiting
        self._round_lock = threading.Lock()
        self._has_new_records = True
        self._has_review_candidates = False
        """Whether candidates in review may become active by themselves."""
        self.not_drafted: dict[str, str] = {}
        """The reasons why nothing was drafted from opportunities of the last round, by key."""

    # -- reading

    def candidates(
        self, status: CandidateStatus | None = None, type: CandidateType | None = None, limit: int = 200
    ) -> list[Candidate]:
        """The candidates, latest change first; of one status or type if given."""
        rows = self._reader.readable_rows(*([] if status is None else [status]))
        return [row.value for row in rows if type in (None, row.type)][:limit]

    def view(self, candidate_id: str) -> CandidateView:
        """A candidate with its details, by its id or a prefix. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        return self._views.view(self._reader.get(candidate_id))

    def records(self, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """The learning records, newest first; of one of the 15 kinds if given. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.newest(kind=kind, limit=limit)

    def counts(self) -> Counts:
        """The number of candidates and records."""
        statuses = Counter(row.status for row in self._reader.rows())
        return Counts({status: statuses[status] for status in CandidateStatus}, self._records.last_seq())

    # -- decisions

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Activate a candidate, also one that was rolled back. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `not_corroborated`, `already_decided`, `bad_effect`, `already_in_force`."""
        return self._decide(candidate_id, CandidateMove.APPROVE, by, "")

    def reject(self, candidate_id: str, reason: str = "") -> Candidate:
        """Reject a candidate. Raises as `approve`."""
        return self._decide(candidate_id, CandidateMove.REJECT, "operator", reason)

    def roll_back(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Deactivate a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_roll_back`."""
        return self._decide(candidate_id, CandidateMove.ROLL_BACK, by, reason)

    def undo(self, candidate_id: str) -> Candidate:
        """Undo the operator's last decision on a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `nothing_to_undo`."""
        return self._change(candidate_id, lambda tx, row: undo_decision(tx, row, self._sources.flows()))

    def _decide(self, candidate_id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        return self._change(
            candidate_id, lambda tx, row: decide_candidate(tx, row, move, by, reason, self._sources.flows())
        )

    def _change(self, candidate_id: str, change: Callable[[Transaction, CandidateRow], None]) -> Candidate:
        row_id = self._reader.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = load_candidate(tx, row_id)
            change(tx, row)
            return row.value

        return self._database.write(work)

    # -- rounds

    def read_ledger(self) -> int:
        """Make records of the new ledger entries; returns how many. Quick."""
        count = self._reflection.catch_up()
        self._has_new_records = self._has_new_records or bool(count) or self._reflection.has_new_calls
        return count

    def has_work(self) -> bool:
        """Whether `run_round` has anything to do. Quick."""
        harm = self._is_autonomous() and bool(self._trials.harmful())
        return self._has_new_records or harm or (self._has_review_candidates and not self.manual_reason())

    def run_round_if_due(self) -> None:
        """Read the ledger, and run a round if there is anything to do, before cards are made."""
        self.read_ledger()
        if self.has_work():
            self.run_round()

    def run_round(self) -> list[Candidate]:
        """Read the ledger, draft, evaluate, and in autonomous mode activate (SPEC 5.6). Returns the new candidates."""
        with self._round_lock:
            self._has_new_records = False
            try:
                self._reflection.catch_up()
                self._reflection.find_sequences()
                drafted = self._draft_and_evaluate()
                self._promote_autonomously()
                self._roll_back_harmful()
            except BaseException:
                self._has_new_records = True
                raise
            return drafted

    def manual_reason(self) -> str:
        """Why candidates do not become active by themselves, "" if they do (SPEC 5.6)."""
        if not self._is_autonomous():
            return "adaptation.mode is manual"
        reason = self._sources.block_reason()
        if not reason and not self._sources.phase():
            return "in phase 0 nothing becomes active without your approval"
        return reason

    def _is_autonomous(self) -> bool:
        return self._settings.current.adaptation.mode is AdaptationMode.AUTONOMOUS

    def _draft_and_evaluate(self) -> list[Candidate]:
        last = self._records.last_seq()
        with self._database.read() as session:
            if last <= int(state.get(session, LAST_PROCESSED, 0)):
                return []
        ids = self._draft()
        for row in self._reader.readable_rows(*PROPOSED, CandidateStatus.REJECTED):
            self._evaluate(row)
        if not self._has_new_records:  # otherwise these records are processed again
            self._database.write(lambda tx: state.put(tx, LAST_PROCESSED, last))
        return [row.value for row in self._reader.readable_rows() if row.id in ids]

    def _draft(self) -> list[str]:
        """Draft candidates from the best new opportunities; returns their ids."""
        records = self._records.with_min_score(OPPORTUNITY, self._clock.now() - MAX_AGE, MAX_RECORDS)
        keys = {row.dedupe_key for row in self._reader.rows()}
        drafted: list[str] = []
        self.not_drafted = {}
        for opportunity in select_opportunities(records, keys, limit=MAX_OPPORTUNITIES):
            if len(drafted) == MAX_DRAFTS:
                break
            try:
                draft = draft_candidate(opportunity, self._related_records(opportunity), self._sources)
                drafted.append(self._add_candidate(opportunity, draft))
            except (NothingToDraft, Refusal) as reason:
                self.not_drafted[opportunity.key] = str(reason)
                self._has_new_records = self._has_new_records or isinstance(reason, StillRunning)
        return drafted

    def _related_records(self, opportunity: Opportunity) -> list[LearningRecord]:
        """The records for a draft: of its scope, or of all scopes if it concerns healing."""
        record = opportunity.record
        if opportunity.type is not CandidateType.POLICY_TWEAK:
            return self._records.of_scope(record.scope_type, record.scope_id)
        kinds = (RecordKind.REPEATED_RETRY, RecordKind.SUCCESSFUL_HEAL)
        records = [each for kind in kinds for each in self._records.newest(kind=kind)]
        return [each for each in records if record.scope_type != "agent" or each.agent == record.scope_id]

    def _add_candidate(self, opportunity: Opportunity, draft: Draft) -> str:
        record, now = opportunity.record, self._clock.now()
        candidate = Candidate(
            id=self._randomness.new_id("cand"),
            type=opportunity.type,
            scope_type=record.scope_type,
            scope_id=record.scope_id,
            source_label=record.source_label,
            title=draft.title,
            status=CandidateStatus.DRAFTED,
            score=record.score,
            effect=draft.effect,
            created_at=now,
            changed_at=now,
            agent_id=draft.agent_id,
            run_kind=draft.run_kind,
            workspace=draft.workspace,
            drafted_from=(record.id,),
            trust=draft.trust,
        )
        if other := self._duplicate_of(candidate):
            raise NothingToDraft(f"{other} already proposes that")
        self._database.write(lambda tx: add_candidate(tx, candidate, f"drafted from {record.kind}: {record.reason}"))
        return candidate.id

    def _duplicate_of(self, candidate: Candidate) -> str:
        """The id of another candidate of the scope that makes the same change and reached review, "" for none."""
        scope = (candidate.type, candidate.scope_type, candidate.scope_id)
        for row in self._reader.readable_rows():
            if row.status == CandidateStatus.DRAFTED or row.id == candidate.id:
                continue
            if (row.type, row.scope_type, row.scope_id) == scope and same_change(row.value.effect, candidate.effect):
                return row.id
        return ""

    def _evaluate(self, row: CandidateRow) -> None:
        """Evaluate a candidate by the present records, and store the transition that follows."""
        candidate = row.value
        drafted = self._records.by_id(candidate.drafted_from)
        records = self._records.of_scope(candidate.scope_type, candidate.scope_id)
        if candidate.type in COUNTER_EVIDENCE:
            more = self._records.newest(kind=COUNTER_EVIDENCE[candidate.type])
            records = list({record.id: record for record in [*records, *more]}.values())
        # A landing that was undone is no evidence.
        records = [each for each in records if "landed" not in each.details or self._sources.title(each.session_id)]
        promoted = row.since if candidate.status is CandidateStatus.PROMOTED else None
        evaluation = evaluate(candidate, drafted, records, promoted_at=promoted)
        move = self._next_move(row, evaluation, drafted, records)
        same = (evaluation.corroborated_by, evaluation.against, evaluation.score) == (
            candidate.corroborated_by,
            candidate.against,
            candidate.score,
        )
        if move is None and (candidate.status is CandidateStatus.REJECTED or same):
            return

        def work(tx: Transaction) -> None:
            present = load_candidate(tx, candidate.id)
            if present.status != row.status:  # decided meanwhile
                return
            store_evaluation(tx, present, evaluation, move)
            if move is CandidateMove.REOPEN and evaluation.has_passed:
                store_evaluation(tx, present, evaluation, CandidateMove.CORROBORATE)

        self._database.write(work)

    def _next_move(
        self,
        row: CandidateRow,
        evaluation: Evaluation,
        drafted: Sequence[LearningRecord],
        records: Sequence[LearningRecord],
    ) -> CandidateMove | None:
        match row.status:
            case CandidateStatus.DRAFTED if evaluation.has_passed and not self._duplicate_of(row.value):
                return CandidateMove.CORROBORATE
            case CandidateStatus.REVIEW if not evaluation.has_passed:
                return CandidateMove.WEAKEN
            case CandidateStatus.REJECTED if has_new_evidence(
                row.value, drafted, records, row.last_time(CandidateStatus.REJECTED)
            ):
                return CandidateMove.REOPEN
        return None

    def _promote_autonomously(self) -> None:
        rows = self._reader.readable_rows(CandidateStatus.REVIEW)
        waiting = [row for row in rows if row.trust != Trust.QUOTED]  # quotes wait for the operator (SPEC 6.8)
        self._has_review_candidates = bool(waiting)
        if self.manual_reason():
            return
        for row in waiting:
            if reason := self._reason_to_ask(row):
                log.info("candidate %s waits for the operator: %s", row.id, reason)
                continue
            try:
                self.approve(row.id, by="autonomy")
            except Refusal as refusal:  # decided meanwhile, or its effect cannot be active here
                log.warning("candidate %s was not promoted by itself: %s", row.id, refusal)

    def _reason_to_ask(self, row: CandidateRow) -> str:
        """Why only the operator may decide a candidate in review, "" if the engine may."""
        if row.is_undone:
            return "you undid a decision on it, and there is no new evidence since"
        if len(row.against) >= len(row.corroborated_by):
            return "there is as much evidence against it as for it"
        return self._sources.objection_to(row.value)

    def _roll_back_harmful(self) -> None:
        """Roll back harmful candidates in autonomous mode (SPEC 5.7), also while work is held. In manual mode `waiting`
        asks the operator."""
        for overlay, lift in self._trials.harmful() if self._is_autonomous() else ():
            try:
                self.roll_back(overlay.candidate_id, f"it makes work worse: {describe_lift(lift)}", by="autonomy")
            except Refusal as refusal:
                log.warning("candidate %s was not rolled back by itself: %s", overlay.candidate_id, refusal)
