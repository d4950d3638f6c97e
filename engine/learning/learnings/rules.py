"""Extracts findings from the record of a session by rules (SPEC 6.6, 6.7). Pure.

Phases: *observations* (tests, tools, statements), *escalation* (permissions asked, given and refused),
*intent-alignment* (what the operator corrected, discarded or undid), *corrective* (what tests or people showed to be
wrong), *prospective* (risks known at the start) and *in-flight* (assumptions of the agent). The last two are not
promoted.

`about` identifies a finding without comparing words. Each finding has a trust label (SPEC 6.8): the operator's words,
our words about a measurement, or a quote. A text that names a command, an error or somebody else's prompt is a quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from engine.frozen import frozen
from engine.learning.learnings.recurrence import names
from engine.model import (
    Basis,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningType,
    PermissionRequest,
    Score,
    SessionState,
    SessionView,
    Touched,
    TranscriptLine,
    Trust,
    sanitise,
)
from engine.model.lessons import Correction, Rule, added, distil, folded, sentences
from engine.model.secrets import redact
from engine.model.trust import of_names
from engine.model.wisdom import CONFIDENCE, confidence, importance
from engine.storage.ledger import LedgerEntry

KINDS = (
    "ValidationHealed",
    "ValidationFailed",
    "RetryRepeated",
    "AgentErred",
    "ToolRefused",
    "WorkOverlapped",
)
"""Facts of the ledger about what a session did in which something can be learnt."""


@frozen
class Statement:
    """A sentence that is a "decision", a "fact" or a "correction" (SPEC 4.4). `speaker` is "agent", "operator" or
    "program"; `preference` says that it is about the human."""

    kind: str
    text: str
    speaker: str
    preference: bool = False


@frozen
class SessionRecord:
    """One session, as it really went. `leader` is its agent's, "" for none; `facts` are those of `KINDS`; `red` are
    tests that failed in the workspace when it began; `continues` is the first of the sessions that it goes on with;
    `own_words` says that the operator wrote what it was asked. `reach` is how much work a rule that was met here
    concerns: how many of the latest 200 decided cards were on the same channel, at least 1."""

    view: SessionView
    leader: str = ""
    facts: tuple[LedgerEntry, ...] = ()
    said: tuple[Statement, ...] = ()
    permissions: tuple[PermissionRequest, ...] = ()
    edit: Correction | None = None
    red: tuple[str, ...] = ()
    continues: str = ""
    own_words: bool = False
    reach: int = 1

    @property
    def seconds(self) -> float:
        """How long it took, 0 while that is not known."""
        view = self.view
        if view.started_at is None or view.ended_at is None:
            return 0.0
        return max(0.0, (view.ended_at - view.started_at).total_seconds())


class SessionSource(Protocol):
    """What the chain needs of the rest of the engine."""

    def of(self, session_id: str, /) -> SessionRecord | None:
        """Everything about a session, None for one that nobody knows."""

    def begun(self, session_id: str, /) -> SessionRecord | None:
        """What was known when it began: nothing of what it did."""

    def lines(self, session_id: str, /) -> Iterable[TranscriptLine]:
        """Its transcript up to now."""

    def secrets(self) -> Iterable[str]:
        """Values that are never written down (SPEC 11.1)."""

    def offer(self, entry: LearningEntry, /) -> None:
        """A lesson of `entry.agent` generalises: its leader may want it (SPEC 1.7). Again harmlessly. Raises `Refusal`
        when the agent is not there."""

    def retracted(self, lesson: str, reason: str, /) -> None:
        """The operator took a lesson back: nobody says it any more."""

    def report(self, where: str, words: str, /) -> None:
        """Tells the operator of what work can go on without."""


def about_session(facts: Iterable[LedgerEntry], session_id: str) -> list[LedgerEntry]:
    """Of these facts those that are about a session. Pure."""
    return [fact for fact in facts if session_id in (fact.subject, fact.payload.get("session_id"))]


OBSERVATIONS, ESCALATION, ALIGNMENT = "observations", "escalation", "intent-alignment"
PROSPECTIVE, IN_FLIGHT, CORRECTIVE = "prospective", "in-flight", "corrective"

ERRED, REFUSED = "erred/", "refused/"
DISCARDED, UNDONE = "discarded/", "undone/"
"""What entries are about that say so of a tool's error, a rail's word, a session's changes."""

MAX_PER_FACT = 5
"""Tests or files of one fact."""

MAX_FINDINGS = 60
"""Entries that rules make of one session."""

QUOTED = 300
"""Characters of what is quoted."""

_OF_THE_OPERATOR = re.compile(r"\bI\b[^.!?]*\b(?:dis)?(?:like|prefer|want|insist)\b")
"""The operator speaks of himself: a taste of one person, which is no rule of the project (SPEC 6.3)."""

