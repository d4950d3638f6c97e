"""What waits to be delivered, what was, and what was given up: a table, so that a crash loses nothing (SPEC 10.2).

A row names the fact that it tells of and holds no words and no address: nothing has to be forgotten or kept secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, SQLModel, col, select

from engine.config.notify import Surface
from engine.events import Event, NotificationsGivenUp
from engine.frozen import frozen
from engine.storage.database import Database, Transaction
from engine.storage.types import utc_column

KEPT = timedelta(days=7)
"""So long a row is kept that is over."""


class Standing(StrEnum):
    """Where a notification stands."""

    WAITING = "waiting"
    SENT = "sent"
    DROPPED = "dropped"  # nobody needs it any more
    DEAD = "dead"  # given up


class NotificationRow(SQLModel, table=True):
    """One notification for one surface. There is one for each fact and surface, however often the fact is read."""

    __tablename__ = "notifications"
    __table_args__ = (
        sa.UniqueConstraint("fact_id", "surface", name="uq_notifications_fact_surface"),
        sa.Index("ix_notifications_standing_surface", "standing", "surface", "id"),
        sa.CheckConstraint("standing IN ('waiting', 'sent', 'dropped', 'dead')", name="ck_notifications_standing"),
    )

    id: int | None = Field(default=None, primary_key=True)
    fact_id: int
    surface: str
    happening: str
    subject: str
    urgent: bool
    gathered: bool
    standing: str = Standing.WAITING.value
    tries: int = 0
    note: str = ""
    created_at: datetime = Field(sa_column=utc_column())
    due_at: datetime = Field(sa_column=utc_column())
    changed_at: datetime = Field(sa_column=utc_column())


@frozen
class Dead:
    """What a surface did not get: how many, since when, and why the last was given up."""

    surface: Surface
    count: int
    since: datetime
    note: str


class Outbox:
    """The table. From any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, rows: Sequence[NotificationRow]) -> int:
        """Take in what is not there yet; how many that were."""

        def work(tx: Transaction) -> int:
            values = [row.model_dump(exclude={"id"}) | {"changed_at": tx.now} for row in rows]
            statement = insert(NotificationRow).on_conflict_do_nothing(index_elements=["fact_id", "surface"])
            return sum(tx.session.connection().execute(statement, row).rowcount for row in values)

        return self._database.write(work) if rows else 0

    def waiting(self, surface: Surface) -> list[NotificationRow]:
        """What waits for a surface, oldest first."""
        query = (
            select(NotificationRow)
            .where(
                col(NotificationRow.standing) == Standing.WAITING.value, col(NotificationRow.surface) == surface.value
            )
            .order_by(col(NotificationRow.id))
            .limit(500)
        )
        with self._database.read() as session:
            return list(session.exec(query))

    def surfaces(self) -> frozenset[Surface]:
        """For which surfaces anything waits."""
        query = (
            sa.select(col(NotificationRow.surface))
            .distinct()
            .where(col(NotificationRow.standing) == Standing.WAITING.value)
        )
        with self._database.read() as session:
            return frozenset(Surface(name) for (name,) in session.connection().execute(query))

    def settle(self, rows: Sequence[NotificationRow], standing: Standing, note: str = "") -> None:
        """These are over: sent, dropped or dead. `note` says why, without any words of what was to be said."""
        self._change(rows, standing=standing.value, note=note)

    def give_up(self, surface: Surface, rows: Sequence[NotificationRow], note: str) -> None:
        """These are dead, and the ledger says so."""
        fact = NotificationsGivenUp(subject=surface.value, number=len(rows), reason=note)
        self._change(rows, fact, standing=Standing.DEAD.value, note=note)

    def later(self, rows: Sequence[NotificationRow], due_at: datetime, note: str) -> None:
        """These were tried, and are tried again at `due_at`."""
        self._change(rows, due_at=due_at, note=note, tries=col(NotificationRow.tries) + 1)

    def dead(self) -> list[Dead]:
        """What was given up and not tried again, by surface."""
        dead = col(NotificationRow.standing) == Standing.DEAD.value
        counts = (
            sa.select(
                col(NotificationRow.surface), sa.func.count(), sa.func.min(col(NotificationRow.created_at)),
                sa.func.max(col(NotificationRow.id)),
            )
            .where(dead)
            .group_by(col(NotificationRow.surface))
        )  # fmt: skip
        with self._database.read() as session:
            groups = session.connection().execute(counts).all()
            notes = {row.id: row.note for row in session.exec(
                select(NotificationRow).where(col(NotificationRow.id).in_([last for *_, last in groups]))
            )}  # fmt: skip
        return [
            Dead(Surface(surface), count, since, notes.get(last, "")) for surface, count, since, last in sorted(groups)
        ]

    def revive(self, surface: Surface | None = None) -> int:
        """Try again what was given up, all of it or that of one surface; how many that are."""
        return self._of_dead(surface, standing=Standing.WAITING.value, tries=0, gathered=True)

    def dismiss(self, surface: Surface | None = None) -> int:
        """Let go of what was given up; how many that were."""
        return self._of_dead(surface, standing=Standing.DROPPED.value, note="dismissed by you")

    def prune(self) -> None:
        """Give up rows that were over long ago; dead ones wait for the operator four times as long."""

        def work(tx: Transaction) -> None:
            for standings, age in (((Standing.SENT, Standing.DROPPED), KEPT), ((Standing.DEAD,), 4 * KEPT)):
                tx.session.connection().execute(
                    sa.delete(NotificationRow).where(
                        col(NotificationRow.standing).in_([standing.value for standing in standings]),
                        col(NotificationRow.changed_at) < tx.now - age,
                    )
                )

        self._database.write(work)

    def _of_dead(self, surface: Surface | None, **values: object) -> int:
        def work(tx: Transaction) -> int:
            query = sa.update(NotificationRow).where(col(NotificationRow.standing) == Standing.DEAD.value)
            if surface is not None:
                query = query.where(col(NotificationRow.surface) == surface.value)
            moments = {"due_at": tx.now, "created_at": tx.now} if values["standing"] == Standing.WAITING.value else {}
            return tx.session.connection().execute(query.values(changed_at=tx.now, **moments, **values)).rowcount

        return self._database.write(work)

    def _change(self, rows: Sequence[NotificationRow], fact: Event | None = None, **values: object) -> None:
        if not rows:
            return
        ids = [row.id for row in rows]

        def work(tx: Transaction) -> None:
            query = sa.update(NotificationRow).where(
                col(NotificationRow.id).in_(ids), col(NotificationRow.standing) == Standing.WAITING.value
            )
            tx.session.connection().execute(query.values(changed_at=tx.now, **values))
            if fact is not None:
                tx.record(fact)

        self._database.write(work)
