"""Runs the promotion chain (SPEC 6.6): extraction, gates, reinforcement and compaction, for one session or for all.

It follows the ledger: at the start of a session, at milestones, at its end, and after a later decision on its changes
it writes entries. `rules` says which, `promotion` what becomes of them in higher scopes, and `questions` asks a model;
this module carries that out.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.clock import Clock
from engine.events.learning import LearningJudged, LearningsExtracted
from engine.learning.learnings import (
    Finding,
    SessionRecord,
    SessionSource,
    get_domain,
    make_title,
    rate_confidence,
    rate_importance,
)
from engine.learning.learnings.page import Change
from engine.learning.learnings.promotion import (
    SHARED_SCOPES,
    Provenance,
    add_promoted,
    explain_why_not_promotable,
    is_about_own_tools,
    plan_compaction,
    plan_global,
    plan_project,
    plan_reinstatement,
    plan_retraction,
    promote_entry,
)
from engine.learning.learnings.questions import ask_judge, ask_learnings
from engine.learning.learnings.recurrence import LoadVectors
from engine.learning.learnings.rules import find_assumptions, find_in_event, find_learnings, find_risks
from engine.learning.learnings.store import GLOBAL, LearningStore, NotWritable, Scope, make_project_key, place_entry
from engine.lessons import NOT_GENERAL_YET, make_lesson_id
from engine.model import (
    ChainReport,
    EntrySource,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    ModelAsker,
    NoAnswer,
    Refusal,
    Result,
    Trust,
)
from engine.model.learnings import UNPROVEN_PHASES
from engine.redaction import redact
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry, NotReady

log = logging.getLogger(__name__)

MILESTONES = frozenset({"PermissionAsked", "RetryRepeated", "ChangeSetReady"})
"""Milestones of a session, at which the assumptions of its agent so far are written."""

LANDED_KINDS = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
"""Kinds of ledger entries that say that the operator wanted the changes of a session."""

LATE_KINDS = frozenset({"ChangeSetDiscarded", "LandingUndone"}) | LANDED_KINDS
"""Decisions on the changes of a session, which may come after its end."""

FOLLOWED_KINDS = MILESTONES | LATE_KINDS | {"SessionStarted", "SessionEnded"}
"""The kinds of ledger entries that the chain handles."""

RECENT = timedelta(days=1)
"""Maximum age of the end of a session about which a model is asked."""

GATE_KINDS = frozenset({"SessionEnded", "ChangeSetDiscarded", "LandingUndone"})
"""The kinds of ledger entries after which the gates of the project are checked."""

WANTED_PROJECTS = "learnings.wanted"
"""Key in the state table: the projects whose gates must be checked."""

MIN_SESSION_CONFIDENCE = 0.75
"""Minimum confidence of a finding that is promoted from its team to its session. Findings have it if tests, the
operator or repetition confirmed them."""

MAX_TEXT_CHARS = 2_000
"""Maximum number of characters of an entry that the engine writes."""

LANDED_AFTER_ALL = "its changes were landed after all"
"""The reason for retiring an entry that says that changes were undone or discarded."""

NO_JUDGE = "`[memory] model` names no model: you decide (clawpy learnings promote ID)"
"""The verdict on an entry without a model."""

_VERDICTS = {True: "generalises", False: "does not", None: "no answer"}


class Chain:
    """Extracts, promotes and compacts learnings, one step at a time. Callable from any thread.

    If words are forgotten after something was read (SPEC 4.10), it is not written, but read again.
    """

    def __init__(
        self,
        store: LearningStore,
        database: Database,
        clock: Clock,
        *,
        sessions: SessionSource,
        vectors: LoadVectors,
        model: ModelAsker,
        retracted: Callable[[], frozenset[str]],
    ) -> None:
        """`retracted()` returns the lessons that the operator retracted."""
        self._store = store
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self._vectors = vectors
        self._model = model
        self._retracted = retracted
        self._reported: set[str] = set()
        """The problems that were reported, in words."""
        self._is_writable = True
        """False once it was reported that pages cannot be written, until they can."""
        self._work_lock = threading.Lock()
        """Held while ledger entries are handled or gates are checked, even while a model is asked."""

    # -- from sessions

    def handle(self, entry: LedgerEntry) -> None:
        """Handle one ledger entry of `FOLLOWED_KINDS`. A second time changes nothing. For entries older than `RECENT`,
        no model is asked and no risk is written, because a new engine may read years of them. Raises `NotReady` while
        pages cannot be written, and if words were forgotten meanwhile."""
        scope = Scope(make_project_key(entry.workspace), entry.session_id)
        try:
            with self._work_lock:
                self._store.require_readable(scope)  # before a model is asked, whose answer could not be written
                self._extract(entry, scope)
        except NotWritable as refusal:
            if self._is_writable:
                self._is_writable = False
                self._sessions.report("learnings", f"learnings from sessions cannot be written yet: {refusal}")
            raise
        self._is_writable = True
        if entry.kind in GATE_KINDS:

            def mark_wanted(tx: Transaction) -> None:
                state.put(tx, WANTED_PROJECTS, sorted({*state.get(tx.session, WANTED_PROJECTS, ()), scope.project}))

            self._database.write(mark_wanted)  # so that a crash does not lose it

    def _extract(self, entry: LedgerEntry, scope: Scope) -> None:
        """Write what a ledger entry about a session teaches, and merge what says the same."""
        erasure_count, is_end = self._store.erasure_count, entry.kind == "SessionEnded"
        record = (self._sessions.load_record if is_end else self._sessions.load_start)(scope.session)
        if record is None:
            return
        known = self._store.read_entries(scope)
        findings, secrets = self._find(entry, record), tuple(self._sessions.list_secrets())
        claims = self._ask_model(entry, record, known) if is_end else None
        with self._store.lock:
            if self._store.erasure_count != erasure_count:
                raise NotReady("something was forgotten meanwhile")
            if entry.kind in LANDED_KINDS:
                self._retire_undone(known, entry.at)
            elif entry.kind == "LandingUndone" and findings:
                self._revive_undone(known, entry.at)
            extracted = [
                (_make_entry(finding, record, entry.at, secrets), finding.general)
                for finding in (*findings, *(claims or ()))
            ]
            self._write(extracted, scope, known, "rules" if claims is None else "rules and model")
            if is_end:
                self.compact(scope)

    def _retire_undone(self, known: Iterable[LearningEntry], at: datetime) -> None:
        """Retire the entries that say that changes were undone or discarded, because they are landed now."""
        for entry in known:
            if entry.is_active and entry.about.startswith("undone/"):
                plan, _ = plan_retraction(entry, self._read_provenance(), LANDED_AFTER_ALL, at)
                self._store.apply(plan)

    def _revive_undone(self, known: Iterable[LearningEntry], at: datetime) -> None:
        """Make these entries valid again, because the landing was undone again."""
        for entry in known:
            if entry.retired_because == LANDED_AFTER_ALL:
                self._store.apply(plan_reinstatement(entry, self._read_provenance(), at))

    def _find(self, entry: LedgerEntry, record: SessionRecord) -> list[Finding]:
        """What a ledger entry about a session teaches, by rules."""
        view, is_recent = record.view, entry.at > self._clock.now() - RECENT
        if entry.kind in LATE_KINDS:
            return list(find_in_event(entry.kind, entry.payload, record))
        if entry.kind == "SessionStarted":
            entries = self._store.read_entries(Scope(make_project_key(view.workspace)))
            earlier = [other for other in entries if other.session_id != view.id]
            return find_risks(record, earlier) if is_recent and view.flow is None else []
        lines = self._sessions.read_transcript(view.id) if view.flow is None else ()
        assumptions = find_assumptions(lines, tuple(self._sessions.list_secrets()))
        if entry.kind != "SessionEnded":
            return assumptions if is_recent else []
        return [] if view.result is Result.CANNOT_RUN else [*find_learnings(record), *assumptions]

    def _ask_model(
        self, entry: LedgerEntry, record: SessionRecord, known: Iterable[LearningEntry]
    ) -> list[Finding] | None:
        """What the configured model finds in a session that ended lately, and whose entries are not written yet; None
        without a model or an answer."""
        view = record.view
        is_written = any(other.phase not in UNPROVEN_PHASES for other in known)
        is_old = entry.at <= self._clock.now() - RECENT
        if is_written or is_old or view.flow is not None or view.result is Result.CANNOT_RUN:
            return None
        try:
            return ask_learnings(self._model, record, self._sessions.read_transcript(view.id))
        except NoAnswer as error:
            self._report_once(f"no model said what {view.id} taught, the rules did: {error}")
            return None

    def _write(
        self, extracted: Iterable[tuple[LearningEntry, str]], scope: Scope, known: Iterable[LearningEntry], by: str
    ) -> None:
        """Write the entries of a session that are not known yet, given with what makes each general. Confirmed ones are
        also promoted from their team to the session."""
        ids = {other.id for other in known}
        changes, promoted = list[Change](), list[Change]()
        for entry, general in extracted:
            if entry.id in ids:
                continue
            ids.add(entry.id)
            changes.append(Change(entry))
            if general:
                self._offer(entry)
            if entry.scope is LearningScope.TEAM and entry.confidence >= MIN_SESSION_CONFIDENCE:
                above = promote_entry(entry, scope, [EntrySource(entry.id, entry.session_id)], entry.created_at)
                promoted.append(add_promoted(above, "establishment"))
        if changes:
            phases = tuple(dict.fromkeys(change.entry.phase for change in changes))
            workspace = changes[0].entry.workspace
            event = LearningsExtracted(
                subject=scope.session, workspace=workspace, entries=len(changes), scopes=phases, by=by
            )
            changes[0] = replace(changes[0], event=event)
        self._store.apply([*changes, *promoted])

    def _offer(self, entry: LearningEntry) -> None:
        """Offer an entry that generalises to the leader of its agent (SPEC 1.7). A second offer changes nothing.
        Entries about the operator or about an agent's own tools, and retracted lessons, are not offered."""
        is_left_out = entry.kind is LearningKind.PROXY or is_about_own_tools(entry)
        if not entry.agent or is_left_out or entry.lesson in self._retracted():
            return
        try:
            self._sessions.offer(entry)
        except Refusal as refusal:  # its agent was retired meanwhile
            log.warning("%s was not offered: %s", entry.id, refusal)

    # -- to projects

    def check_gates(self) -> None:
        """Promote within the projects that have new learnings. One check covers many sessions."""
        with self._work_lock:
            with self._database.read() as session:
                projects = list(state.get(session, WANTED_PROJECTS, ()))
            failed = list(self._promote_to_projects(projects))
            if projects != failed:
                self._database.write(lambda tx: state.put(tx, WANTED_PROJECTS, failed))

    def _promote_to_projects(self, projects: Iterable[str]) -> dict[str, str]:
        """Promote within these projects. Returns the error of each that failed, which is reported, too."""
        errors: dict[str, str] = {}
        for key in projects:
            try:
                self.promote_to_project(Scope(key))
            except Exception as error:  # the next ledger entry tries again
                log.exception("the gates of %s", key)
                errors[key] = f"the gates of {key} could not be checked; they will be tried again: {error}"
                self._report_once(errors[key])
        return errors

    def promote_to_project(self, scope: Scope) -> None:
        """Promote from the sessions to one project, reinforce, and compact. Raises `Refusal`."""
        with self._store.lock:
            entries = self._store.read_entries(scope)
            existing = [entry for entry in entries if entry.scope is LearningScope.PROJECT]
            below = [entry for entry in entries if entry.scope is not LearningScope.PROJECT]
            plan = plan_project(below, existing, scope, self._vectors, self._clock.now())
            self._store.apply(plan)
            for change in plan:
                self.offer_to_leaders(change.entry)
            self.compact(scope)

    def offer_to_leaders(self, entry: LearningEntry) -> None:
        """Offer an entry of a project to the leader of each agent that found it. A quote is offered only after the
        operator approved it, so that the operator is asked only once about a lesson."""
        if not entry.may_guide:
            return
        sources = {source.entry for source in entry.promoted_from}
        for agent in sorted({other.agent for other in self._store.read_entries() if other.id in sources}):
            latest = max(entry.source_sessions)
            self._offer(replace(entry, id=f"{entry.id}@{agent}", agent=agent, session_id=latest))

    def compact(self, scope: Scope) -> None:
        """Merge the entries of a scope that are the same, and record their ids. Raises `Refusal`."""
        with self._store.lock:
            self._store.apply(plan_compaction(self._store.read_entries(scope, below=False), scope, self._vectors))

    # -- to all projects

    def promote(self, entry: LearningEntry) -> str:
        """Promote an entry from its project to all projects, as the operator decided; returns the id of the entry
        that it became or reinforced. Raises `Refusal`: `not_promotable`, `already_promoted`."""
        with self._store.lock:
            if reason := explain_why_not_promotable(entry):
                raise Refusal("not_promotable", f"{entry.id} {reason}", "see `clawpy learnings show`")
            plan = self._plan_global(entry, "operator")
            if not plan:
                message = f"all projects already have what {entry.id} says"
                raise Refusal("already_promoted", message, "see `clawpy learnings list --scope global`")
            self._store.apply(plan)
            self.compact(GLOBAL)
            return plan[0].entry.id

    def run(self, catch_up: Callable[[], None], *, judge: bool = False) -> ChainReport:
        """Handle new ledger entries by `catch_up`, then promote within every project. With `judge`, the operator's
        model decides which entries are promoted to all projects. A step that fails is in the report, and the others go
        on."""
        before, judged = self._store.read_entries(), dict[str, str]()
        catch_up()
        with self._work_lock:
            errors = self._store.list_errors()
            for error in errors:
                self._report_once(f"{error}; it is ignored until you fix it in an editor")
            projects = sorted({scope.project for scope, _ in self._store.iterate_pages()} - {""})
            errors += self._promote_to_projects(projects).values()
            if judge:
                errors += self._run_step(lambda: judged.update(self._judge()))
            errors += self._run_step(lambda: self.compact(GLOBAL))
            return _make_report(before, self._store.read_entries(), judged, errors)

    def _run_step(self, step: Callable[[], None]) -> list[str]:
        """Run a step. If it is refused, the refusal is reported and returned in words."""
        try:
            step()
        except Refusal as refusal:
            log.warning("the promotion chain: %s", refusal)
            self._sessions.report("learnings", str(refusal))
            return [str(refusal)]
        return []

    def _judge(self) -> Iterator[tuple[str, str]]:
        """Ask the model about each project entry that is not global yet, and promote the entry if the answer is a clear
        yes, unless it changed meanwhile. An entry that is global already is reinforced. Gives the id of each entry that
        the model was asked about, with the verdict in words, and ends if words are forgotten meanwhile. Quotes are left
        to the operator (SPEC 6.8). Raises `Refusal`."""
        erasure_count = self._store.erasure_count
        for entry in self._store.read_entries():
            if not entry.can_be_promoted or entry.trust is Trust.QUOTED:
                continue
            if any(not change.fields for change in self._plan_global(entry, "model")):  # it would be a new entry
                verdict = ask_judge(self._model, entry)
                if verdict is None:
                    yield entry.id, NO_JUDGE
                    continue
                with self._store.lock:  # words that are forgotten later are erased from the ledger later, too
                    if self._store.erasure_count != erasure_count:
                        return
                    word = _VERDICTS[verdict.generalises]
                    self._database.record(
                        LearningJudged(subject=entry.id, workspace=entry.workspace, verdict=word, reason=verdict.reason)
                    )
                yield entry.id, f"{word}: {verdict.reason or 'no reason was given'}"
                if not verdict.generalises:
                    continue
            with self._store.lock:
                if self._store.erasure_count != erasure_count:
                    return
                if entry in self._store.read_entries():
                    self._store.apply(self._plan_global(entry, "model"))

    def _plan_global(self, entry: LearningEntry, by: str) -> list[Change]:
        """The plan to promote an entry from its project to all projects."""
        return plan_global(entry, self._store.read_entries(GLOBAL, below=False), self._vectors, self._clock.now(), by)

    def _read_provenance(self) -> Provenance:
        """The provenance of all entries."""
        return Provenance(self._store.read_entries())

    def _report_once(self, message: str) -> None:
        """Report a problem that does not stop work, but only once for the same words."""
        if message not in self._reported:
            self._reported.add(message)
            self._sessions.report("learnings", message)


