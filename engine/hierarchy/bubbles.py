"""Learnings on their way up (SPEC 1.7, 1.8): judged when they come, kept in a table, flushed into leaders' patterns.

A flush is one transaction: a bubble is a pattern and off the queue, or neither. What another home shares comes and
goes by rows that may be exchanged any number of times (see `profiles`), so nothing is lost by a failure or doubled by
trying again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index
from sqlmodel import Field, SQLModel, col, func, select

from engine.events import BubbleQueued, BubbleRefused, MemoryBubbleFlushed
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubble import DirectLeader, judge, known_as
from engine.hierarchy.profiles import Profiles, pattern_key
from engine.hierarchy.seeds import item_text
from engine.storage.database import Database, Transaction
from engine.storage.types import utc
from engine.values import (
    Bubble,
    BubbleState,
    FlushReport,
    GateResult,
    Learning,
    PatternSource,
    Randomness,
    Refusal,
    Score,
)


class BubbleRow(SQLModel, table=True):
    """One learning of a worker's, what the gates said of it, and what became of it."""

    __tablename__ = "bubbles"
    __table_args__ = (
        CheckConstraint("state IN ('" + "','".join(BubbleState) + "')", name="ck_bubbles_state"),
        Index("ix_bubbles_learning", "learning_id", unique=True),
        Index("ix_bubbles_queue", "state", "leader", "at"),
        Index("ix_bubbles_agent", "agent", "at"),
    )

    id: str = Field(primary_key=True)
    learning_id: str
    agent: str
    leader: str
    state: str
    text: str
    category: str
    session: str
    workspace: str
    confidence: float
    importance: float
    reasons: dict[str, list[str]] = Field(sa_column=Column(JSON, nullable=False))
    gates: list[dict[str, Any]] = Field(sa_column=Column(JSON, nullable=False))
    at: datetime = Field(sa_column=utc())
    flushed_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    pattern: str = ""


