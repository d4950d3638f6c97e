"""What is written before and while a session works (SPEC 6.6): what might go wrong, and what was assumed. Pure.

*Prospective*: from what was known when it began, and nothing later. *In-flight*: sentences in which the agent says that
it assumes something, with the milestone at which it did. Neither is promoted: what was only feared or assumed is no
experience; what came true is found as such afterwards, and the fear is marked with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from engine.learning.learnings.record import SessionRecord
from engine.learning.learnings.rules import DISCARDED, IN_FLIGHT, PROSPECTIVE, UNDONE, Found
from engine.learning.learnings.sameness import names
from engine.model import Basis, LearningEntry, LearningKind, LearningScope, LearningType, Touched, TranscriptLine
from engine.model.evidence import confidence, importance
from engine.model.lessons import folded
from engine.model.secrets import redact

RISK = "risk/"
MOST_RISKS, MOST_ASSUMPTIONS = 8, 12
SHORTEST, LONGEST = 12, 300
"""Characters of an assumption."""

_RISKY = ("healed/", "unmended/", "circles/", "failed/", "overlap/", DISCARDED, UNDONE, "erred/")
_ASSUMES = re.compile(
    r"\bI(?:['’]m| am|['’]ll| will)? (?:assum(?:e|ed|ing)|presume|take it that|suppose that)\b"
    r"|\bassuming (?:that|the)\b|^(?:working )?assumptions?\s*:",
    re.IGNORECASE,
)
_CHANGES = re.compile(r"^(?:write|edit|exec|apply)", re.IGNORECASE)


def risks(record: SessionRecord, known: Iterable[LearningEntry]) -> list[Found]:
    """What might go wrong with a session that begins. `known` are the entries of the project and of its earlier
    sessions: those count that rules found, of the project, or where the same was asked for or a file of theirs is
    named."""
    prompt = record.view.prompt
    task, named = folded(prompt), names(prompt)
    found = [
        _risk(f"Tests are red before anything is changed: `{one}`.", f"red/{one}", Basis.TESTS)
        for one in record.red[:MOST_RISKS]
    ]
    about = {one.about for one in found}
    for one in sorted(known, key=lambda one: (one.scope is not LearningScope.PROJECT, -one.importance, one.id)):
        if not one.active or not one.about.startswith(_RISKY) or RISK + one.about in about:
            continue
        near = folded(one.session_task) == task or bool(named & names(one.text))
        if one.scope is LearningScope.PROJECT or near:
            about.add(RISK + one.about)
            basis = Basis.REPEATED if one.scope is LearningScope.PROJECT else Basis.SINGLE
            found.append(_risk(f"It may go as before: {one.text}", one.about, basis))
    return found[:MOST_RISKS]


def came_true(risk: LearningEntry, found: Iterable[Found]) -> bool:
    """Whether what was feared happened: something about the same test, file or work."""
    feared = risk.about.removeprefix(RISK).partition("/")[2]
    return any(one.about.partition("/")[2] == feared for one in found if one.about and one.phase != PROSPECTIVE)


def assumptions(lines: Iterable[TranscriptLine], secrets: Sequence[str] = ()) -> list[Found]:
    """What an agent said that it assumes, and at which milestone: before its first change, or while working on."""
    milestone = "before the first change"
    found: dict[str, Found] = {}
    for line in lines:
        if line.kind == "tool" and _CHANGES.match(line.text):
            milestone = "while changing files"
        if line.kind not in ("say", "thought"):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+", line.text):
            words = " ".join(sentence.split()).strip("-*# ")
            if not SHORTEST <= len(words) <= LONGEST or words.endswith("?") or not _ASSUMES.search(words):
                continue
            if redact(words, secrets) == words and len(found) < MOST_ASSUMPTIONS:
                found.setdefault(
                    folded(words),
                    Found(
                        LearningKind.TASK,
                        LearningType.DECLARATIVE,
                        words,
                        IN_FLIGHT,
                        confidence(Basis.MODEL),
                        importance(Touched()),
                        title=f"assumed {milestone}",
                    ),
                )
    return list(found.values())


def _risk(text: str, about: str, basis: Basis) -> Found:
    return Found(
        LearningKind.TASK,
        LearningType.DECLARATIVE,
        text,
        PROSPECTIVE,
        confidence(basis, 2 if basis is Basis.REPEATED else 1),
        importance(Touched()),
        RISK + about,
    )
