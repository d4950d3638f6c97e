"""Writes down what each session taught (SPEC 6.6): at its start, at milestones, at its end, and when its changes are
decided on later.

Findings go to the team scope, the most specific one. Those confirmed by tests, the operator or repetition also go to
the session scope. Risks and assumptions stay in the session. Ids follow from the text, so a second run writes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from engine.events import Event, LearningPromoted, LearningsExtracted
from engine.learning.learnings.entries import (
    MAX_TEXT,
    Scope,
    domain_of,
    entry_id,
    project_key,
    promoted_entry,
    title_of,
)
from engine.learning.learnings.promotion import Provenance, is_about_own_tools, plan_retraction
from engine.learning.learnings.questions import ask_learnings
from engine.learning.learnings.recurrence import names
from engine.learning.learnings.rules import (
    ABOUT_ONE,
    DISCARDED,
    IN_FLIGHT,
    PROSPECTIVE,
    UNDONE,
    Basis,
    Finding,
    Impact,
    SessionRecord,
    SessionSource,
    confidence,
    find_learnings,
    findings_of_entry,
    importance,
)
from engine.learning.learnings.store import Change, LearningFiles, add_entry, retracted_lessons
from engine.model import (
    Asks,
    EntrySource,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    LearningType,
    NoAnswer,
    Refusal,
    Result,
    TranscriptLine,
    Trust,
)
from engine.model.learnings import lesson_id, normalise
from engine.model.secrets import redact
from engine.storage.database import Database
from engine.storage.ledger import LedgerEntry, NotReady

# -- risks and assumptions

RISK = "risk/"
MAX_RISKS, MAX_ASSUMPTIONS = 8, 12
MIN_ASSUMPTION_LENGTH, MAX_ASSUMPTION_LENGTH = 12, 300
"""Limits of the length of an assumption in characters."""

_RISKY = ("healed/", "unmended/", "circles/", "failed/", "overlap/", DISCARDED, UNDONE, "erred/")
_ASSUMES = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
_CHANGES = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)


def find_risks(record: SessionRecord, entries: Iterable[LearningEntry]) -> list[Finding]:
    """The risks of a session that begins, from the `entries` of its project and earlier sessions: those found by rules
    that are of the project, have the same task, or name a file of the prompt."""
    prompt = record.view.prompt
    task, named = normalise(prompt), names(prompt)
    findings = [
        _risk(f"Tests are red before anything is changed: `{test}`.", f"red/{test}", Basis.TESTS)
        for test in record.failing[:MAX_RISKS]
    ]
    about = {finding.about for finding in findings}
    for entry in sorted(entries, key=lambda item: (item.scope is not LearningScope.PROJECT, -item.importance, item.id)):
        if not entry.active or not entry.about.startswith(_RISKY) or RISK + entry.about in about:
            continue
        near = normalise(entry.session_task) == task or bool(named & names(entry.text))
        if entry.scope is LearningScope.PROJECT or near:
            about.add(RISK + entry.about)
            basis = Basis.REPEATED if entry.scope is LearningScope.PROJECT else Basis.SINGLE
            findings.append(_risk(f"It may go as before: {entry.text}", entry.about, basis))
    return findings[:MAX_RISKS]


def find_assumptions(lines: Iterable[TranscriptLine], secrets: Sequence[str] = ()) -> list[Finding]:
    """The assumptions that an agent stated, with the milestone: before its first change, or later."""
    milestone = "before the first change"
    by_words: dict[str, Finding] = {}
    for line in lines:
        if line.kind == "tool" and _CHANGES.match(line.text):
            milestone = "while changing files"
        if line.kind not in ("say", "thought"):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+", line.text):
            words = " ".join(sentence.split()).strip("-*# ")
            if (
                not MIN_ASSUMPTION_LENGTH <= len(words) <= MAX_ASSUMPTION_LENGTH
                or words.endswith("?")
                or not _ASSUMES.search(words)
            ):
                continue
            if redact(words, secrets) == words and len(by_words) < MAX_ASSUMPTIONS:
                by_words.setdefault(
                    normalise(words),
                    Finding(
                        LearningKind.TASK,
                        LearningType.DECLARATIVE,
                        words,
                        IN_FLIGHT,
                        confidence(Basis.MODEL),
                        importance(Impact()),
                        title=f"assumed {milestone}",
                    ),
                )
    return list(by_words.values())


def _risk(text: str, about: str, basis: Basis) -> Finding:
    return Finding(
        LearningKind.TASK,
        LearningType.DECLARATIVE,
        text,
        PROSPECTIVE,
        confidence(basis, 2 if basis is Basis.REPEATED else 1),
        importance(Impact()),
        RISK + about,
    )


log = logging.getLogger(__name__)

MIN_SESSION_CONFIDENCE = 0.75
"""From this confidence on what a team found goes on to its session: tests, the operator, or repetition said so."""

LANDED = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
LANDED_AFTER_ALL = "its changes were landed after all"
"""Why an entry is retired that said of changes that they had been taken back."""


class Extraction:
    """Extracts, from any thread: what was forgotten since a session was read is not written (SPEC 4.10)."""

    def __init__(self, files: LearningFiles, database: Database, sessions: SessionSource, model: Asks) -> None:
        self._files = files
        self._database = database
        self._sessions = sessions
        self._model = model

    def begin(self, session_id: str) -> list[LearningEntry]:
        """A session began: write what might go wrong, from what was known then. Raises `NotReady` where words were
        forgotten meanwhile, as the next three do."""
        erasures, record = self._files.erasures, self._sessions.load_start(session_id)
        if record is None or record.view.flow is not None:
            return []
        entries = self._files.entries(Scope(project_key(record.view.workspace)))
        findings = find_risks(record, [entry for entry in entries if entry.session_id != session_id])
        return self._write(record, findings, record.view.started_at or record.view.created_at, erasures)

    def in_flight(self, session_id: str) -> list[LearningEntry]:
        """A milestone of a session: write what was assumed up to now."""
        erasures, record = self._files.erasures, self._sessions.load_start(session_id)
        if record is None or record.view.flow is not None:
            return []
        findings = find_assumptions(self._sessions.transcript(session_id), tuple(self._sessions.secrets()))
        at = record.view.ended_at or record.view.started_at or record.view.created_at
        return self._write(record, findings, at, erasures)

    def late(self, fact: LedgerEntry) -> list[LearningEntry]:
        """What became of a session's changes after it was over: the operator's last word on them holds."""
        erasures, record = self._files.erasures, self._sessions.load_start(str(fact.payload.get("session_id", "")))
        if record is None:
            return []
        findings = findings_of_entry(fact, record)
        with self._files.lock:
            self._reconsider(record, {entry.about for entry in findings}, fact)
        return self._write(record, findings, fact.at, erasures)

    def end(self, session_id: str, *, ask: bool = True) -> tuple[list[LearningEntry], str]:
        """A session is over: write what it taught, by rules and, with `ask`, by the model where one is named. Returns
        the new entries, and why a model was not heard, "" where none is named."""
        erasures, record = self._files.erasures, self._sessions.load_record(session_id)
        if record is None or record.view.result is Result.CANNOT_RUN:
            return [], ""
        is_flow = record.view.flow is not None
        lines = [] if is_flow else list(self._sessions.transcript(session_id))
        findings = [*find_learnings(record), *find_assumptions(lines, tuple(self._sessions.secrets()))]
        by, fault = "rules", ""
        if ask and not is_flow:
            try:
                claims = ask_learnings(self._model, record, lines)
            except NoAnswer as error:
                fault = f"no model said what {session_id} taught, the rules did: {error}"
                log.warning("%s", fault)
            else:
                findings += claims or ()
                by = "rules" if claims is None else "rules and model"
        return self._write(record, findings, record.view.ended_at or record.view.created_at, erasures, by=by), fault

    def offer(self, entry: LearningEntry) -> None:
        """Offer an entry that generalises to the leader of its agent (SPEC 1.7), again harmlessly; not one about the
        operator or an agent's own tools, and not a retracted lesson."""
        if not entry.agent or entry.kind is LearningKind.PROXY or is_about_own_tools(entry):
            return
        if entry.lesson in retracted_lessons(self._database):
            return
        try:
            self._sessions.offer(entry)
        except Refusal as refusal:  # its agent was retired meanwhile
            log.warning("%s was not offered: %s", entry.id, refusal)

    def _write(
        self, record: SessionRecord, findings: Sequence[Finding], at: datetime, erasures: int, *, by: str = "rules"
    ) -> list[LearningEntry]:
        secrets = tuple(self._sessions.secrets())
        clean = [without_secrets(finding, secrets) for finding in findings]
        view = record.view
        session = Scope(project_key(view.workspace), view.id)
        team = replace(session, team=record.leader)
        with self._files.lock:
            if self._files.erasures != erasures:
                raise NotReady("something was forgotten meanwhile")
            ids = {entry.id for entry in self._files.entries(session)}
            new: list[LearningEntry] = []
            facts: list[Event] = []
            for finding in clean:
                own = finding.about.startswith(RISK) or finding.phase == IN_FLIGHT or finding.kind is LearningKind.PROXY
                entry = entry_of(finding, session if own else team, record, at)
                if entry.id in ids:
                    continue
                ids.add(entry.id)
                new.append(entry)
                if finding.general and not own:
                    self.offer(entry)
                if own or not record.leader or entry.confidence < MIN_SESSION_CONFIDENCE:
                    continue
                above = promoted_entry(entry, session, [EntrySource(entry.id, entry.session_id)], at)
                if above.id not in ids:
                    ids.add(above.id)
                    new.append(above)
                    facts.append(
                        LearningPromoted(
                            subject=above.id, workspace=view.workspace, scope="session", sources=(entry.id,),
                            sessions=(view.id,), by="establishment",
                        )
                    )  # fmt: skip
            if new:
                phases = tuple(dict.fromkeys(entry.phase for entry in new))
                event = LearningsExtracted(
                    subject=view.id, workspace=view.workspace, entries=len(new), scopes=phases, by=by
                )
                self._files.apply([add_entry(entry) for entry in new], [event, *facts])
            return new

    def _reconsider(self, record: SessionRecord, about: set[str], fact: LedgerEntry) -> None:
        """Changes that had been taken back were taken: that they were not wanted holds no longer. What was taken after
        all was taken back again: what that taught holds again."""
        entries = self._files.entries(Scope(project_key(record.view.workspace), record.view.id))
        if fact.kind in LANDED:
            for entry in entries:
                if entry.active and entry.about.startswith(UNDONE):
                    provenance = Provenance.of(self._files.entries())
                    changes, event, _ = plan_retraction(entry, provenance, LANDED_AFTER_ALL, fact.at)
                    self._files.apply(changes, [event])
            return
        holds = {"status": LearningStatus.ACTIVE.value, "retired_because": ""}
        restored = [entry for entry in entries if entry.about in about and entry.retired_because == LANDED_AFTER_ALL]
        self._files.apply([Change(entry.path, entry.id, holds) for entry in restored])