NOBODY = "nobody"
"""Who answers where a session runs by itself."""

ABOUT_ONE = "about one thing; three tasks must confirm it"


@frozen
class Finding:
    """Something that was learnt, before it is an entry of a scope. `general` says why it holds beyond this session, ""
    where three tasks have to meet it first (SPEC 6.8)."""

    kind: LearningKind
    type: LearningType
    text: str
    phase: str
    confidence: Score
    importance: Score
    about: str = ""
    title: str = ""
    trust: Trust = Trust.QUOTED
    general: str = ""


_OF_TESTS: dict[str, tuple[str, str, str, LearningType, bool]] = {
    "ValidationHealed": (
        "healed", "Run `{}` before handing over: changes here break it unnoticed.", CORRECTIVE,
        LearningType.PROCEDURAL, True,
    ),
    "ValidationFailed": (
        "unmended", "`{}` resists being fixed: look for the cause outside of the change.", CORRECTIVE,
        LearningType.DECLARATIVE, False,
    ),
    "RetryRepeated": (
        "circles", "Another attempt of the same kind leaves `{}` red: change the approach after the first.",
        OBSERVATIONS, LearningType.PROCEDURAL, False,
    ),
}  # fmt: skip
"""What facts about failing tests teach of each: what it is about, in which words, when, how, and whether it holds for
every change of the project: what was red and is green again because somebody ran it."""


def findings_of(record: SessionRecord) -> list[Finding]:
    """What a session teaches, each thing once, in the order in which it came up."""
    view = record.view
    findings: list[Finding] = []
    for fact in record.facts:
        findings += of_fact(fact, record)
    for request in record.permissions:
        findings += _from_permission(request, record)
    if view.error and view.state in (SessionState.FAILED, SessionState.BLOCKED):
        statement = f"Such work ended without a result: {_short(view.error)}"
        findings.append(_task(statement, f"failed/{signature(view.error, view.cwd)}", OBSERVATIONS, _spent(record)))
    if record.edit is not None:
        findings += edited(record.edit)
    findings += [_from_statement(statement, record) for statement in record.said]
    once: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        if finding.text.strip():
            key = (finding.kind.value, finding.about, "" if finding.about else folded(finding.text))
            former = once.setdefault(key, finding)
            if former.trust is not Trust.OPERATOR and finding.trust is Trust.OPERATOR:
                once[key] = finding
    return list(once.values())[:MAX_FINDINGS]


def of_fact(fact: LedgerEntry, record: SessionRecord) -> list[Finding]:
    """What one fact of the ledger about a session teaches."""
    payload, spent, cwd = fact.payload, _spent(record), record.view.cwd
    if fact.kind in _OF_TESTS:
        about, template, phase, type, general = _OF_TESTS[fact.kind]
        failing = [str(test) for test in payload.get("failing", ())]
        healed = fact.kind == "ValidationHealed"
        touched = replace(spent, failure_avoided=healed, reach=max(1, len(failing)))
        return [
            replace(
                _task(template.format(test), f"{about}/{test}", phase, touched, Basis.TESTS, of_names([test])),
                type=type,
                general="every change of the project can break it" if general else "",
            )
            for test in failing[:MAX_PER_FACT]
        ]
    match fact.kind:
        case "AgentErred":
            message, tool = _short(str(payload.get("message", ""))), str(payload.get("tool", "")) or "its model"
            about = f"{ERRED}{tool}/{signature(message, cwd)}"
            return [_task(f"`{tool}` fails here: {message}", about, OBSERVATIONS, spent)]
        case "ToolRefused" if not _denied_by_person(str(payload.get("what", "")), record):
            what, rule = _short(str(payload.get("what", ""))), str(payload.get("rule", ""))
            about = f"{REFUSED}{rule}/{signature(what, cwd)}"
            text = f"`{what}` is refused here ({rule}): do without it."
            return [_institutional(text, about, ESCALATION, Basis.SINGLE, spent)]
        case "WorkOverlapped":
            files = list(dict.fromkeys([*payload.get("conflicting", ()), *payload.get("files", ())]))[:MAX_PER_FACT]
            touched = replace(spent, reach=max(1, len(files)))
            template = "`{}` is changed by several pieces of work at once: see what waits before changing it."
            return [
                _task(template.format(file), f"overlap/{file}", OBSERVATIONS, touched, trust=of_names([file]))
                for file in files
            ]
        case "ChangeSetDiscarded" if not payload.get("continued_in"):
            return [_rejected_work(record, "was thrown away", DISCARDED)]
        case "LandingUndone" if not payload.get("left"):
            return [_rejected_work(record, "was landed and undone", UNDONE)]
    return []


