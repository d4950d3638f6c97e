"""The table of cards (SPEC 2.7): its rows, the legal transitions of a row, how rows are made and become cards, and the
queries of several modules.

A row is what the database has of a card. `Card` in `engine.model` is what other packages, screens and JSON see of it.
`card_store` changes rows, `checks`, `selection` and `cards` make new ones, and nobody outside of this package sees one.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlmodel import Field, Session

from engine.events.work import PredictionCreated
from engine.execution.runners.flows import describe_changes, gives_change_set, name_work
from engine.model import (
    COLD_START_CONFIDENCE,
    Assignment,
    Card,
    ConfidenceParts,
    DecidedBy,
    DecidedCard,
    GateRuleName,
    Outcome,
    Proposal,
    RailVerdict,
    Refusal,
    RunnerInfo,
    Signal,
    Source,
    Status,
    Tier,
    is_expired,
)
from engine.prediction.twin import ConfidenceEstimate, find_band
from engine.storage import (
    Row,
    ask,
    load,
    load_all,
    read_all,
    value_of,
)
from engine.text import sanitise

WAS_FLOW = "was_flow"
"""Key of a card's facts: its flow before the operator replaced the parameters by a sentence."""

_FIELDS_OF_ASSIGNMENT = ("prompt", "workspace", "runner", "flow")
_FIELDS_OF_PROPOSAL = (
    "task_id", "kind", "subject", "fingerprint", "signals", "evidence_at", "source", "tier",
)  # fmt: skip
"""The fields of a card that its assignment and its proposal have under the same names."""

_COPIED_FIELDS = (
    *_FIELDS_OF_ASSIGNMENT, *_FIELDS_OF_PROPOSAL,
    "target_agent", "target_channel", "parameters", "original_prompt", "reasoning", "facts",  # its work
    "confidence", "parts", "context", "verdicts", "has_novel_pair", "from_channel",  # how it was judged
    "consent_text", "estimate_microusd", "check_only", "undo_note",  # its runner: see `CardRow.set_runner`
)  # fmt: skip
"""The fields of a card that belong to its work and not to its life. A copy has neither text features nor an
embedding."""


