"""The service `engine.adaptation`: drafts, evaluates and lists candidates, and carries out the operator's decisions on
them (SPEC 5).

A round reads what happened, drafts candidates from the strongest records, and evaluates the pending ones by newer
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
from functools import cache

from engine.clock import Clock
from engine.config.settings import AdaptationMode, SettingsSource
from engine.learning.candidates import CandidateSources
from engine.learning.candidates.drafting import NothingToDraft, StillRunning, draft_candidate
from engine.learning.candidates.effects import is_same_change, list_texts, make_preview
from engine.learning.candidates.evaluation import (
    LIVE_STATUSES,
    MIN_OPPORTUNITY_SCORE,
    Evaluation,
    Opportunity,
    evaluate,
    select_opportunities,
)
from engine.learning.candidates.life_cycle import (
    CandidateRow,
    add_candidate,
    decide_candidate,
    find_candidate,
    list_stages,
    load_candidates,
    store_evaluation,
    undo_decision,
)
from engine.learning.candidates.overlays import Trials
from engine.learning.candidates.reflection import Records, Reflection
from engine.model import Refusal, Trust, Waiting
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    CandidateView,
    EffectPreview,
    FixTemplate,
    KnownFix,
    LearningRecord,
    Lift,
    RecordKind,
)
from engine.randomness import Randomness
from engine.storage import shallow_dict, state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.wording import to_microusd

log = logging.getLogger(__name__)

LAST_PROCESSED_KEY = "adaptation.digested"
"""Key in the state table: the `seq` of the newest record from which candidates were drafted."""

MAX_AGE = timedelta(days=90)
"""Maximum age of a record that becomes a candidate."""

MAX_RECORDS = 2_000
"""Maximum number of such records that are read."""

MAX_DRAFTS = 5
"""Maximum number of candidates drafted in a round."""

EVIDENCE_AGAINST = {
    CandidateType.POLICY_TWEAK: RecordKind.SUCCESSFUL_HEAL,
    CandidateType.ROUTING_HINT: RecordKind.FAILED_TDD,
}
"""Kinds of records that count against these types and have the scope of a workspace, not of an agent."""


class Adaptation:
    """Reads candidates, decides on them, and runs rounds, one at a time. Callable from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        ledger: Ledger,
        sources: CandidateSources,
        trials: Trials,
    ) -> None:
        self._database = database
        self._settings = settings
        self._sources = sources
        self._trials = trials
        self._records = Records(database)
        self._clock = clock
        self._randomness = randomness
        self._reflection = Reflection(database, self._records, clock=clock, ledger=ledger, sources=sources)
        self._round_lock = threading.Lock()
        self.not_drafted: dict[str, str] = {}
        """The opportunities of the last round without a draft: the reason, by key."""

    def catch_up(self) -> int:
        """Make records from the new ledger entries; returns their number. Quick."""
        return self._reflection.catch_up()

    # -- reading

    def list_candidates(
        self, status: CandidateStatus | None = None, type: CandidateType | None = None, limit: int = 200
    ) -> list[Candidate]:
        """The candidates, latest change first; of one status or type if given."""
        rows = self._load_valid(*([] if status is None else [status]))
        return [row.candidate for row in rows if type in (None, row.type)][:limit]

    def _load_valid(self, *statuses: CandidateStatus) -> list[CandidateRow]:
        """The candidates of these statuses, of all without any. A proposal is left out while the landings that it was
        drafted from are undone."""
        rows = load_candidates(self._database, *statuses)
        return [row for row in rows if row.status not in LIVE_STATUSES or not self._is_undone(row)]

    def _is_undone(self, row: CandidateRow) -> bool:
        """Whether all landings that a repair was drafted from are undone."""
        records = self._records.read_by_ids(row.drafted_from) if row.type is CandidateType.FIX_TEMPLATE else []
        return bool(records) and not any(map(self._still_holds, records))

    def _still_holds(self, record: LearningRecord) -> bool:
        """Whether a record is evidence. That of a landing that was undone is none."""
        return "landed" not in record.details or bool(self._sources.find_landed_prompt(record.session_id))

    def view(self, candidate_id: str) -> CandidateView:
        """A candidate with its details, by its id or a prefix. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        with self._database.read() as session:
            row = find_candidate(session, candidate_id)
        candidate, overlays = row.candidate, row.overlays
        records = self._records.read_by_ids([*row.drafted_from, *row.corroborated_by, *row.against])
        return CandidateView(
            candidate,
            records=tuple(records),
            preview=self._make_preview(candidate),
            lift=self._trials.measure_lifts().get(overlays[0].id) if overlays else None,
            overlays=tuple(overlays),
            stages=list_stages(row, [record for record in records if record.id in row.drafted_from]),
        )

    def list_records(self, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """The learning records, newest first; of one of the 15 kinds if given. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.read_of_kinds(*([RecordKind(kind)] if kind else RecordKind), limit=limit)

    def count(self) -> tuple[dict[CandidateStatus, int], int]:
        """The number of candidates of each status, and of learning records."""
        statuses = Counter(row.status for row in self._load_valid())
        return {status: statuses[status] for status in CandidateStatus}, self._records.read_last_seq()

    def find_fixes(self, workspace: str) -> list[KnownFix]:
        """The landed diffs that fixed tests of a workspace, highest score first, then newest. Diffs of candidates that
        were rejected or rolled back are left out."""
        scored_fixes: list[tuple[float, KnownFix]] = []
        for row in load_candidates(self._database, *LIVE_STATUSES):
            effect = row.candidate.effect
            if row.workspace != workspace or not isinstance(effect, FixTemplate) or not effect.patch:
                continue
            for record in self._records.read_by_ids(row.drafted_from):
                if "landed" in record.details and (prompt := self._sources.find_landed_prompt(record.session_id)):
                    scored_fixes.append((row.score, KnownFix(row.id, prompt, record.at, effect)))
        scored_fixes.sort(key=lambda pair: (pair[0], pair[1].at), reverse=True)
        return [fix for _, fix in scored_fixes]

    def find_repairs(self, *, agent: str, workspace: str, broken: Sequence[str], session_id: str) -> Sequence[str]:
        """Earlier repairs of the tests that fail now, as `Trials.find_repairs`, without those whose landings are
        undone."""
        active = load_candidates(self._database, CandidateStatus.ACTIVE)
        undone = {row.id for row in active if self._is_undone(row)}
        return self._trials.find_repairs(
            agent=agent, workspace=workspace, broken=broken, session_id=session_id, without=undone
        )

    def waiting(self) -> list[Waiting]:
        """The decisions that wait for the operator (SPEC 9.3), on candidates in review and on harmful candidates."""
        questions = [*map(_make_activation_question, self._load_valid(CandidateStatus.REVIEW))]
        harmful = self._trials.find_harmful()
        rows = load_candidates(self._database, CandidateStatus.ACTIVE) if harmful else []
        active = {row.id: row for row in rows}
        return questions + [
            Waiting("candidate", row.id, f"roll back? {row.title}: {describe_lift(lift)}", row.changed_at)
            for overlay, lift in harmful
            if (row := active.get(overlay.candidate_id))
        ]

    def _make_preview(self, candidate: Candidate) -> EffectPreview:
        """The present behaviour with and without a candidate's effect."""
        limits = self._settings.current.validation
        models = self._sources.find_models(candidate.agent_id) if candidate.type is CandidateType.ROUTING_HINT else None
        effect, overlays = candidate.effect, self._trials.overlays
        active = overlays.find(type(effect), candidate.agent_id, candidate.run_kind, candidate.workspace)
        return make_preview(
            effect,
            [other for overlay, other in active if overlay.candidate_id != candidate.id],
            model=models.current.model if models else "as configured",
            tries=limits.tries,
            cost=to_microusd(limits.cost_cap),
        )

    # -- decisions

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Activate a candidate, even if it was rolled back. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `not_corroborated`, `already_decided`, `bad_effect`."""
        return self._decide(candidate_id, CandidateMove.APPROVE, by, "")

    def reject(self, candidate_id: str, reason: str = "") -> Candidate:
        """Reject a candidate. Raises as `approve`."""
        return self._decide(candidate_id, CandidateMove.REJECT, "operator", reason)

    def roll_back(self, candidate_id: str, reason: str = "") -> Candidate:
        """Deactivate a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_roll_back`."""
        return self._decide(candidate_id, CandidateMove.ROLL_BACK, "operator", reason)

    def undo(self, candidate_id: str) -> Candidate:
        """Undo the operator's last decision on a candidate. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`,
        `nothing_to_undo`."""
        return self._change(candidate_id, lambda tx, row: undo_decision(tx, row, self._sources.list_flows()))

    def _decide(self, candidate_id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        """Carry out a decision on a candidate; returns the candidate after it."""
        return self._change(
            candidate_id, lambda tx, row: decide_candidate(tx, row, move, by, reason, self._sources.list_flows())
        )

    def _change(self, candidate_id: str, change: Callable[[Transaction, CandidateRow], None]) -> Candidate:
        """Make a change of a candidate's row; returns the candidate after it."""

        def change_row(tx: Transaction) -> Candidate:
            row = find_candidate(tx.session, candidate_id)
            change(tx, row)
            return row.candidate

        return self._database.write(change_row)

    # -- rounds

    def run_round(self) -> list[Candidate]:
        """Read the ledger, draft, evaluate, and in autonomous mode activate (SPEC 5.6). Returns the new candidates."""
        with self._round_lock:
            self.catch_up()
            self._reflection.find_sequences()
            drafted = self._draft_and_evaluate()
            if self._settings.current.adaptation.mode is AdaptationMode.AUTONOMOUS:
                self._activate_by_itself()
                self._roll_back_harmful()
            return drafted

    def _draft_and_evaluate(self) -> list[Candidate]:
        """Draft candidates and evaluate all of them, if there are new records. Returns the new candidates."""
        last_seq = self._records.read_last_seq()
        with self._database.read() as session:
            if last_seq <= int(state.get(session, LAST_PROCESSED_KEY, 0)):
                return []
        ids, is_waiting = self._draft()
        self._evaluate_all()
        if not is_waiting:  # otherwise these records are processed again
            self._database.write(lambda tx: state.put(tx, LAST_PROCESSED_KEY, last_seq))
        return [row.candidate for row in load_candidates(self._database) if row.id in ids]

    def _draft(self) -> tuple[list[str], bool]:
        """Draft candidates from the best new opportunities. Returns their ids, and whether other opportunities wait for
        the next round or for the end of their session."""
        records = self._records.read_strong(MIN_OPPORTUNITY_SCORE, self._clock.now() - MAX_AGE, MAX_RECORDS)
        keys = {row.dedupe_key for row in load_candidates(self._database)}
        drafted: list[str] = []
        is_waiting, self.not_drafted = False, {}
        for opportunity in select_opportunities(records, keys):
            if len(drafted) == MAX_DRAFTS:
                is_waiting = True
                break
            try:
                drafted.append(self._draft_candidate(opportunity))
            except (NothingToDraft, Refusal) as reason:
                self.not_drafted[opportunity.key] = str(reason)
                is_waiting = is_waiting or isinstance(reason, StillRunning)
        return drafted, is_waiting

    def _draft_candidate(self, opportunity: Opportunity) -> str:
        """Draft and store a candidate; returns its id. Raises `NothingToDraft` and `Refusal`."""
        record, now = opportunity.record, self._clock.now()
        related, tries = self._select_related_records(opportunity), self._settings.current.validation.tries
        draft = draft_candidate(opportunity, related, self._sources, max_attempts=tries)
        candidate = Candidate(
            id=self._randomness.new_id("cand"),
            type=opportunity.type,
            scope_type=record.scope_type,
            scope_id=record.scope_id,
            source_label=record.source_label,
            status=CandidateStatus.DRAFTED,
            score=record.score,
            created_at=now,
            changed_at=now,
            drafted_from=(record.id,),
            **shallow_dict(draft),
        )
        if duplicate_id := self._find_duplicate(candidate):
            raise NothingToDraft(f"{duplicate_id} already proposes that")
        self._database.write(lambda tx: add_candidate(tx, candidate, f"drafted from {record.kind}: {record.reason}"))
        return candidate.id

    def _select_related_records(self, opportunity: Opportunity) -> list[LearningRecord]:
        """The records for a draft: those of the opportunity's scope, or of all scopes if it is about healing."""
        record = opportunity.record
        if opportunity.type is not CandidateType.POLICY_TWEAK:
            return self._records.read_of_scope(record.scope_type, record.scope_id)
        records = self._records.read_of_kinds(RecordKind.REPEATED_RETRY, RecordKind.SUCCESSFUL_HEAL)
        return [other for other in records if record.scope_type != "agent" or other.agent == record.scope_id]

    def _find_duplicate(self, candidate: Candidate) -> str:
        """The id of another candidate of the same scope that reached review and is a duplicate, "" for none. It makes
        the same change, or the record from which this candidate was drafted supports it."""
        scope = (candidate.type, candidate.scope_type, candidate.scope_id)
        for row in self._load_valid():
            if row.status is CandidateStatus.DRAFTED or row.id == candidate.id:
                continue
            is_supported = not {*row.corroborated_by}.isdisjoint(candidate.drafted_from)
            is_same = is_supported or is_same_change(row.candidate.effect, candidate.effect)
            if is_same and (row.type, row.scope_type, row.scope_id) == scope:
                return row.id
        return ""

    def _evaluate_all(self) -> None:
        """Evaluate all candidates by the present records, which are read only once."""
        rows = load_candidates(self._database, *LIVE_STATUSES)
        all_drafted = self._records.read_by_ids({record_id for row in rows for record_id in row.drafted_from})
        of_scope, of_kind = cache(self._records.read_of_scope), cache(self._records.read_of_kinds)
        for row in rows:
            records = list(of_scope(row.scope_type, row.scope_id))
            if row.type in EVIDENCE_AGAINST:
                records += of_kind(EVIDENCE_AGAINST[row.type])
            drafted = [record for record in all_drafted if record.id in row.drafted_from]
            self._evaluate(row, drafted, list({record.id: record for record in records}.values()))

    def _evaluate(
        self, row: CandidateRow, drafted: Sequence[LearningRecord], records: Sequence[LearningRecord]
    ) -> None:
        """Evaluate a candidate by the `records` of its scope, and store the transition that follows. It was drafted
        from the records `drafted`."""
        candidate = row.candidate
        active_since = row.since if row.status is CandidateStatus.ACTIVE else None
        evaluation = evaluate(candidate, drafted, list(filter(self._still_holds, records)), active_since=active_since)
        move = _find_next_move(row.status, evaluation)
        if move is CandidateMove.CORROBORATE and (duplicate := self._find_duplicate(candidate)):
            evaluation, move = replace(evaluation, reason=f"{duplicate} already proposes that"), None
        before = (candidate.corroborated_by, candidate.against, candidate.score)
        if move is None and before == (evaluation.corroborated_by, evaluation.against, evaluation.score):
            return
        self._database.write(lambda tx: _store_move(tx, row, evaluation, move))

    def _activate_by_itself(self) -> None:
        """Activate the candidates that need no decision of the operator. Quotes always need one (SPEC 6.8), and so do
        candidates whose approval the operator undid, or that have as much evidence against them as for them."""
        if not self._sources.read_phase() or self._sources.find_block_reason():
            return
        for row in self._load_valid(CandidateStatus.REVIEW):
            is_disputed = len(row.against) >= len(row.corroborated_by)
            if row.trust is Trust.QUOTED or row.is_undone or is_disputed:
                continue
            if reason := self._sources.find_objection(row.candidate):
                log.info("candidate %s waits for the operator: %s", row.id, reason)
                continue
            self._decide_by_itself(row.id, CandidateMove.APPROVE)

    def _roll_back_harmful(self) -> None:
        """Roll back harmful candidates (SPEC 5.7), even while work is held. In manual mode, `waiting` asks the operator
        instead."""
        for overlay, lift in self._trials.find_harmful():
            reason = f"it makes work worse: {describe_lift(lift)}"
            self._decide_by_itself(overlay.candidate_id, CandidateMove.ROLL_BACK, reason)

    def _decide_by_itself(self, candidate_id: str, move: CandidateMove, reason: str = "") -> None:
        """Carry out a decision without the operator, unless it is refused."""
        try:
            self._decide(candidate_id, move, "autonomy", reason)
        except Refusal as refusal:  # decided meanwhile, or its effect cannot be active here
            log.warning("candidate %s: no %s by itself: %s", candidate_id, move, refusal)


def _find_next_move(status: CandidateStatus, evaluation: Evaluation) -> CandidateMove | None:
    """The transition that follows from an evaluation, if any."""
    if status is CandidateStatus.DRAFTED and evaluation.has_passed:
        return CandidateMove.CORROBORATE
    if status is CandidateStatus.REVIEW and not evaluation.has_passed:
        return CandidateMove.WEAKEN
    return None


def _store_move(tx: Transaction, row: CandidateRow, evaluation: Evaluation, move: CandidateMove | None) -> None:
    """Store an evaluation with its transition, unless the candidate was decided since `row` was read."""
    current = find_candidate(tx.session, row.id)
    if current.status == row.status:
        store_evaluation(tx, current, evaluation, move)


def _make_activation_question(row: CandidateRow) -> Waiting:
    """The question about a candidate in review."""
    effect = row.candidate.effect
    if isinstance(effect, FixTemplate):
        effect = replace(effect, patch="")  # agents do not read the diff
    text = "\n".join(list_texts(effect))
    return Waiting("candidate", row.id, f"activate? {row.title}", row.changed_at, text=text)


def describe_lift(lift: Lift) -> str:
    """The counts of a trial in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )
