"""What a session teaches, by rules, from its record (SPEC 6.6, 6.7). Pure.

Streams: *observations* (tests, tools, what was stated), *escalation* (what was asked for, allowed, denied, refused),
*intent-alignment* (what the operator corrected, threw away, took back). What tests or people showed to be wrong is
*corrective*. What rules find carries what it is `about`, so that it is known again without comparing words; what people
and agents said is kept in their words alone, for words of ours around them would make all of them alike.

Each says whose words it is made of (SPEC 6.8): the operator's, ours about what was measured, or a quote. What names a
command, an error or a prompt that is not the operator's own is a quote, even where the operator decided about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.learnings.own_tools import ERRED, REFUSED
from engine.learnings.record import Edit, Said, SessionRecord
from engine.learnings.sameness import folded
from engine.storage.facts_read import Fact
from engine.values import (
    Basis,
    LearningKind,
    LearningType,
    PermissionRequest,
    Score,
    SessionState,
    Touched,
    Trust,
    sanitise,
)
from engine.values.evidence import confidence, importance
from engine.values.trust import of_names

OBSERVATIONS, ESCALATION, ALIGNMENT = "observations", "escalation", "intent-alignment"
PROSPECTIVE, IN_FLIGHT, CORRECTIVE = "prospective", "in-flight", "corrective"

DISCARDED, UNDONE = "discarded/", "undone/"
"""What entries are about that say so of a session's changes."""

MOST_OF_ONE = 5
"""Tests or files of one fact."""

MOST = 60
"""Entries that rules make of one session."""

QUOTED = 300
"""Characters of what is quoted."""

_OF_THE_OPERATOR = re.compile(r"\bI\b[^.!?]*\b(?:dis)?(?:like|prefer|want|insist)\b")
"""The operator speaks of himself: a taste of one person, which is no rule of the project (SPEC 6.3)."""

NOBODY = "nobody"
"""Who answers where a session runs by itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that was learnt, before it is an entry of a scope."""

    kind: LearningKind
    type: LearningType
    text: str
    phase: str
    confidence: Score
    importance: Score
    about: str = ""
    title: str = ""
    trust: Trust = Trust.QUOTED


def found(record: SessionRecord) -> list[Found]:
    """What a session teaches, each thing once, in the order in which it came up."""
    view = record.view
    spent = _spent(record)
    every: list[Found] = []
    for fact in record.facts:
        every += of_fact(fact, record)
    for request in record.permissions:
        every += _answered(request, record)
    if view.error and view.state in (SessionState.FAILED, SessionState.BLOCKED):
        every.append(
            _task(
                f"Such work ended without a result: {_short(view.error)}",
                f"failed/{signature(view.error, view.cwd)}",
                OBSERVATIONS,
                Basis.SINGLE,
                spent,
            )
        )
    if record.edit is not None:
        every += edited(record.edit)
    every += [_stated(one, spent) for one in record.said]
    once: dict[tuple[str, str, str], Found] = {}
    for one in every:
        if one.text.strip():
            key = (one.kind.value, one.about, "" if one.about else folded(one.text))
            former = once.setdefault(key, one)
            if former.trust is not Trust.OPERATOR and one.trust is Trust.OPERATOR:
                once[key] = one
    return list(once.values())[:MOST]


def of_fact(fact: Fact, record: SessionRecord) -> list[Found]:
    """What one fact of the ledger about a session teaches."""
    payload, spent = fact.payload, _spent(record)
    failing = [str(one) for one in payload.get("failing", ())][:MOST_OF_ONE]
    match fact.kind:
        case "ValidationHealed":
            touched = _with(spent, failure=True, reach=len(payload.get("failing", ())))
            return [
                _task(
                    f"Run `{one}` before handing over: changes here break it unnoticed.",
                    f"healed/{one}",
                    CORRECTIVE,
                    Basis.TESTS,
                    touched,
                    LearningType.PROCEDURAL,
                    trust=of_names([one]),
                )
                for one in failing
            ]
        case "ValidationFailed":
            touched = _with(spent, reach=len(payload.get("failing", ())))
            return [
                _task(
                    f"`{one}` resists being mended: look for the cause outside of the change.",
                    f"unmended/{one}",
                    CORRECTIVE,
                    Basis.TESTS,
                    touched,
                    trust=of_names([one]),
                )
                for one in failing
            ]
        case "RetryRepeated":
            return [
                _task(
                    f"Another attempt of the same kind leaves `{one}` red: change the approach after the first.",
                    f"circles/{one}",
                    OBSERVATIONS,
                    Basis.TESTS,
                    spent,
                    LearningType.PROCEDURAL,
                    trust=of_names([one]),
                )
                for one in failing
            ]
        case "AgentErred":
            message, tool = _short(str(payload.get("message", ""))), str(payload.get("tool", "")) or "its model"
            about = f"{ERRED}{tool}/{signature(message, record.view.cwd)}"
            return [_task(f"`{tool}` fails here: {message}", about, OBSERVATIONS, Basis.SINGLE, spent)]
        case "ToolRefused" if not _answered_no(str(payload.get("what", "")), record):
            what, rule = _short(str(payload.get("what", ""))), str(payload.get("rule", ""))
            about = f"{REFUSED}{rule}/{signature(what, record.view.cwd)}"
            said = f"`{what}` is refused here ({rule}): do without it."
            return [_institutional(said, about, ESCALATION, Basis.SINGLE, spent)]
        case "WorkOverlapped":
            files = list(dict.fromkeys([*payload.get("conflicting", ()), *payload.get("files", ())]))[:MOST_OF_ONE]
            return [
                _task(
                    f"`{one}` is changed by several pieces of work at once: see what waits before changing it.",
                    f"overlap/{one}",
                    OBSERVATIONS,
                    Basis.SINGLE,
                    _with(spent, reach=len(files)),
                    trust=of_names([one]),
                )
                for one in files
            ]
        case "ChangeSetDiscarded" if not payload.get("continued_in"):
            return [_unwanted(record, "was thrown away", DISCARDED)]
        case "LandingUndone":
            return [_unwanted(record, "landed and was taken back", UNDONE)]
    return []


def edited(edit: Edit) -> list[Found]:
    """What the operator wants instead: the sentences that he put into a prompt; where he only took some out, those."""
    before, after = _sentences(edit.original), _sentences(edit.edited)
    known, kept = {folded(one) for one in before}, {folded(one) for one in after}
    new = [one for one in after if folded(one) not in known]
    gone = [one for one in before if folded(one) not in kept]
    texts = new or [f"Not wanted: {one}" for one in gone]
    touched = Touched(failure_avoided=True, cost=edit.estimate, reach=edit.like)
    return [
        Found(
            LearningKind.PROXY if _OF_THE_OPERATOR.search(one) else LearningKind.INSTITUTIONAL,
            LearningType.CORRECTIVE,
            _short(one),
            ALIGNMENT,
            confidence(Basis.OPERATOR),
            importance(touched),
            trust=Trust.OPERATOR if new else Trust.QUOTED,
        )
        for one in texts[:MOST_OF_ONE]
    ]


def signature(text: str, folder: str = "") -> str:
    """What tells one cause from another: a message without the folder it happened in, numbers and addresses."""
    flat = text.replace(folder, "") if folder else text
    flat = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+|(?:sess|auto|pred|call)_\w+", "#", flat.lower())
    return " ".join(re.findall(r"[\w#./:-]+", flat))[:100]


def _stated(one: Said, spent: Touched) -> Found:
    basis = {"operator": Basis.OPERATOR, "program": Basis.SINGLE}.get(one.speaker, Basis.MODEL)
    types = {"decision": LearningType.DIRECTIVE, "correction": LearningType.CORRECTIVE}
    corrective = one.kind == "correction"
    return Found(
        LearningKind.PROXY if one.preference else LearningKind.INSTITUTIONAL,
        types.get(one.kind, LearningType.DECLARATIVE),
        _short(one.text),
        CORRECTIVE if corrective else ALIGNMENT if one.speaker == "operator" else OBSERVATIONS,
        confidence(basis),
        importance(_with(spent, failure=corrective)),
        trust=Trust.OPERATOR if one.speaker == "operator" else Trust.QUOTED,
    )


def _answered(request: PermissionRequest, record: SessionRecord) -> Iterator[Found]:
    """What the operator said to what was asked for; what nobody or an earlier answer said teaches nothing new."""
    if request.answer is None or request.by.startswith(NOBODY) or "(" in request.by:
        return
    title = _short(request.title)
    about = f"{request.tool}/{signature(title, record.view.cwd)}"
    if request.answer.allows:
        said = f"`{title}` needs the operator's word, and had it."
        yield _institutional(said, f"allowed/{about}", ESCALATION, Basis.OPERATOR, Touched(), LearningType.DECLARATIVE)
    else:
        said = f"The operator does not allow `{title}`: find another way."
        yield _institutional(said, f"denied/{about}", ESCALATION, Basis.OPERATOR, Touched(failure_avoided=True))


def _answered_no(what: str, record: SessionRecord) -> bool:
    """Whether it was refused because a person said no: his answer tells of it."""
    denied = [one for one in record.permissions if one.answer is not None and not one.answer.allows]
    return any(what in one.title or what in one.detail for one in denied)


def _unwanted(record: SessionRecord, how: str, about: str) -> Found:
    """What the operator did once with the result; that it was for want of an agreement is no word of his."""
    prompt = _short(record.view.prompt)
    return _task(
        f"What was made of “{prompt}” {how}: agree on the result first.",
        f"{about}{folded(prompt)}",
        ALIGNMENT,
        Basis.SINGLE,
        _with(_spent(record), failure=True),
        LearningType.CORRECTIVE,
        trust=Trust.OPERATOR if record.own_words else Trust.QUOTED,
    )


def _task(
    text: str,
    about: str,
    phase: str,
    basis: Basis,
    touched: Touched,
    type: LearningType = LearningType.DECLARATIVE,
    *,
    trust: Trust = Trust.QUOTED,
) -> Found:
    return Found(LearningKind.TASK, type, text, phase, confidence(basis), importance(touched), about, trust=trust)


def _institutional(
    text: str,
    about: str,
    phase: str,
    basis: Basis,
    touched: Touched,
    type: LearningType = LearningType.DIRECTIVE,
) -> Found:
    return Found(LearningKind.INSTITUTIONAL, type, text, phase, confidence(basis), importance(touched), about)


def _spent(record: SessionRecord) -> Touched:
    return Touched(seconds=record.seconds, cost=record.view.cost)


def _with(touched: Touched, *, failure: bool = False, reach: int = 1) -> Touched:
    return Touched(failure, touched.seconds, touched.cost, max(1, reach))


def _sentences(text: str) -> list[str]:
    """Sentences and lines of at least two words."""
    parts: Iterable[str] = re.split(r"(?<=[.!?;])\s+|\n+", text)
    return [" ".join(one.split()).strip("-*• ") for one in parts if len(one.split()) > 1]


def _short(text: str) -> str:
    flat = " ".join(sanitise(text).split())
    return flat if len(flat) <= QUOTED else flat[: QUOTED - 1].rstrip() + "…"