class Bubbles:
    """The queue of one home. `exchange()` sends to and fetches from the shared leadership and returns in words what
    failed, "" for nothing; it never raises."""

    def __init__(
        self,
        database: Database,
        agents: Agents,
        profiles: Profiles,
        *,
        randomness: Randomness,
        exchange: Callable[[], str] = lambda: "",
    ) -> None:
        self._database = database
        self._agents = agents
        self._profiles = profiles
        self._randomness = randomness
        self._exchange = exchange

    def offer(self, learning: Learning) -> Bubble:
        """Ask the gates about a learning, and keep it with what they said. One that was told before is judged again
        only when it was refused and is surer or weightier now.

        Raises `Refusal`: `unknown_agent`, `bad_learning` when it says nothing.
        """
        said = item_text(learning.text)
        if not said:
            raise Refusal("bad_learning", f"{learning.id} says nothing", "give it a text")
        config = self._agents.config.current
        lineage = self._agents.lineage(learning.agent)
        above = lineage.leaders[0] if lineage.leaders else None
        missing = f"{learning.agent} has no leader: its chain {lineage.chain.words}"

        def work(tx: Transaction) -> Bubble:
            row = tx.session.exec(select(BubbleRow).where(col(BubbleRow.learning_id) == learning.id)).first()
            if row is not None and not _better(learning, row):
                return _bubble(row)
            leader = None
            if above is not None:
                profile = self._profiles.in_transaction(tx, above.id)
                known = tuple((one.key, one.text) for one in profile.patterns)
                leader = DirectLeader(above.id, above.tier, profile.domain or above.domain, known)
            gates = judge(learning, tier=lineage.agent.tier, leader=leader, missing=missing, config=config)
            if row is None:
                row = BubbleRow(
                    id=self._randomness.new_id("bub"), learning_id=learning.id, agent=learning.agent, leader="",
                    state="", text=said, category="", session="", workspace="", confidence=0.0, importance=0.0,
                    reasons={}, gates=[], at=tx.now,
                )  # fmt: skip
            _fill(row, learning, said, above.id if above else "", gates)
            tx.session.add(row)
            if gates[-1].passed:
                tx.record(BubbleQueued(subject=row.id, workspace=row.workspace, agent=row.agent, leader=row.leader))
            else:
                last = gates[-1]
                told = f"gate {last.number}, {last.name}"
                tx.record(
                    BubbleRefused(
                        subject=row.id, workspace=row.workspace, agent=row.agent, gate=told, reason=last.reason
                    )
                )
            return _bubble(row)

        return self._database.write(work)

    def list(self, *, state: BubbleState | None = None, agent: str = "", limit: int = 100) -> Sequence[Bubble]:
        """The newest first; of one state, or of those an agent sent or receives."""
        query = select(BubbleRow).order_by(col(BubbleRow.at).desc(), col(BubbleRow.id)).limit(limit)
        if state is not None:
            query = query.where(col(BubbleRow.state) == state.value)
        if agent:
            query = query.where((col(BubbleRow.agent) == agent) | (col(BubbleRow.leader) == agent))
        with self._database.read() as session:
            return [_bubble(row) for row in session.exec(query)]

    def flush(self) -> FlushReport:
        """Let the weightiest of each leader's queue become patterns, at most `bubble_max_per_cycle` a leader. Local
        first: when the shared leadership fails, `failed` says so, and its part is made up for later."""
        failed = self._exchange()
        most = self._agents.config.current.bubble_max_per_cycle
        there = set(self._agents.ids())
        report = self._database.write(lambda tx: self._flush(tx, most, there))
        if report.flushed:
            failed = self._exchange()
        return FlushReport(report.flushed, report.waiting, failed)

    def _flush(self, tx: Transaction, most: int, there: set[str]) -> FlushReport:
        queued = tx.session.exec(
            select(BubbleRow)
            .where(col(BubbleRow.state) == BubbleState.QUEUED.value)
            .order_by(col(BubbleRow.leader), col(BubbleRow.importance).desc(), col(BubbleRow.at), col(BubbleRow.id))
        ).all()
        chosen: dict[str, list[BubbleRow]] = {}
        for row in queued:
            of_leader = chosen.setdefault(row.leader, [])
            if row.leader in there and len(of_leader) < most:
                of_leader.append(row)
        flushed = {}
        for leader, rows in chosen.items():
            if not rows:
                continue
            for row in rows:
                self._merge(tx, row)
            flushed[leader] = tuple(row.id for row in rows)
            tx.record(
                MemoryBubbleFlushed(
                    subject=leader,
                    bubbles=flushed[leader],
                    patterns=tuple(row.pattern for row in rows),
                    agents=tuple(row.agent for row in rows),
                )
            )
        return FlushReport(flushed, len(queued) - sum(map(len, flushed.values())))

    def _merge(self, tx: Transaction, row: BubbleRow) -> None:
        """Into the pattern that says it already, else into a new one."""
        patterns = self._profiles.in_transaction(tx, row.leader).patterns
        source = PatternSource(row.learning_id, row.agent, row.session)
        key = known_as(row.text, tuple((one.key, one.text) for one in patterns))
        known = next((one for one in patterns if one.key == key), None)
        if known is None:
            key = pattern_key(row.text)
            self._profiles.write(tx, row.leader, "patterns", key, {"text": row.text}, (source,))
        elif source not in known.sources:
            body = {"text": known.text}
            self._profiles.write(tx, row.leader, "patterns", key, body, (*known.sources, source))
        row.state, row.pattern, row.flushed_at = BubbleState.FLUSHED.value, key, tx.now
        tx.session.add(row)

    def count(self, state: BubbleState) -> int:
        """How many bubbles are in this state."""
        with self._database.read() as session:
            query = select(func.count()).select_from(BubbleRow).where(col(BubbleRow.state) == state.value)
            return int(session.exec(query).one())


def _better(learning: Learning, row: BubbleRow) -> bool:
    return row.state == BubbleState.REFUSED.value and (
        learning.confidence.value > row.confidence or learning.importance.value > row.importance
    )


def _fill(row: BubbleRow, learning: Learning, said: str, leader: str, gates: Sequence[GateResult]) -> None:
    row.leader = leader
    row.state = (BubbleState.QUEUED if gates[-1].passed else BubbleState.REFUSED).value
    row.text = said
    row.category, row.session, row.workspace = item_text(learning.category), learning.session, learning.workspace
    row.confidence, row.importance = learning.confidence.value, learning.importance.value
    row.reasons = {
        "confidence": list(learning.confidence.reasons),
        "importance": list(learning.importance.reasons),
        "evidence": [item_text(one) for one in learning.evidence],
    }
    row.gates = [{"number": g.number, "name": g.name, "passed": g.passed, "reason": item_text(g.reason)} for g in gates]


def _bubble(row: BubbleRow) -> Bubble:
    reasons = row.reasons
    learning = Learning(
        id=row.learning_id,
        text=row.text,
        category=row.category,
        agent=row.agent,
        session=row.session,
        confidence=Score(row.confidence, tuple(reasons["confidence"])),
        importance=Score(row.importance, tuple(reasons["importance"])),
        evidence=tuple(reasons["evidence"]),
        workspace=row.workspace,
    )
    gates = tuple(GateResult(one["number"], one["name"], one["passed"], one["reason"]) for one in row.gates)
    return Bubble(
        row.id, learning, row.leader, BubbleState(row.state), gates, row.at, row.flushed_at, row.pattern
    )  # fmt: skip
