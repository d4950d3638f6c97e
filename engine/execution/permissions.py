"""Asks a person for permission on behalf of a session (SPEC 3.5, 9.3).

Each request gets one answer. The request is stored before anybody is asked, and the answer before the session acts on
it. A session that runs by itself never waits; its request is stored as denied.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from sqlmodel import Field, Session

from engine.events.work import PermissionAnswered, PermissionAsked, PermissionWithdrawn
from engine.execution.live_session import LiveSession
from engine.execution.session_store import AUTONOMOUS
from engine.model import PermissionAnswer, PermissionRequest, Refusal, SessionView
from engine.randomness import Randomness
from engine.redaction import redact
from engine.storage import Row, load_all, load_first, value_of
from engine.storage.database import Database, Transaction
from engine.text import hex_hash, sanitise

log = logging.getLogger(__name__)

MAX_TITLE_CHARS = 300
"""Maximum number of characters to which a title is cut."""

MAX_DETAIL_CHARS = 50_000
"""Maximum number of characters to which a detail is cut."""

OPERATOR = "operator"
NOBODY = "nobody"
"""Who answered a request: nobody, if the session runs by itself."""

WAITING = "waiting"
ANSWERED = "answered"
WITHDRAWN = "withdrawn"
"""The states of a request, as they are stored."""


class PermissionRow(Row, table=True):
    """One request. An answer for the session applies to all its requests with the same `key`, which is a digest,
    because a command may contain a password."""

    __tablename__ = "permission_requests"

    id: str = Field(primary_key=True)
    session_id: str
    agent: str
    workspace: str
    tool: str
    title: str
    detail: str
    reason: str
    key: str
    state: str
    asked_at: datetime = Field(default=None)
    """Given when it is stored."""
    answered_at: datetime | None = None
    answer: PermissionAnswer | None = None
    answered_by: str = ""

    @property
    def about(self) -> dict[str, str]:
        """The fields that every event of it has."""
        return {"subject": self.id, "workspace": self.workspace, "session_id": self.session_id, "tool": self.tool}

    @property
    def view(self) -> PermissionRequest:
        """The request for other services and screens."""
        return value_of(self, PermissionRequest, withdrawn=self.state == WITHDRAWN, by=self.answered_by)


_NEWEST = "WHERE session_id = ifnull(:session, session_id) ORDER BY asked_at DESC, id DESC LIMIT :limit"
"""The newest requests, of one session or of all."""
_LASTING = (
    "WHERE session_id = :session AND key = :key AND id <> :id "
    "AND answer IN (SELECT value FROM json_each(:lasting)) ORDER BY asked_at"
)
"""The requests of a session with the same key that were answered for the whole session."""
_WAITING = f"WHERE state = '{WAITING}' AND session_id = ifnull(:session, session_id) ORDER BY asked_at, id"
"""The requests that wait, of one session or of all."""


@dataclass(slots=True)
class _PendingAnswer:
    """Lets the session's thread wait. `ended` is set by an answer and by the end of the session."""

    ended: threading.Event = field(default_factory=threading.Event)
    answer: PermissionAnswer | None = None


