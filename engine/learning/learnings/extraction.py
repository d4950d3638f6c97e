"""Extracts the learnings of each session (SPEC 6.6): at its start, at milestones, at its end, and after a later
decision on its changes.

Findings are written into the team scope, the most specific one. Findings that tests, the operator or repetition confirm
are promoted to the session scope. Risks, assumptions and findings about the operator are written into the session scope
at once. Ids are derived from the text, so a second run writes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from engine.events import LearningsExtracted
from engine.learning.learnings.findings import (
    CIRCLES,
    DISCARDED,
    ERRED,
    FAILED,
    HEALED,
    IN_FLIGHT,
    OVERLAP,
    PROSPECTIVE,
    UNDONE,
    UNMENDED,
    Basis,
    Finding,
    Impact,
    SessionRecord,
    SessionSource,
    rate_confidence,
    rate_importance,
)
from engine.learning.learnings.promotion import (
    PromotionPlan,
    Provenance,
    is_about_own_tools,
    make_entry_id,
    make_promoted_entry,
    plan_retraction,
    read_retracted_lessons,
)
from engine.learning.learnings.questions import ask_learnings
from engine.learning.learnings.recurrence import find_names
from engine.learning.learnings.rules import find_in_entry, find_learnings
from engine.learning.learnings.store import (
    Change,
    LearningFiles,
    Scope,
    add_entry,
    get_domain,
    make_project_key,
    make_title,
)
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
    SessionView,
    TranscriptLine,
    Trust,
)
from engine.model.learnings import make_lesson_id, normalise
from engine.model.secrets import redact
from engine.storage.database import Database
from engine.storage.ledger import LedgerEntry, NotReady

log = logging.getLogger(__name__)

MAX_TEXT_CHARS = 2_000
"""Maximum number of characters of an entry that the engine writes."""

MIN_SESSION_CONFIDENCE = 0.75
"""Minimum confidence of a finding that is promoted from its team to its session. Findings have it if tests, the
operator or repetition confirmed them."""

LANDED_KINDS = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
"""Kinds of ledger entries that say that the operator wanted the changes of a session."""

LANDED_AFTER_ALL = "its changes were landed after all"
"""The reason for retiring an entry that says that changes were undone or discarded."""

ABOUT_ONE = "about one thing; three tasks must confirm it"
"""The reason why an order of the operator is not general yet (SPEC 6.8)."""

RISK = "risk/"
"""Prefix of the `about` of a risk."""

MAX_RISKS, MAX_ASSUMPTIONS = 8, 12
"""Maximum numbers of risks and of assumptions of a session."""

MIN_ASSUMPTION_LENGTH, MAX_ASSUMPTION_LENGTH = 12, 300
"""Limits of the length of an assumption in characters."""

_RISKY = (HEALED, UNMENDED, CIRCLES, FAILED, OVERLAP, DISCARDED, UNDONE, ERRED)
"""Prefixes of the `about` of entries that are risks for later work."""

_ASSUMES = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
"""Matches a sentence that states an assumption."""

_CHANGES = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)
"""Matches a call that may change files."""


class Extraction:
    """Writes the findings of sessions as entries. Callable from any thread.

    If words are forgotten after a session was read (SPEC 4.10), nothing is written and `NotReady` is raised, so that
    the session is read again.
    """

    def __init__(self, files: LearningFiles, database: Database, sessions: SessionSource, model: Asks) -> None:
        self._files = files
        self._database = database
        self._sessions = sessions
        self._model = model

    def write_risks(self, session_id: str) -> list[LearningEntry]:
        """Write the risks of a session at its start. Raises `NotReady`."""
        erasures = self._files.erasures
        record = self._sessions.load_start(session_id)
        if record is None or record.view.flow is not None:
            return []
        entries = self._files.entries(Scope(make_project_key(record.view.workspace)))
        findings = find_risks(record, [entry for entry in entries if entry.session_id != session_id])
        return self._write(record, findings, record.view.started_at or record.view.created_at, erasures)

    def write_assumptions(self, session_id: str) -> list[LearningEntry]:
        """Write the assumptions of a session so far. Raises `NotReady`."""
        erasures = self._files.erasures
        record = self._sessions.load_start(session_id)
        if record is None or record.view.flow is not None:
            return []
        findings = find_assumptions(self._sessions.transcript(session_id), tuple(self._sessions.secrets()))
        at = record.view.ended_at or record.view.started_at or record.view.created_at
        return self._write(record, findings, at, erasures)

    def write_late_findings(self, entry: LedgerEntry) -> list[LearningEntry]:
        """Write the findings from the operator's decision on a session's changes. The latest decision counts. Raises
        `NotReady`."""
        erasures = self._files.erasures
        record = self._sessions.load_start(str(entry.payload.get("session_id", "")))
        if record is None:
            return []
        findings = find_in_entry(entry, record)
        with self._files.lock:
            if entry.kind in LANDED_KINDS:
                self._retire_undone(record, entry.at)
            else:
                self._restore(record, {finding.about for finding in findings})
        return self._write(record, findings, entry.at, erasures)

    def write_findings(self, session_id: str, *, ask: bool = True) -> tuple[list[LearningEntry], str]:
        """Write the findings of a session that is over. Rules find them and, with `ask`, the configured model, if any.
        Returns (new entries, error of the model or ""). Raises `NotReady`."""
        erasures = self._files.erasures
        record = self._sessions.load_record(session_id)
        if record is None or record.view.result is Result.CANNOT_RUN:
            return [], ""
        is_flow = record.view.flow is not None
        lines = [] if is_flow else list(self._sessions.transcript(session_id))
        findings = [*find_learnings(record), *find_assumptions(lines, tuple(self._sessions.secrets()))]
        claims, fault = self._ask_model(record, lines) if ask and not is_flow else (None, "")
        findings += claims or ()
        by = "rules" if claims is None else "rules and model"
        at = record.view.ended_at or record.view.created_at
        return self._write(record, findings, at, erasures, by=by), fault

    def _ask_model(
        self, record: SessionRecord, lines: Sequence[TranscriptLine]
    ) -> tuple[Sequence[Finding] | None, str]:
        """(findings of the configured model, None without a model or an answer; error of the model or "")."""
        try:
            return ask_learnings(self._model, record, lines), ""
        except NoAnswer as error:
            fault = f"no model said what {record.view.id} taught, the rules did: {error}"
            log.warning(fault)
            return None, fault

    def offer(self, entry: LearningEntry) -> None:
        """Offer an entry that generalises to the leader of its agent (SPEC 1.7). A second offer changes nothing.
        Entries about the operator or about an agent's own tools, and retracted lessons, are not offered."""
        if not entry.agent or entry.kind is LearningKind.PROXY or is_about_own_tools(entry):
            return
        if entry.lesson in read_retracted_lessons(self._database):
            return
        try:
            self._sessions.offer(entry)
        except Refusal as refusal:  # its agent was retired meanwhile
            log.warning("%s was not offered: %s", entry.id, refusal)

    def _write(
        self, record: SessionRecord, findings: Sequence[Finding], at: datetime, erasures: int, *, by: str = "rules"
    ) -> list[LearningEntry]:
        """Write the findings that are not written yet. Confirmed ones are also promoted from their team to the session.
        Returns all new entries. Raises `NotReady` if words were forgotten since `erasures` was read."""
        session = _make_session_scope(record)
        secrets = tuple(self._sessions.secrets())
        safe_findings = [remove_secrets_from_finding(finding, secrets) for finding in findings]
        with self._files.lock:
            if self._files.erasures != erasures:
                raise NotReady("something was forgotten meanwhile")
            known_ids = {entry.id for entry in self._files.entries(session)}
            new_entries = _make_new_entries(record, safe_findings, at, known_ids)
            for finding, entry in new_entries:
                if finding.general and not _stays_in_session(finding):
                    self.offer(entry)
            entries = [entry for _, entry in new_entries]
            promoted = _promote_confirmed(entries, session, at, known_ids)
            events = [
                _make_extraction_event(record, entries, by),
                *PromotionPlan(tuple(promoted)).events("establishment"),
            ]
            self._files.apply([add_entry(entry) for entry in (*entries, *promoted)], events)
            return [*entries, *promoted]

    def _retire_undone(self, record: SessionRecord, at: datetime) -> None:
        """Retire the entries that say that changes were not wanted, because they were landed after all."""
        for entry in self._files.entries(_make_session_scope(record)):
            if entry.active and entry.about.startswith(UNDONE):
                provenance = Provenance.trace(self._files.entries())
                changes, event, _ = plan_retraction(entry, provenance, LANDED_AFTER_ALL, at)
                self._files.apply(changes, [event])

    def _restore(self, record: SessionRecord, about: Container[str]) -> None:
        """Make entries about undone or discarded changes valid again, because the changes were undone or discarded
        again."""
        fields = {"status": LearningStatus.ACTIVE.value, "retired_because": ""}
        self._files.apply(
            [
                Change(entry.path, entry.id, fields)
                for entry in self._files.entries(_make_session_scope(record))
                if entry.about in about and entry.retired_because == LANDED_AFTER_ALL
            ]
        )


