"""Finds what might go wrong in a session that begins, and what its agent assumed (SPEC 6.6). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from engine.learning.learnings.recurrence import names
from engine.learning.learnings.rules import DISCARDED, IN_FLIGHT, PROSPECTIVE, UNDONE, Finding
from engine.learning.learnings.scores import Basis, Impact, confidence, importance
from engine.learning.learnings.session_records import SessionRecord
from engine.model import (
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningType,
    TranscriptLine,
)
from engine.model.lessons import normalise
from engine.model.secrets import redact

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


def is_realised(risk: LearningEntry, findings: Iterable[Finding]) -> bool:
    """Whether a risk was realised: there is a finding about the same test, file or work."""
    feared = risk.about.removeprefix(RISK).partition("/")[2]
    return any(
        finding.about.partition("/")[2] == feared
        for finding in findings
        if finding.about and finding.phase != PROSPECTIVE
    )


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
