"""The verb of what was learnt (SPEC 1.12, 6, 9.8): what holds here and why, what becomes of it, and AGENTS.md.

What a workspace learnt is both: what its sessions said again and again (the promotion chain), and what workers found
out and their leaders took up (the hierarchy).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import LearningEntry, LearningScope, LearningView, Learnt, Refusal, ScopeState
from engine.model.adaptation import CandidateStatus, CandidateType, PromptFragment
from engine.model.lessons import lesson_id, lessons_of
from engine.model.trust import label

if TYPE_CHECKING:
    from engine.engine import Engine

WRITES = "write_agents_md"
"""The flow that writes an `AGENTS.md`."""

MOST_LESSONS, MOST_TEXT = 60, 12_000
"""So many texts, and so many characters of them, go onto one card."""

ACTIONS = ("list", "show", "scopes", "retract", "keep", "promote", "chain", "write")


def learnings(engine: Engine, arguments: Arguments) -> Document:
    """list: what holds in a workspace, or the entries of a scope or a session; show: one, with where it came from and
    went; scopes; retract, keep, promote one; chain: run the promotion chain now, with `judge` up to all projects;
    write: a card that writes what the workspace learnt into its `AGENTS.md` (SPEC 1.12)."""
    port = engine.learnings
    match arguments.choice("action", ACTIONS, "list"):
        case "show":
            one = port.view(arguments.needed("id"))
            return {"learning": view(one) | _stands(engine, one.entry.lesson)}
        case "scopes":
            return {"scopes": [_scope(one) for one in port.scopes()]}
        case "retract":
            report = port.retract(arguments.needed("id"), arguments.text("reason"))
            gone: Document = {"retired": list(report.retired), "queued": list(report.queued)}
            return gone | {"sessions": list(report.sessions)}
        case "keep":
            return {"kept": entry(port.keep(arguments.needed("id")))}
        case "promote":
            return {"promoted": entry(port.promote(arguments.needed("id")))}
        case "chain":
            done = port.chain(judge=arguments.flag("judge"))
            document: Document = {"extracted": dict(done.extracted), "promoted": list(done.promoted)}
            document |= {"reinforced": list(done.reinforced)}
            document |= {"compacted": list(done.compacted), "faults": list(done.faults)}
            return document | {"judged": [{"id": id, "verdict": said} for id, said in done.judged.items()]}
        case "write":
            return _write(engine, arguments.needed("workspace"))
    return _list(engine, arguments)


def _list(engine: Engine, arguments: Arguments) -> Document:
    workspace, scope, session = (arguments.text(name) for name in ("workspace", "scope", "session"))
    kind, words = arguments.text("kind"), arguments.text("words")
    limit = int(arguments.number("limit", 50, least=1, most=1000))
    if scope or session or not workspace:
        where = "" if scope == LearningScope.GLOBAL.value or not workspace else workspace
        found = engine.learnings.entries(scope, where, session, kind, words, limit)
        return {"workspace": workspace, "learnings": [entry(one) for one in found]}
    held = [
        one
        for level, where in ((LearningScope.PROJECT, workspace), (LearningScope.GLOBAL, ""))
        for one in engine.learnings.entries(level.value, where, "", kind, words, limit)
        if one.active
    ]
    wanted = words.casefold().split()
    taught = [] if kind else engine.wisdom.learnt(workspace)
    lessons = {one.lesson for one in held}
    told = [one for one in taught if not lessons & {one.pattern, lesson_id(one.text)}]
    said = [_learnt(one) for one in told if all(word in one.text.casefold() for word in wanted)]
    return {"workspace": workspace, "learnings": [*map(entry, held), *said][:limit]}


def _stands(engine: Engine, lesson: str) -> Document:
    """Where a lesson stands besides the pages: which leaders say it, and which learned guidance, by its candidate."""
    leaders = [one.id for one in engine.hierarchy.list() if one.tier <= 3 and _says(engine, one.id, lesson)]
    fragments = engine.adaptation.candidates(CandidateStatus.PROMOTED, CandidateType.PROMPT_FRAGMENT)
    said = [one for one in fragments if isinstance(one.effect, PromptFragment)]
    guides = [one.id for one in said if lesson in lessons_of(one.effect.guidance)]  # type: ignore[union-attr]
    return {"leaders": leaders, "candidates": guides, "retracted": lesson in engine.learnings.retracted()}


def _says(engine: Engine, leader: str, lesson: str) -> bool:
    return any(lesson in (one.key, lesson_id(one.text)) for one in engine.wisdom.profile(leader).patterns)


def _write(engine: Engine, workspace: str) -> Document:
    """A card that writes what the workspace learnt down: what its leaders took up and what its sessions say again and
    again, the newest first, each once."""
    taught = [(one.at, one.text) for one in engine.wisdom.learnt(workspace)]
    entries = engine.learnings.entries(LearningScope.PROJECT.value, workspace, limit=1000)
    said = [
        (one.promoted_at or one.created_at, one.text)
        for one in entries
        if one.active and not one.review and one.may_guide and one.kind.value != "proxy" and one.text.strip()
    ]
    dated = sorted([*taught, *said], key=lambda one: one[0].timestamp() if one[0] else 0.0, reverse=True)
    found = list({lesson_id(text): text for _, text in reversed(dated)}.values())[::-1]
    if not found:
        raise Refusal(
            "nothing_learnt",
            f"no learnings of {workspace} go beyond a single session yet",
            "`clawpy learnings chain` looks again; `clawpy bubbles flush` sends queued findings up",
        )
    lessons: list[str] = []
    for text in found:  # the newest, as many as a card takes
        if len(lessons) == MOST_LESSONS or sum(map(len, lessons)) + len(text) > MOST_TEXT:
            break
        lessons.append(text)
    asked = f"{WRITES} {json.dumps({'lessons': lessons}, ensure_ascii=False)}"
    card = engine.cards.propose(asked, workspace=workspace)
    return {"predictions": [wire.card(card)], "leftOut": len(found) - len(lessons)}


def entry(one: LearningEntry) -> Document:
    """A learning by itself."""
    return {
        "id": one.id,
        "lesson": one.lesson,
        "text": one.text,
        "title": one.title,
        "scope": one.scope.value,
        "scopeId": one.scope_id,
        "kind": one.kind.value,
        "type": one.type.value,
        "domain": one.domain,
        "status": one.status.value,
        "phase": one.phase,
        "confidence": one.confidence,
        "importance": one.importance,
        "reasons": list(one.reasons),
        "reinforcementCount": one.reinforcement_count,
        "lastReinforced": wire.instant(one.last_reinforced),
        "createdAt": wire.instant(one.created_at),
        "session": one.session_id,
        "task": one.session_task,
        "targetAgent": one.agent,
        "workspace": one.workspace,
        "promotedAt": wire.instant(one.promoted_at),
        "promotedFrom": [{"id": source.entry, "session": source.session} for source in one.promoted_from],
        "review": one.review,
        "trust": label(one.trust, approved=bool(one.approved_by)),
        "approvedBy": one.approved_by,
        "approvedAt": wire.instant(one.approved_at),
        "because": one.retired_because or one.merged_into,
        "path": one.path,
    }


def view(one: LearningView) -> Document:
    """A learning with where it came from and went."""
    return entry(one.entry) | {
        "from": [entry(source) for source in one.promoted_from],
        "became": [entry(later) for later in one.promoted_to],
        "sessions": list(one.sessions),
        "gone": list(one.gone),
        "prompts": one.prompts,
        "reached": [
            {"call": call.call, "session": call.session, "targetAgent": call.agent, "at": wire.instant(call.at)}
            for call in one.reached
        ],
    }


def _scope(one: ScopeState) -> Document:
    return {
        "scope": one.scope.value,
        "scopeId": one.scope_id,
        "workspace": one.workspace,
        "path": one.path,
        "institutional": one.institutional,
        "tasks": one.tasks,
        "proxy": one.proxy,
        "retired": one.retired,
        "newest": wire.instant(one.newest),
        "faults": list(one.faults),
    }


def _learnt(one: Learnt) -> Document:
    """What a leader took up; its `scope` is the leader's."""
    return {
        "text": one.text,
        "scope": "leadership",
        "leader": one.leader,
        "pattern": one.pattern,
        "targetAgent": one.agent,
        "session": one.session,
        "at": wire.instant(one.at),
    }
