"""Flows that were learnt (SPEC 5.4): offered when what they look at changed since they last ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from engine.model import Proposal
from engine.model.words import count, moment
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    proposed,
)


@dataclass(frozen=True, slots=True)
class LearnedWork:
    """A flow in force. `prompt` says what it runs, `since` when it was promoted; `workspace` "" is for all."""

    name: str
    prompt: str
    since: datetime
    workspace: str = ""


def learned(context: WorkspaceContext, works: Iterable[LearnedWork]) -> list[Proposal]:
    """A card for each that has not run on the present state; one for HEAD, one more for what is not committed."""
    git = context.seen
    if not git.head or git.operation:
        return []
    return [
        proposal
        for work in works
        if work.workspace in ("", context.workspace) and (proposal := _offer(context, work)) is not None
    ]


def _offer(context: WorkspaceContext, work: LearnedWork) -> Proposal | None:
    git = context.git
    assert git is not None
    moments = [file.modified_at for file in git.files if file.modified_at] + [one.at for one in git.recent[:1]]
    changed = max(moments, default=work.since)
    began = [one.created_at for one in context.sessions if one.flow == work.name]
    last = max(began, default=None)
    if last is not None and last >= changed:
        return None
    dirty = len(git.files) + git.more_files
    state = f"{count(dirty, 'uncommitted file')}" if dirty else "a new commit"
    ran = f"It ran last {moment(last, context.local)}." if last else "It was learnt, and has not run here yet."
    offer = Offer(
        work.prompt,
        f"{ran} There is {state}; agents ran these commands one after the other again and again.",
        subject=work.name,
        facts={"flow": work.name, "head": git.head, "dirty": bool(dirty)},
        parameters={},
        evidence_at=changed,
    )
    return proposed(context, work.name, offer)