def _make_entry(finding: Finding, record: SessionRecord, at: datetime, secrets: Iterable[str]) -> LearningEntry:
    """A finding as an entry, without secrets and texts that look like one (SPEC 11.1). A risk, an assumption and what
    is about the operator are entries of the session, others of the team, which is the most specific scope."""
    view = record.view
    session = Scope(make_project_key(view.workspace), view.id)
    stays = finding.phase in UNPROVEN_PHASES or finding.kind is LearningKind.PROXY
    text, about, title = (redact(part, secrets) for part in (finding.text, finding.about, finding.title))
    text = text[:MAX_TEXT_CHARS]
    confidence, importance = rate_confidence(finding.basis), rate_importance(finding.impact)
    validity = () if about or finding.trust is not Trust.OPERATOR else (finding.general or NOT_GENERAL_YET,)
    entry = LearningEntry(
        id="",
        scope=LearningScope.SESSION,
        scope_id="",
        kind=finding.kind,
        type=finding.type,
        domain=get_domain(finding.kind),
        text=text,
        title=title or make_title(text),
        importance=importance.value,
        confidence=confidence.value,
        reasons=(*confidence.reasons, *importance.reasons, *validity),
        phase=finding.phase,
        status=LearningStatus.ACTIVE,
        created_at=at,
        session_id=view.id,
        session_task=record.task_title,
        workspace=view.workspace,
        agent=view.agent,
        about=about,
        continues=record.continues,
        trust=finding.trust,
        lesson=make_lesson_id(text),
    )
    return place_entry(entry, session if stays else replace(session, team=record.leader))


def _make_report(
    before: Sequence[LearningEntry], after: Sequence[LearningEntry], judged: Mapping[str, str], errors: Sequence[str]
) -> ChainReport:
    """The report of a run, from the entries of a home before and after it."""
    former = {entry.id: entry for entry in before}
    changed = [(entry, former.get(entry.id)) for entry in after if former.get(entry.id) != entry]
    shared = [(entry, old) for entry, old in changed if entry.scope in SHARED_SCOPES]
    return ChainReport(
        extracted=Counter(entry.session_id for entry, old in changed if not old and entry.scope not in SHARED_SCOPES),
        promoted=tuple(entry.id for entry, old in shared if not old),
        reinforced=tuple(entry.id for entry, old in shared if old and entry.last_reinforced != old.last_reinforced),
        compacted=tuple(
            entry.id for entry, old in changed if entry.merged_into and (old is None or not old.merged_into)
        ),
        judged=judged,
        faults=tuple(errors),
    )
