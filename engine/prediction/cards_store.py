"""The `predictions` table (the seed's columns, then ours), and how a row becomes the `Card` that others see."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, text
from sqlmodel import Field, Session, col, func

from engine.events import PredictionCreated
from engine.model import (
    Assignment,
    Card,
    ConfidenceParts,
    DecidedBy,
    DecidedCard,
    Outcome,
    RailVerdict,
    Refusal,
    RunnerInfo,
    Signal,
    Source,
    Status,
    Tier,
    Trigger,
    TriggerType,
    Verdict,
    is_due,
)
from engine.prediction.confidence import TERMS, band_of, weighted
from engine.prediction.kinds import NEVER_ALONE, RUN, is_heartbeat
from engine.prediction.limits import Seat
from engine.storage.quick import ask, found, load, whole
from engine.storage.rows import Row
from engine.storage.types import flat, utc
from engine.tasks.board import ORDER, TaskRow

LOCAL_USER = "local"
"""The `user_id` of every row: one home, one operator."""


WAS_FLOW = "was_flow"
"""Among a card's facts: the flow that it was before the operator put a sentence in the place of its parameters."""

ENDS = tuple(one for one in Outcome if one is not Outcome.DISCARDED)
"""How work ends. That it was thrown away later is an instant of its own (`discarded_at`)."""


def _one_of(column: str, words: Any, *, nullable: bool = False) -> str:
    rule = f"{column} IN ({', '.join(repr(str(word)) for word in words)})"
    return f"{column} IS NULL OR {rule}" if nullable else rule


class Prediction(Row, table=True):
    """One card. Money in micro-dollars; `tier` is 1 to 4 (SPEC 2.11)."""

    __tablename__ = "predictions"
    __table_args__ = (
        CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence_range"),
        CheckConstraint("tier BETWEEN 1 AND 4", name="tier_range"),
        CheckConstraint(_one_of("status", Status), name="status_known"),
        CheckConstraint(_one_of("source", Source), name="source_known"),
        CheckConstraint(_one_of("decided_by", DecidedBy, nullable=True), name="decided_by_known"),
        CheckConstraint(_one_of("outcome", ENDS, nullable=True), name="outcome_known"),
        CheckConstraint(_one_of("trigger_type", TriggerType, nullable=True), name="trigger_type_known"),
        CheckConstraint("estimate_microusd >= 0", name="estimate_range"),
        Index("idx_predictions_status", "status"),
        Index("idx_predictions_user", "user_id", text("created_at DESC")),
        Index("ix_predictions_fingerprint", "fingerprint", "closed_at"),
        Index(
            "ux_predictions_pending",
            *("workspace", "kind", "subject"),
            unique=True,
            sqlite_where=text("status = 'pending'"),
        ),
        Index("ix_predictions_session", "session_id"),
        Index("ix_predictions_triggered", "target_channel", "confirmed_at"),
    )

    id: str = Field(primary_key=True)
    user_id: str = LOCAL_USER
    prompt: str
    target_agent: str
    target_channel: str
    confidence: float
    reasoning: str = ""
    status: str = Status.PENDING.value
    source: str = Source.TEMPLATE.value
    created_at: datetime = Field(sa_column=utc())
    confirmed_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    executed_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
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
    tier: int = Field(default=Tier.CHECK.value, sa_column_kwargs={"server_default": text("3")})
    from_channel: str = "owner"
    evidence_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    evidence_gone: bool = False
    expires_at: datetime = Field(sa_column=utc())
    shown_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    snoozed_until: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    decided_by: str | None = None
    decided_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    trigger_type: str | None = None
    permit_id: str | None = None
    session_id: str | None = None
    outcome: str | None = None
    closed_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    """When it was dismissed, executed, expired or withdrawn: cool-downs count from here."""
    discarded_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    """When the operator threw away what came of it."""
    undo_requested_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    note: str = ""
    served: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Who does it and what that reaches (`RunnerInfo.served`): part of what an approval agrees to."""
    seen: bytes = Field(default=b"", sa_column_kwargs={"server_default": text("x''")})
    """The card beside its evidence as the Twin saw it (`query.Seen.packed`)."""
    meaning: bytes = Field(default=b"", sa_column_kwargs={"server_default": text("x''")})
    """What the prompt means (`placing.Route.meaning`), for the prompts that come after it."""

    @property
    def assignment(self) -> Assignment:
        """Exactly what would run."""
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
    def seat(self) -> Seat:
        """What the limits look at."""
        return Seat(
            id=self.id,
            workspace=self.workspace,
            kind=self.kind,
            source=Source(self.source),
            tier=Tier(self.tier),
            confidence=self.confidence,
            fresh_at=self.evidence_at or self.created_at,
            snoozed_until=self.snoozed_until,
            shown=self.shown_at is not None,
            created_at=self.created_at,
            subject=self.subject,
            fingerprint=self.fingerprint,
        )

    @property
    def asks(self) -> bool:
        """True when the content filter asks for a person and the card says so (SPEC 3.5)."""
        return any(one["rail"] == "content" and one["verdict"] == Verdict.ASK for one in self.verdicts)

    @property
    def edited(self) -> bool:
        """True when the operator made something else of it."""
        return bool(self.original_prompt) and self.original_prompt != self.prompt

    @property
    def correction(self) -> tuple[str, str] | None:
        """(original, approved) where a person changed the prompt of an agent and approved that; None otherwise, and
        where one of the two is a flow's: that is made of parameters, not of a person's words."""
        persons = self.confirmed_at is not None and self.decided_by != DecidedBy.AUTONOMY
        if not (persons and self.edited) or self.flow is not None or WAS_FLOW in self.facts:
            return None
        return None if self.outcome == Outcome.CANNOT_RUN else (self.original_prompt, self.prompt)

    def take(self, assignment: Assignment) -> None:
        """Become what an edit made of it; the prompt it had at first is kept."""
        self.original_prompt = self.original_prompt or self.prompt
        if self.prompt != assignment.prompt:
            self.meaning = b""
        if self.flow is not None and assignment.flow is None:
            self.facts = {**self.facts, WAS_FLOW: self.flow}
        self.prompt = assignment.prompt
        self.flow = assignment.flow
        self.runner = assignment.runner
        self.parameters = dict(assignment.parameters)

    def serve(self, info: RunnerInfo) -> None:
        """Say who would do it, where, and for how much."""
        self.estimate_microusd, self.check_only = info.estimate, info.check_only
        self.undo_note, self.served = info.undo_note, info.served

    def judge(self, verdicts: tuple[RailVerdict, ...]) -> None:
        """Carry the rails' word, and the NEW badge that comes from it."""
        self.verdicts = [flat(verdict) for verdict in verdicts]
        self.novel = is_novel(verdicts)

    def due(self, now: datetime) -> bool:
        """True when its time is over; a card that is snoozed sleeps on."""
        return is_due(self.expires_at, self.snoozed_until, now)


