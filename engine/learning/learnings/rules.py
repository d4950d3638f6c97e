"""Finds learnings in the record of a session by rules (SPEC 6.6, 6.7). Pure.

Phases: *observations* (tests, tools, statements), *escalation* (permissions), *intent-alignment* (what the operator
corrected, discarded or undid) and *corrective* (what tests or people showed to be wrong). `extraction` adds
*prospective* (risks known at the start) and *in-flight* (assumptions of the agent), which are not promoted.

`about` identifies a finding, so that words need not be compared. Each finding has a trust label (SPEC 6.8): it is in
the operator's words, in the engine's words about a measurement, or a quote. A text with a command, an error or someone
else's prompt is a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.frozen import frozen
from engine.learning.learnings.findings import (
    ALIGNMENT,
    CIRCLES,
    CORRECTIVE,
    DISCARDED,
    ERRED,
    ESCALATION,
    FAILED,
    HEALED,
    OBSERVATIONS,
    OVERLAP,
    REFUSED,
    UNDONE,
    UNMENDED,
    Basis,
    Finding,
    Impact,
    SessionRecord,
    Statement,
    rate_confidence,
    rate_importance,
)
from engine.model import LearningKind, LearningType, PermissionRequest, SessionState, Trust
from engine.model.base import trust_of_names
from engine.model.learnings import Correction, Rule, added_sentences, distil, normalise, split_sentences
from engine.model.text import plain
from engine.storage.ledger import LedgerEntry

MAX_PER_ENTRY = 5
"""Maximum number of tests or files of one ledger entry that become findings."""

MAX_FINDINGS = 60
"""Maximum number of findings that rules make of one session."""

MAX_QUOTE_LENGTH = 300
"""Maximum number of characters of a quote."""

_PREFERENCE = re.compile(r"\bI\b[^.!?]*\b(?:dis)?(?:like|prefer|want|insist)\b")
"""Matches a personal preference of the operator, which is not a rule of the project (SPEC 6.3)."""

NOBODY = "nobody"
"""The value of `answered_by` of permission requests in a session that runs by itself."""


@frozen
class _TestFinding:
    """The finding about each failing test that a kind of ledger entry names."""

    about: str
    """The prefix of `Finding.about`."""
    template: str
    phase: str
    type: LearningType
    general: str = ""


_TEST_FINDINGS = {
    "ValidationHealed": _TestFinding(
        HEALED,
        "Run `{}` before handing over: changes here break it unnoticed.",
        CORRECTIVE,
        LearningType.PROCEDURAL,
        general="every change of the project can break it",
    ),
    "ValidationFailed": _TestFinding(
        UNMENDED,
        "`{}` resists being fixed: look for the cause outside of the change.",
        CORRECTIVE,
        LearningType.DECLARATIVE,
    ),
    "RetryRepeated": _TestFinding(
        CIRCLES,
        "Another attempt of the same kind leaves `{}` red: change the approach after the first.",
        OBSERVATIONS,
        LearningType.PROCEDURAL,
    ),
}


def find_learnings(record: SessionRecord) -> list[Finding]:
    """The findings of a session by rules, each once, in the order of the session."""
    findings: list[Finding] = []
    for entry in record.entries:
        findings += findings_of_entry(entry, record)
    for request in record.permissions:
        findings += _read_permission(request, record)
    findings += _read_failure(record)
    if record.edit is not None:
        findings += correction_findings(record.edit)
    findings += [_read_statement(statement, record) for statement in record.statements]
    return _merge_repeated(finding for finding in findings if finding.text.strip())[:MAX_FINDINGS]


def _merge_repeated(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once: the first of those that say the same, or the first in the operator's words."""
    first: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.kind.value, finding.about, "" if finding.about else normalise(finding.text))
        earlier = first.setdefault(key, finding)
        if earlier.trust is not Trust.OPERATOR and finding.trust is Trust.OPERATOR:
            first[key] = finding
    return list(first.values())


def _read_failure(record: SessionRecord) -> list[Finding]:
    """The finding from a session that ended with an error."""
    view = record.view
    if not view.error or view.state not in (SessionState.FAILED, SessionState.BLOCKED):
        return []
    text = f"Such work ended without a result: {_shorten(view.error)}"
    about = f"{FAILED}{make_signature(view.error, view.cwd)}"
    return [_make_task_finding(text, about, OBSERVATIONS, _measure_impact(record))]


