"""Operations on what was learned and how well it is used: learnings, candidates, export, train, metrics (SPEC 5, 6, 8);
and on memory: recall, remember, note, suggest, drafts, forget (SPEC 4, 10.4).

The learnings of a workspace have two sources: statements that recurred in its sessions (the promotion chain), and
findings that leaders accepted (the hierarchy).

`note` and `suggest` are for agents that work elsewhere. These act under their own name, never as the operator, so their
cards wait like any other card. `remember` reads lines of JSON. A line that cannot be read is reported with its number;
the other lines are stored. Memories that `remember` stores never expire.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from engine.api.documents import Document, document, instant
from engine.api.operations.operation import (
    ACCEPT_WHOLE_FLOAT,
    Limit,
    NonEmptyText,
    Text,
    match_prefix,
    operation,
    quiet_operation,
    require,
)
from engine.learning.decisions.exporting import Shape
from engine.learning.decisions.training_runs import DPO, RunState
from engine.memory.importing import read_lines
from engine.model import LearningScope, NewMemory, Recall, RecallQuery, Refusal, sanitise
from engine.model.adaptation import CandidateStatus, CandidateType, PromptFragment
from engine.model.base import find_or_none
from engine.model.learnings import find_lessons, make_lesson_id
from engine.model.text import one_line

if TYPE_CHECKING:
    from engine.services import Services

WRITE_FLOW = "write_agents_md"
"""The flow that writes an `AGENTS.md`."""

MAX_CARD_LESSONS = 60
"""Maximum number of lessons on one card."""

MAX_LESSON_CHARS = 12_000
"""Maximum length of all lessons on one card."""

MAX_LISTED_RUNS = 10
"""Maximum number of training runs that are listed."""

DEFAULT_METRIC_DAYS, MAX_METRIC_DAYS = 7, 3_650

Days = Annotated[int, Field(ge=1, le=MAX_METRIC_DAYS), ACCEPT_WHOLE_FLOAT]
Status = Annotated[CandidateStatus, Field(strict=False)]
Type = Annotated[CandidateType, Field(strict=False)]
Format = Annotated[Shape, Field(strict=False)]

RECALL_DEADLINE_S = 20.0
"""Seconds that a layer has. It is longer than for prompts: a person waits for the answer, and the first question loads
the embedding model."""

MAX_LISTED_DRAFTS = 200
"""Maximum number of drafts that are listed, oldest first."""

MAX_NAME_CHARS = 60
MAX_REASON_CHARS = 500

_RESERVED_NAMES = """
    admin administrator alfred api automation autonomy boss butler ceo chief clawpy clawpyconsole console customer
    engine gateway human lucius me moderator myself nightly operator owner root safety self system theoperator theowner
    theuser twin user you
"""
RESERVED_NAMES = frozenset(_RESERVED_NAMES.split())
"""Names that no agent may use: names of the operator, the engine, and of others with their authority."""

_LETTER_BY_LOOKALIKE = str.maketrans("013457$@|!", "oieastsaii")


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
            view = service.view(require("id", id))
            return {"learning": document(view) | _find_lesson_uses(engine, view.entry.lesson)}
        case "scopes":
            return {"scopes": document(service.list_scopes())}
        case "retract":
            return dict(document(service.retract(require("id", id), reason)))
        case "keep":
            return {"kept": document(service.keep(require("id", id)))}
        case "promote":
            return {"promoted": document(service.promote(require("id", id)))}
        case "chain":
            report = service.run_chain(judge=judge)
            judged = [{"id": entry, "verdict": verdict} for entry, verdict in report.judged.items()]
            return dict(document(report), judged=judged)
        case "write":
            return _propose_agents_md(engine, require("workspace", workspace))
    if scope or session or not workspace:
        where = "" if scope == LearningScope.GLOBAL.value else workspace
        entries = service.list_entries(scope, where, session, kind, words, limit)
        return {"workspace": workspace, "learnings": document(entries)}
    listed = _find_learnings_for_workspace(engine, workspace, kind, words, limit)
    return {"workspace": workspace, "learnings": listed[:limit]}


@operation
def candidates(
    engine: Services,
    action: Literal["list", "show", "approve", "reject", "rollback", "undo", "digest", "records"] = "list",
    id: Text = "",
    status: Status | None = None,
    type: Type | None = None,
    kind: Text = "",
    reason: Text = "",
    limit: Limit = 50,
) -> Document:
    """List candidates (by status or type), show, approve, reject, roll back, or undo a decision; `digest` looks for new
    ones now, `records` lists the records they are made from."""
    service = engine.adaptation
    match action:
        case "show":
            return dict(document(service.view(require("id", id))))
        case "approve":
            return {"candidate": document(service.approve(require("id", id)))}
        case "reject":
            return {"candidate": document(service.reject(require("id", id), reason))}
        case "rollback":
            return {"candidate": document(service.roll_back(require("id", id), reason))}
        case "undo":
            return {"candidate": document(service.undo(require("id", id)))}
        case "records":
            return {"records": document(service.records(kind, limit))}
        case "digest":
            reply: Document = {"drafted": document(service.run_round()), "notDrafted": service.not_drafted}
        case _:
            listed = service.candidates(status, type, limit)
            reply = {"candidates": document(listed), "mode": engine.settings.current.adaptation.mode.value}
    statuses, records = service.counts()
    return reply | {"counts": document(statuses), "records": records}


@operation
def export(engine: Services, what: Literal["dpo", "sft"] = "dpo", format: Format = Shape.PLAIN) -> Document:
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
            reply = {"imported": engine.exporter.import_pairs(_read_file_lines(require("file", file)))}
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
        "next": training.missing(engine.clock.now()) or "the next training is due: clawpy train start",
        "runs": document([run.view for run in training.runs(MAX_LISTED_RUNS)]),
    }


@quiet_operation
def metrics(engine: Services, days: Days = DEFAULT_METRIC_DAYS, workspace: Text = "") -> Document:
    """Figures on the cards of the last `days`, today included (SPEC 8.5, 8.6)."""
    trained = (run for run in engine.training.runs() if run.state == RunState.ADOPTED and run.method == DPO)
    last = instant(next((run.updated_at for run in trained), None))
    return {**document(engine.insights.read(days, workspace)), "lastDpoTraining": last}


@quiet_operation
def recall(
    engine: Services,
    query: NonEmptyText,
    k: Limit = 10,
    agent: Text | None = None,
    workspaces: Sequence[str] = (),
    settle: Annotated[float, Field(ge=0, le=30)] = 5.0,
) -> Document:
    """The `k` best memories for `query`, after up to `settle` seconds for vectors that are still being made.
    `agent` may be retired."""
    if agent and agent not in [view.id for view in engine.agents.list_retired()]:
        engine.agents.get(agent)
    missing, problem = engine.memory.missing()
    if missing and not problem and settle:
        engine.memory.settle(settle)
    workspace = workspaces[0] if len(workspaces) == 1 else None
    question = RecallQuery(query, k=k, workspace=workspace, agent=agent)
    result: Recall = engine.memory.recall(question, deadline=RECALL_DEADLINE_S)
    return {"results": document(result.items), "leftOut": list(result.left_out)}


@quiet_operation
def remember(
    engine: Services,
    lines: Sequence[str] = (),
    first: Annotated[int, Field(ge=1, le=10**12), ACCEPT_WHOLE_FLOAT] = 1,
    source: Text = "",
    settle: Annotated[float, Field(ge=0, le=30)] = 0,
) -> Document:
    """Store `lines`, of which the first has the number `first` in `source`; then wait up to `settle` seconds for
    vectors. What is acknowledged is on disk.

    `remembered` are new, `known` were stored before; `bad` lines are skipped, or `kept` without what was wrong.
    """
    items, problems = read_lines(list(lines), first=first, source=source)
    new = engine.memory.remember(items).new if items else 0
    settled = engine.memory.settle(settle, indexed=True) if settle else False
    missing, trouble = engine.memory.missing()
    return {
        "remembered": new,
        "known": len(items) - new,
        "bad": [{"line": problem.line, "message": problem.message, "kept": problem.is_stored} for problem in problems],
        "settled": settled,
        "missing": missing,
        "index": engine.memory.index.state.state,
        "trouble": trouble,
    }


@quiet_operation
def note(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    kind: Literal["fact", "decision", "correction", "note"] = "fact",
    workspace: Text = "",
) -> Document:
    """Store `text` as said `by` an agent, without what looks like a secret. A note lasts a day, other kinds until they
    are forgotten."""
    name = parse_agent_name(by)
    memory = NewMemory(text, kind=kind, speaker=name, workspace=workspace, source=f"mcp:{name}")
    stored = engine.memory.remember([memory])
    return {"id": stored.ids[0], "new": bool(stored.new), "by": name}


@quiet_operation
def suggest(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    workspace: NonEmptyText,
    reason: Text = "",
    channel: Text | None = None,
) -> Document:
    """Make a card with `text`, suggested `by` an agent; the same text again returns the pending card."""
    name, words = parse_agent_name(by), sanitise(text).strip()
    for card in engine.cards.list_pending(include_snoozed=True):
        if (card.assignment.prompt, card.assignment.workspace) == (words, workspace):
            return {"predictions": [document(card)], "new": False}
    why = one_line(reason)[:MAX_REASON_CHARS]
    reasoning = f"suggested by {name}" + (f": {why}" if why else "")
    card = engine.cards.suggest(text, workspace=workspace, channel=channel, reasoning=reasoning)
    return {"predictions": [document(card)], "new": True}


@operation
def drafts(
    engine: Services, action: Literal["list", "promote", "dismiss"] = "list", id: Text = "", edit: Text = ""
) -> Document:
    """List drafts of facts; keep one as a fact, with the text of `edit` if given; or dismiss one for good."""
    service = engine.knowledge.drafts
    waiting = service.waiting(MAX_LISTED_DRAFTS)
    if action == "list":
        return {"drafts": document(waiting)}
    # A decided draft is found by its whole id, so that a repeated verb reports the decision.
    decided_ids = [id] if find_or_none(service.get, require("id", id)) is not None else []
    draft_id = match_prefix(
        id, [*decided_ids, *(draft.id for draft in waiting)], what="draft", see="clawpy drafts list"
    )
    if action == "dismiss":
        return {"drafts": [document(service.reject(draft_id))]}
    fact = service.promote(draft_id, edit=edit)
    return {"drafts": [document(service.get(draft_id))], "fact": document(fact)}


@operation
def forget(engine: Services, what: NonEmptyText, yes: bool = False) -> Document:
    """Preview what forgetting an id or words would delete; with `yes` delete it, which cannot be undone.

    Raises `Refusal`: `nothing_found`, and as `Forgetting.forget`.
    """
    preview = engine.knowledge.forgetting.preview(what)
    if not preview.total:
        message = f"nothing contains “{sanitise(what)[:80]}”"
        raise Refusal("nothing_found", message, "give the full id of an entry, or its exact words")
    counts, remaining = preview.counts, preview.left
    if yes:
        report = engine.knowledge.forgetting.forget(preview.wanted)
        counts, remaining = report.counts, report.left
    return {
        "forgotten": yes,
        "wanted": list(preview.wanted),
        "counts": dict(counts),
        "places": document(preview.places),
        "left": list(remaining),
    }


def _find_learnings_for_workspace(
    engine: Services, workspace: str, kind: str, words: str, limit: int
) -> list[Document]:
    """The active learnings of a project and of all projects, then accepted findings that have another lesson."""
    entries = [
        entry
        for level, where in ((LearningScope.PROJECT, workspace), (LearningScope.GLOBAL, ""))
        for entry in engine.learnings.list_entries(level.value, where, "", kind, words, limit)
        if entry.active
    ]
    lessons = {entry.lesson for entry in entries}
    taught = [
        learnt
        for learnt in ([] if kind else engine.bubbles.list_accepted(workspace))
        if not lessons & {learnt.pattern, make_lesson_id(learnt.text)}
        and all(word in learnt.text.casefold() for word in words.casefold().split())
    ]
    return list(document([*entries, *taught]))


def _find_lesson_uses(engine: Services, lesson: str) -> Document:
    """The other uses of a lesson: the leaders that teach it, and the active candidates that have it."""
    profiles = engine.profiles.read_all([agent.id for agent in engine.agents.list() if agent.tier <= 3])
    leaders = [
        leader
        for leader, profile in profiles.items()
        if any(lesson in (pattern.key, make_lesson_id(pattern.text)) for pattern in profile.patterns)
    ]
    active = engine.adaptation.candidates(CandidateStatus.ACTIVE, CandidateType.PROMPT_FRAGMENT)
    candidates = [
        candidate.id
        for candidate in active
        if isinstance(candidate.effect, PromptFragment) and lesson in find_lessons(candidate.effect.guidance)
    ]
    return {"leaders": leaders, "candidates": candidates, "retracted": lesson in engine.learnings.read_retracted()}


def _propose_agents_md(engine: Services, workspace: str) -> Document:
    """Make a card that writes the lessons of a workspace, newest first, each once."""
    taught = [(learnt.at, learnt.text) for learnt in engine.bubbles.list_accepted(workspace)]
    entries = engine.learnings.list_entries(LearningScope.PROJECT.value, workspace, limit=1000)
    from_sessions = [
        (entry.promoted_at or entry.created_at, entry.text)
        for entry in entries
        if entry.active and not entry.review and entry.may_guide and entry.kind.value != "proxy" and entry.text.strip()
    ]
    dated = sorted([*taught, *from_sessions], key=lambda pair: pair[0].timestamp() if pair[0] else 0.0)
    texts = list({make_lesson_id(text): text for _, text in dated}.values())[::-1]
    if not texts:
        raise Refusal(
            "nothing_learnt",
            f"no learnings of {workspace} go beyond a single session yet",
            "`clawpy learnings chain` looks again; `clawpy bubbles flush` sends queued findings up",
        )
    lessons: list[str] = []
    for text in texts:  # the newest first, until the card is full
        if len(lessons) == MAX_CARD_LESSONS or sum(map(len, lessons)) + len(text) > MAX_LESSON_CHARS:
            break
        lessons.append(text)
    prompt = f"{WRITE_FLOW} {json.dumps({'lessons': lessons}, ensure_ascii=False)}"
    card = engine.cards.propose(prompt, workspace=workspace)
    return {"predictions": [document(card)], "leftOut": len(texts) - len(lessons)}


def _read_file_lines(file: str) -> list[str]:
    """The lines of a file that are not empty. Raises `Refusal` `unreadable_file`."""
    try:
        return [line for line in Path(file).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Refusal(
            "unreadable_file", f"{file} cannot be read: {reason}", "name a file of JSON lines in UTF-8"
        ) from error


def parse_agent_name(given_name: str) -> str:
    """The name of an agent, on one line.

    Raises `Refusal`: `bad_arguments` for an empty name, `not_its_name` for a reserved name in any spelling.
    """
    from engine.safety.content.shell import fold_text  # imported here, because it loads the whole content filter

    name = one_line(given_name)[:MAX_NAME_CHARS]
    if not name:
        raise Refusal("bad_arguments", "an agent needs a name", "for example claude-code")
    plain = unicodedata.normalize("NFKD", fold_text(name)).casefold()
    letters = "".join(filter(str.isalnum, plain))
    spoken = "".join(filter(str.isalnum, plain.translate(_LETTER_BY_LOOKALIKE)))
    bare = {letters, letters.rstrip("0123456789"), spoken, spoken.replace("i", "l")}
    if bare & RESERVED_NAMES or not any(letter.isalnum() for letter in name):
        raise Refusal("not_its_name", f"no agent may be named {name!r}", "use its own name, for example claude-code")
    return name