def new_row(
    card_id: str,
    assignment: Assignment,
    info: RunnerInfo,
    *,
    now: datetime,
    expires_at: datetime,
    **more: Any,
) -> Prediction:
    """A card for this assignment, as `info` says that it would be done. `more`: its other columns."""
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
        **({"note": "" if info.takes else info.reason} | more),
    )
    row.serve(info)
    return row


def again(row: Prediction, card_id: str, now: datetime, expires_at: datetime, note: str) -> Prediction:
    """A card for the same once more, as new and undecided as it was."""
    kept = row.model_dump(
        include={
            "prompt", "target_agent", "target_channel", "confidence", "reasoning", "source", "task_id", "kind",
            "workspace", "runner", "flow", "parameters", "original_prompt", "subject", "fingerprint", "facts",
            "signals", "parts", "verdicts", "context", "estimate_microusd", "check_only", "undo_note", "served",
            "novel", "tier", "from_channel", "evidence_at",
        }
    )  # fmt: skip
    return Prediction(id=card_id, created_at=now, expires_at=expires_at, note=note, **kept)


def is_novel(verdicts: tuple[RailVerdict, ...]) -> bool:
    """The human gate found a pair of channels that never ran before: the NEW badge (SPEC 3.6)."""
    return any("novel-pair" in verdict.rule.split(",") for verdict in verdicts)


def _outcome(row: Prediction) -> Outcome | None:
    if row.discarded_at is not None:
        return Outcome.DISCARDED
    return None if row.outcome is None else Outcome(row.outcome)