class CardRow(Row, table=True):
    """One card. Money in micro-dollars; `tier` is 1 to 4 (SPEC 2.11). `schema.sql` says what a row may hold."""

    __tablename__ = "predictions"
    id: str = Field(primary_key=True)
    user_id: str = "local"
    prompt: str
    target_agent: str
    target_channel: str
    confidence: float
    reasoning: str = ""
    status: Status = Status.PENDING
    source: Source = Source.TEMPLATE
    created_at: datetime
    confirmed_at: datetime | None = None
    executed_at: datetime | None = None
    task_id: str | None = None
    dpo_exported: bool = False
    """Whether it is in an exported pair of preferences; `engine.learning.decisions.exporting` writes it."""

    kind: str
    workspace: str
    runner: str
    flow: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    original_prompt: str = ""
    subject: str = Field(sa_column_kwargs={"server_default": ""})
    fingerprint: str
    facts: dict[str, Any] = Field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    parts: ConfidenceParts | None = None
    """The parts of its confidence, None if nothing estimated it."""
    verdicts: tuple[RailVerdict, ...] = ()
    context: str = ""
    estimate_microusd: int = 0
    check_only: bool = True
    undo_note: str = ""
    has_novel_pair: bool = Field(default=False, sa_column_kwargs={"name": "novel"})
    """Whether its pair of channels never ran before (SPEC 3.6)."""

    tier: Tier = Tier.CHECK
    from_channel: str = "owner"
    evidence_at: datetime | None = None
    expires_at: datetime
    shown_at: datetime | None = None
    snoozed_until: datetime | None = None
    decided_by: DecidedBy | None = None
    decided_at: datetime | None = None
    trigger_type: str | None = None
    permit_id: str | None = None
    session_id: str | None = None
    outcome: Outcome | None = None
    closed_at: datetime | None = None
    """When it was dismissed, executed, expired or withdrawn: cool-downs count from here."""
    discarded_at: datetime | None = None
    """When the operator discarded its changes."""
    undo_requested_at: datetime | None = None
    note: str = ""
    consent_text: str = Field(default="", sa_column_kwargs={"name": "served"})
    """The runner and the hosts it reaches (`RunnerInfo.consent_text`): part of what an approval agrees to."""
    text_features: bytes = Field(default=b"", sa_column_kwargs={"name": "seen"})
    """The features of its text when it was made (`TextFeatures.pack`)."""
    embedding: bytes = Field(default=b"", sa_column_kwargs={"name": "meaning"})
    """The embedding of the prompt (`routing.Route.embedding`), to compare later prompts with."""

    @property
    def about(self) -> tuple[str, str, str]:
        """See `Card.about`."""
        return self.workspace, self.kind, self.subject

    @property
    def assignment(self) -> Assignment:
        """The work that would run."""
        return Assignment(
            self.prompt,
            self.target_channel,
            self.workspace,
            self.runner,
            self.flow,
            dict(self.parameters),
            self.target_agent,
        )

    @property
    def edited(self) -> bool:
        """Whether the operator edited its prompt."""
        return bool(self.original_prompt) and self.original_prompt != self.prompt

    @property
    def correction(self) -> tuple[str, str] | None:
        """(original, approved) if a person edited the prompt of an agent and approved it, else None. The prompt of a
        flow, which is made of parameters, does not count."""
        is_by_person = self.confirmed_at is not None and self.decided_by != DecidedBy.AUTONOMY
        if not (is_by_person and self.edited) or self.flow is not None or WAS_FLOW in self.facts:
            return None
        return None if self.outcome == Outcome.CANNOT_RUN else (self.original_prompt, self.prompt)

    @property
    def ran_by_itself(self) -> bool:
        """Whether it was executed without an approval, and has not been undone or dismissed since."""
        by_itself = self.status == Status.EXECUTED and self.decided_by == DecidedBy.AUTONOMY
        return by_itself and self.undo_requested_at is None

    def apply_edit(self, assignment: Assignment) -> None:
        """Store an edited assignment; the original prompt is kept."""
        self.original_prompt = self.original_prompt or self.prompt
        if self.prompt != assignment.prompt:
            self.embedding = b""
        if self.flow is not None and assignment.flow is None:
            self.facts = {**self.facts, WAS_FLOW: self.flow}
        self.prompt = assignment.prompt
        self.flow = assignment.flow
        self.runner = assignment.runner
        self.parameters = dict(assignment.parameters)

    def set_runner(self, info: RunnerInfo) -> None:
        """Store the runner, the estimated cost and how to undo it."""
        self.estimate_microusd, self.check_only = info.estimate, info.check_only
        self.undo_note, self.consent_text = info.undo_note, info.consent_text

    def set_verdicts(self, verdicts: tuple[RailVerdict, ...]) -> None:
        """Store the verdicts of the rails, and whether the pair of channels never ran before (SPEC 3.6)."""
        self.verdicts = verdicts
        self.has_novel_pair = any(GateRuleName.NOVEL_PAIR in verdict.rules for verdict in verdicts)

    def set_offer(self, info: RunnerInfo, verdicts: tuple[RailVerdict, ...], note: str) -> None:
        """Store what an approval would start now."""
        self.set_runner(info)
        self.set_verdicts(verdicts)
        self.note = note

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over; a snoozed card does not expire."""
        return is_expired(self.expires_at, self.snoozed_until, now)


# -- transitions (SPEC 2.7)


class Move(StrEnum):
    """A transition of a card."""

    APPROVE = "approved"
    DISMISS = "dismissed"
    SNOOZE = "snoozed"
    WAKE = "woken"  # a snooze is undone
    EXPIRE = "expired"  # its time is over
    WITHDRAW = "withdrawn"  # its evidence is gone
    REOPEN = "reopened"  # a decision is undone before it had an effect
    EXECUTE = "executed"  # its session has ended


TRANSITIONS: dict[tuple[Status, Move], Status] = {
    (Status.PENDING, Move.APPROVE): Status.APPROVED,
    (Status.PENDING, Move.DISMISS): Status.DISMISSED,
    (Status.PENDING, Move.SNOOZE): Status.PENDING,
    (Status.PENDING, Move.WAKE): Status.PENDING,
    (Status.PENDING, Move.EXPIRE): Status.EXPIRED,
    (Status.PENDING, Move.WITHDRAW): Status.EXPIRED,
    (Status.APPROVED, Move.REOPEN): Status.PENDING,
    (Status.DISMISSED, Move.REOPEN): Status.PENDING,
    (Status.APPROVED, Move.EXECUTE): Status.EXECUTED,
}
"""The legal transitions; all others are refused."""

_BY_OPERATOR = (Move.APPROVE, Move.DISMISS, Move.SNOOZE)
"""The moves for which a pending card whose time is over counts as expired."""

_IN_WORDS = {
    Status.PENDING: "is still pending",
    Status.APPROVED: "was already approved",
    Status.DISMISSED: "was already dismissed",
    Status.EXPIRED: "has expired",
    Status.EXECUTED: "was already executed",
}
"""The statuses of a card in refusals."""


def compute_next_status(row: CardRow, move: Move, now: datetime) -> Status:
    """The status of a card after `move`. Raises `Refusal` `already_decided`, or `nothing_to_undo` for `WAKE` and
    `REOPEN`."""
    if row.status == Status.PENDING and move in _BY_OPERATOR and row.is_expired(now):
        raise Refusal("already_decided", f"card {row.id} has expired", _describe_renewal(row))
    if (new_status := TRANSITIONS.get((row.status, move))) is not None:
        return new_status
    message = f"card {row.id} {_IN_WORDS[row.status]} and cannot be {move.value}"
    if move in (Move.WAKE, Move.REOPEN):
        raise Refusal("nothing_to_undo", message)
    if row.status == Status.EXPIRED:
        raise Refusal("already_decided", message, _describe_renewal(row))
    undoable = row.status in (Status.APPROVED, Status.DISMISSED)
    raise Refusal("already_decided", message, f"undo it first: clawpy undo {row.id}" if undoable else "")


def _describe_renewal(row: CardRow) -> str:
    """How the operator gets an expired card again. No check makes a prompt of the operator anew."""
    if row.source == Source.OPERATOR:
        workspace, prompt = map(shlex.quote, (row.workspace, row.prompt))
        return f"propose it again: clawpy --workspace {workspace} propose {prompt}"
    return "clawpy predict makes cards for the present state"


# -- making rows, and values of rows


def make_row(
    card_id: str,
    proposal: Proposal,
    assignment: Assignment,
    info: RunnerInfo,
    *,
    now: datetime,
    expires_at: datetime,
    context: str,
    estimate: ConfidenceEstimate | None = None,
) -> CardRow:
    """The row of a new card, not stored yet and without verdicts. `context` is the situation in words. Without an
    `estimate` it has the confidence of a cold start."""
    row = CardRow(
        id=card_id,
        target_agent=assignment.agent,
        target_channel=assignment.channel,
        parameters=dict(assignment.parameters),
        reasoning=sanitise(proposal.reasoning),
        facts=dict(proposal.facts),
        context=context,
        confidence=COLD_START_CONFIDENCE,
        created_at=now,
        expires_at=expires_at,
        note="" if info.available else info.reason,
        **{name: getattr(assignment, name) for name in _FIELDS_OF_ASSIGNMENT},
        **{name: getattr(proposal, name) for name in _FIELDS_OF_PROPOSAL},
    )
    if estimate is not None:
        row.confidence, row.parts = estimate.parts.total, estimate.parts
        row.text_features = estimate.features.pack()
    row.set_runner(info)
    return row


def copy_card(row: CardRow, card_id: str, now: datetime, expires_at: datetime, note: str) -> CardRow:
    """The row of a new pending card for the same work."""
    copied = {name: getattr(row, name) for name in _COPIED_FIELDS}
    return CardRow(id=card_id, created_at=now, expires_at=expires_at, note=note, **copied)


def make_card_of_row(row: CardRow) -> Card:
    """The card of a row."""
    return value_of(
        row,
        Card,
        agent=row.target_agent,
        band=find_band(row.confidence),
        estimate=row.estimate_microusd,
        work=name_work(row.flow) if row.flow else row.target_channel,
        changes="read-only" if row.check_only else describe_changes(row.flow),
        gives_change_set=gives_change_set(row.flow),
        can_run=bool(row.undo_note),  # `RunnerInfo.undo_note` is empty while no runner is available
        outcome=Outcome.DISCARDED if row.discarded_at is not None else row.outcome,
    )


def make_decided_card(row: CardRow, by: DecidedBy) -> DecidedCard:
    """The card of a row for the history of decisions. The operator's own prompts have no evidence."""
    return value_of(
        row,
        DecidedCard,
        prediction_id=row.id,
        channel=row.target_channel,
        flow=row.flow or "",
        decided_by=by,
        evidence_at=None if row.source is Source.OPERATOR else row.evidence_at or row.created_at,
        original_prompt=row.original_prompt if row.edited else "",
        raw=None if row.parts is None else row.parts.weighted,
    )


