"""Stores notifications that wait, were sent or were given up (SPEC 10.2).

They are in the database, so a crash loses none. A row has the id of its ledger entry, but no text and no address, so
nothing in it must be forgotten or kept secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col, select

from engine.config.sections import Surface
from engine.events import Event, NotificationsGivenUp
from engine.frozen import frozen
from engine.model import group_pairs
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row


class DeliveryState(StrEnum):
    """The state of a notification: it waits, was sent, dropped or given up."""

    WAITING = "waiting"
    SENT = "sent"
    DROPPED = "dropped"  # not needed any more
    GIVEN_UP = "dead"  # it was not delivered


KEPT_FOR = {
    DeliveryState.SENT: timedelta(days=7),
    DeliveryState.DROPPED: timedelta(days=7),
    DeliveryState.GIVEN_UP: timedelta(days=28),
}
"""Time for which a finished row is kept."""


class NotificationRow(Row, table=True):
    """One notification for one surface. There is one row for each ledger entry and surface, even if the entry is read
    twice."""

    __tablename__ = "notifications"

    id: int | None = Field(default=None, primary_key=True)
    entry_id: int = Field(sa_column_kwargs={"name": "fact_id"})
    surface: str
    kind: str = Field(sa_column_kwargs={"name": "happening"})
    subject: str
    urgent: bool
    is_collected: bool = Field(sa_column_kwargs={"name": "gathered"})
    """Whether it may be sent as one with others."""
    state: str = Field(default=DeliveryState.WAITING.value, sa_column_kwargs={"name": "standing"})
    tries: int = 0
    reason: str = Field(default="", sa_column_kwargs={"name": "note"})
    """Why it was dropped or its last delivery failed, without the text of the notification; "" otherwise."""
    created_at: datetime
    due_at: datetime
    changed_at: datetime


@frozen
class Undelivered:
    """The notifications that were given up on a surface: their number, the time of the oldest, and the reason of
    the last failure."""

    surface: Surface
    count: int
    since: datetime
    reason: str

    @property
    def title(self) -> str:
        """`phone missed 2 notifications: it cannot be reached`."""
        number = "a notification" if self.count == 1 else f"{self.count} notifications"
        return f"{self.surface} missed {number}: {self.reason}"


UNDELIVERED_SQL = "SELECT surface, count(*), note, max(id) FROM notifications WHERE standing = 'dead' GROUP BY surface"
"""`Outbox.undelivered` for a database that no engine has open. SQLite takes `note` from the row of `max(id)`."""

_state, _surface, _id = col(NotificationRow.state), col(NotificationRow.surface), col(NotificationRow.id)
_IS_WAITING = _state == DeliveryState.WAITING
_IS_GIVEN_UP = _state == DeliveryState.GIVEN_UP


class Outbox:
    """The table. Callable from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, rows: Sequence[NotificationRow]) -> int:
        """Store the rows that are new, and delete old rows. Returns the number of new rows."""
        if not rows:
            return 0

        def store(tx: Transaction) -> int:
            for state, age in KEPT_FOR.items():
                is_old = col(NotificationRow.changed_at) < tx.now - age
                tx.session.execute(sa.delete(NotificationRow).where(_state == state, is_old))
            statement = (
                insert(NotificationRow).on_conflict_do_nothing(index_elements=["fact_id", "surface"]).returning(_id)
            )
            values = [row.model_dump(exclude={"id"}) | {"changed_at": tx.now} for row in rows]
            return sum(len(tx.session.execute(statement.values(row)).all()) for row in values)

        return self._database.write(store)

    def waiting(self, surface: Surface) -> list[NotificationRow]:
        """Rows that wait for a surface, oldest first."""
        query = select(NotificationRow).where(_IS_WAITING, _surface == surface).order_by(_id).limit(500)
        with self._database.read() as session:
            return list(session.exec(query))

    def waiting_surfaces(self) -> frozenset[Surface]:
        """Surfaces with waiting notifications."""
        with self._database.read() as session:
            return frozenset(map(Surface, session.exec(select(_surface).distinct().where(_IS_WAITING))))

    def undelivered(self) -> list[Undelivered]:
        """Notifications that were given up, by surface."""
        with self._database.read() as session:
            given_up = session.exec(select(NotificationRow).where(_IS_GIVEN_UP).order_by(_surface, _id)).all()
        by_surface = group_pairs((Surface(row.surface), row) for row in given_up)
        return [
            Undelivered(surface, len(rows), min(row.created_at for row in rows), rows[-1].reason)
            for surface, rows in by_surface.items()
        ]

    def finish(self, rows: Sequence[NotificationRow], state: DeliveryState, reason: str = "") -> None:
        """Mark rows as sent or dropped. `reason` does not contain the text of the notification."""
        self._update_waiting(rows, state=state, reason=reason)

    def give_up(self, surface: Surface, rows: Sequence[NotificationRow], reason: str) -> None:
        """Mark rows as given up, and record that."""
        event = NotificationsGivenUp(subject=surface.value, number=len(rows), reason=reason)
        self._update_waiting(rows, event, state=DeliveryState.GIVEN_UP, reason=reason)

    def postpone(self, rows: Sequence[NotificationRow], due_at: datetime, reason: str) -> None:
        """Count a failed attempt; the rows are tried again at `due_at`."""
        self._update_waiting(rows, due_at=due_at, reason=reason, tries=col(NotificationRow.tries) + 1)

    def revive(self, surface: Surface | None) -> int:
        """Let rows that were given up wait again, on one surface or all. Returns their number."""
        changes = {"state": DeliveryState.WAITING, "tries": 0, "is_collected": True}
        return self._update(_match_given_up(surface), changes, now=("due_at", "created_at"))

    def dismiss(self, surface: Surface | None) -> int:
        """Drop rows that were given up. Returns their number."""
        return self._update(_match_given_up(surface), {"state": DeliveryState.DROPPED, "reason": "dismissed by you"})

    def _update_waiting(self, rows: Sequence[NotificationRow], event: Event | None = None, **changes: object) -> None:
        if rows:
            self._update(_IS_WAITING & _id.in_([row.id for row in rows]), changes, event=event)

    def _update(
        self,
        condition: sa.ColumnElement[bool],
        changes: Mapping[str, object],
        *,
        now: Sequence[str] = (),
        event: Event | None = None,
    ) -> int:
        """Change rows and record `event`. The columns in `now` get the present time. Returns the number of rows."""

        def update(tx: Transaction) -> int:
            times = dict.fromkeys(("changed_at", *now), tx.now)
            statement = sa.update(NotificationRow).where(condition).values(**changes, **times).returning(_id)
            if event is not None:
                tx.record(event)
            return len(tx.session.execute(statement).all())

        return self._database.write(update)


def _match_given_up(surface: Surface | None) -> sa.ColumnElement[bool]:
    return _IS_GIVEN_UP if surface is None else _IS_GIVEN_UP & (_surface == surface)
