"""Finds learnings in the record of a session by rules (SPEC 6.6, 6.7). Pure.

`rules.toml` says what follows from what happened. Sentences of the operator, of agents and of programs are findings,
too. Phases: *observations* (tests, tools, statements), *escalation* (permissions), *intent-alignment* (what the
operator corrected, discarded or undid) and *corrective* (what tests or people showed to be wrong). Two more are not
promoted: *prospective* (risks known at the start) and *in-flight* (assumptions of the agent).

`about` identifies a finding, so that words need not be compared. Each finding has a trust label (SPEC 6.8): it is in
the operator's words, in the engine's words about a measurement, or a quote. A text with a command, an error or someone
else's prompt is a quote.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from engine.config import ACP_PREFIX, MODEL
from engine.files import read_table
from engine.frozen import frozen
from engine.learning import find_names
from engine.learning.learnings import (
    ALIGNMENT,
    CORRECTIVE,
    OBSERVATIONS,
    Basis,
    Finding,
    Impact,
    SessionRecord,
    Statement,
)
from engine.lessons import distil_rule, find_added_sentences, normalise, split_sentences
from engine.model import LearningEntry, LearningKind, LearningScope, LearningType, SessionState, TranscriptLine, Trust
from engine.model.decisions import Correction
from engine.model.learnings import IN_FLIGHT, PROSPECTIVE
from engine.model.prompts import find_trust_of_names
from engine.redaction import redact
from engine.storage.ledger import LedgerEntry
from engine.text import plain

MAX_PER_ENTRY = 5
"""Maximum number of tests, files or sentences of one ledger entry or edit that become findings."""

MAX_FINDINGS = 60
"""Maximum number of findings that rules make of one session."""

MAX_QUOTE_CHARS = 300
"""Maximum number of characters of a quote."""

MAX_RISKS, MAX_ASSUMPTIONS = 8, 12
"""Maximum numbers of risks and of assumptions of a session."""

MIN_ASSUMPTION_LENGTH, MAX_ASSUMPTION_LENGTH = 12, 300
"""Limits of the length of an assumption in characters."""

_RISK_PREFIXES = ("healed/", "unmended/", "circles/", "failed/", "overlap/", "discarded/", "undone/", "erred/")
"""Prefixes of the `about` of entries that are risks for later work."""

_ASSUMPTION = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
"""Matches a sentence that states an assumption."""

_CHANGING_CALL = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)
"""Matches a call that may change files."""

_PREFERENCE = re.compile(r"\bI\b[^.!?]*\b(?:dis)?(?:like|prefer|want|insist)\b")
"""Matches a personal preference of the operator, which is not a rule of the project (SPEC 6.3)."""

_VARYING_PART = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+|(?:sess|auto|pred|call)_\w+")
"""Matches numbers, addresses and ids, which differ between messages with the same cause."""

_STATEMENT_TYPES = {
    "decision": LearningType.DIRECTIVE,
    "correction": LearningType.CORRECTIVE,
    "edit": LearningType.CORRECTIVE,
}
"""The types of findings from statements that avoid a failure; other statements are declarative."""

_EVIDENCE_BY_SPEAKER = {
    "operator": (Basis.OPERATOR, Trust.OPERATOR, ALIGNMENT),
    "prompt": (Basis.OPERATOR, Trust.QUOTED, ALIGNMENT),
    "program": (Basis.SINGLE, Trust.QUOTED, OBSERVATIONS),
    "agent": (Basis.MODEL, Trust.QUOTED, OBSERVATIONS),
}
"""The evidence for a statement by its speaker, its trust and its phase. That of an agent is only a claim."""

NOBODY = "nobody"
"""The value of `answered_by` of permission requests in a session that runs by itself."""


@frozen
class _Rule:
    """The finding from something that happened in a session; see `rules.toml`."""

    about: str
    text: str
    names: tuple[str, ...] = ()
    signed: str = ""
    unless: str = ""
    """The field that must be empty."""
    kind: LearningKind = LearningKind.TASK
    type: LearningType = LearningType.DECLARATIVE
    phase: str = OBSERVATIONS
    basis: str = "SINGLE"
    """The name of a `Basis`."""
    failure_avoided: bool = False
    general: str = ""


_RULES = TypeAdapter(dict[str, _Rule]).validate_python(read_table(__file__, "rules.toml"))


def find_learnings(record: SessionRecord) -> list[Finding]:
    """The findings of a session by rules, in the order of the session, each once: the first of those that say the same,
    or the first in the operator's words."""
    first: dict[tuple[LearningKind, str], Finding] = {}
    for finding in _find_all(record):
        key = finding.kind, finding.about or normalise(finding.text)
        earlier = first.setdefault(key, finding)
        if earlier.trust is not Trust.OPERATOR and finding.trust is Trust.OPERATOR:
            first[key] = finding
    return [finding for finding in first.values() if finding.text.strip()][:MAX_FINDINGS]


