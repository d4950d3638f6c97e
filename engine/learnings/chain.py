"""The promotion chain at work (SPEC 6.6): extract → gates → reinforcement → compaction, a session at a time or now.

The plans are made purely (`promotion`); here entries are fetched, plans carried out, and what was done is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from engine.clock import Clock
from engine.events import LearningJudged, LearningsCompacted
from engine.learnings.asking import judge
from engine.learnings.extraction import TAKEN, Extraction
from engine.learnings.promotion import Plan, folded_together, folding, promotable, to_global, to_project
from engine.learnings.record import Around
from engine.learnings.recurrence import Vectors
from engine.learnings.rules import of_own_tools
from engine.learnings.scopes import GLOBAL, Scope, project_key, scope_at
from engine.learnings.store import Forgotten, LearningFiles, texts_of
from engine.learnings.uses import LearningSession, retracted
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Fact
from engine.storage.following import NotYet
from engine.values import (
    Asks,
    ChainReport,
    LearningEntry,
    LearningKind,
    LearningScope,
    Refusal,
    Trust,
)

log = logging.getLogger(__name__)

MILESTONES = frozenset({"PermissionAsked", "RetryRepeated", "ChangeSetReady"})
"""A session that asked for something, went in circles, or has changes to show: what it assumed up to now is written."""

AFTERWARDS = frozenset({"ChangeSetDiscarded", "LandingUndone"}) | TAKEN
FOLLOWED = MILESTONES | AFTERWARDS | {"SessionStarted", "SessionEnded"}

RECENT = timedelta(days=1)
"""A model is asked of sessions that are not longer over than this."""

WANTED = "learnings.wanted"
"""Under this name the projects are kept whose gates are to be gone through."""

WAITS_FOR = frozenset({"unwritable_home", "learnings_damaged"})
"""Refusals that the operator mends; until then facts wait, for to pass one over would lose what a session taught."""

NO_JUDGE = "no model is named: the operator judges (clawpy learnings promote ID)"


class Chain:
    """Carries the chain out; one thing at a time."""

    def __init__(
        self,
        files: LearningFiles,
        database: Database,
        clock: Clock,
        *,
        around: Around,
        vectors: Vectors,
        model: Asks,
    ) -> None:
        self._files = files
        self._database = database
        self._clock = clock
        self._around = around
        self._vectors = vectors
        self._model = model
        self.extraction = Extraction(files, around, model, self.offer)
        self._told: set[str] = set()
        self._held_by = ""
        """What the last fact waits for, which was told of."""
        self.heard: ChainReport | None = None
        """While it is a report, what facts come to is added to it."""
        self._running = threading.Lock()
        """`run` is one thread's at a time."""
        self._turn = threading.Lock()
        """Facts are taken in, and the chain is run, by one thread at a time; models are asked meanwhile."""
        self._lock = threading.RLock()
        """Between a plan and its carrying out nothing else is planned."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing is planned of what an entry said before it was changed in here."""
        with self._lock:
            yield

    def handle(self, fact: Fact) -> None:
        """Take one fact of `FOLLOWED` in. Again changes nothing. Of what is long past no model is asked, and nothing is
        feared any more: an engine that is new to a home has years of it before itself. Raises `NotYet` while pages
        cannot be written."""
        try:
            self._files.must_be_whole()  # before a model is asked for what could not be written
            self._handle(fact)
        except Refusal as refusal:
            if refusal.code not in WAITS_FOR:
                raise
            if self._held_by != refusal.code:
                self._around.report("learnings", f"what sessions taught waits to be written: {refusal}")
                self._held_by = refusal.code
            raise NotYet(str(refusal)) from refusal
        self._held_by = ""

    def _handle(self, fact: Fact) -> None:
        session = str(fact.payload.get("session_id") or fact.subject)
        recent = fact.at > self._clock.now() - RECENT
        new: list[LearningEntry] = []
        with self._turn:
            if fact.kind == "SessionEnded":
                new = self._ended(session, ask=recent)
            elif fact.kind in AFTERWARDS:
                new = self.extraction.late(fact)
                if fact.kind not in TAKEN:
                    self._database.write(lambda tx: self._wanted(tx, session))
            elif recent:
                work = self.extraction.begin if fact.kind == "SessionStarted" else self.extraction.in_flight
                new = work(session)
            if self.heard is not None and new:
                self.heard = _joined(self.heard, ChainReport(extracted={session: len(new)}))

    def settle(self) -> None:
        """The gates of the projects whose sessions taught something since the last time: once for many sessions."""
        with self._turn:
            with self._database.read() as session:
                wanted = list(state.get(session, WANTED, ()))
            for key in wanted:
                try:
                    done = self.project(Scope(key))
                except Exception as error:  # whatever it is: it is told of, and tried again with the next fact
                    log.exception("the gates of %s", key)
                    self._once(f"the gates of {key} could not be gone through, and are tried again: {error}")
                    continue
                self._database.write(lambda tx, key=key: self._done(tx, key))  # type: ignore[misc]
                if self.heard is not None:
                    self.heard = _joined(self.heard, done)

    def run(self, catch_up: Callable[[], None] = lambda: None, *, judge: bool = False) -> ChainReport:
        """What sessions taught is taken in by `catch_up`, then come the gates of every project; with `judge` also those
        from projects to all, which the operator's model decides. What cannot be done is told of, the rest goes on."""
        with self._running:
            self.heard = ChainReport()
            try:
                catch_up()
            finally:
                with self._turn:
                    report, self.heard = self.heard, None
            with self._turn:
                return self._run(report, judge)

    def _run(self, report: ChainReport, judge: bool) -> ChainReport:
        report = _joined(report, ChainReport(faults=tuple(self.faults())))
        for key in sorted({scope_at(read.path).project for read in self._files.pages()} - {""}):
            report = _joined(report, self._guarded(lambda key=key: self.project(Scope(key))))  # type: ignore[misc]
        if judge:
            report = _joined(report, self._guarded(self.judged))
        return _joined(report, self._guarded(lambda: self.compact(GLOBAL)))

    def project(self, scope: Scope) -> ChainReport:
        """Session → project, then reinforcement, then compaction, of one project. Raises `Refusal`."""
        with self._lock:
            there = self._files.entries(scope, below=False)
            below = [one for one in self._files.entries(scope) if one.scope is not LearningScope.PROJECT]
            plan = to_project(below, there, scope, self._vectors, self._clock.now())
            done = self._carry_out(plan, "recurrence")
            agents = {one.id: one.agent for one in below}
            for one in (*plan.promoted, *(entry for entry, _ in plan.reinforced)):
                for agent in dict.fromkeys(agents.get(source.entry, "") for source in one.promoted_from):
                    last = max((source.session for source in one.promoted_from), default="")
                    self.offer(replace(one, id=f"{one.id}@{agent}", agent=agent, session_id=last))
            return _joined(done, self.compact(scope))

    def offer(self, entry: LearningEntry) -> None:
        """Tell the hierarchy of an entry that generalises. Not of what is about the human or an agent's own tools, and
        not of a lesson that was retracted."""
        if not entry.agent or entry.kind is LearningKind.PROXY or of_own_tools(entry):
            return
        if entry.lesson in retracted(self._database):
            return
        try:
            self._around.offer(entry)
        except Refusal as refusal:  # its agent was retired meanwhile
            log.warning("%s was not offered: %s", entry.id, refusal)

    def judged(self) -> ChainReport:
        """Project → global: each entry that is not there yet is judged by the model; nothing goes up without a clear
        yes. Of what is forgotten meanwhile the model is not asked, and what it said is not written (SPEC 4.10). Raises
        `Refusal`."""
        done = ChainReport()
        with self._files.watched() as forgotten:
            for entry in self._files.entries():
                if entry.scope is not LearningScope.PROJECT or not promotable(entry) or forgotten(texts_of(entry)):
                    continue
                if entry.trust is Trust.QUOTED:  # also an approved one: the operator alone promotes it (SPEC 6.8)
                    continue
                if self._rising(entry).promoted:
                    done = _joined(done, self._judge_one(entry, forgotten))
                else:
                    done = _joined(done, self._rise(entry, "model"))
        return done

    def promote(self, entry: LearningEntry) -> ChainReport:
        """Project → global at the operator's word. Raises `Refusal`: `not_promotable`, `already_promoted`."""
        with self._lock:
            if entry.scope is not LearningScope.PROJECT:
                raise Refusal(
                    "not_promotable",
                    f"{entry.id} is an entry of the scope {entry.scope.value}",
                    "a project's entries go up; a session's do so by themselves when they recur in three sessions",
                )
            if not promotable(entry):
                raise Refusal("not_promotable", f"{entry.id} {_why_not(entry)}", "see `clawpy learnings show`")
            plan = self._rising(entry)
            if not plan.promoted and not plan.reinforced:
                raise Refusal("already_promoted", f"all projects know already what {entry.id} says")
            return _joined(self._carry_out(plan, "operator"), self.compact(GLOBAL))

    def compact(self, scope: Scope) -> ChainReport:
        """Fold entries of a scope that say the same into one, and tell which. Raises `Refusal`."""
        with self._lock:
            found = folded_together(self._files.entries(scope, below=False), self._vectors)
            if not found:
                return ChainReport()
            pairs = [(one, cluster.members[0]) for cluster in found for one in cluster.members[1:]]
            told = LearningsCompacted(
                subject=scope.folder,
                workspace=found[0].centre.workspace if scope.project else "",
                folded=tuple(one.id for one, _ in pairs),
                into=tuple(centre.id for _, centre in pairs),
            )
            self._files.apply([change for cluster in found for change in folding(cluster)], [told])
            return ChainReport(compacted=told.folded)

    def faults(self) -> list[str]:
        """Pages and entries that make no sense, each told of once."""
        found = self._files.faults()
        for fault in found:
            self._once(f"{fault}; it is left out and left alone: mend it in any editor")
        return found

    def _ended(self, session_id: str, *, ask: bool) -> list[LearningEntry]:
        with self._database.read() as session:
            done = session.get(LearningSession, session_id) is not None
        new, fault = self.extraction.end(session_id, ask=ask and not done)
        if fault:
            self._once(fault)
        scope = Scope(project_key(self._workspace_of(session_id)), session_id)
        taught = bool(new) or (not done and bool(self._files.entries(scope)))
        if taught:
            self.compact(scope)

        def mark(tx: Transaction) -> None:
            if taught:
                self._wanted(tx, session_id)
            if tx.session.get(LearningSession, session_id) is None:
                row = LearningSession(session_id=session_id, entries=len(new), at=tx.now)
                tx.session.add(row)

        if taught or not done:
            self._database.write(mark)
        return new

    def _wanted(self, tx: Transaction, session_id: str) -> None:
        """The gates of a session's project are to be gone through, also after a crash."""
        key = project_key(self._workspace_of(session_id))
        state.put(tx, WANTED, sorted({*state.get(tx.session, WANTED, ()), key}))

    def _done(self, tx: Transaction, key: str) -> None:
        state.put(tx, WANTED, [one for one in state.get(tx.session, WANTED, ()) if one != key])

    def _once(self, words: str) -> None:
        """Tell of a fault that work can go on without, once."""
        if words not in self._told:
            self._told.add(words)
            self._around.report("learnings", words)

    def _judge_one(self, entry: LearningEntry, forgotten: Forgotten) -> ChainReport:
        verdict = judge(self._model, entry)
        if verdict is None:
            return ChainReport(judged={entry.id: NO_JUDGE})
        word = {True: "generalises", False: "does not", None: "no answer"}[verdict.holds]
        told = LearningJudged(subject=entry.id, workspace=entry.workspace, verdict=word, reason=verdict.reason)
        with self._files.alone():  # what is forgotten after this is erased from the ledger after this
            if forgotten([*texts_of(entry), verdict.reason]):
                return ChainReport()
            self._database.write(lambda tx: tx.record(told))
        said = ChainReport(judged={entry.id: f"{word}: {verdict.reason}"})
        return _joined(said, self._rise(entry, "model")) if verdict.holds is True else said

    def _rising(self, entry: LearningEntry) -> Plan:
        there = self._files.entries(GLOBAL, below=False)
        return to_global(entry, there, GLOBAL, self._vectors, self._clock.now())

    def _rise(self, entry: LearningEntry, by: str) -> ChainReport:
        with self._lock:  # the entry as it is now: a judge takes his time
            now = next((one for one in self._files.entries() if one.id == entry.id and one.text == entry.text), None)
            if now is None or not promotable(now):
                return ChainReport()
            return self._carry_out(self._rising(now), by)

    def _carry_out(self, plan: Plan, by: str) -> ChainReport:
        self._files.apply(plan.changes(self._clock.now()), plan.facts(by))
        return ChainReport(
            promoted=tuple(one.id for one in plan.promoted),
            reinforced=tuple(entry.id for entry, _ in plan.reinforced),
        )

    def _guarded(self, work: Callable[[], ChainReport]) -> ChainReport:
        try:
            return work()
        except Refusal as refusal:
            log.warning("the promotion chain: %s", refusal)
            self._around.report("learnings", str(refusal))
            return ChainReport(faults=(str(refusal),))

    def _workspace_of(self, session_id: str) -> str:
        record = self._around.begun(session_id)
        return "" if record is None else record.view.workspace


def _why_not(entry: LearningEntry) -> str:
    if not entry.active:
        return f"is {entry.status.value}"
    if entry.review:
        return f"waits for review: {entry.review}"
    return "is about the human, or was only feared or assumed"


def _joined(one: ChainReport, other: ChainReport) -> ChainReport:
    return ChainReport(
        extracted={
            id: one.extracted.get(id, 0) + other.extracted.get(id, 0) for id in {**one.extracted, **other.extracted}
        },
        promoted=(*one.promoted, *other.promoted),
        reinforced=(*one.reinforced, *other.reinforced),
        compacted=(*one.compacted, *other.compacted),
        judged={**one.judged, **other.judged},
        faults=(*one.faults, *other.faults),
    )
