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
from engine.model.base import find_trust_of_names
from engine.model.learnings import Correction, Rule, distil_rule, find_added_sentences, normalise, split_sentences
from engine.model.text import plain
from engine.storage.ledger import LedgerEntry

MAX_PER_ENTRY = 5
"""Maximum number of tests or files of one ledger entry that become findings."""

MAX_FINDINGS = 60
"""Maximum number of findings that rules make of one session."""

MAX_QUOTE_CHARS = 300
"""Maximum number of characters of a quote."""

_PREFERENCE = re.compile(r"\bI\b[^.!?]*\b(?:dis)?(?:like|prefer|want|insist)\b")
"""Matches a personal preference of the operator, which is not a rule of the project (SPEC 6.3)."""

_VARIES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+|(?:sess|auto|pred|call)_\w+")
"""Matches numbers, addresses and ids, which differ between messages with the same cause."""

_TYPES = {"decision": LearningType.DIRECTIVE, "correction": LearningType.CORRECTIVE}
"""The types of findings from statements; other statements are declarative."""

_BASES = {"operator": Basis.OPERATOR, "program": Basis.SINGLE}
"""The evidence for a statement by its speaker; that of an agent is only a claim."""

NOBODY = "nobody"
"""The value of `answered_by` of permission requests in a session that runs by itself."""


@frozen
class _TestFinding:
    """The finding about each failing test that a kind of ledger entry names."""

    about: str
    """The prefix of `Finding.about`."""
    template: str
    """The text of the finding, with `{}` for the test."""
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
"""The findings by kind of ledger entry."""


def find_learnings(record: SessionRecord) -> list[Finding]:
    """The findings of a session by rules, each once, in the order of the session."""
    findings: list[Finding] = []
    for entry in record.entries:
        findings += find_in_entry(entry, record)
    for request in record.permissions:
        findings += _find_in_permission(request, record)
    findings += _find_in_failure(record)
    if record.edit is not None:
        findings += find_in_correction(record.edit)
    findings += [_find_in_statement(statement, record) for statement in record.statements]
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


def _find_in_failure(record: SessionRecord) -> list[Finding]:
    """The finding from a session that ended with an error."""
    view = record.view
    if not view.error or view.state not in (SessionState.FAILED, SessionState.BLOCKED):
        return []
    text = f"Such work ended without a result: {_shorten(view.error)}"
    about = f"{FAILED}{make_signature(view.error, view.cwd)}"
    return [_make_task_finding(text, about, OBSERVATIONS, _measure_impact(record))]


def find_in_entry(entry: LedgerEntry, record: SessionRecord) -> list[Finding]:
    """The findings from one ledger entry about a session."""
    match entry.kind:
        case kind if kind in _TEST_FINDINGS:
            return _find_in_tests(entry, record)
        case "AgentErred":
            return [_find_in_error(entry, record)]
        case "ToolRefused" if not _was_denied_by_person(str(entry.payload.get("what", "")), record):
            return [_find_in_refusal(entry, record)]
        case "WorkOverlapped":
            return _find_in_overlap(entry, record)
        case "ChangeSetDiscarded" if not entry.payload.get("continued_in"):
            return [_find_in_rejected_work(record, "was thrown away", DISCARDED)]
        case "LandingUndone" if not entry.payload.get("left"):
            return [_find_in_rejected_work(record, "was landed and undone", UNDONE)]
    return []


def _find_in_error(entry: LedgerEntry, record: SessionRecord) -> Finding:
    """The finding from an error of a tool or a model."""
    message = _shorten(str(entry.payload.get("message", "")))
    tool = str(entry.payload.get("tool", "")) or "its model"
    about = f"{ERRED}{tool}/{make_signature(message, record.view.cwd)}"
    return _make_task_finding(f"`{tool}` fails here: {message}", about, OBSERVATIONS, _measure_impact(record))


def _find_in_refusal(entry: LedgerEntry, record: SessionRecord) -> Finding:
    """The finding from a call that a rail refused."""
    call, rule = _shorten(str(entry.payload.get("what", ""))), str(entry.payload.get("rule", ""))
    about = f"{REFUSED}{rule}/{make_signature(call, record.view.cwd)}"
    text = f"`{call}` is refused here ({rule}): do without it."
    return _make_institutional_finding(text, about, ESCALATION, Basis.SINGLE, _measure_impact(record))


def _find_in_overlap(entry: LedgerEntry, record: SessionRecord) -> list[Finding]:
    """The findings about the files that other work changed at the same time, those that conflict first."""
    changed = [*entry.payload.get("conflicting", ()), *entry.payload.get("files", ())]
    files = list(dict.fromkeys(changed))[:MAX_PER_ENTRY]
    impact = replace(_measure_impact(record), reach=max(1, len(files)))
    template = "`{}` is changed by several pieces of work at once: see what waits before changing it."
    return [
        _make_task_finding(template.format(file), f"{OVERLAP}{file}", OBSERVATIONS, impact, find_trust_of_names([file]))
        for file in files
    ]