def make_created_event(row: CardRow) -> PredictionCreated:
    """The event of a new card."""
    return PredictionCreated(
        subject=row.id,
        workspace=row.workspace,
        flow=row.flow or "",
        channel=row.target_channel,
        confidence=row.confidence,
        source=row.source,
        tier=row.tier,
        stated=make_card_of_row(row).has_stated_confidence,
    )


# -- queries


def load_card(session: Session, card_id: str) -> CardRow:
    """The row of a card, or `Refusal` `unknown_card`."""
    row = load(session, CardRow, card_id)
    if row is None:
        raise Refusal("unknown_card", f"there is no card {card_id}", "clawpy cards lists what is pending")
    return row


_PENDING = f"WHERE status = '{Status.PENDING}' ORDER BY created_at, id"
"""Selects the pending cards, the oldest first."""


def load_pending(session: Session) -> list[CardRow]:
    """Every pending row, oldest first."""
    return load_all(session, CardRow, _PENDING)


def load_pending_cards(session: Session) -> list[Card]:
    """Every pending card, oldest first."""
    return [make_card_of_row(row) for row in read_all(session, CardRow, _PENDING)]


def find_pending_id(session: Session, row: CardRow) -> str:
    """The id of a pending card about the same subject, "" for none."""
    query = """
        SELECT id FROM predictions
        WHERE workspace = :workspace AND kind = :kind AND subject = :subject AND status = :status
    """
    values = {"workspace": row.workspace, "kind": row.kind, "subject": row.subject, "status": Status.PENDING}
    return ask(session, query, values).scalar() or ""


def load_own_session_ids(session: Session, workspace: str, since: datetime) -> set[str]:
    """Ids of sessions in the workspace from the operator's own prompts, approved since."""
    query = """
        SELECT session_id FROM predictions
        WHERE workspace = :workspace AND source = :source AND confirmed_at >= :since AND session_id <> ''
    """
    values = {"workspace": workspace, "source": Source.OPERATOR, "since": since}
    return {id for (id,) in ask(session, query, values)}


def load_last_trigger_times(session: Session) -> dict[str, datetime]:
    """When each channel was last triggered."""
    query = """
        SELECT target_channel, max(confirmed_at) FROM predictions
        WHERE confirmed_at IS NOT NULL GROUP BY target_channel
    """
    return {channel: datetime.fromisoformat(at) for channel, at in ask(session, query)}
