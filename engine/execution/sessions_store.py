"""The table of sessions and the few ways to change it (SPEC 3.8). Legal transitions only, each in one transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, bindparam
from sqlmodel import Field, Session, col, desc, func, select

from engine.model import Assignment, CheckResult, SessionState, SessionView
from engine.storage.database import Transaction
from engine.storage.quick import ask, load
from engine.storage.rows import Row
from engine.storage.types import utc

LEGAL: dict[SessionState, frozenset[SessionState]] = {
    SessionState.QUEUED: frozenset(
        {SessionState.RUNNING, SessionState.CANCELLED, SessionState.FAILED, SessionState.CANNOT_RUN}
    ),
    SessionState.RUNNING: frozenset(
        {
            SessionState.SUCCEEDED,
            SessionState.FAILED,
            SessionState.CANNOT_RUN,
            SessionState.CANCELLED,
            SessionState.BLOCKED,
            SessionState.INTERRUPTED,
        }
    ),
}
"""Where a session may go from each state; from any other, nowhere."""

HISTORY = 20
"""So many of the latest sessions of a runner and channel make its estimate."""


def may_become(before: SessionState, after: SessionState) -> bool:
    """Whether a session may go from one state to another."""
    return after in LEGAL.get(before, frozenset())


NOT_BEGUN = "not_begun"
"""The fact of a result that nothing was done, and that its card is given back."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a session ended. `cost` in micro-dollars, `seconds` from its start, 0 when it never started."""

    state: SessionState
    summary: str
    error: str = ""
    check: CheckResult | None = None
    cost: int = 0
    tokens: int = 0
    seconds: float = 0.0
    change_set_id: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class SessionRow(Row, table=True):
    """One session as stored. What it printed is in its transcript file."""

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint(
            "state IN ({})".format(", ".join(f"'{one}'" for one in SessionState)), name="ck_sessions_state"
        ),
        CheckConstraint("mode IN ('approved', 'autonomous')", name="ck_sessions_mode"),
        CheckConstraint("cost_microusd >= 0 AND tokens >= 0 AND lines >= 0", name="ck_sessions_counts"),
        Index("ix_sessions_state", "state", "created_at"),
        Index("ix_sessions_workspace", "workspace", "created_at"),
        Index("ix_sessions_created", "created_at"),
        Index("ix_sessions_prediction", "prediction_id", "created_at"),
        Index("ix_sessions_runner", "runner", "channel", "created_at"),
    )

    id: str = Field(primary_key=True)
    prediction_id: str
    permit_id: str = Field(unique=True)
    prompt: str
    workspace: str
    channel: str
    agent: str
    runner: str
    flow: str | None = None
    parameters: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    state: str
    mode: str
    sandbox: str = ""
    cwd: str = ""
    created_at: datetime = Field(sa_column=utc())
    started_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    ended_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    tokens: int = 0
    cost_microusd: int = 0
    estimate_microusd: int = 0
    summary: str = ""
    error: str = ""
    check_result: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON, nullable=True))
    facts: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    change_set_id: str | None = None
    lines: int = 0
    discarded_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    """When the operator threw away what it changed."""

    @property
    def assignment(self) -> Assignment:
        """What the session was started for; its digest is the permit's."""
        return Assignment(
            self.prompt, self.channel, self.workspace, self.runner, self.flow, dict(self.parameters), self.agent
        )

    @property
    def view(self) -> SessionView:
        """The row as others see it."""
        return SessionView(
            id=self.id,
            prediction_id=self.prediction_id,
            prompt=self.prompt,
            workspace=self.workspace,
            channel=self.channel,
            agent=self.agent,
            runner=self.runner,
            flow=self.flow,
            state=SessionState(self.state),
            mode=self.mode,
            sandbox=self.sandbox,
            cwd=self.cwd,
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            tokens=self.tokens,
            cost=self.cost_microusd,
            summary=self.summary,
            error=self.error,
            check=_check(self.check_result),
            change_set_id=self.change_set_id,
            lines=self.lines,
            next_step=str(self.facts.get("next") or ""),
            discarded_at=self.discarded_at,
            not_begun=bool(self.facts.get(NOT_BEGUN)),
            project=str(self.parameters.get("project") or ""),
            facts=dict(self.facts),
        )