def edited(edit: Correction) -> list[Finding]:
    """What the operator wants instead: the rules in what was put into a prompt; where it was only shortened, that."""
    added_rules = [distil(sentence) for sentence in added(edit.original, edit.edited)]
    edited_sentences = set(map(folded, sentences(edit.edited)))
    removed = [
        Rule(f"Not wanted: {text}", False, "")
        for text in sentences(edit.original)
        if folded(text) not in edited_sentences
    ]
    trust = Trust.OPERATOR if added_rules else Trust.QUOTED
    return [corrected(rule, edit, trust) for rule in (added_rules or removed)[:MAX_PER_FACT]]


def corrected(rule: Rule, edit: Correction, trust: Trust = Trust.OPERATOR) -> Finding:
    """A rule of the operator's, out of a correction."""
    kind = LearningKind.PROXY if _OF_THE_OPERATOR.search(rule.text) else LearningKind.INSTITUTIONAL
    touched = Touched(failure_avoided=True, cost=edit.estimate, reach=edit.reach if rule.general else 1)
    return Finding(
        kind, LearningType.CORRECTIVE, _short(rule.text), ALIGNMENT, confidence(Basis.OPERATOR),
        importance(touched), trust=trust, general=rule.why if rule.general else "",
    )  # fmt: skip


def signature(text: str, folder: str = "") -> str:
    """What tells one cause from another: a message without the folder it happened in, numbers and addresses."""
    flat = text.replace(folder, "") if folder else text
    flat = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+|(?:sess|auto|pred|call)_\w+", "#", flat.lower())
    return " ".join(re.findall(r"[\w#./:-]+", flat))[:100]


def _from_statement(statement: Statement, record: SessionRecord) -> Finding:
    """What somebody said: of the operator's words the rule, of all others the words. To go against a decision or a
    correction is work that is thrown away."""
    own = statement.speaker == "operator"
    rule = distil(statement.text)
    basis = {"operator": Basis.OPERATOR, "program": Basis.SINGLE}.get(statement.speaker, Basis.MODEL)
    types = {"decision": LearningType.DIRECTIVE, "correction": LearningType.CORRECTIVE}
    touched = replace(
        _spent(record), failure_avoided=statement.kind in types, reach=record.reach if rule.general and own else 1
    )
    return Finding(
        LearningKind.PROXY if statement.preference else LearningKind.INSTITUTIONAL,
        types.get(statement.kind, LearningType.DECLARATIVE),
        _short(rule.text if own else statement.text),
        CORRECTIVE if statement.kind == "correction" else ALIGNMENT if own else OBSERVATIONS,
        confidence(basis),
        importance(touched),
        trust=Trust.OPERATOR if own else Trust.QUOTED,
        general=rule.why if rule.general else "",
    )


def _from_permission(request: PermissionRequest, record: SessionRecord) -> Iterator[Finding]:
    """What the operator said to what was asked for; what nobody or an earlier answer said teaches nothing new."""
    if request.answer is None or request.by.startswith(NOBODY) or "(" in request.by:
        return
    title = _short(request.title)
    about = f"{request.tool}/{signature(title, record.view.cwd)}"
    if request.answer.allows:
        text = f"`{title}` needs the operator's word, and had it."
        allowed = _institutional(text, f"allowed/{about}", ESCALATION, Basis.OPERATOR, Touched())
        yield replace(allowed, type=LearningType.DECLARATIVE)
    else:
        text = f"The operator does not allow `{title}`: find another way."
        yield _institutional(text, f"denied/{about}", ESCALATION, Basis.OPERATOR, Touched(failure_avoided=True))


def _denied_by_person(what: str, record: SessionRecord) -> bool:
    """Whether it was refused because a person said no: that answer tells of it."""
    denied = [request for request in record.permissions if request.answer is not None and not request.answer.allows]
    return any(what in request.title or what in request.detail for request in denied)


def _rejected_work(record: SessionRecord, how: str, about: str) -> Finding:
    """What the operator did once with the result; that it was for want of an agreement is no word of the operator's."""
    prompt = _short(record.view.prompt)
    text = f"What was made of “{prompt}” {how}: agree on the result first."
    trust = Trust.OPERATOR if record.own_words else Trust.QUOTED
    touched = replace(_spent(record), failure_avoided=True)
    return replace(
        _task(text, f"{about}{folded(prompt)}", ALIGNMENT, touched, trust=trust), type=LearningType.CORRECTIVE
    )


def _task(
    text: str, about: str, phase: str, touched: Touched, basis: Basis = Basis.SINGLE, trust: Trust = Trust.QUOTED
) -> Finding:
    return Finding(
        LearningKind.TASK, LearningType.DECLARATIVE, text, phase, confidence(basis), importance(touched), about,
        trust=trust,
    )  # fmt: skip


