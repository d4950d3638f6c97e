"""The verbs of wisdom down and discoveries up (SPEC 1.5 to 1.8, 9.8): guidance, bubbles, and an agent's tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.hierarchy import profile_text
from engine.model import (
    Bubble,
    BubbleState,
    FlushReport,
    Guidance,
    GuidanceItem,
    LeaderProfile,
    Refusal,
    TeachingState,
)
from engine.model.trust import label

if TYPE_CHECKING:
    from engine.engine import Engine


def guidance(engine: Engine, arguments: Arguments) -> Document:
    """What the next prompt of an agent will carry; with `reportsTo` also what it would carry there."""
    agent = arguments.needed("id")
    elsewhere = arguments.text("reportsTo")
    if not elsewhere:
        wisdom = engine.wisdom
        document = _guidance(wisdom.guidance(agent)) | {"teaching": _teaching(wisdom.teaching(agent))}
        return document if document["hops"] else document | {"profile": _profile(wisdom.profile(agent))}
    preview = engine.wisdom.preview_move(agent, elsewhere)
    return _guidance(preview.before) | {"moved": _guidance(preview.after)}


def profile(engine: Engine, arguments: Arguments) -> Document:
    """What a leader tells those below it, as a text to edit; with `text` what that would change, and with `yes` as
    well it is saved. With `undo` the last save is undone."""
    leader, wisdom = arguments.needed("id"), engine.wisdom
    if arguments.flag("undo"):
        return {"leader": leader, "text": profile_text.printed(wisdom.undo_profile(leader)), "undone": True}
    before = wisdom.profile(leader)
    said = {"leader": leader, "text": profile_text.printed(before)}
    text = arguments.maybe("text")
    if text is None:
        return said
    profile_text.refuse_stale(before, text)
    edits = wisdom.profile_edits(before, text)
    preview = wisdom.preview_profile(leader, edits)
    if arguments.flag("yes") and edits:
        wisdom.revise_profile(leader, edits)
    return said | {
        "edits": [{"section": one.section, "key": one.key, "value": one.value} for one in edits],
        "fromSoul": list(preview.from_soul),
        "prompts": [{"agents": agents, "changes": list(lines)} for agents, lines in preview.changes],
        "saved": arguments.flag("yes") and bool(edits),
    }


def bubbles(engine: Engine, arguments: Arguments) -> Document:
    """list (of one state or agent), flush, approve: let words of others go up."""
    action = arguments.choice("action", ("list", "flush", "approve"), "list")
    if action == "flush":
        engine.learnings.catch_up()  # what was learnt a moment ago goes up, too
        return flushed(engine.wisdom.flush())
    if action == "approve":
        return {"bubbles": [bubble(engine.wisdom.approve(arguments.needed("id")))]}
    state = arguments.text("state")
    known = [one.value for one in BubbleState]
    if state and state not in known:
        raise Refusal("bad_state", f"findings have no state {state!r}", "one of " + ", ".join(known))
    found = engine.wisdom.bubbles(
        state=BubbleState(state) if state else None,
        agent=arguments.text("agent"),
        limit=int(arguments.number("limit", 50, least=1, most=1000)),
    )
    return {"bubbles": [bubble(one) for one in found]}


def assign_tier(engine: Engine, agent: str, arguments: Arguments) -> None:
    """Say which tier an agent is, or with `auto` that the other rules decide (SPEC 1.2)."""
    said = arguments.anything("tier")
    if said == "auto":
        engine.hierarchy.assign_tier(agent, None)
        return
    try:
        tier = int(str(said))
    except ValueError as error:
        raise Refusal("bad_tier", f"{said!r} is not a tier", "a whole number from 1 to 5, or auto") from error
    engine.hierarchy.assign_tier(agent, tier)


def bubble(one: Bubble) -> Document:
    """A learning on its way up, with what the gates said."""
    refused = one.refused_by
    return {
        "id": one.id,
        "state": one.state.value,
        "targetAgent": one.learning.agent,
        "leader": one.leader,
        "text": one.learning.text,
        "category": one.learning.category,
        "confidence": one.learning.confidence.value,
        "importance": one.learning.importance.value,
        "evidence": list(one.learning.evidence),
        "reasons": [*one.learning.confidence.reasons, *one.learning.importance.reasons],
        "gates": [{"number": g.number, "name": g.name, "passed": g.passed, "reason": g.reason} for g in one.gates],
        "refusedBy": refused.name if refused else "",
        "session": one.learning.session,
        "workspace": one.learning.workspace,
        "createdAt": wire.instant(one.at),
        "flushedAt": wire.instant(one.flushed_at),
        "pattern": one.pattern,
        "trust": label(one.learning.trust, approved=one.approved_at is not None),
    }


def flushed(report: FlushReport) -> Document:
    """What a round of the queue did."""
    return {
        "flushed": {leader: list(ids) for leader, ids in report.flushed.items()},
        "waiting": report.waiting,
        "cloudSyncFailure": report.failed,
    }


def _guidance(one: Guidance) -> Document:
    return {
        "targetAgent": one.agent,
        "tier": one.tier,
        "guidance": one.block,
        "tokens": one.tokens,
        "budget": one.budget,
        "reason": one.reason,
        "chain": list(one.chain),
        "chainEnd": one.chain_end,
        "hops": [
            {
                "leader": hop.leader,
                "tier": hop.tier,
                "hop": hop.hop,
                "share": hop.share,
                "tokens": hop.tokens,
                "kept": [_item(item) for item in hop.kept],
                "cut": [_item(item) for item in hop.cut],
                "why": hop.why,
            }
            for hop in one.hops
        ],
        "provenance": dict(one.provenance),
    }


def _profile(one: LeaderProfile) -> Document:
    return {
        "domain": one.domain,
        "principles": list(one.principles),
        "guardrails": list(one.guardrails),
        "patterns": [
            {"key": each.key, "text": each.said, "foundBy": len(each.sources), "uses": each.uses}
            for each in one.patterns
        ],
        "decisions": [{"key": each.id, "text": each.text} for each in one.decisions],
    }


def _item(one: GuidanceItem) -> Document:
    return {"section": one.section, "ref": one.ref, "text": one.text, "tokens": one.tokens}


def _teaching(one: TeachingState) -> Document:
    return {
        "enabled": one.enabled,
        "last": wire.instant(one.last),
        "next": wire.instant(one.next),
        "diff": one.diff,
        "reason": one.reason,
    }