def _check(stored: dict[str, Any] | None) -> CheckResult | None:
    if stored is None:
        return None
    durations = tuple((str(name), float(seconds)) for name, seconds in stored["durations"])
    return CheckResult(**{**stored, "failing": tuple(stored["failing"]), "durations": durations})


def move_to(transaction: Transaction, session_id: str, after: SessionState) -> SessionRow | None:
    """The row, put into `after`; None when it may not go there any more (somebody else ended it first)."""
    row = load(transaction.session, SessionRow, session_id)
    if row is None or not may_become(SessionState(row.state), after):
        return None
    row.state = after.value
    if after is SessionState.RUNNING:
        row.started_at = transaction.now
    elif after.over:
        row.ended_at = transaction.now
    transaction.session.add(row)
    return row


def put_result(row: SessionRow, result: SessionResult, *, lines: int) -> None:
    """Write how it ended into its row."""
    row.summary, row.error = result.summary, result.error
    row.tokens, row.cost_microusd, row.lines = result.tokens, result.cost, lines
    row.check_result = None if result.check is None else asdict(result.check)
    row.facts = dict(result.facts)
    row.change_set_id = result.change_set_id


KEPT = "its changes until then are waiting"


def attach(row: SessionRow, change_set_id: str, *, cwd: str) -> None:
    """Have a session that is over, without having come to its end, say what it left and where."""
    row.change_set_id = change_set_id
    row.summary = f"{row.summary}; {KEPT}"
    row.cwd = cwd


def rows(
    session: Session,
    *,
    workspace: str | None = None,
    agent: str | None = None,
    state: SessionState | None = None,
    limit: int | None = None,
) -> list[SessionRow]:
    """Rows, newest first."""
    query = select(SessionRow).order_by(desc(col(SessionRow.created_at)), desc(col(SessionRow.id)))
    if workspace is not None:
        query = query.where(col(SessionRow.workspace) == workspace)
    if agent is not None:
        query = query.where(col(SessionRow.agent) == agent)
    if state is not None:
        query = query.where(col(SessionRow.state) == state.value)
    return list(session.exec(query if limit is None else query.limit(limit)))


def of_prediction(session: Session, prediction_id: str) -> SessionRow | None:
    """The newest session of a card."""
    query = select(SessionRow).where(col(SessionRow.prediction_id) == prediction_id)
    return session.exec(query.order_by(desc(col(SessionRow.created_at))).limit(1)).first()


_TOTALS = sqlalchemy.select(
    col(SessionRow.agent), func.count(), func.sum(SessionRow.tokens), func.sum(SessionRow.cost_microusd)
).group_by(col(SessionRow.agent))


def totals(session: Session) -> dict[str, tuple[int, int, int]]:
    """By agent: how many sessions it ever had, their tokens, and their cost in micro-dollars."""
    return {agent: (count, tokens, cost) for agent, count, tokens, cost in ask(session, _TOTALS, {})}


_LATEST = (
    sqlalchemy.select(col(SessionRow.cost_microusd))
    .where(col(SessionRow.runner) == bindparam("runner"), col(SessionRow.channel) == bindparam("channel"))
    .where(col(SessionRow.state).in_([SessionState.SUCCEEDED.value, SessionState.FAILED.value]))
    .where(col(SessionRow.cost_microusd) > 0)
    .order_by(desc(col(SessionRow.created_at)))
    .limit(HISTORY)
    .subquery()
)
_USUAL_COST = sqlalchemy.select(func.avg(_LATEST.c.cost_microusd))


def usual_cost(session: Session, runner: str, channel: str) -> int | None:
    """Mean cost in micro-dollars (> 0) of the latest sessions of this runner on this channel that were not free; None
    before the first."""
    mean = ask(session, _USUAL_COST, {"runner": runner, "channel": channel}).scalar()
    return None if mean is None else round(mean)