def without_secrets(finding: Finding, secrets: Iterable[str]) -> Finding:
    """The findings without secrets or what looks like one (SPEC 11.1)."""
    text, about, title = (redact(part, secrets) for part in (finding.text, finding.about, finding.title))
    return replace(finding, text=text, about=about, title=title)


def entry_of(finding: Finding, scope: Scope, record: SessionRecord, at: datetime) -> LearningEntry:
    """A finding as an entry of a scope."""
    view = record.view
    within = f"{view.id}/{scope.team}" if scope.team else scope.id
    text = finding.text[:MAX_TEXT]
    id = entry_id(scope.level, within, finding.kind, finding.about, text, finding.trust)
    holds = () if finding.about or finding.trust is not Trust.OPERATOR else (finding.general or ABOUT_ONE,)
    return LearningEntry(
        id=id,
        scope=scope.level,
        scope_id=scope.id,
        kind=finding.kind,
        type=finding.type,
        domain=domain_of(finding.kind),
        text=text,
        title=finding.title or title_of(text),
        importance=finding.importance.value,
        confidence=finding.confidence.value,
        reasons=(*finding.confidence.reasons, *finding.importance.reasons, *holds),
        phase=finding.phase,
        status=LearningStatus.ACTIVE,
        created_at=at,
        session_id=view.id,
        session_task=title_of(redact(view.prompt)),
        workspace=view.workspace,
        agent=view.agent,
        about=finding.about,
        path=scope.page(finding.kind, id),
        continues=record.continues,
        trust=finding.trust,
        lesson=lesson_id(text),
    )