def card_of(row: Prediction) -> Card:
    """A row as the operator sees it."""
    return Card(
        id=row.id,
        kind=row.kind,
        tier=Tier(row.tier),
        assignment=row.assignment,
        agent=row.target_agent,
        confidence=row.confidence,
        band=band_of(row.confidence),
        parts=None if row.parts is None else ConfidenceParts(**(row.parts | {"words": tuple(row.parts["words"])})),
        reasoning=row.reasoning,
        status=Status(row.status),
        source=Source(row.source),
        created_at=row.created_at,
        expires_at=row.expires_at,
        signals=tuple(
            Signal(one["name"], one["weight"], one["relevance"], tuple(one["evidence"]), one["error"])
            for one in row.signals
        ),
        verdicts=tuple(
            RailVerdict(one["rail"], Verdict(one["verdict"]), one["reason"], one["rule"]) for one in row.verdicts
        ),
        estimate=row.estimate_microusd,
        check_only=row.check_only,
        undo_note=row.undo_note,
        served=row.served,
        novel=row.novel,
        snoozed_until=row.snoozed_until,
        shown_at=row.shown_at,
        decided_by=None if row.decided_by is None else DecidedBy(row.decided_by),
        decided_at=row.decided_at,
        outcome=_outcome(row),
        session_id=row.session_id,
        task_id=row.task_id,
        note=row.note,
    )


def decided(row: Prediction, by: DecidedBy) -> DecidedCard:
    """A row as the history of decisions takes it. A prompt of one's own waited for nobody: it has no evidence."""
    own = row.source == Source.OPERATOR
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
        evidence_at=None if own else row.evidence_at or row.created_at,
        original_prompt=row.original_prompt if row.edited else "",
        seen=row.seen,
        raw=None if row.parts is None else weighted(*(row.parts[term] for term in TERMS)),
    )


def runs_when_due(session: Session | None, row: Prediction) -> bool:
    """Whether the operator wrote, into a heartbeat, that this is to run by itself when it is due, and it still stands
    there. Without a session (a card just made) it does."""
    if not is_heartbeat(row.kind) or row.facts.get(RUN) is not True or row.edited:
        return False
    task = load(session, TaskRow, row.task_id or "") if session else None
    return session is None or (task is not None and (task.source, task.state) == (ORDER, "open"))


def trigger_of(
    row: Prediction,
    assignment: Assignment,
    *,
    by: DecidedBy,
    estimate: int,
    phase: int,
    approval_bound: float,
    ordered: bool,
) -> Trigger:
    """The request to execute this card as `assignment`, which may be an edit of what the row holds.

    An operator's approval starts a new chain (SPEC 3.2); what a card that shows its `ask` asked for, he has seen.
    """
    person = by is not DecidedBy.AUTONOMY
    if person:
        kind = TriggerType.MANUAL
    elif is_heartbeat(row.kind):
        kind = TriggerType.HEARTBEAT
    else:
        kind = TriggerType.FOLLOW_UP if row.source == Source.FOLLOW_UP else TriggerType.AUTONOMOUS
    return Trigger(
        prediction_id=row.id,
        type=kind,
        assignment=assignment,
        agent=row.target_agent,
        confidence=row.confidence,
        estimate=estimate,
        decided_by=by,
        from_channel="owner" if person else row.from_channel,
        phase=phase,
        approval_bound=approval_bound,
        acknowledged_digest=row.assignment.digest if person and row.asks else "",
        suggested=row.kind in NEVER_ALONE,
        ordered=ordered,
    )


def created(row: Prediction) -> PredictionCreated:
    """The fact that a row has become a card."""
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


def find(session: Session, card_id: str) -> Prediction:
    """The row of a card, or `Refusal` `unknown_card`."""
    row = load(session, Prediction, card_id)
    if row is None:
        raise Refusal("unknown_card", f"there is no card {card_id}", "clawpy cards lists what is pending")
    return row


_PENDING = (
    whole(Prediction)
    .where(col(Prediction.status) == Status.PENDING.value)
    .order_by(col(Prediction.created_at), col(Prediction.id))
)


def all_pending(session: Session) -> list[Prediction]:
    """Every pending row, oldest first."""
    return found(session, Prediction, _PENDING)


def all_seats(session: Session) -> list[Seat]:
    """The seats of all pending cards, oldest first."""
    return [row.seat for row in all_pending(session)]


def own_sessions(session: Session, workspace: str, since: datetime) -> set[str]:
    """Sessions that the operator began there with prompts of his own, approved since."""
    query = sqlalchemy.select(col(Prediction.session_id)).where(
        col(Prediction.workspace) == workspace,
        col(Prediction.source) == Source.OPERATOR.value,
        col(Prediction.confirmed_at) >= since,
    )
    return {str(one) for one in session.execute(query).scalars() if one}


_LAST_TRIGGERED = (
    sqlalchemy.select(col(Prediction.target_channel), func.max(col(Prediction.confirmed_at)))
    .where(col(Prediction.confirmed_at).is_not(None))
    .group_by(col(Prediction.target_channel))
)


def last_triggered(session: Session) -> dict[str, datetime]:
    """When each channel was last triggered."""
    return {channel: at for channel, at in ask(session, _LAST_TRIGGERED) if at is not None}