class Permissions:
    """Asks a person. `ask` blocks the session's thread. The other methods are quick, and may be called from any
    thread."""

    def __init__(
        self, database: Database, *, randomness: Randomness, secrets: Callable[[], Iterable[str]] = tuple
    ) -> None:
        """`secrets` returns values that are never stored or shown (SPEC 11.1), besides those that look secret."""
        self._database = database
        self._secrets = secrets
        self._randomness = randomness
        self._lock = threading.Lock()
        self._pending: dict[str, _PendingAnswer] = {}
        """The answers for which threads wait, by the id of the request."""

    def ask(
        self, live: LiveSession, view: SessionView, *, tool: str, title: str, detail: str, reason: str, key: str
    ) -> bool:
        """Ask a person, and wait for the answer, while the session's clock is paused (SPEC 9.3). Returns whether it was
        allowed.

        An earlier answer for the session with the same `key` applies again. A session that runs by itself is denied at
        once. Raises `SessionStopped` when the session ends before there is an answer, `Refusal` when the request cannot
        be stored.
        """
        live.check_running()
        row = self._make_row(view, tool=tool, title=title, detail=detail, reason=reason, key=key)
        request_id, summary = row.id, f"{row.title}: {row.reason}"
        pending = _PendingAnswer()
        with self._lock:
            self._pending[request_id] = pending
        try:
            request = self._database.write(lambda tx: self._store_request(tx, row, by_itself=view.mode == AUTONOMOUS))
            live.write("ask", f"{summary} ({request_id})")
            if request.answer is None:
                live.on_stop(pending.ended.set)
                with live.pause_clock():
                    pending.ended.wait()
                if pending.answer is None:
                    live.check_running()  # the session ends, and its last transaction withdraws the request
                request = self.get(request_id)
            live.write("ask", _describe(request))
        finally:
            with self._lock:
                self._pending.pop(request_id, None)
        live.check_running()
        return request.answer is not None and request.answer.allows

    def _make_row(
        self, view: SessionView, *, tool: str, title: str, detail: str, reason: str, key: str
    ) -> PermissionRow:
        """The row of a new request, without secrets."""
        secrets = tuple(self._secrets())
        return PermissionRow(
            id=self._randomness.new_id("perm"),
            session_id=view.id,
            agent=view.agent,
            workspace=view.workspace,
            tool=sanitise(tool),
            title=_shorten(redact(sanitise(title), secrets).replace("\n", " "), MAX_TITLE_CHARS),
            detail=_shorten(redact(sanitise(detail), secrets), MAX_DETAIL_CHARS),
            reason=redact(sanitise(reason), secrets),
            key=hex_hash(key),
            state=WAITING,
        )

    def _store_request(self, tx: Transaction, row: PermissionRow, *, by_itself: bool) -> PermissionRequest:
        """Store a new request. It is denied if the session runs `by_itself`, and answered if there is an answer for the
        session with the same key."""
        row.asked_at = tx.now
        tx.session.add(row)
        tx.record(PermissionAsked(**row.about, title=row.title))
        if by_itself:
            row.reason = f"{row.reason}; nobody can be asked, because the session runs by itself"
            _store_answer(tx, row, PermissionAnswer.DENY_ONCE, NOBODY)
        elif (earlier := _find_lasting_answer(tx.session, row)) is not None and earlier.answer is not None:
            _store_answer(tx, row, earlier.answer, f"{OPERATOR} ({earlier.id}, for this session)")
        return row.view

    def answer(self, request_id: str, answer: PermissionAnswer) -> PermissionRequest:
        """Answer a request. An answer for the session also answers its other waiting requests with the same key.

        Raises `Refusal` `unknown_permission`, `permission_answered`, `permission_withdrawn`.
        """

        def store_answers(tx: Transaction) -> list[PermissionRequest]:
            row = _load_row(tx.session, request_id)
            if row.answer is not None:
                raise Refusal(
                    "permission_answered",
                    f"{row.id} was already answered: {row.answer.words}",
                    f"an answer cannot be changed; to stop the session: clawpy undo {row.session_id}",
                )
            if row.state == WITHDRAWN:
                message = f"{row.id} is closed: its session has ended"
                raise Refusal("permission_withdrawn", message, "`clawpy permissions list` shows those that wait")
            _store_answer(tx, row, answer, OPERATOR)
            waiting_rows = _load_waiting_rows(tx.session, row.session_id) if answer.is_for_session else []
            matching = [other for other in waiting_rows if other.key == row.key and other.id != row.id]
            for other in matching:
                _store_answer(tx, other, answer, f"{OPERATOR} ({row.id}, for this session)")
            return [other.view for other in (row, *matching)]

        answered = self._database.write(store_answers)
        for request in answered:
            with self._lock:
                pending = self._pending.get(request.id)
            if pending is not None:  # the session's thread waits for it
                pending.answer = request.answer
                pending.ended.set()
        return answered[0]

    def list_waiting(self) -> list[PermissionRequest]:
        """The requests that wait for an answer, the oldest first."""
        with self._database.read() as session:
            return [row.view for row in _load_waiting_rows(session)]

    def list_newest(self, limit: int = 50, *, session_id: str | None = None) -> list[PermissionRequest]:
        """Requests of any state, newest first."""
        with self._database.read() as session:
            rows = load_all(session, PermissionRow, _NEWEST, {"session": session_id, "limit": limit})
        return [row.view for row in rows]

    def get(self, request_id: str) -> PermissionRequest:
        """One request. Raises `Refusal` `unknown_permission`."""
        with self._database.read() as session:
            return _load_row(session, request_id).view

    def recover(self) -> list[str]:
        """At start-up, when no session runs: withdraw waiting requests. Returns messages on them."""

        def withdraw_waiting(tx: Transaction) -> list[PermissionRequest]:
            rows = _load_waiting_rows(tx.session)
            _withdraw(tx, rows, "the engine stopped while it waited")
            return [row.view for row in rows]

        withdrawn = self._database.write(withdraw_waiting)
        return [
            f"“{request.title}” was waiting for your answer; "
            f"it was withdrawn because its session is gone ({request.id})"
            for request in withdrawn
        ]

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Withdraw the waiting requests of a session that is over."""
        _withdraw(tx, _load_waiting_rows(tx.session, view.id), "its session ended")


def _load_waiting_rows(session: Session, session_id: str | None = None) -> list[PermissionRow]:
    """The requests that wait, of one session or of all, the oldest first."""
    return load_all(session, PermissionRow, _WAITING, {"session": session_id})


def _find_lasting_answer(session: Session, row: PermissionRow) -> PermissionRow | None:
    """The request with the same key that has an answer for the session, or None."""
    lasting = [answer.value for answer in PermissionAnswer if answer.is_for_session]
    values = {"id": row.id, "session": row.session_id, "key": row.key, "lasting": lasting}
    return load_first(session, PermissionRow, _LASTING, values)


def _store_answer(tx: Transaction, row: PermissionRow, answer: PermissionAnswer, by: str) -> None:
    """Store the answer to a request, and record it. `by` says who gave it."""
    row.state = ANSWERED
    row.answer = answer
    row.answered_by = by
    row.answered_at = tx.now
    tx.session.add(row)
    tx.record(PermissionAnswered(**row.about, answer=answer.value, by=by))


def _withdraw(tx: Transaction, rows: Iterable[PermissionRow], reason: str) -> None:
    """Withdraw requests, because nobody waits for their answers any more."""
    for row in rows:
        row.state = WITHDRAWN
        row.answered_at = tx.now
        tx.session.add(row)
        tx.record(PermissionWithdrawn(**row.about, reason=reason))


def _load_row(session: Session, request_id: str) -> PermissionRow:
    """The row of a request. Raises `Refusal` `unknown_permission`."""
    row = session.get(PermissionRow, request_id)
    if row is None:
        message = f"there is no permission request {sanitise(request_id)[:60]}"
        raise Refusal("unknown_permission", message, "see `clawpy permissions list`")
    return row


def _describe(request: PermissionRequest) -> str:
    """The answer to a request, and who gave it."""
    words = request.answer.words if request.answer else "withdrawn"
    return f"{words} by {request.by}" if request.by else words


def _shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[:max_length]} … [{len(text) - max_length:,} more characters]"
