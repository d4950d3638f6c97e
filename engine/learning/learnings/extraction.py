"""Finds the risks and assumptions of a session, and makes entries of all findings (SPEC 6.6). Pure.

Findings are written into the team scope, the most specific one. Findings that tests, the operator or repetition confirm
are promoted to the session scope. Risks, assumptions and findings about the operator are written into the session scope
at once. Ids are derived from the text, so a second run makes the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from engine.learning.learnings.findings import (
    IN_FLIGHT,
    PROSPECTIVE,
    Basis,
    Finding,
    SessionRecord,
    rate_confidence,
    rate_importance,
)
from engine.learning.learnings.page import get_domain, make_title
from engine.learning.learnings.promotion import place_entry
from engine.learning.learnings.recurrence import find_names
from engine.learning.learnings.store import Scope, make_project_key
from engine.model import LearningEntry, LearningKind, LearningScope, LearningStatus, TranscriptLine, Trust
from engine.model.learnings import make_lesson_id, normalise
from engine.model.secrets import redact

MAX_TEXT_CHARS = 2_000
"""Maximum number of characters of an entry that the engine writes."""

ABOUT_ONE = "about one thing; three tasks must confirm it"
"""The reason why an order of the operator is not general yet (SPEC 6.8)."""

MAX_RISKS, MAX_ASSUMPTIONS = 8, 12
"""Maximum numbers of risks and of assumptions of a session."""

MIN_ASSUMPTION_LENGTH, MAX_ASSUMPTION_LENGTH = 12, 300
"""Limits of the length of an assumption in characters."""

_RISKY = ("healed/", "unmended/", "circles/", "failed/", "overlap/", "discarded/", "undone/", "erred/")
"""Prefixes of the `about` of entries that are risks for later work."""

_ASSUMES = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
"""Matches a sentence that states an assumption."""

_CHANGES = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)
"""Matches a call that may change files."""


def find_risks(record: SessionRecord, entries: Iterable[LearningEntry]) -> list[Finding]:
    """The risks of a session at its start. They are tests that fail, and entries about failures among `entries`, which
    are those of its project and earlier sessions. Such an entry counts if it is in the project scope, has the same
    task, or names a file in the prompt."""
    task, prompt_names = normalise(_make_task_title(record)), find_names(record.view.prompt)
    risks = {
        f"red/{test}": (f"Tests are red before anything is changed: `{test}`.", Basis.TESTS) for test in record.failing
    }
    failures = [entry for entry in entries if entry.active and entry.about.startswith(_RISKY)]
    for entry in sorted(
        failures, key=lambda entry: (entry.scope is not LearningScope.PROJECT, -entry.importance, entry.id)
    ):
        is_of_project = entry.scope is LearningScope.PROJECT
        if is_of_project or normalise(entry.session_task) == task or prompt_names & find_names(entry.text):
            basis = Basis.REPEATED if is_of_project else Basis.SINGLE
            risks.setdefault(entry.about, (f"It may go as before: {entry.text}", basis))
    found = [Finding(text, basis, phase=PROSPECTIVE, about=f"risk/{about}") for about, (text, basis) in risks.items()]
    return found[:MAX_RISKS]


def find_assumptions(lines: Iterable[TranscriptLine], secrets: Sequence[str]) -> list[Finding]:
    """The assumptions that an agent stated. Each says whether it was before or after the agent's first change."""
    milestone = "before the first change"
    by_words: dict[str, Finding] = {}
    for line in lines:
        if line.kind == "tool" and _CHANGES.match(line.text):
            milestone = "while changing files"
        for text in _find_assumptions(line) if line.kind in ("say", "thought") else ():
            if redact(text, secrets) == text:
                finding = Finding(text, Basis.MODEL, phase=IN_FLIGHT, title=f"assumed {milestone}")
                by_words.setdefault(normalise(text), finding)
    return list(by_words.values())[:MAX_ASSUMPTIONS]


def _find_assumptions(line: TranscriptLine) -> Iterator[str]:
    """The sentences of a line that state an assumption."""
    for sentence in re.split(r"(?<=[.!?])\s+", line.text):
        text = " ".join(sentence.split()).strip("-*# ")
        is_in_length = MIN_ASSUMPTION_LENGTH <= len(text) <= MAX_ASSUMPTION_LENGTH
        if is_in_length and not text.endswith("?") and _ASSUMES.search(text):
            yield text


def make_entry(finding: Finding, record: SessionRecord, at: datetime, secrets: Iterable[str]) -> LearningEntry:
    """A finding as an entry of its scope, without secrets and texts that look like one (SPEC 11.1). A risk, an
    assumption and what is about the operator are of the session, others of the team."""
    view = record.view
    session = Scope(make_project_key(view.workspace), view.id)
    stays = finding.phase in (PROSPECTIVE, IN_FLIGHT) or finding.kind is LearningKind.PROXY
    text, about, title = (redact(part, secrets) for part in (finding.text, finding.about, finding.title))
    text = text[:MAX_TEXT_CHARS]
    confidence, importance = rate_confidence(finding.basis), rate_importance(finding.impact)
    validity = () if about or finding.trust is not Trust.OPERATOR else (finding.general or ABOUT_ONE,)
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
        session_task=_make_task_title(record),
        workspace=view.workspace,
        agent=view.agent,
        about=about,
        continues=record.continues,
        trust=finding.trust,
        lesson=make_lesson_id(text),
    )
    return place_entry(entry, session if stays else replace(session, team=record.leader))


def _make_task_title(record: SessionRecord) -> str:
    """The title of a session's task, without secrets."""
    return make_title(redact(record.view.prompt))
