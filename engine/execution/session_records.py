"""The life of a session as the database knows it: each step one transaction that observers take part in (SPEC 3.8).

A session is a row before it is anything else. It is QUEUED in the transaction that uses its permit up, RUNNING in the
one that its observers hear of, and over in a last one. A crash between any two leaves a row that says how far it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from sqlmodel import col

from engine.events import Event, SessionEnded, SessionQueued, SessionStarted
from engine.execution import sessions_store as store
from engine.execution.journal import nothing_done
from engine.execution.sessions_store import SessionResult, SessionRow
from engine.model import UNDONE, Assignment, Permit, Refusal, SessionState, SessionView
from engine.storage.database import Database, Transaction
from engine.storage.ids import beginning
from engine.storage.kept import Kept
from engine.storage.quick import load


class PermitBook(Protocol):
    """Where permits are kept (SPEC 3.1)."""

    def consume(self, tx: Transaction, permit: Permit, digest: str, /) -> None:
        """Use the permit up for what has this digest, or raise `Refusal`."""


class SessionObserver(Protocol):
    """Who keeps something in step with sessions. Called inside the session's own transactions, on the writer thread:
    quick, never calling `Sessions`, and not raising, for then the session's own change does not happen either."""

    def session_started(self, tx: Transaction, view: SessionView, /) -> None: ...

    def session_ended(self, tx: Transaction, view: SessionView, result: SessionResult, /) -> None:
        """Also called for sessions that never started (cancelled while queued)."""


class SessionRecords:
    """Writes and reads the rows of sessions."""

    def __init__(self, database: Database, permits: PermitBook) -> None:
        self._database = database
        self._permits = permits
        self._observers: tuple[SessionObserver, ...] = ()
        self._usual_costs: Kept[int | None] = Kept(database, SessionRow)

    def observe(self, observer: SessionObserver) -> None:
        """Tell `observer` from now on."""
        self._observers = (*self._observers, observer)

    def enqueue(
        self,
        session_id: str,
        permit: Permit,
        assignment: Assignment,
        *,
        agent: str,
        mode: str,
        estimate: int,
        sandbox: str,
    ) -> None:
        """Use `permit` up and put the session into the queue, both or neither; `sandbox` is `UNCONFINED` for what was
        approved to run without one. Raises what the permit book raises."""

        def work(tx: Transaction) -> None:
            self._permits.consume(tx, permit, assignment.digest)
            tx.session.add(
                SessionRow(
                    id=session_id,
                    prediction_id=permit.prediction_id,
                    permit_id=permit.id,
                    prompt=assignment.prompt,
                    workspace=assignment.workspace,
                    channel=assignment.channel,
                    agent=agent,
                    runner=assignment.runner,
                    flow=assignment.flow,
                    parameters=dict(assignment.parameters),
                    state=SessionState.QUEUED.value,
                    mode=mode,
                    sandbox=sandbox,
                    cwd=assignment.workspace,
                    created_at=tx.now,
                    estimate_microusd=estimate,
                )
            )
            tx.record(
                SessionQueued(
                    subject=session_id,
                    workspace=assignment.workspace,
                    prediction_id=permit.prediction_id,
                    flow=assignment.flow or "",
                )
            )

        self._database.write(work)

    def begin(self, session_id: str, sandbox: str) -> SessionView | None:
        """QUEUED -> RUNNING; None when it was ended before it began. `sandbox` as the row is to say it."""

        def work(tx: Transaction) -> SessionView | None:
            row = store.move_to(tx, session_id, SessionState.RUNNING)
            if row is None:
                return None
            row.sandbox = sandbox
            view = row.view
            for observer in self._observers:
                observer.session_started(tx, view)
            tx.record(
                SessionStarted(
                    subject=row.id, workspace=row.workspace, prediction_id=row.prediction_id, sandbox=sandbox
                )
            )
            return view

        return self._database.write(work)

    def end(
        self,
        session_id: str,
        result: SessionResult,
        *,
        lines: int,
        cwd: str = "",
        write: Callable[[Transaction], str] | None = None,
        facts: Callable[[SessionView], Sequence[Event]] = nothing_done,
    ) -> bool:
        """The last transaction, with what else `write` puts into it, which returns the id of a change set, or "", and
        the `facts` of what it did. False when the session was over already: nothing is done.

        `lines` of transcript; `cwd` is where it worked, if not where it was to.
        """

        def work(tx: Transaction) -> bool:
            row = store.move_to(tx, session_id, result.state)
            if row is None:
                return False
            change_set = write(tx) if write is not None else ""
            final = replace(result, change_set_id=change_set or None)
            store.put_result(row, final, lines=lines)
            row.cwd = cwd or row.cwd
            if change_set and result.state is not SessionState.SUCCEEDED:
                store.attach(row, change_set, cwd=row.cwd)
            view = row.view
            for observer in self._observers:
                observer.session_ended(tx, view, final)
            for fact in facts(view):
                tx.record(fact)
            tx.record(
                SessionEnded(
                    subject=row.id,
                    workspace=row.workspace,
                    prediction_id=row.prediction_id,
                    state=row.state,
                    result=view.result or "",
                    summary=row.summary,
                    cost=row.cost_microusd,
                )
            )
            return True

        return self._database.write(work)

    def attach(self, session_id: str, write: Callable[[Transaction], str], *, cwd: str) -> bool:
        """See `attach`, in a transaction of its own."""
        return self._database.write(lambda tx: attach(tx, session_id, write, cwd=cwd))

    def get(self, session_id: str) -> SessionRow:
        """One row. Raises `Refusal` `unknown_session`."""
        with self._database.read() as session:
            row = load(session, SessionRow, session_id)
        if row is None:
            raise Refusal("unknown_session", f"there is no session {session_id}", "`clawpy work` lists them")
        return row

    def latest(
        self,
        *,
        workspace: str | None = None,
        agent: str | None = None,
        state: SessionState | None = None,
        limit: int | None = None,
    ) -> list[SessionRow]:
        """Rows, newest first."""
        with self._database.read() as session:
            return store.rows(session, workspace=workspace, agent=agent, state=state, limit=limit)

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """By agent: how many sessions it ever had, their tokens, and their cost in micro-dollars."""
        with self._database.read() as session:
            return store.totals(session)

    def beginning(self, wanted: str) -> list[str]:
        """Ids, of any age, that begin so; see `engine.storage.ids`."""
        with self._database.read() as session:
            return beginning(session, col(SessionRow.id), wanted)

    def of_prediction(self, prediction_id: str) -> SessionRow | None:
        """The newest session of a card, or None."""
        with self._database.read() as session:
            return store.of_prediction(session, prediction_id)

    def usual_cost(self, runner: str, channel: str) -> int | None:
        """What sessions of this runner and channel cost on average, in micro-dollars; None before the first."""

        def read() -> int | None:
            with self._database.read() as session:
                return store.usual_cost(session, runner, channel)

        return self._usual_costs.get((runner, channel), read)


def attach(tx: Transaction, session_id: str, write: Callable[[Transaction], str], *, cwd: str) -> bool:
    """What a session left that was over before it could be said: `write` as in `SessionRecords.end`, once. False when
    the session has a change set already, runs, or was undone: nothing is done then."""
    row = load(tx.session, SessionRow, session_id)
    if row is None or not SessionState(row.state).over or row.change_set_id or row.error == UNDONE:
        return False
    if change_set := write(tx):
        store.attach(row, change_set, cwd=cwd)
        tx.session.add(row)
    return bool(change_set)