def _make_session_scope(record: SessionRecord) -> Scope:
    """The scope of a session."""
    return Scope(make_project_key(record.view.workspace), record.view.id)


def _make_extraction_event(record: SessionRecord, entries: Sequence[LearningEntry], by: str) -> LearningsExtracted:
    """The event that these entries were written for a session."""
    phases = tuple(dict.fromkeys(entry.phase for entry in entries))
    view = record.view
    return LearningsExtracted(subject=view.id, workspace=view.workspace, entries=len(entries), scopes=phases, by=by)


def _make_new_entries(
    record: SessionRecord, findings: Iterable[Finding], at: datetime, known_ids: set[str]
) -> list[tuple[Finding, LearningEntry]]:
    """The findings whose entries have no known id, each with its entry. Their ids become known."""
    session = _make_session_scope(record)
    team = replace(session, team=record.leader)
    new_entries: list[tuple[Finding, LearningEntry]] = []
    for finding in findings:
        entry = make_entry(finding, session if _stays_in_session(finding) else team, record, at)
        if entry.id not in known_ids:
            known_ids.add(entry.id)
            new_entries.append((finding, entry))
    return new_entries


def _promote_confirmed(
    entries: Iterable[LearningEntry], session: Scope, at: datetime, known_ids: Container[str]
) -> list[LearningEntry]:
    """The entries of a session that confirmed entries of its teams become, without those with a known id."""
    confirmed = [
        entry for entry in entries if entry.scope is LearningScope.TEAM and entry.confidence >= MIN_SESSION_CONFIDENCE
    ]
    promoted = [
        make_promoted_entry(entry, session, [EntrySource(entry.id, entry.session_id)], at) for entry in confirmed
    ]
    return [entry for entry in promoted if entry.id not in known_ids]