def findings_of_entry(entry: LedgerEntry, record: SessionRecord) -> list[Finding]:
    """The findings from one ledger entry about a session."""
    payload, spent, cwd = entry.payload, _measure_impact(record), record.view.cwd
    if entry.kind in _TEST_FINDINGS:
        return _read_tests(entry, spent)
    match entry.kind:
        case "AgentErred":
            message, tool = _shorten(str(payload.get("message", ""))), str(payload.get("tool", "")) or "its model"
            about = f"{ERRED}{tool}/{make_signature(message, cwd)}"
            return [_make_task_finding(f"`{tool}` fails here: {message}", about, OBSERVATIONS, spent)]
        case "ToolRefused" if not _denied_by_person(str(payload.get("what", "")), record):
            call, rule = _shorten(str(payload.get("what", ""))), str(payload.get("rule", ""))
            about = f"{REFUSED}{rule}/{make_signature(call, cwd)}"
            text = f"`{call}` is refused here ({rule}): do without it."
            return [_make_institutional_finding(text, about, ESCALATION, Basis.SINGLE, spent)]
        case "WorkOverlapped":
            files = list(dict.fromkeys([*payload.get("conflicting", ()), *payload.get("files", ())]))[:MAX_PER_ENTRY]
            impact = replace(spent, reach=max(1, len(files)))
            template = "`{}` is changed by several pieces of work at once: see what waits before changing it."
            return [
                _make_task_finding(
                    template.format(file), f"{OVERLAP}{file}", OBSERVATIONS, impact, trust_of_names([file])
                )
                for file in files
            ]
        case "ChangeSetDiscarded" if not payload.get("continued_in"):
            return [_read_rejected_work(record, "was thrown away", DISCARDED)]
        case "LandingUndone" if not payload.get("left"):
            return [_read_rejected_work(record, "was landed and undone", UNDONE)]
    return []


def _read_tests(entry: LedgerEntry, spent: Impact) -> list[Finding]:
    """The findings about the failing tests that a ledger entry names."""
    rule = _TEST_FINDINGS[entry.kind]
    failing = [str(test) for test in entry.payload.get("failing", ())]
    is_healed = entry.kind == "ValidationHealed"
    impact = replace(spent, failure_avoided=is_healed, reach=max(1, len(failing)))
    return [
        Finding(
            LearningKind.TASK,
            rule.type,
            rule.template.format(test),
            rule.phase,
            rate_confidence(Basis.TESTS),
            rate_importance(impact),
            f"{rule.about}{test}",
            trust=trust_of_names([test]),
            general=rule.general,
        )
        for test in failing[:MAX_PER_ENTRY]
    ]


def correction_findings(edit: Correction) -> list[Finding]:
    """The findings from the operator's edit of a prompt: the rules in added sentences, or if there are none, those in
    removed sentences."""
    added_rules = [distil(sentence) for sentence in added_sentences(edit.original, edit.edited)]
    edited_sentences = set(map(normalise, split_sentences(edit.edited)))
    removed = [
        Rule(f"Not wanted: {text}", False, "")
        for text in split_sentences(edit.original)
        if normalise(text) not in edited_sentences
    ]
    trust = Trust.OPERATOR if added_rules else Trust.QUOTED
    return [rule_finding(rule, edit, trust) for rule in (added_rules or removed)[:MAX_PER_ENTRY]]


def rule_finding(rule: Rule, edit: Correction, trust: Trust) -> Finding:
    """The finding from a rule in the operator's edit."""
    kind = LearningKind.PROXY if _PREFERENCE.search(rule.text) else LearningKind.INSTITUTIONAL
    impact = Impact(failure_avoided=True, cost=edit.estimate, reach=edit.reach if rule.general else 1)
    return Finding(
        kind, LearningType.CORRECTIVE, _shorten(rule.text), ALIGNMENT, rate_confidence(Basis.OPERATOR),
        rate_importance(impact), trust=trust, general=rule.why if rule.general else "",
    )  # fmt: skip


