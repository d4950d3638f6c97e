"""What a check found in a workspace, and what that means for the cards that are pending there.

A card whose evidence is gone must be withdrawn, one whose evidence stays gives the reasons of the last check, and work
that the operator did without a card is recognised. `cycle` asks this; nothing here decides which new cards are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from sqlmodel import Session

from engine.frozen import frozen
from engine.model import Assignment, Card, Proposal, Source, sanitise
from engine.prediction.card_rows import CardRow, load_card
from engine.prediction.context import WorkspaceContext

BOUND_TO_EVIDENCE = (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
"""Sources of cards that are withdrawn when their evidence is gone."""


@frozen
class Findings:
    """What a round found in one workspace."""

    context: WorkspaceContext
    proposals: tuple[Proposal, ...]
    complete: bool
    """False if something could not be read. Then no card is withdrawn."""
    unchecked: frozenset[str] = frozenset()
    """The kinds of cards whose check failed. Their cards are not withdrawn."""
    can_replace: bool = True
    """False if the round makes one next step at most. Then no card makes way for another about the same evidence."""

    def proposal_of(self, card: Card) -> Proposal | None:
        """The proposal that has the evidence and the subject of a pending card."""
        for proposal in self.proposals:
            if (proposal.fingerprint, proposal.about) == (card.fingerprint, card.about):
                return proposal
        return None

    def has_lost(self, card: Card, now: datetime, is_edited: Callable[[str], bool]) -> bool:
        """Whether a pending card must go: its evidence is gone, or asks for other work by now.

        What a card would run is never replaced under its id, because an approval must run what the operator read.
        Another card takes its place. An edited card runs what the operator wrote, so it stays; `is_edited(card id)`
        says which are. A snoozed card stays while its subject exists, since a new card would show it before its time.
        """
        if not self.complete or card.source not in BOUND_TO_EVIDENCE or card.kind in self.unchecked:
            return False
        proposal = self.proposal_of(card)
        if proposal is not None and (
            not self.can_replace or _is_same_work(proposal, card.assignment) or is_edited(card.id)
        ):
            return False
        return not (card.snoozed(now) and any(proposal.about == card.about for proposal in self.proposals))


def _is_same_work(proposal: Proposal, assignment: Assignment) -> bool:
    """Whether a card for the proposal would run this."""
    parameters = json.loads(json.dumps(dict(proposal.parameters)))  # as they are stored
    work = (sanitise(proposal.prompt), proposal.flow, parameters)
    return work == (assignment.prompt, assignment.flow, dict(assignment.parameters))


def leaving_cards(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings], now: datetime) -> set[str]:
    """The ids of the pending cards that must go; see `Findings.has_lost`. `findings` are those of each workspace."""

    def is_edited(card_id: str) -> bool:
        return bool(load_card(session, card_id).original_prompt)

    return {
        card.id
        for card in cards
        if card.workspace in findings and findings[card.workspace].has_lost(card, now, is_edited)
    }


def renew_reasons(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings]) -> None:
    """Give the pending cards the reasons that their proposals have now, unless these are the reasons for other work.

    Their confidence stays as it was stated, because it is compared with the decision (SPEC 8.6). How relevant a signal
    is changes with every minute, and is no reason to write to the disk.
    """
    for card in cards:
        proposal = findings[card.workspace].proposal_of(card) if card.workspace in findings else None
        if proposal is None or _reasons(card) == _reasons(proposal):
            continue
        row = load_card(session, card.id)
        if row.original_prompt or _is_same_work(proposal, card.assignment):
            row.reasoning, row.evidence_at = sanitise(proposal.reasoning), proposal.evidence_at
            row.signals = proposal.signals


def _reasons(of: Card | Proposal) -> tuple[str, datetime | None, list[tuple[str, ...]]]:
    """The reasons that a card gives, or would give."""
    return sanitise(of.reasoning), of.evidence_at, [signal.evidence for signal in of.signals if signal.relevance]


def is_done_by_operator(card: CardRow, now: WorkspaceContext, own_session_ids: Collection[str] = ()) -> bool:
    """Whether the state of the workspace shows that the operator did the work of `card` (SPEC 8.1): the tests ran by a
    prompt of the operator (`own_session_ids`), the branch was merged, or one of the branches is gone.

    Work of another card does not count. Neither does a change that only removes the evidence: a commit of a file is no
    check of HEAD, and a test that passes again was not bisected."""
    git = now.git
    if git is None:
        return False
    match card.kind:
        case "run_tests":
            return any(run.ran_at > card.created_at and run.session_id in own_session_ids for run in now.runs)
        case "rehearse_merge":
            on_target = git.branch == card.parameters.get("target") and git.behind_base == 0
            return on_target and any(commit.at > card.created_at for commit in git.recent[:1])
        case "report_branches":
            names = {branch.name for branch in git.branches}
            return any(name not in names for name, _ in card.facts.get("branches", ()))
    return False