def _stays_in_session(finding: Finding) -> bool:
    """Whether a finding is written into the session scope at once: a risk, an assumption, or about the operator."""
    return finding.phase in (PROSPECTIVE, IN_FLIGHT) or finding.kind is LearningKind.PROXY


def find_risks(record: SessionRecord, entries: Iterable[LearningEntry]) -> list[Finding]:
    """The risks of a session at its start. They are tests that fail, and entries about failures among `entries`, which
    are those of its project and earlier sessions. Such an entry counts if it is in the project scope, has the same
    task, or names a file in the prompt."""
    task, prompt_names = normalise(_make_task_title(record.view)), find_names(record.view.prompt)
    findings = [
        _make_risk(f"Tests are red before anything is changed: `{test}`.", f"red/{test}", Basis.TESTS)
        for test in record.failing
    ]
    failures = [entry for entry in entries if entry.active and entry.about.startswith(_RISKY)]
    failures.sort(key=lambda entry: (entry.scope is not LearningScope.PROJECT, -entry.importance, entry.id))
    seen: set[str] = set()
    for entry in failures:
        is_of_project = entry.scope is LearningScope.PROJECT
        has_same_task = normalise(entry.session_task) == task
        if entry.about in seen:
            continue
        if is_of_project or has_same_task or prompt_names & find_names(entry.text):
            seen.add(entry.about)
            basis = Basis.REPEATED if is_of_project else Basis.SINGLE
            findings.append(_make_risk(f"It may go as before: {entry.text}", entry.about, basis))
    return findings[:MAX_RISKS]


