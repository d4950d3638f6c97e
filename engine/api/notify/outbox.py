"""The table of notifications that wait, were sent, or were given up, so that a crash loses none (SPEC 10.2).

A row names its fact, and has neither text nor address: nothing in it must be forgotten or kept secret.
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

RETENTION = timedelta(days=7)
"""How long a finished row is kept."""


class DeliveryState(StrEnum):
    """Whether a notification waits, was sent, dropped or given up."""

    WAITING = "waiting"
    SENT = "sent"
    DROPPED = "dropped"  # nobody needs it any more
    DEAD = "dead"  # given up


class NotificationRow(SQLModel, table=True):
    """One notification for one surface: one for each fact and surface, however often the fact is read."""

    __tablename__ = "notifications"

    id: int | None = Field(default=None, primary_key=True)
    fact_id: int
    surface: str
    happening: str
    subject: str
    urgent: bool
    gathered: bool
    standing: str = DeliveryState.WAITING.value
    tries: int = 0
    note: str = ""
    created_at: datetime = Field(sa_column=utc_column())
    due_at: datetime = Field(sa_column=utc_column())
    changed_at: datetime = Field(sa_column=utc_column())


@frozen
class UndeliveredNotes:
    """What was given up on a surface: how many, since when, and the reason of the last failure."""

    surface: Surface
    count: int
    since: datetime
    note: str


class Outbox:
    """The table. Callable from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, rows: Sequence[NotificationRow]) -> int:
        """Store rows that are new; their number."""

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
                col(NotificationRow.standing) == DeliveryState.WAITING.value,
                col(NotificationRow.surface) == surface.value,
            )
            .order_by(col(NotificationRow.id))
            .limit(500)
        )
        with self._database.read() as session:
            return list(session.exec(query))

    def surfaces(self) -> frozenset[Surface]:
        """Surfaces for which something waits."""
        query = (
            sa.select(col(NotificationRow.surface))
            .distinct()
            .where(col(NotificationRow.standing) == DeliveryState.WAITING.value)
        )
        with self._database.read() as session:
            return frozenset(Surface(name) for (name,) in session.connection().execute(query))

    def settle(self, rows: Sequence[NotificationRow], standing: DeliveryState, note: str = "") -> None:
        """Mark rows as sent, dropped or given up. `note` has the reason, without the text of the notification."""
        self._update_waiting(rows, standing=standing.value, note=note)

    def give_up(self, surface: Surface, rows: Sequence[NotificationRow], note: str) -> None:
        """Mark rows as given up, and record that."""
        fact = NotificationsGivenUp(subject=surface.value, number=len(rows), reason=note)
        self._update_waiting(rows, fact, standing=DeliveryState.DEAD.value, note=note)

    def later(self, rows: Sequence[NotificationRow], due_at: datetime, note: str) -> None:
        """Count a failed attempt; the rows are tried again at `due_at`."""
        self._update_waiting(rows, due_at=due_at, note=note, tries=col(NotificationRow.tries) + 1)

    def dead(self) -> list[UndeliveredNotes]:
        """What was given up, by surface."""
        dead = col(NotificationRow.standing) == DeliveryState.DEAD.value
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
            UndeliveredNotes(Surface(surface), count, since, notes.get(last, ""))
            for surface, count, since, last in sorted(groups)
        ]

    def revive(self, surface: Surface | None = None) -> int:
        """Have what was given up sent again, on all surfaces or one; the number of rows."""
        return self._update_dead(surface, standing=DeliveryState.WAITING.value, tries=0, gathered=True)

    def dismiss(self, surface: Surface | None = None) -> int:
        """Drop what was given up; the number of rows."""
        return self._update_dead(surface, standing=DeliveryState.DROPPED.value, note="dismissed by you")

    def prune(self) -> None:
        """Delete old finished rows; those that were given up are kept four times as long."""

        def work(tx: Transaction) -> None:
            for standings, age in (
                ((DeliveryState.SENT, DeliveryState.DROPPED), RETENTION),
                ((DeliveryState.DEAD,), 4 * RETENTION),
            ):
                tx.session.connection().execute(
                    sa.delete(NotificationRow).where(
                        col(NotificationRow.standing).in_([standing.value for standing in standings]),
                        col(NotificationRow.changed_at) < tx.now - age,
                    )
                )

        self._database.write(work)

    def _update_dead(self, surface: Surface | None, **values: object) -> int:
        def work(tx: Transaction) -> int:
            query = sa.update(NotificationRow).where(col(NotificationRow.standing) == DeliveryState.DEAD.value)
            if surface is not None:
                query = query.where(col(NotificationRow.surface) == surface.value)
            moments = (
                {"due_at": tx.now, "created_at": tx.now} if values["standing"] == DeliveryState.WAITING.value else {}
            )
            return tx.session.connection().execute(query.values(changed_at=tx.now, **moments, **values)).rowcount

        return self._database.write(work)

    def _update_waiting(self, rows: Sequence[NotificationRow], fact: Event | None = None, **values: object) -> None:
        if not rows:
            return
        ids = [row.id for row in rows]

        def work(tx: Transaction) -> None:
            query = sa.update(NotificationRow).where(
                col(NotificationRow.id).in_(ids), col(NotificationRow.standing) == DeliveryState.WAITING.value
            )
            tx.session.connection().execute(query.values(changed_at=tx.now, **values))
            if fact is not None:
                tx.record(fact)

        self._database.write(work)
