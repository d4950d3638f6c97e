"""Runs the promotion chain (SPEC 6.6): extraction, gates, reinforcement and compaction, for one session or for all.

`promotion` makes the plans. This module loads the entries, carries out the plans, and reports the results. It stores
which sessions are finished.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlmodel import Field

from engine.clock import Clock
from engine.events import LearningJudged, LearningsCompacted
from engine.learning.learnings.extraction import LANDED_KINDS, Extraction
from engine.learning.learnings.findings import SessionSource
from engine.learning.learnings.promotion import (
    PromotionPlan,
    find_duplicates,
    is_promotable,
    merge_duplicates,
    plan_global,
    plan_project,
)
from engine.learning.learnings.questions import ask_judge
from engine.learning.learnings.recurrence import Vectors
from engine.learning.learnings.store import GLOBAL, LearningFiles, Scope, make_project_key, parse_scope_path
from engine.model import Asks, ChainReport, LearningEntry, LearningScope, LearningStatus, Refusal, Trust
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry, NotReady
from engine.storage.rows import Row, load, utc_field

log = logging.getLogger(__name__)

MILESTONES = frozenset({"PermissionAsked", "RetryRepeated", "ChangeSetReady"})
"""Milestones of a session, at which the assumptions of its agent so far are written."""

LATE_KINDS = frozenset({"ChangeSetDiscarded", "LandingUndone"}) | LANDED_KINDS
"""Decisions on the changes of a session, which may come after its end."""

FOLLOWED_KINDS = MILESTONES | LATE_KINDS | {"SessionStarted", "SessionEnded"}
"""The kinds of ledger entries that the chain handles."""

RECENT = timedelta(days=1)
"""Maximum age of the end of a session about which a model is asked."""

PENDING_PROJECTS = "learnings.wanted"
"""Key in the state table: the projects whose gates must be checked."""

RETRYABLE = frozenset({"unwritable_home", "learnings_damaged"})
"""Refusals that the operator can fix. Until then, ledger entries wait, because skipping them would lose learnings."""

NO_JUDGE = "no model is configured: you decide (clawpy learnings promote ID)"
"""The verdict on an entry without a model."""


class LearningSession(Row, table=True):
    """A finished session whose learnings are extracted."""

    __tablename__ = "learning_sessions"

    session_id: str = Field(primary_key=True)
    entries: int
    at: datetime = utc_field()


class Chain:
    """Extracts, promotes and compacts learnings, one step at a time. Callable from any thread."""

    def __init__(
        self,
        files: LearningFiles,
        database: Database,
        clock: Clock,
        *,
        sessions: SessionSource,
        vectors: Vectors,
        model: Asks,
    ) -> None:
        self._files = files
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self._vectors = vectors
        self._model = model
        self.extraction = Extraction(files, database, sessions, model)
        self._reported: set[str] = set()
        self._work_lock = threading.Lock()
        """Held while ledger entries are handled or gates are checked, even while a model is asked."""
        self.plan_lock = threading.RLock()
        """Held from making a plan until it is carried out, so that its entries cannot change meanwhile."""

    def handle(self, entry: LedgerEntry) -> None:
        """Handle one ledger entry of `FOLLOWED_KINDS`. A second time changes nothing. For entries older than `RECENT`,
        no model is asked and no risk is written, because a new engine may read years of them. Raises `NotReady` while
        pages cannot be written."""
        try:
            self._handle(entry)
        except Refusal as refusal:
            if refusal.code not in RETRYABLE:
                raise
            self._report_once(f"learnings from sessions cannot be written yet: {refusal}", refusal.code)
            raise NotReady(str(refusal)) from refusal
        self._reported -= RETRYABLE

    def _handle(self, entry: LedgerEntry) -> None:
        """See `handle`. Raises the refusals of pages that cannot be written."""
        scope = Scope(make_project_key(entry.workspace), str(entry.payload.get("session_id") or entry.subject))
        is_recent = entry.at > self._clock.now() - RECENT
        with self._work_lock:
            self._files.check(scope)  # before a model is asked, whose answer could not be written
            if entry.kind == "SessionEnded":
                self._end_session(scope, ask=is_recent)
            elif entry.kind in LATE_KINDS:
                self.extraction.write_late_findings(entry)
                if entry.kind not in LANDED_KINDS:
                    self._database.write(lambda tx: self._mark_pending(tx, scope.project))
            elif is_recent and entry.kind == "SessionStarted":
                self.extraction.write_risks(scope.session)
            elif is_recent:
                self.extraction.write_assumptions(scope.session)

    def check_gates(self) -> None:
        """Promote within the projects that have new learnings. One check covers many sessions."""
        with self._work_lock:
            with self._database.read() as session:
                project_keys = list(state.get(session, PENDING_PROJECTS, ()))
            failed = []
            for key in project_keys:
                try:
                    self.promote_to_project(Scope(key))
                except Exception as error:  # it is reported, and tried again with the next entry
                    log.exception("the gates of %s", key)
                    self._report_once(f"the gates of {key} could not be checked; they will be tried again: {error}")
                    failed.append(key)
            if project_keys != failed:
                self._database.write(lambda tx: state.put(tx, PENDING_PROJECTS, failed))

    def run(self, catch_up: Callable[[], None], *, judge: bool = False) -> ChainReport:
        """Handle new ledger entries by `catch_up`, then promote within every project. With `judge`, the operator's
        model decides which entries are promoted to all projects. A step that fails is reported, and the others go
        on."""
        before, judged = self._files.entries(), dict[str, str]()
        catch_up()
        with self._work_lock:
            errors = self._files.errors()
            for error in errors:
                self._report_once(f"{error}; it is ignored until you fix it in an editor")
            projects = sorted({parse_scope_path(page.path).project for page in self._files.pages()} - {""})
            steps: list[Callable[[], None]] = [partial(self.promote_to_project, Scope(key)) for key in projects]
            steps += [partial(self._judge, judged)] if judge else []
            steps.append(partial(self.compact, GLOBAL))
            for step in steps:
                try:
                    step()
                except Refusal as refusal:
                    log.warning("the promotion chain: %s", refusal)
                    self._sessions.report("learnings", str(refusal))
                    errors.append(str(refusal))
            return make_report(before, self._files.entries(), judged, errors)

    def promote_to_project(self, scope: Scope) -> None:
        """Promote from the sessions to one project, reinforce, and compact. Raises `Refusal`."""
        with self.plan_lock:
            project_entries = self._files.entries(scope, below=False)
            session_entries = [
                entry for entry in self._files.entries(scope) if entry.scope is not LearningScope.PROJECT
            ]
            plan = plan_project(session_entries, project_entries, scope, self._vectors, self._clock.now())
            self._carry_out(plan, "recurrence")
            for entry in plan.entries:
                self.offer_to_leaders(entry)
            self.compact(scope)

    def offer_to_leaders(self, entry: LearningEntry) -> None:
        """Offer an entry of a project to the leader of each agent that found it. A quote is offered only after the
        operator approved it, so that the operator is asked only once about a lesson."""
        if not entry.may_guide:
            return
        agents = {entry.id: entry.agent for entry in self._files.entries()}
        latest_session = max((source.session for source in entry.promoted_from), default="")
        for agent in dict.fromkeys(agents.get(source.entry, "") for source in entry.promoted_from):
            self.extraction.offer(replace(entry, id=f"{entry.id}@{agent}", agent=agent, session_id=latest_session))

    def promote(self, entry: LearningEntry) -> str:
        """Promote an entry from its project to all projects, as the operator decided; returns the id of the entry
        that it became or reinforced. Raises `Refusal`: `not_promotable`, `already_promoted`."""
        with self.plan_lock:
            if entry.scope is not LearningScope.PROJECT:
                raise Refusal(
                    "not_promotable",
                    f"{entry.id} is an entry of the scope {entry.scope.value}",
                    "only project entries can be promoted; session entries rise when they recur in three sessions",
                )
            if not is_promotable(entry):
                raise Refusal(
                    "not_promotable", f"{entry.id} {_describe_obstacle(entry)}", "see `clawpy learnings show`"
                )
            plan = self._plan_global_promotion(entry)
            if not plan.promoted and not plan.reinforced:
                raise Refusal("already_promoted", f"all projects already have what {entry.id} says")
            self._carry_out(plan, "operator")
            self.compact(GLOBAL)
            return plan.entries[0].id

    def compact(self, scope: Scope) -> None:
        """Merge the entries of a scope that are the same, and record their ids. Raises `Refusal`."""
        with self.plan_lock:
            clusters = find_duplicates(self._files.entries(scope, below=False), self._vectors)
            if not clusters:
                return
            pairs = [(member, cluster.members[0]) for cluster in clusters for member in cluster.members[1:]]
            event = LearningsCompacted(
                subject=scope.folder,
                workspace=clusters[0].centre.workspace if scope.project else "",
                folded=tuple(entry.id for entry, _ in pairs),
                into=tuple(centre.id for _, centre in pairs),
            )
            self._files.apply([change for cluster in clusters for change in merge_duplicates(cluster)], [event])

    def _end_session(self, scope: Scope, *, ask: bool) -> None:
        """Write the findings of a session that is over, and store that it is finished. With `ask`, a model is asked,
        but only the first time."""
        with self._database.read() as session:
            is_finished = load(session, LearningSession, scope.session) is not None
        new, fault = self.extraction.write_findings(scope.session, ask=ask and not is_finished)
        if fault:
            self._report_once(fault)
        has_learnings = bool(new) or (not is_finished and bool(self._files.entries(scope)))
        if has_learnings:
            self.compact(scope)

        def store_end(tx: Transaction) -> None:
            if has_learnings:
                self._mark_pending(tx, scope.project)
            if load(tx.session, LearningSession, scope.session) is None:
                tx.insert(LearningSession(session_id=scope.session, entries=len(new), at=tx.now))

        if has_learnings or not is_finished:
            self._database.write(store_end)

    def _mark_pending(self, tx: Transaction, key: str) -> None:
        """Store that the project needs promotion, so that a crash does not lose it."""
        state.put(tx, PENDING_PROJECTS, sorted({*state.get(tx.session, PENDING_PROJECTS, ()), key}))

    def _report_once(self, message: str, key: str = "") -> None:
        """Report a problem that does not stop work, but only once for the same words or the same `key`."""
        if (key or message) not in self._reported:
            self._reported.add(key or message)
            self._sessions.report("learnings", message)

    def _judge(self, judged: dict[str, str]) -> None:
        """Ask the model about each project entry that is not global yet, and promote the entry if the answer is a clear
        yes. The verdicts are added to `judged`. It ends if words are forgotten meanwhile (SPEC 4.10). Quotes are left
        to the operator (SPEC 6.8). Raises `Refusal`."""
        erasures = self._files.erasures
        for entry in self._files.entries():
            if entry.scope is not LearningScope.PROJECT or not is_promotable(entry) or entry.trust is Trust.QUOTED:
                continue
            if self._files.erasures != erasures:
                return
            if self._plan_global_promotion(entry).promoted:
                judged |= self._judge_one(entry, erasures)
            else:
                self._promote_globally(entry)

    def _judge_one(self, entry: LearningEntry, erasures: int) -> dict[str, str]:
        """Ask the model about an entry, and promote it at a clear yes. Returns the verdict by the entry's id; nothing
        if words were forgotten since `erasures` was read."""
        verdict = ask_judge(self._model, entry)
        if verdict is None:
            return {entry.id: NO_JUDGE}
        word = {True: "generalises", False: "does not", None: "no answer"}[verdict.is_valid]
        event = LearningJudged(subject=entry.id, workspace=entry.workspace, verdict=word, reason=verdict.reason)
        with self._files.lock:  # words that are forgotten later are erased from the ledger later, too
            if self._files.erasures != erasures:
                return {}
            self._database.record(event)
        if verdict.is_valid is True:
            self._promote_globally(entry)
        return {entry.id: f"{word}: {verdict.reason}"}

    def _plan_global_promotion(self, entry: LearningEntry) -> PromotionPlan:
        """The plan to promote an entry from its project to all projects."""
        return plan_global(entry, self._files.entries(GLOBAL, below=False), self._vectors, self._clock.now())

    def _promote_globally(self, entry: LearningEntry) -> None:
        """Promote an entry to all projects, unless it changed while the model was asked."""
        with self.plan_lock:
            current = next((candidate for candidate in self._files.entries() if candidate.id == entry.id), None)
            if current is not None and current.text == entry.text and is_promotable(current):
                self._carry_out(self._plan_global_promotion(current), "model")

    def _carry_out(self, plan: PromotionPlan, by: str) -> None:
        """Carry out a plan, and record its events."""
        self._files.apply(plan.changes(self._clock.now()), plan.events(by))


def make_report(
    before: Sequence[LearningEntry], after: Sequence[LearningEntry], judged: Mapping[str, str], errors: Sequence[str]
) -> ChainReport:
    """The report of a run, from the entries of a home before and after it. Pure."""
    former = {entry.id: entry for entry in before}
    new_entries = [entry for entry in after if entry.id not in former]
    high = (LearningScope.PROJECT, LearningScope.GLOBAL)
    known_entries = [entry for entry in after if entry.id in former and entry.scope in high]
    return ChainReport(
        extracted=Counter(entry.session_id for entry in new_entries if entry.scope not in high),
        promoted=tuple(entry.id for entry in new_entries if entry.scope in high),
        reinforced=tuple(
            entry.id for entry in known_entries if entry.reinforcement_count > former[entry.id].reinforcement_count
        ),
        compacted=tuple(
            entry.id
            for entry in after
            if entry.status is LearningStatus.COMPACTED and (entry.id not in former or former[entry.id].active)
        ),
        judged=judged,
        faults=tuple(errors),
    )


def _describe_obstacle(entry: LearningEntry) -> str:
    """Why an entry cannot be promoted, in words."""
    if not entry.active:
        return "was retracted" if entry.status is LearningStatus.RETIRED else "was merged into another"
    if entry.review:
        return f"waits for review: {entry.review}"
    return "is about the human, or was only assumed"
