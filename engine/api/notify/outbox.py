"""The table of notifications that wait for a surface, until they are sent or given up (SPEC 10.2).

They are in the database, so a crash loses none. A row has the id of its ledger entry, but no text and no address, so
nothing in it must be forgotten or kept secret. The note is made from the ledger entry when it is sent.

`Notifications` puts rows into the outbox, and a `Sender` takes them out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col, select

from engine.config.external_sections import Surface
from engine.events import Event
from engine.events.engine import NotificationsGivenUp
from engine.frozen import frozen, group_pairs
from engine.storage import Row
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)


class DeliveryState(StrEnum):
    """The state of a notification: it waits, was sent, dropped or given up."""

    WAITING = "waiting"
    SENT = "sent"
    DROPPED = "dropped"  # not needed any more
    GIVEN_UP = "given_up"  # it was not delivered


KEPT_FOR = timedelta(days=28)
"""Time for which a finished row is kept."""

MAX_READ_ROWS = 500
"""Maximum number of waiting rows of a surface that are read at once."""


class NotificationRow(Row, table=True):
    """One notification for one surface. There is one row for each ledger entry and surface, even if the entry is read
    twice."""

    __tablename__ = "notifications"

    id: int | None = Field(default=None, primary_key=True)
    entry_id: int
    surface: str
    kind: str
    subject: str
    urgent: bool
    is_collected: bool
    """Whether it may be sent as one with others."""
    state: str = DeliveryState.WAITING.value
    tries: int = 0
    reason: str = ""
    """Why its last delivery failed, without the text of the notification; "" if it did not."""
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


UNDELIVERED_SQL = (
    f"SELECT surface, count(*), reason, max(id) FROM notifications WHERE state = '{DeliveryState.GIVEN_UP}' "
    "GROUP BY surface"
)
"""`Outbox.list_undelivered` for a database that no engine has open. SQLite takes `reason` from the row of `max(id)`."""

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
            is_old = col(NotificationRow.changed_at) < tx.now - KEPT_FOR
            tx.session.execute(sa.delete(NotificationRow).where(~_IS_WAITING, is_old))
            statement = insert(NotificationRow).on_conflict_do_nothing().returning(_id)
            values = [row.model_dump(exclude={"id"}) | {"changed_at": tx.now} for row in rows]
            return sum(len(tx.session.execute(statement.values(row)).all()) for row in values)

        return self._database.write(store)

    def list_waiting(self, surface: Surface) -> list[NotificationRow]:
        """Rows that wait for a surface, urgent ones first, then the oldest."""
        order = (col(NotificationRow.urgent).desc(), _id)
        query = select(NotificationRow).where(_IS_WAITING, _surface == surface).order_by(*order).limit(MAX_READ_ROWS)
        with self._database.read() as session:
            return list(session.exec(query))

    def find_waiting_surfaces(self) -> frozenset[Surface]:
        """Surfaces with waiting notifications."""
        with self._database.read() as session:
            return frozenset(map(Surface, session.exec(select(_surface).distinct().where(_IS_WAITING))))

    def list_undelivered(self) -> list[Undelivered]:
        """Notifications that were given up, by surface."""
        with self._database.read() as session:
            given_up = session.exec(select(NotificationRow).where(_IS_GIVEN_UP).order_by(_surface, _id)).all()
        by_surface = group_pairs((Surface(row.surface), row) for row in given_up)
        return [
            Undelivered(surface, len(rows), min(row.created_at for row in rows), rows[-1].reason)
            for surface, rows in by_surface.items()
        ]

    def finish(self, rows: Sequence[NotificationRow], state: DeliveryState) -> None:
        """Mark rows as sent or dropped."""
        self._update(_select_rows(rows), state=state)

    def give_up(self, surface: Surface, rows: Sequence[NotificationRow], reason: str) -> None:
        """Mark rows as given up, and record that."""
        event = NotificationsGivenUp(subject=surface.value, number=len(rows), reason=reason)
        self._update(_select_rows(rows), event, state=DeliveryState.GIVEN_UP, reason=reason)

    def postpone(self, rows: Sequence[NotificationRow], due_at: datetime, reason: str) -> None:
        """Count a failed attempt; the rows are tried again at `due_at`."""
        self._update(_select_rows(rows), due_at=due_at, reason=reason, tries=col(NotificationRow.tries) + 1)

    def retry(self, surface: Surface | None, now: datetime) -> int:
        """Let rows that were given up wait again, on one surface or all. Returns their number."""
        condition, state = _select_given_up(surface), DeliveryState.WAITING
        return self._update(condition, state=state, tries=0, is_collected=True, due_at=now, created_at=now)

    def dismiss(self, surface: Surface | None) -> int:
        """Drop rows that were given up, on one surface or all. Returns their number."""
        return self._update(_select_given_up(surface), state=DeliveryState.DROPPED)

    def _update(self, condition: sa.ColumnElement[bool], event: Event | None = None, **changes: object) -> int:
        """Change rows and record `event`. Returns the number of rows."""

        def update(tx: Transaction) -> int:
            statement = sa.update(NotificationRow).where(condition).values(**changes, changed_at=tx.now).returning(_id)
            if event is not None:
                tx.record(event)
            return len(tx.session.execute(statement).all())

        return self._database.write(update)


def _select_rows(rows: Sequence[NotificationRow]) -> sa.ColumnElement[bool]:
    return _IS_WAITING & _id.in_([row.id for row in rows])


def _select_given_up(surface: Surface | None) -> sa.ColumnElement[bool]:
    return _IS_GIVEN_UP if surface is None else _IS_GIVEN_UP & (_surface == surface)