def _find_all(record: SessionRecord) -> Iterator[Finding]:
    """All findings of a session by rules."""
    answers = [(request, request.answer.allows) for request in record.permissions if request.answer is not None]
    denied = [f"{request.title}\n{request.detail}" for request, is_allowed in answers if not is_allowed]
    faults = [entry for entry in record.entries if _is_fault_of_executor(entry)]
    for entry in record.entries:
        if entry in faults:
            continue
        # What a person denied is a finding already.
        if entry.kind != "ToolRefused" or not any(entry.payload.get("what", "") in call for call in denied):
            yield from find_in_event(entry.kind, entry.payload, record)
    for request, is_allowed in answers:
        # "operator (perm_…, for this session)": it follows from an earlier answer
        if not request.by.startswith(NOBODY) and "(" not in request.by:
            values = {"tool": request.tool, "title": request.title}
            yield from find_in_event("allowed" if is_allowed else "denied", values, record)
    view = record.view
    # With changes it had a result, also if a cap or a fault ended it. A fault of its model says nothing of the work.
    ended_by_fault = any(view.error.startswith(str(entry.payload["message"])) for entry in faults)
    has_failed = view.state in (SessionState.FAILED, SessionState.BLOCKED) and not view.change_set_id
    if view.error and has_failed and not ended_by_fault:
        yield from find_in_event("failed", {"error": view.error}, record)
    for statement in (*find_in_correction(record.edit), *record.statements):
        yield _find_in_statement(statement, record)


def _is_fault_of_executor(entry: LedgerEntry) -> bool:
    """Whether the model, its provider or the coding agent failed. It teaches nothing about the project."""
    tool = str(entry.payload.get("tool", ""))
    return entry.kind == "AgentErred" and (tool in ("", MODEL) or tool.startswith(ACP_PREFIX))


def find_in_event(kind: str, values: Mapping[str, Any], record: SessionRecord) -> Iterator[Finding]:
    """The findings from something that happened in a session: a kind in `rules.toml`, with the values of its fields."""
    rule = _RULES.get(kind)
    if rule is None or values.get(rule.unless):
        return
    names = list(dict.fromkeys(str(name) for field in rule.names for name in values.get(field, ())))
    impact = Impact(rule.failure_avoided, record.seconds, record.view.cost, max(1, len(names)))
    words = defaultdict(str, {field: _shorten(str(value)) for field, value in values.items()})
    words["prompt"] = _shorten(record.view.prompt)
    words["task"] = normalise(words["prompt"])
    words["signature"] = make_signature(words[rule.signed], record.view.cwd)
    is_own = "{prompt}" in rule.text and record.own_words
    trust_without_names = Trust.OPERATOR if is_own else Trust.QUOTED
    for name in names[:MAX_PER_ENTRY] if rule.names else [""]:
        trust = find_trust_of_names([name]) if rule.names else trust_without_names
        words["name"] = name
        text, about = rule.text.format_map(words), rule.about.format_map(words)
        yield Finding(text, Basis[rule.basis], impact, rule.phase, rule.kind, rule.type, about, "", trust, rule.general)


def find_in_correction(edit: Correction | None) -> list[Statement]:
    """The statements in the operator's edit of a prompt: the added sentences, or if there are none, the removed
    ones."""
    if edit is None:
        return []
    added = [
        Statement("edit", text, "operator", _PREFERENCE.search(distil_rule(text).text) is not None)
        for text in find_added_sentences(edit.original, edit.edited)
    ]
    edited_sentences = set(map(normalise, split_sentences(edit.edited)))
    removed = [
        Statement("edit", f"Not wanted: {text}", "prompt", _PREFERENCE.search(text) is not None)
        for text in split_sentences(edit.original)
        if normalise(text) not in edited_sentences
    ]
    return (added or removed)[:MAX_PER_ENTRY]


def _find_in_statement(statement: Statement, record: SessionRecord) -> Finding:
    """The finding from a statement: a rule in the operator's words, or a quote of someone else."""
    basis, trust, phase = _EVIDENCE_BY_SPEAKER[statement.speaker]
    rule = distil_rule(statement.text)
    is_own, is_general = trust is Trust.OPERATOR, rule.is_general and statement.speaker != "prompt"
    return Finding(
        _shorten(rule.text if is_own else statement.text),
        basis,
        Impact(
            statement.kind in _STATEMENT_TYPES,
            record.seconds,
            record.view.cost,
            record.reach if is_own and is_general else 1,
        ),
        CORRECTIVE if statement.kind == "correction" else phase,
        LearningKind.PROXY if statement.preference else LearningKind.INSTITUTIONAL,
        _STATEMENT_TYPES.get(statement.kind, LearningType.DECLARATIVE),
        trust=trust,
        general=rule.why if is_general else "",
    )


def make_signature(text: str, folder: str = "") -> str:
    """The text without folders, numbers and addresses, which is equal for messages with the same cause."""
    without_folder = text.replace(folder, "") if folder else text
    without_numbers = _VARYING_PART.sub("#", without_folder.lower())
    return " ".join(re.findall(r"[\w#./:-]+", without_numbers))[:100]


def _shorten(text: str) -> str:
    """A text in one line of at most `MAX_QUOTE_CHARS` characters."""
    return plain(text, MAX_QUOTE_CHARS)


def find_risks(record: SessionRecord, entries: Iterable[LearningEntry]) -> list[Finding]:
    """The risks of a session at its start. They are tests that fail, and entries about failures among `entries`, which
    are those of its project and earlier sessions. Such an entry counts if it is in the project scope, has the same
    task, or names a file in the prompt."""
    task, prompt_names = normalise(record.task_title), find_names(record.view.prompt)
    risks = {
        f"red/{test}": (f"Tests are red before anything is changed: `{test}`.", Basis.TESTS) for test in record.failing
    }
    failures = [entry for entry in entries if entry.is_active and entry.about.startswith(_RISK_PREFIXES)]
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
        if line.kind == "tool" and _CHANGING_CALL.match(line.text):
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
        if is_in_length and not text.endswith("?") and _ASSUMPTION.search(text):
            yield text