def _find_in_tests(entry: LedgerEntry, record: SessionRecord) -> list[Finding]:
    """The findings about the failing tests that a ledger entry names."""
    rule = _TEST_FINDINGS[entry.kind]
    failing = [str(test) for test in entry.payload.get("failing", ())]
    is_healed = entry.kind == "ValidationHealed"
    impact = replace(_measure_impact(record), failure_avoided=is_healed, reach=max(1, len(failing)))
    return [
        Finding(
            LearningKind.TASK,
            rule.type,
            rule.template.format(test),
            rule.phase,
            rate_confidence(Basis.TESTS),
            rate_importance(impact),
            f"{rule.about}{test}",
            trust=find_trust_of_names([test]),
            general=rule.general,
        )
        for test in failing[:MAX_PER_ENTRY]
    ]


def find_in_correction(edit: Correction) -> list[Finding]:
    """The findings from the operator's edit of a prompt: the rules in added sentences, or if there are none, those in
    removed sentences."""
    added_rules = [distil_rule(sentence) for sentence in find_added_sentences(edit.original, edit.edited)]
    edited_sentences = set(map(normalise, split_sentences(edit.edited)))
    removed = [
        Rule(f"Not wanted: {text}", False, "")
        for text in split_sentences(edit.original)
        if normalise(text) not in edited_sentences
    ]
    trust = Trust.OPERATOR if added_rules else Trust.QUOTED
    return [_make_rule_finding(rule, edit, trust) for rule in (added_rules or removed)[:MAX_PER_ENTRY]]


def _make_rule_finding(rule: Rule, edit: Correction, trust: Trust) -> Finding:
    """The finding from a rule in the operator's edit."""
    kind = LearningKind.PROXY if _PREFERENCE.search(rule.text) else LearningKind.INSTITUTIONAL
    impact = Impact(failure_avoided=True, cost=edit.estimate, reach=edit.reach if rule.general else 1)
    return Finding(
        kind, LearningType.CORRECTIVE, _shorten(rule.text), ALIGNMENT, rate_confidence(Basis.OPERATOR),
        rate_importance(impact), trust=trust, general=rule.why if rule.general else "",
    )  # fmt: skip


def make_signature(text: str, folder: str = "") -> str:
    """The text without folders, numbers and addresses, which is equal for messages with the same cause."""
    without_folder = text.replace(folder, "") if folder else text
    without_numbers = _VARIES.sub("#", without_folder.lower())
    return " ".join(re.findall(r"[\w#./:-]+", without_numbers))[:100]


def _find_in_statement(statement: Statement, record: SessionRecord) -> Finding:
    """The finding from a statement: a rule in the operator's words, or a quote of someone else."""
    is_own = statement.speaker == "operator"
    rule = distil_rule(statement.text)
    impact = replace(
        _measure_impact(record),
        failure_avoided=statement.kind in _TYPES,
        reach=record.reach if rule.general and is_own else 1,
    )
    phase = ALIGNMENT if is_own else OBSERVATIONS
    return Finding(
        LearningKind.PROXY if statement.preference else LearningKind.INSTITUTIONAL,
        _TYPES.get(statement.kind, LearningType.DECLARATIVE),
        _shorten(rule.text if is_own else statement.text),
        CORRECTIVE if statement.kind == "correction" else phase,
        rate_confidence(_BASES.get(statement.speaker, Basis.MODEL)),
        rate_importance(impact),
        trust=Trust.OPERATOR if is_own else Trust.QUOTED,
        general=rule.why if rule.general else "",
    )


def _find_in_permission(request: PermissionRequest, record: SessionRecord) -> Iterator[Finding]:
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


def _was_denied_by_person(call: str, record: SessionRecord) -> bool:
    """Whether a person denied this call in the session, which is a finding already."""
    denied = [request for request in record.permissions if request.answer is not None and not request.answer.allows]
    return any(call in request.title or call in request.detail for request in denied)


def _find_in_rejected_work(record: SessionRecord, fate: str, about: str) -> Finding:
    """The finding from work that the operator discarded or undid, which `fate` says in words."""
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
    """A finding about how things are done in the project."""
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
    """The time and the cost of a session."""
    return Impact(seconds=record.seconds, cost=record.view.cost)


def _shorten(text: str) -> str:
    """A text in one line of at most `MAX_QUOTE_CHARS` characters."""
    return plain(text, MAX_QUOTE_CHARS)
