"""Operations on what was learned and how well it is used: learnings, candidates, export, train, metrics (SPEC 5, 6, 8).

The learnings of a workspace have two sources: statements that recurred in its sessions (the promotion chain), and
findings that leaders accepted (the hierarchy). What both have in common is the lesson, so of two entries with the same
lesson one is listed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from engine.api.documents import Document, document, instant
from engine.api.operations import (
    ACCEPT_WHOLE_FLOAT,
    Limit,
    Text,
    operation,
    quiet_operation,
    require_argument,
)
from engine.learning.decisions.exporting import Shape
from engine.learning.decisions.training_runs import DPO, RunState
from engine.lessons import find_lessons, make_lesson_id
from engine.model import LearningEntry, LearningScope, Refusal
from engine.model.adaptation import CandidateStatus, CandidateType, PromptFragment

if TYPE_CHECKING:
    from engine.services import Services

MAX_LISTED_RUNS = 10
"""Maximum number of training runs that are listed."""

WRITE_FLOW = "write_agents_md"
"""The flow that writes an `AGENTS.md`."""

MAX_CARD_LESSONS = 60
"""Maximum number of lessons on one card."""

MAX_LESSON_CHARS = 12_000
"""Maximum length of all lessons on one card. A longer prompt would be refused."""

DEFAULT_METRIC_DAYS, MAX_METRIC_DAYS = 7, 3_650

ALL_ENTRIES = 1_000_000
"""More learnings than a home has."""

Days = Annotated[int, Field(ge=1, le=MAX_METRIC_DAYS), ACCEPT_WHOLE_FLOAT]
CandidateStatusArgument = Annotated[CandidateStatus, Field(strict=False)]
CandidateTypeArgument = Annotated[CandidateType, Field(strict=False)]
ShapeArgument = Annotated[Shape, Field(strict=False)]


@operation
def learnings(
    engine: Services,
    action: Literal["list", "show", "scopes", "retract", "keep", "promote", "chain", "write"] = "list",
    workspace: Text = "",
    id: Text = "",
    reason: Text = "",
    scope: Text = "",
    session: Text = "",
    kind: Text = "",
    words: Text = "",
    limit: Limit = 50,
    judge: bool = False,
) -> Document:
    """List learnings of a workspace, scope or session; show one with its sources; list scopes; retract, keep or promote
    one; run the promotion chain (with `judge` up to all projects); or make a card that writes them into `AGENTS.md`
    (SPEC 1.12)."""
    service = engine.learnings
    match action:
        case "show":
            view = service.view(require_argument("id", id))
            return {"learning": document(view) | _find_lesson_uses(engine, view.entry.lesson)}
        case "scopes":
            return {"scopes": document(service.list_scopes())}
        case "retract":
            return dict(document(service.retract(require_argument("id", id), reason)))
        case "keep":
            return {"kept": document(service.keep(require_argument("id", id)))}
        case "promote":
            return {"promoted": document(service.promote(require_argument("id", id)))}
        case "chain":
            return _run_chain(engine, judge=judge)
        case "write":
            return _propose_agents_md(engine, require_argument("workspace", workspace))
    if workspace and not scope and not session:
        documents = _find_learnings_for_workspace(engine, workspace, kind=kind, words=words, limit=limit)
    else:
        scope_workspace = "" if scope == LearningScope.GLOBAL.value else workspace
        documents = document(service.list_entries(scope, scope_workspace, session, kind=kind, words=words, limit=limit))
    return {"workspace": workspace, "learnings": documents}


@operation
def candidates(
    engine: Services,
    action: Literal["list", "show", "approve", "reject", "rollback", "undo", "digest", "records"] = "list",
    id: Text = "",
    status: CandidateStatusArgument | None = None,
    type: CandidateTypeArgument | None = None,
    kind: Text = "",
    reason: Text = "",
    limit: Limit = 50,
) -> Document:
    """List candidates (by status or type), show, approve, reject, roll back, or undo a decision; `digest` looks for new
    ones now, `records` lists the records they are made from."""
    service = engine.adaptation
    match action:
        case "show":
            return dict(document(service.view(require_argument("id", id))))
        case "approve":
            return {"candidate": document(service.approve(require_argument("id", id)))}
        case "reject":
            return {"candidate": document(service.reject(require_argument("id", id), reason))}
        case "rollback":
            return {"candidate": document(service.roll_back(require_argument("id", id), reason))}
        case "undo":
            return {"candidate": document(service.undo(require_argument("id", id)))}
        case "records":
            return {"records": document(service.list_records(kind, limit))}
        case "digest":
            reply: Document = {"drafted": document(service.run_round()), "notDrafted": service.not_drafted}
        case _:
            listed = service.list_candidates(status, type, limit)
            reply = {"candidates": document(listed), "mode": engine.settings.current.adaptation.mode.value}
    statuses, records = service.count()
    return reply | {"counts": document(statuses), "records": records}


@operation
def export(engine: Services, what: Literal["dpo", "sft"] = "dpo", format: ShapeArgument = Shape.PLAIN) -> Document:
    """Export preference pairs (`dpo`) in a format, or conversations (`sft`) (SPEC 8.3)."""
    result = engine.exporter.export_preferences(format) if what == "dpo" else engine.exporter.export_conversations()
    return {"what": what, "format": format.value if what == "dpo" else "messages", **document(result)}


@operation
def train(
    engine: Services,
    action: Literal["status", "start", "cancel", "adopt", "back", "import"] = "status",
    file: Text = "",
) -> Document:
    """Show trainings and move the current one on, start, cancel, adopt, go back, or import pairs (SPEC 8.4)."""
    training = engine.training
    reply: Document = {}
    match action:
        case "import":
            reply = {"imported": engine.exporter.import_pairs(_read_file_lines(require_argument("file", file)))}
        case "start":
            training.launch()
        case "cancel":
            training.cancel()
        case "adopt":
            training.adopt()
        case "back":
            training.restore_former()
        case _:
            training.step()
    return reply | {
        "twinModel": engine.model_twin.model_id or None,
        "enabled": engine.settings.current.twin_model_enabled,
        "next": training.describe_missing(engine.clock.now()) or "the next training is due: clawpy train start",
        "runs": document([run.view for run in training.list_runs(MAX_LISTED_RUNS)]),
    }


@quiet_operation
def metrics(engine: Services, days: Days = DEFAULT_METRIC_DAYS, workspace: Text = "") -> Document:
    """Figures on the cards of the last `days`, today included (SPEC 8.5, 8.6)."""
    adopted_runs = (run for run in engine.training.list_runs() if run.state == RunState.ADOPTED and run.method == DPO)
    last_training_at = instant(next((run.updated_at for run in adopted_runs), None))
    return {**document(engine.insights.read(days, workspace)), "lastDpoTraining": last_training_at}


def _find_lesson_uses(engine: Services, lesson: str) -> Document:
    """The other uses of a lesson: the leaders that teach it, and the active candidates that have it."""
    profiles = engine.profiles.read_all([agent.id for agent in engine.agents.list_agents() if agent.tier <= 3])
    leaders = [
        leader
        for leader, profile in profiles.items()
        if any(lesson in (pattern.key, make_lesson_id(pattern.text)) for pattern in profile.patterns)
    ]
    active = engine.adaptation.list_candidates(CandidateStatus.ACTIVE, CandidateType.PROMPT_FRAGMENT)
    candidates = [
        candidate.id
        for candidate in active
        if isinstance(candidate.effect, PromptFragment) and lesson in find_lessons(candidate.effect.guidance)
    ]
    return {"leaders": leaders, "candidates": candidates, "retracted": lesson in engine.learnings.read_retracted()}


def _run_chain(engine: Services, *, judge: bool) -> Document:
    """Run the promotion chain, and report what became of each entry."""
    report = engine.learnings.run_chain(judge=judge)
    judged = [{"id": entry, "verdict": verdict} for entry, verdict in report.judged.items()]
    return dict(document(report), judged=judged)


def _find_learnings_for_workspace(
    engine: Services, workspace: str, *, kind: str, words: str, limit: int
) -> list[Document]:
    """At most `limit` documents: the active learnings of a project and of all projects, then accepted findings that
    have another lesson. A finding has no kind."""
    entries = [
        *_list_active_learnings(engine, LearningScope.PROJECT, workspace, kind=kind, words=words),
        *_list_active_learnings(engine, LearningScope.GLOBAL, "", kind=kind, words=words),
    ]
    lessons = {entry.lesson for entry in entries}
    findings = [
        finding
        for finding in ([] if kind else engine.bubbles.list_accepted(workspace))
        if not lessons & {finding.pattern, make_lesson_id(finding.text)}
        and all(word in finding.text.casefold() for word in words.casefold().split())
    ]
    return list(document([*entries, *findings][:limit]))


def _list_active_learnings(
    engine: Services, scope: LearningScope, workspace: str, *, kind: str = "", words: str = ""
) -> list[LearningEntry]:
    """All active learnings of a scope, newest first."""
    entries = engine.learnings.list_entries(scope.value, workspace, kind=kind, words=words, limit=ALL_ENTRIES)
    return [entry for entry in entries if entry.is_active]


def _propose_agents_md(engine: Services, workspace: str) -> Document:
    """Make a card that writes the lessons of a workspace, newest first, until the card is full. Raises `Refusal`
    `nothing_learnt`."""
    lessons = _list_lessons_by_age(engine, workspace)
    if not lessons:
        raise Refusal(
            "nothing_learnt",
            f"no learnings of {workspace} go beyond a single session yet",
            "`clawpy learnings chain` looks again; `clawpy bubbles flush` sends queued findings up",
        )
    written = _take_for_one_card(lessons)
    prompt = f"{WRITE_FLOW} {json.dumps({'lessons': written}, ensure_ascii=False)}"
    card = engine.cards.propose(prompt, workspace=workspace)
    return {"predictions": [document(card)], "leftOut": len(lessons) - len(written)}


def _take_for_one_card(lessons: Sequence[str]) -> list[str]:
    """The first lessons that fit on one card together. One that is too long for what is left is passed over."""
    chosen_lessons: list[str] = []
    for lesson in lessons[:MAX_CARD_LESSONS]:
        if sum(map(len, chosen_lessons)) + len(lesson) <= MAX_LESSON_CHARS:
            chosen_lessons.append(lesson)
    return chosen_lessons


def _list_lessons_by_age(engine: Services, workspace: str) -> list[str]:
    """The lessons of a workspace that may guide agents, newest first, each once in its newest wording."""
    findings = [(finding.at, finding.text) for finding in engine.bubbles.list_accepted(workspace)]
    learned = [
        (entry.promoted_at or entry.created_at, entry.text)
        for entry in _list_active_learnings(engine, LearningScope.PROJECT, workspace)
        if entry.is_comparable and entry.may_guide
    ]
    oldest_first = sorted([*findings, *learned], key=lambda pair: pair[0].timestamp() if pair[0] else 0.0)
    return list({make_lesson_id(text): text for _, text in oldest_first}.values())[::-1]


def _read_file_lines(file: str) -> list[str]:
    """The lines of a file that are not empty. Raises `Refusal` `unreadable_file`."""
    try:
        return [line for line in Path(file).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Refusal(
            "unreadable_file", f"{file} cannot be read: {reason}", "name a file of JSON lines in UTF-8"
        ) from error
