"""The tables of cards and dismissals, conversions of their rows, and queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, col, func

from engine.events import PredictionCreated
from engine.model import (
    COLD_START,
    Assignment,
    Card,
    ConfidenceParts,
    DecidedBy,
    DecidedCard,
    Outcome,
    Proposal,
    RailVerdict,
    Refusal,
    RunnerInfo,
    Signal,
    Source,
    Status,
    Tier,
    Verdict,
    is_expired,
    sanitise,
)
from engine.prediction.twin import band_of
from engine.storage.rows import Row, ask, load, load_all, select_all
from engine.storage.types import shallow_dict, utc_column

WAS_FLOW = "was_flow"
"""Key of a card's facts: its flow before the operator replaced the parameters by a sentence."""


class Prediction(Row, table=True):
    """One card. Money in micro-dollars; `tier` is 1 to 4 (SPEC 2.11). `schema.sql` says what a row may hold."""

    __tablename__ = "predictions"
    id: str = Field(primary_key=True)
    user_id: str = "local"
    prompt: str
    target_agent: str
    target_channel: str
    confidence: float
    reasoning: str = ""
    status: str = Status.PENDING.value
    source: str = Source.TEMPLATE.value
    created_at: datetime = Field(sa_column=utc_column())
    confirmed_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    executed_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    task_id: str | None = None
    dpo_exported: bool = False

    kind: str
    workspace: str
    runner: str
    flow: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    original_prompt: str = ""
    subject: str = Field(sa_column_kwargs={"server_default": ""})
    fingerprint: str
    facts: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    signals: list[dict[str, Any]] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    parts: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True), nullable=True))
    verdicts: list[dict[str, Any]] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    context: str = ""
    estimate_microusd: int = 0
    check_only: bool = True
    undo_note: str = ""
    novel: bool = False
    tier: int = Tier.CHECK.value
    from_channel: str = "owner"
    evidence_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    evidence_gone: bool = False
    expires_at: datetime = Field(sa_column=utc_column())
    shown_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    snoozed_until: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    decided_by: str | None = None
    decided_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    trigger_type: str | None = None
    permit_id: str | None = None
    session_id: str | None = None
    outcome: str | None = None
    closed_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    """When it was dismissed, executed, expired or withdrawn: cool-downs count from here."""
    discarded_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    """When the operator discarded its changes."""
    undo_requested_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    note: str = ""
    served: str = ""
    """The runner and the hosts it reaches (`RunnerInfo.consent_text`): part of what an approval agrees to."""
    seen: bytes = b""
    """Its text features (`TextFeatures.pack`)."""
    meaning: bytes = b""
    """The embedding of the prompt (`routing.Route.meaning`), to compare later prompts with."""

    @property
    def about(self) -> tuple[str, str, str]:
        """See `Card.about`."""
        return self.workspace, self.kind, self.subject

    @property
    def assignment(self) -> Assignment:
        """The work that would run."""
        parameters, to = dict(self.parameters), self.target_channel
        return Assignment(self.prompt, to, self.workspace, self.runner, self.flow, parameters, self.target_agent)

    @property
    def confidence_parts(self) -> ConfidenceParts | None:
        """The parts of its confidence, None if nothing estimated it."""
        return None if self.parts is None else ConfidenceParts(**self.parts | {"words": tuple(self.parts["words"])})

    @property
    def edited(self) -> bool:
        """Whether the operator edited its prompt."""
        return bool(self.original_prompt) and self.original_prompt != self.prompt

    @property
    def correction(self) -> tuple[str, str] | None:
        """(original, approved) if a person edited the prompt of an agent and approved it, else None. The prompt of a
        flow, which is made of parameters, does not count."""
        persons = self.confirmed_at is not None and self.decided_by != DecidedBy.AUTONOMY
        if not (persons and self.edited) or self.flow is not None or WAS_FLOW in self.facts:
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
            self.meaning = b""
        if self.flow is not None and assignment.flow is None:
            self.facts = {**self.facts, WAS_FLOW: self.flow}
        self.prompt = assignment.prompt
        self.flow = assignment.flow
        self.runner = assignment.runner
        self.parameters = dict(assignment.parameters)

    def set_runner(self, info: RunnerInfo) -> None:
        """Store the runner, the estimated cost and how to undo it."""
        self.estimate_microusd, self.check_only = info.estimate, info.check_only
        self.undo_note, self.served = info.undo_note, info.consent_text

    def set_verdicts(self, verdicts: tuple[RailVerdict, ...]) -> None:
        """Store the verdicts of the rails, and whether the pair of channels never ran before (SPEC 3.6)."""
        self.verdicts = [shallow_dict(verdict) for verdict in verdicts]
        self.novel = any("novel-pair" in verdict.rule.split(",") for verdict in verdicts)

    def is_expired(self, now: datetime) -> bool:
        """True when its time is over; a snoozed card does not expire."""
        return is_expired(self.expires_at, self.snoozed_until, now)


class DismissalRow(Row, table=True):
    """A dismissed card. An undo of the dismissal removes the row; the end of its mute does not."""

    __tablename__ = "dismissals"
    prediction_id: str = Field(primary_key=True)
    workspace: str
    kind: str
    subject: str
    reason: str | None = None
    dismissed_at: datetime = Field(sa_column=utc_column())
    subject_lifted_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    kind_lifted_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))