def find_assumptions(lines: Iterable[TranscriptLine], secrets: Sequence[str]) -> list[Finding]:
    """The assumptions that an agent stated. Each says whether it was before or after the agent's first change."""
    milestone = "before the first change"
    by_words: dict[str, Finding] = {}
    for line in lines:
        if line.kind == "tool" and _CHANGES.match(line.text):
            milestone = "while changing files"
        for text in _find_assumptions(line) if line.kind in ("say", "thought") else ():
            if redact(text, secrets) == text:
                finding = Finding(
                    LearningKind.TASK, LearningType.DECLARATIVE, text, IN_FLIGHT, rate_confidence(Basis.MODEL),
                    rate_importance(Impact()), title=f"assumed {milestone}",
                )  # fmt: skip
                by_words.setdefault(normalise(text), finding)
    return list(by_words.values())[:MAX_ASSUMPTIONS]


def _find_assumptions(line: TranscriptLine) -> Iterator[str]:
    """The sentences of a line that state an assumption."""
    for sentence in re.split(r"(?<=[.!?])\s+", line.text):
        text = " ".join(sentence.split()).strip("-*# ")
        is_in_length = MIN_ASSUMPTION_LENGTH <= len(text) <= MAX_ASSUMPTION_LENGTH
        if is_in_length and not text.endswith("?") and _ASSUMES.search(text):
            yield text


def _make_risk(text: str, about: str, basis: Basis) -> Finding:
    """A risk as a finding; `about` is that of the entry or the test that it comes from."""
    times = 2 if basis is Basis.REPEATED else 1
    return Finding(
        LearningKind.TASK, LearningType.DECLARATIVE, text, PROSPECTIVE, rate_confidence(basis, times),
        rate_importance(Impact()), RISK + about,
    )  # fmt: skip


def remove_secrets_from_finding(finding: Finding, secrets: Iterable[str]) -> Finding:
    """A finding without secrets and without texts that look like one (SPEC 11.1)."""
    text, about, title = (redact(part, secrets) for part in (finding.text, finding.about, finding.title))
    return replace(finding, text=text, about=about, title=title)


def make_entry(finding: Finding, scope: Scope, record: SessionRecord, at: datetime) -> LearningEntry:
    """A finding as an entry of a scope."""
    view = record.view
    within = f"{view.id}/{scope.team}" if scope.team else scope.id
    text = finding.text[:MAX_TEXT_CHARS]
    id = make_entry_id(scope.level, within, finding.kind, finding.about, text, finding.trust)
    validity = () if finding.about or finding.trust is not Trust.OPERATOR else (finding.general or ABOUT_ONE,)
    return LearningEntry(
        id=id,
        scope=scope.level,
        scope_id=scope.id,
        kind=finding.kind,
        type=finding.type,
        domain=get_domain(finding.kind),
        text=text,
        title=finding.title or make_title(text),
        importance=finding.importance.value,
        confidence=finding.confidence.value,
        reasons=(*finding.confidence.reasons, *finding.importance.reasons, *validity),
        phase=finding.phase,
        status=LearningStatus.ACTIVE,
        created_at=at,
        session_id=view.id,
        session_task=_make_task_title(view),
        workspace=view.workspace,
        agent=view.agent,
        about=finding.about,
        path=scope.page(finding.kind, id),
        continues=record.continues,
        trust=finding.trust,
        lesson=make_lesson_id(text),
    )


def _make_task_title(view: SessionView) -> str:
    """The title of a session's task, without secrets."""
    return make_title(redact(view.prompt))
