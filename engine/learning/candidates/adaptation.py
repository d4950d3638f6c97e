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
from engine.learning.candidates.drafting import Draft, NothingToDraft, StillRunning, draft_candidate
from engine.learning.candidates.effects import effect_texts, preview_lines
from engine.learning.candidates.evaluation import (
    MAX_DRAFTS,
    Evaluation,
    Opportunity,
    evaluate,
    has_new_evidence,
    same_change,
    select_opportunities,
)
from engine.learning.candidates.records import Records
from engine.learning.candidates.reflection import Reflection
from engine.learning.candidates.scoring import OPPORTUNITY
from engine.learning.candidates.sources import Sources
from engine.learning.candidates.stations import stations_of
from engine.learning.candidates.trials import Trials
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
"""Key in the state table: `seq` of the newest record that was processed."""

MAX_AGE = timedelta(days=90)
"""Maximum age of a record that becomes a candidate."""

MAX_RECORDS = 2_000
"""Maximum number of such records that are read."""

MAX_OPPORTUNITIES = 25
"""Maximum number of opportunities that a round tries to reach `MAX_DRAFTS` drafts."""

PROPOSED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.PROMOTED)
EVALUATED = (*PROPOSED, CandidateStatus.REJECTED)
"""Statuses of candidates that new records can change."""

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
        """The candidates, latest change first; of one status or type if given."""
        rows = self._candidates.readable_rows(*([] if status is None else [status]))
        return [row.value for row in rows if type in (None, row.type)][:limit]

    def view(self, candidate_id: str) -> CandidateView:
        """A candidate with its details, by its id or a prefix. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
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
        """The present behaviour without a candidate's effect, and with it."""
        candidate, healing = row.value, self._settings.current.validation
        models = self._sources.models(candidate.agent_id) if candidate.type is CandidateType.ROUTING_HINT else None
        others = [
            other.effect
            for other in self._trials.overlays.active()
            if other.type is candidate.type
            and other.candidate_id != candidate.id
            and other.applies(candidate.agent_id, candidate.run_kind, candidate.workspace)
        ]
        model = models.current.model if models else "as configured"
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
        """Landed diffs that fixed tests of a workspace, highest score first, then newest; not those that were rejected
        or rolled back."""
        scored = []
        for row in self._candidates.readable_rows(*PROPOSED):
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
        """The learning records, newest first; of one of the 15 kinds if given. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.newest(kind=kind, limit=limit)

    def counts(self) -> Counts:
        """The number of candidates and records."""
        statuses = Counter(row.status for row in self._candidates.rows())
        return Counts({status: statuses[status] for status in CandidateStatus}, self._records.last_seq())

    def not_drafted(self) -> dict[str, str]:
        """The reasons why nothing was drafted from opportunities of the last round, by key."""
        return dict(self._not_drafted)

    def waiting(self) -> list[Waiting]:
        """The decisions that wait for the operator (SPEC 9.3): candidates in review, and harmful ones."""
        queue = [
            Waiting("candidate", row.id, f"promote? {row.title}", row.changed_at, text=_effect_text(row.value.effect))
            for row in self._candidates.readable_rows(CandidateStatus.REVIEW)
        ]
        for overlay, lift in self._trials.harmful():
            row = self._candidates.get(overlay.candidate_id)
            queue.append(Waiting("candidate", row.id, f"roll back? {row.title}: {describe_lift(lift)}", row.changed_at))
        return queue

    # -- the operator's word

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Activate a candidate, also one that was rolled back. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `not_corroborated`, `already_decided`, `bad_effect`, `already_in_force`."""
        return self._decide(candidate_id, CandidateMove.APPROVE, by, "")

    def reject(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Reject a candidate. Raises as `approve`."""
        return self._decide(candidate_id, CandidateMove.REJECT, by, reason)

    def roll_back(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Deactivate a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_roll_back`."""
        return self._decide(candidate_id, CandidateMove.ROLL_BACK, by, reason)

    def undo(self, candidate_id: str) -> Candidate:
        """Undo the operator's last decision on a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `nothing_to_undo`."""
        return self._change(candidate_id, lambda tx, row: table.undo_decision(tx, row, self._sources.flows()))

    def _decide(self, candidate_id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        return self._change(
            candidate_id, lambda tx, row: table.decide_candidate(tx, row, move, by, reason, self._sources.flows())
        )

    def _change(self, candidate_id: str, change: Callable[[Transaction, CandidateRow], None]) -> Candidate:
        row_id = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.load_candidate(tx, row_id)
            change(tx, row)
            return row.value

        return self._database.write(work)

    # -- rounds

    def reflect(self) -> int:
        """Make records of the new ledger entries; returns how many. Quick."""
        count = self._reflection.catch_up()
        self._pending = self._pending or bool(count) or self._reflection.calls_waiting
        return count

    def has_work(self) -> bool:
        """Whether `digest` has anything to do. Quick."""
        harm = self._is_autonomous() and bool(self._trials.harmful())
        return self._pending or harm or (self._in_review and not self.manual_reason())

    def catch_up(self) -> None:
        """Reflect, and digest if there is anything to do, before cards are made."""
        self.reflect()
        if self.has_work():
            self.digest()

    def digest(self) -> list[Candidate]:
        """One round: reflect, draft, evaluate, and in autonomous mode activate (SPEC 5.6). Returns the new
        candidates."""
        with self._busy:
            self._pending = False
            try:
                self._reflection.catch_up()
                self._reflection.find_sequences()
                drafted = self._digest()
                self._promote_autonomously()
                self._roll_back_harmful()
            except BaseException:
                self._pending = True
                raise
            return drafted

    def manual_reason(self) -> str:
        """Why candidates do not become active by themselves, "" if they do (SPEC 5.6)."""
        if not self._is_autonomous():
            return "adaptation.mode is manual"
        if not self._sources.phase():
            return self._sources.block_reason() or "in phase 0 nothing becomes active without your approval"
        return self._sources.block_reason()

    def _is_autonomous(self) -> bool:
        return self._settings.current.adaptation.mode is AdaptationMode.AUTONOMOUS

    def _digest(self) -> list[Candidate]:
        last = self._records.last_seq()
        with self._database.read() as session:
            if last <= int(state.get(session, DIGESTED, 0)):
                return []
        ids = self._draft()
        for row in self._candidates.readable_rows(*EVALUATED):
            self._evaluate(row)
        if not self._pending:  # otherwise these records are processed again
            self._database.write(lambda tx: state.put(tx, DIGESTED, last))
        return [row.value for row in self._candidates.readable_rows() if row.id in ids]

    def _draft(self) -> list[str]:
        """Draft candidates from the best new opportunities; returns their ids."""
        records = self._records.with_min_score(OPPORTUNITY, self._clock.now() - MAX_AGE, MAX_RECORDS)
        keys = {row.dedupe_key for row in self._candidates.rows()}
        drafted: list[str] = []
        self._not_drafted = {}
        for opportunity in select_opportunities(records, keys, limit=MAX_OPPORTUNITIES):
            if len(drafted) == MAX_DRAFTS:
                break
            try:
                drafted.append(
                    self._add_candidate(
                        opportunity, draft_candidate(opportunity, self._related_records(opportunity), self._sources)
                    )
                )
            except (NothingToDraft, Refusal) as reason:
                self._not_drafted[opportunity.key] = str(reason)
                self._pending = self._pending or isinstance(reason, StillRunning)
        return drafted

    def _related_records(self, opportunity: Opportunity) -> list[LearningRecord]:
        """The records for a draft: of its scope, or of all scopes if it concerns healing."""
        if opportunity.type is not CandidateType.POLICY_TWEAK:
            return self._records.of_scope(opportunity.record.scope_type, opportunity.record.scope_id)
        agent = opportunity.record.scope_id if opportunity.record.scope_type == "agent" else ""
        kinds = (RecordKind.REPEATED_RETRY, RecordKind.SUCCESSFUL_HEAL)
        records = [record for kind in kinds for record in self._records.newest(kind=kind)]
        return [record for record in records if agent in ("", record.agent)]

    def _add_candidate(self, opportunity: Opportunity, proposal: Draft) -> str:
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
        self._database.write(
            lambda tx: table.add_candidate(tx, candidate, f"drafted from {record.kind}: {record.reason}")
        )
        return candidate.id

    def _duplicate_of(self, candidate: Candidate) -> str:
        """The id of another candidate of the scope that makes the same change and reached review, "" for none."""
        scope = (candidate.type, candidate.scope_type, candidate.scope_id)
        for row in self._candidates.readable_rows():
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
            own = {record.id for record in records}
            more = self._records.newest(kind=COUNTER_EVIDENCE[candidate.type])
            records += [record for record in more if record.id not in own]
        # A landing that was undone is no evidence.
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
            present = table.load_candidate(tx, candidate.id)
            if present.status != row.status:  # decided meanwhile
                return
            table.store_evaluation(tx, present, evaluation, move)
            if move is CandidateMove.REOPEN and evaluation.passed:
                table.store_evaluation(tx, present, evaluation, CandidateMove.CORROBORATE)

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
                return CandidateMove.CORROBORATE
            case CandidateStatus.REVIEW if not evaluation.passed:
                return CandidateMove.WEAKEN
            case CandidateStatus.REJECTED:
                rejected = row.last_time(CandidateStatus.REJECTED)
                if rejected is not None and has_new_evidence(candidate, drafted, records, rejected):
                    return CandidateMove.REOPEN
        return None

    def _promote_autonomously(self) -> None:
        rows = self._candidates.readable_rows(CandidateStatus.REVIEW)
        waiting = [row for row in rows if row.trust != Trust.QUOTED]  # quotes wait for the operator (SPEC 6.8)
        self._in_review = bool(waiting)
        if self.manual_reason():
            return
        for row in waiting:
            if why := self._reason_to_ask(row):
                log.info("candidate %s waits for the operator: %s", row.id, why)
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


def describe_lift(lift: Lift) -> str:
    """The counts of a trial in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )


def _effect_text(effect: Effect) -> str:
    """The texts of an effect that agents would read, without a diff."""
    return "\n".join(effect_texts(replace(effect, patch="") if isinstance(effect, FixTemplate) else effect))