def make_row(
    card_id: str,
    proposal: Proposal,
    assignment: Assignment,
    info: RunnerInfo,
    *,
    now: datetime,
    expires_at: datetime,
    context: str,
    parts: ConfidenceParts | None = None,
    **more: Any,
) -> Prediction:
    """The row of a new card, not stored yet and without verdicts. `context` is the situation in words. Without `parts`
    it has the confidence of a cold start. `more` are other columns."""
    columns = {
        "source": proposal.source.value,
        "tier": proposal.tier.value,
        "note": "" if info.available else info.reason,
    } | more
    row = Prediction(
        id=card_id,
        prompt=assignment.prompt,
        target_agent=assignment.agent,
        target_channel=assignment.channel,
        workspace=assignment.workspace,
        runner=assignment.runner,
        flow=assignment.flow,
        parameters=dict(assignment.parameters),
        created_at=now,
        expires_at=expires_at,
        confidence=COLD_START if parts is None else parts.total,
        reasoning=sanitise(proposal.reasoning),
        task_id=proposal.task_id,
        kind=proposal.kind,
        subject=proposal.subject,
        fingerprint=proposal.fingerprint,
        facts=dict(proposal.facts),
        signals=[shallow_dict(signal) for signal in proposal.signals],
        parts=None if parts is None else shallow_dict(parts),
        context=context,
        evidence_at=proposal.evidence_at,
        **columns,
    )
    row.set_runner(info)
    return row


_COPIED_FIELDS = {
    "prompt", "target_agent", "target_channel", "confidence", "reasoning", "source", "task_id", "kind", "workspace",
    "runner", "flow", "parameters", "original_prompt", "subject", "fingerprint", "facts", "signals", "parts",
    "verdicts", "context", "estimate_microusd", "check_only", "undo_note", "served", "novel", "tier", "from_channel",
    "evidence_at",
}  # fmt: skip


def copy_card(row: Prediction, card_id: str, now: datetime, expires_at: datetime, note: str) -> Prediction:
    """The row of a new pending card for the same work."""
    return Prediction(
        id=card_id, created_at=now, expires_at=expires_at, note=note, **row.model_dump(include=_COPIED_FIELDS)
    )


_SHARED_FIELDS = (
    "id", "kind", "confidence", "reasoning", "created_at", "expires_at", "check_only", "undo_note", "served", "novel",
    "snoozed_until", "shown_at", "decided_at", "session_id", "task_id", "note", "assignment", "subject", "fingerprint",
    "evidence_at",
)  # fmt: skip
"""Fields that `Card` and its row share."""


def card_of(row: Prediction) -> Card:
    """The card of a row."""
    outcome = Outcome.DISCARDED if row.discarded_at is not None else row.outcome
    return Card(
        **{name: getattr(row, name) for name in _SHARED_FIELDS},
        tier=Tier(row.tier),
        agent=row.target_agent,
        band=band_of(row.confidence),
        parts=row.confidence_parts,
        status=Status(row.status),
        source=Source(row.source),
        signals=tuple(Signal(**(signal | {"evidence": tuple(signal["evidence"])})) for signal in row.signals),
        verdicts=tuple(RailVerdict(**(verdict | {"verdict": Verdict(verdict["verdict"])})) for verdict in row.verdicts),
        estimate=row.estimate_microusd,
        decided_by=DecidedBy(row.decided_by) if row.decided_by else None,
        outcome=Outcome(outcome) if outcome else None,
    )


def decided_card(row: Prediction, by: DecidedBy) -> DecidedCard:
    """The card of a row for the history of decisions. The operator's own prompts have no evidence."""
    is_own_prompt, parts = row.source == Source.OPERATOR, row.confidence_parts
    return DecidedCard(
        prediction_id=row.id,
        kind=row.kind,
        channel=row.target_channel,
        workspace=row.workspace,
        flow=row.flow or "",
        prompt=row.prompt,
        confidence=row.confidence,
        decided_by=by,
        context=row.context,
        evidence_at=None if is_own_prompt else row.evidence_at or row.created_at,
        original_prompt=row.original_prompt if row.edited else "",
        seen=row.seen,
        raw=None if parts is None else parts.weighted,
    )


def created_event(row: Prediction) -> PredictionCreated:
    """The event of a new card."""
    return PredictionCreated(
        subject=row.id,
        workspace=row.workspace,
        flow=row.flow or "",
        channel=row.target_channel,
        confidence=row.confidence,
        source=row.source,
        tier=row.tier,
        stated=card_of(row).stated,
    )


def load_card(session: Session, card_id: str) -> Prediction:
    """The row of a card, or `Refusal` `unknown_card`."""
    row = load(session, Prediction, card_id)
    if row is None:
        raise Refusal("unknown_card", f"there is no card {card_id}", "clawpy cards lists what is pending")
    return row


_PENDING = (
    select_all(Prediction)
    .where(col(Prediction.status) == Status.PENDING.value)
    .order_by(col(Prediction.created_at), col(Prediction.id))
)


def load_pending(session: Session) -> list[Prediction]:
    """Every pending row, oldest first."""
    return load_all(session, Prediction, _PENDING)


def own_session_ids(session: Session, workspace: str, since: datetime) -> set[str]:
    """Ids of sessions in the workspace from the operator's own prompts, approved since."""
    query = sqlalchemy.select(col(Prediction.session_id)).where(
        col(Prediction.workspace) == workspace,
        col(Prediction.source) == Source.OPERATOR.value,
        col(Prediction.confirmed_at) >= since,
    )
    return {str(session_id) for session_id in session.execute(query).scalars() if session_id}


_LAST_TRIGGERED = (
    sqlalchemy.select(col(Prediction.target_channel), func.max(col(Prediction.confirmed_at)))
    .where(col(Prediction.confirmed_at).is_not(None))
    .group_by(col(Prediction.target_channel))
)


def last_trigger_times(session: Session) -> dict[str, datetime]:
    """When each channel was last triggered."""
    return {channel: at for channel, at in ask(session, _LAST_TRIGGERED) if at is not None}