def make_signature(text: str, folder: str = "") -> str:
    """The text without folders, numbers and addresses, which is equal for messages with the same cause."""
    flat = text.replace(folder, "") if folder else text
    flat = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+|(?:sess|auto|pred|call)_\w+", "#", flat.lower())
    return " ".join(re.findall(r"[\w#./:-]+", flat))[:100]


def _read_statement(statement: Statement, record: SessionRecord) -> Finding:
    """The finding from a statement: a rule in the operator's words, or a quote of someone else."""
    own = statement.speaker == "operator"
    rule = distil(statement.text)
    basis = {"operator": Basis.OPERATOR, "program": Basis.SINGLE}.get(statement.speaker, Basis.MODEL)
    types = {"decision": LearningType.DIRECTIVE, "correction": LearningType.CORRECTIVE}
    impact = replace(
        _measure_impact(record),
        failure_avoided=statement.kind in types,
        reach=record.reach if rule.general and own else 1,
    )
    return Finding(
        LearningKind.PROXY if statement.preference else LearningKind.INSTITUTIONAL,
        types.get(statement.kind, LearningType.DECLARATIVE),
        _shorten(rule.text if own else statement.text),
        CORRECTIVE if statement.kind == "correction" else ALIGNMENT if own else OBSERVATIONS,
        rate_confidence(basis),
        rate_importance(impact),
        trust=Trust.OPERATOR if own else Trust.QUOTED,
        general=rule.why if rule.general else "",
    )


def _read_permission(request: PermissionRequest, record: SessionRecord) -> Iterator[Finding]:
    """The finding from the answer to a permission request, if a person gave it for this request."""
    # "operator (perm_…, for this session)": it follows from an earlier answer
    if request.answer is None or request.by.startswith(NOBODY) or "(" in request.by:
        return
    title = _shorten(request.title)
    about = f"{request.tool}/{make_signature(title, record.view.cwd)}"
    if request.answer.allows:
        text = f"`{title}` needs the operator's word, and had it."
        allowed = _make_institutional_finding(text, f"allowed/{about}", ESCALATION, Basis.OPERATOR, Impact())
        yield replace(allowed, type=LearningType.DECLARATIVE)
    else:
        text = f"The operator does not allow `{title}`: find another way."
        yield _make_institutional_finding(
            text, f"denied/{about}", ESCALATION, Basis.OPERATOR, Impact(failure_avoided=True)
        )


def _denied_by_person(call: str, record: SessionRecord) -> bool:
    """Whether a person denied it in the session, which is a finding already."""
    denied = [request for request in record.permissions if request.answer is not None and not request.answer.allows]
    return any(call in request.title or call in request.detail for request in denied)


def _read_rejected_work(record: SessionRecord, fate: str, about: str) -> Finding:
    """The finding from work that the operator discarded or undid."""
    prompt = _shorten(record.view.prompt)
    text = f"What was made of “{prompt}” {fate}: agree on the result first."
    trust = Trust.OPERATOR if record.own_words else Trust.QUOTED
    impact = replace(_measure_impact(record), failure_avoided=True)
    return replace(
        _make_task_finding(text, f"{about}{normalise(prompt)}", ALIGNMENT, impact, trust=trust),
        type=LearningType.CORRECTIVE,
    )


def _make_task_finding(text: str, about: str, phase: str, impact: Impact, trust: Trust = Trust.QUOTED) -> Finding:
    """A finding about a task that was observed once."""
    score = rate_confidence(Basis.SINGLE)
    return Finding(
        LearningKind.TASK, LearningType.DECLARATIVE, text, phase, score, rate_importance(impact), about, trust=trust
    )


def _make_institutional_finding(text: str, about: str, phase: str, basis: Basis, impact: Impact) -> Finding:
    return Finding(
        LearningKind.INSTITUTIONAL,
        LearningType.DIRECTIVE,
        text,
        phase,
        rate_confidence(basis),
        rate_importance(impact),
        about,
    )


def _measure_impact(record: SessionRecord) -> Impact:
    return Impact(seconds=record.seconds, cost=record.view.cost)


def _shorten(text: str) -> str:
    return plain(text, MAX_QUOTE_LENGTH)