def _institutional(text: str, about: str, phase: str, basis: Basis, touched: Touched) -> Finding:
    return Finding(
        LearningKind.INSTITUTIONAL, LearningType.DIRECTIVE, text, phase, confidence(basis), importance(touched), about
    )


def _spent(record: SessionRecord) -> Touched:
    return Touched(seconds=record.seconds, cost=record.view.cost)


def _short(text: str) -> str:
    flat = " ".join(sanitise(text).split())
    return flat if len(flat) <= QUOTED else flat[: QUOTED - 1].rstrip() + "…"


# -- what concerns an agent's own tools only

_NAME = (
    r"(?:read|write|edit|multi_?edit|exec|bash|shell|glob|grep|web[_ ]?search|web[_ ]?fetch|apply_patch|str_replace\w*)"
)
_TOOL = rf"(?:[`'\"“]?{_NAME}[`'\"”]?(?: file)? tools?|(?:{_NAME} )?tool[ -]calls?|my (?:own )?tools?)"
_BEHAVES = (
    r"(?:refuse|reject|fail|want|need|require|expect|take|accept|return|complain|demand|cut|den(?:y|ie)|truncate|block)"
    r"(?:s|d|es|ed|ing)?|(?:must|can(?:not|['’]t)?|won['’]t|will|would|only|do(?:es)?(?: not|n['’]t)|has to|have to"
    r"|(?:is|are|was|were) (?:not|only|un\w+|refused|denied|blocked|allowed|limited))"
)
_OWN_TOOLS: tuple[Callable[[str], object], ...] = (
    re.compile(rf"\b{_TOOL}(?: (?:always|never|here|still|also|often))? (?:{_BEHAVES})\b", re.IGNORECASE).search,
    re.compile(rf"\b(?:use|call|using|calling|with|through|via|by) (?:the |my )?{_TOOL}", re.IGNORECASE).search,
)


def of_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about the tools that its agent was given, and not about the project: who comes next with
    other tools has no use for it. A program that cannot run here, or does not end, is the project's; and what the
    operator said is what the operator wants of everybody."""
    if entry.about:
        return entry.about.startswith((ERRED, REFUSED)) and not entry.about.startswith(f"{ERRED}exec/exec")
    if entry.confidence >= CONFIDENCE[Basis.OPERATOR][0]:
        return False
    return any(matches(entry.text) for matches in _OWN_TOOLS)


RISK = "risk/"
MAX_RISKS, MAX_ASSUMPTIONS = 8, 12
MIN_ASSUMPTION_LENGTH, MAX_ASSUMPTION_LENGTH = 12, 300
"""Characters of an assumption."""

_RISKY = ("healed/", "unmended/", "circles/", "failed/", "overlap/", DISCARDED, UNDONE, "erred/")
_ASSUMES = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
_CHANGES = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)


def risks(record: SessionRecord, entries: Iterable[LearningEntry]) -> list[Finding]:
    """What might go wrong with a session that begins. `entries` are the entries of the project and of its earlier
    sessions: those count that rules found, of the project, or where the same was asked for or a file of theirs is
    named."""
    prompt = record.view.prompt
    task, named = folded(prompt), names(prompt)
    findings = [
        _risk(f"Tests are red before anything is changed: `{test}`.", f"red/{test}", Basis.TESTS)
        for test in record.red[:MAX_RISKS]
    ]
    about = {finding.about for finding in findings}
    for entry in sorted(entries, key=lambda item: (item.scope is not LearningScope.PROJECT, -item.importance, item.id)):
        if not entry.active or not entry.about.startswith(_RISKY) or RISK + entry.about in about:
            continue
        near = folded(entry.session_task) == task or bool(named & names(entry.text))
        if entry.scope is LearningScope.PROJECT or near:
            about.add(RISK + entry.about)
            basis = Basis.REPEATED if entry.scope is LearningScope.PROJECT else Basis.SINGLE
            findings.append(_risk(f"It may go as before: {entry.text}", entry.about, basis))
    return findings[:MAX_RISKS]


def came_true(risk: LearningEntry, findings: Iterable[Finding]) -> bool:
    """Whether what was feared happened: something about the same test, file or work."""
    feared = risk.about.removeprefix(RISK).partition("/")[2]
    return any(
        finding.about.partition("/")[2] == feared
        for finding in findings
        if finding.about and finding.phase != PROSPECTIVE
    )


def assumptions(lines: Iterable[TranscriptLine], secrets: Sequence[str] = ()) -> list[Finding]:
    """What an agent said that it assumes, and at which milestone: before its first change, or while working on."""
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
                    folded(words),
                    Finding(
                        LearningKind.TASK,
                        LearningType.DECLARATIVE,
                        words,
                        IN_FLIGHT,
                        confidence(Basis.MODEL),
                        importance(Touched()),
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
        importance(Touched()),
        RISK + about,
    )
