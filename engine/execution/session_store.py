"""Stores and reads the rows of sessions (SPEC 3.8). Each change of state is one transaction, which observers join.

A session becomes QUEUED in the transaction that uses up its permit, and RUNNING in a second one. A last one stores its
end. A crash between two of them leaves the row in the earlier state. An end that cannot be stored, for example because
the disk is full, is stored later (SPEC 11.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, field
from datetime import datetime
from functools import partial
from typing import Any

from sqlmodel import Field

from engine.events import Event, EventBus
from engine.events.engine import FaultReported
from engine.events.work import SessionEnded, SessionQueued, SessionStarted
from engine.frozen import frozen
from engine.model import UNDONE, AgentActivity, Assignment, CheckResult, Permit, Refusal, SessionState, SessionView
from engine.storage import (
    Row,
    ask,
    find_ids_with_prefix,
    load,
    read_newest_rows,
    shallow_dict,
    value_of,
)
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

COST_HISTORY_SESSIONS = 20
"""Number of the latest sessions of a runner on a channel whose mean cost is the estimate."""

APPROVED = "approved"
AUTONOMOUS = "autonomous"
"""The modes of a session: approved by the operator, or started by itself."""

NOT_BEGUN = "not_begun"
"""The key, among the facts of a result, of a session that did nothing. Its card is offered again."""

CONTINUES = "continues"
"""The parameter of a text assignment that names the session to continue."""

SessionObserver = Callable[[Transaction, SessionView], object]
"""Joins the transaction in which a session starts or ends, on the writer thread. It must be quick, and must not call
`Sessions`. If it raises, the session's own change is rolled back too."""

WriteChanges = Callable[[Transaction], str]
"""Stores the changes of a session in its last transaction. Returns the id of the change set, "" for none."""

ConsumePermit = Callable[[Transaction, Permit, str], None]
"""Uses up a permit for this digest, or raises `Refusal` (SPEC 3.1)."""

MoreEvents = Callable[[SessionView], Sequence[Event]]
"""Returns events to record in the last transaction of a session."""

CHANGES_WAIT = "its changes until then are waiting"
"""The end of the summary of a session that was stopped after it had changed files."""

FIRST_RETRY_S = 0.2
MAX_RETRY_S = 30.0
"""Seconds until the end of a session that could not be stored is tried again, at first and at most."""


# -- rows and results


def is_legal_transition(before: SessionState, after: SessionState) -> bool:
    """Whether a session may go from one state to another. A queued session may run or end early. A running session may
    end in any way."""
    if before is SessionState.QUEUED:
        return after in (SessionState.RUNNING, SessionState.CANCELLED, SessionState.FAILED, SessionState.CANNOT_RUN)
    return before is SessionState.RUNNING and after.is_over


@frozen
class SessionResult:
    """The result of a session that ended."""

    state: SessionState
    summary: str
    error: str = ""
    check: CheckResult | None = None
    cost: int = 0
    """Micro-dollars."""
    tokens: int = 0
    seconds: float = 0.0
    """Time since the session started; 0 if it never started."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The findings of its flow, for programs (`FlowResult.facts`), and `NOT_BEGUN` if it did nothing."""


class SessionRow(Row, table=True):
    """One session; its output is in its transcript file."""

    __tablename__ = "sessions"

    id: str = Field(primary_key=True)
    prediction_id: str
    permit_id: str
    prompt: str
    workspace: str
    channel: str
    agent: str
    runner: str
    flow: str | None = None
    parameters: dict[str, Any]
    state: SessionState
    mode: str
    sandbox: str = ""
    cwd: str = ""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    tokens: int = 0
    cost_microusd: int = 0
    estimate_microusd: int = 0
    summary: str = ""
    error: str = ""
    check_result: dict[str, Any] | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    change_set_id: str | None = None
    lines: int = 0
    discarded_at: datetime | None = None
    """When the operator discarded its changes."""

    @property
    def assignment(self) -> Assignment:
        """The session's assignment, whose digest is the permit's."""
        return value_of(self, Assignment, parameters=dict(self.parameters))

    def set_result(self, result: SessionResult) -> None:
        """Copy the state and the other values of a result into the row."""
        self.state = result.state
        self.summary = result.summary
        self.error = result.error
        self.facts = result.facts
        self.tokens = result.tokens
        self.cost_microusd = result.cost
        self.check_result = None if result.check is None else asdict(result.check)

    @property
    def about(self) -> dict[str, str]:
        """The fields that every event of the session has."""
        return {"subject": self.id, "workspace": self.workspace, "prediction_id": self.prediction_id}

    @property
    def view(self) -> SessionView:
        """The session for other services and screens."""
        return value_of(
            self,
            SessionView,
            cost=self.cost_microusd,
            check=read_check(self.check_result),
            next_step=str(self.facts.get("next") or ""),
            not_begun=bool(self.facts.get(NOT_BEGUN)),
            project=str(self.parameters.get("project") or ""),
            facts=dict(self.facts),
        )


def read_check(stored: dict[str, Any] | None) -> CheckResult | None:
    """The check result that a column stores as JSON."""
    if stored is None:
        return None
    failed_before = stored["failed_before"]
    tuples = {
        "failing": tuple(stored["failing"]),
        "durations": tuple((str(name), float(seconds)) for name, seconds in stored["durations"]),
        "failed_before": None if failed_before is None else tuple(failed_before),
    }
    return CheckResult(**stored | tuples)


def get_continued_session(assignment: Assignment) -> str:
    """The session that an assignment continues, "" for none."""
    return "" if assignment.flow else str(assignment.parameters.get(CONTINUES) or "")


_SELECT_TOTALS = "SELECT agent, count(*), sum(tokens), sum(cost_microusd) FROM sessions GROUP BY agent"
"""The number, tokens and cost of the sessions of each agent."""

_SELECT_USUAL_COST = f"""
    SELECT avg(cost_microusd) FROM (
        SELECT cost_microusd FROM sessions
        WHERE runner = :runner AND channel = :channel AND cost_microusd > 0
        AND state IN ('{SessionState.SUCCEEDED}', '{SessionState.FAILED}')
        ORDER BY created_at DESC LIMIT {COST_HISTORY_SESSIONS}
    )
"""
"""The mean cost of the latest sessions of a runner on a channel that were not free."""


# -- the store


class SessionStore:
    """Writes and reads the rows of sessions."""

    def __init__(self, database: Database, consume: ConsumePermit) -> None:
        self._database = database
        self._consume = consume
        self._start_observers: list[SessionObserver] = []
        self._end_observers: list[SessionObserver] = []

    def observe_start(self, *observers: SessionObserver) -> None:
        """Add observers of sessions that start."""
        self._start_observers += observers

    def observe_end(self, *observers: SessionObserver) -> None:
        """Add observers of sessions that end, even if these never started because they were cancelled in the queue."""
        self._end_observers += observers

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
    ) -> SessionRow:
        """Use up `permit` and put the session into the queue. Both happen or neither. `sandbox` is `UNCONFINED` if the
        session was approved to run without one. Raises as the use of the permit."""

        def store_queued(tx: Transaction) -> SessionRow:
            self._consume(tx, permit, assignment.digest)
            row = SessionRow(
                id=session_id,
                prediction_id=permit.prediction_id,
                permit_id=permit.id,
                state=SessionState.QUEUED,
                mode=mode,
                sandbox=sandbox,
                cwd=assignment.workspace,
                created_at=tx.now,
                estimate_microusd=estimate,
                **(shallow_dict(assignment) | {"agent": agent, "parameters": dict(assignment.parameters)}),
            )
            tx.insert(row)
            tx.record(SessionQueued(**row.about, flow=row.flow or ""))
            return row

        return self._database.write(store_queued)

    def begin(self, session_id: str, sandbox: str) -> SessionView | None:
        """Make a queued session a running one. None when it was ended before. `sandbox` describes its sandbox."""

        def store_start(tx: Transaction) -> SessionView | None:
            row = _move_to(tx, session_id, SessionState.RUNNING)
            if row is None:
                return None
            row.sandbox = sandbox
            view = row.view
            for observe in self._start_observers:
                observe(tx, view)
            tx.record(SessionStarted(**row.about, sandbox=sandbox))
            return view

        return self._database.write(store_start)

    def end(
        self,
        session_id: str,
        result: SessionResult,
        *,
        lines: int,
        cwd: str = "",
        write: WriteChanges | None = None,
        more_events: MoreEvents = lambda view: (),
    ) -> bool:
        """Store the result in the last transaction of the session, with its changes and `more_events`.

        Returns False if the session was over already. Then only the changes are stored, as by `attach_changes`.

        Args:
            lines: the number of lines of the transcript.
            cwd: the folder in which the session worked, "" if that did not change.
        """

        def store_end(tx: Transaction) -> bool:
            row = _move_to(tx, session_id, result.state)
            if row is None:
                if write is not None:
                    attach_changes(tx, session_id, write, cwd=cwd)
                return False
            row.set_result(result)
            row.lines, row.cwd = lines, cwd or row.cwd
            change_set = write(tx) if write is not None else ""
            row.change_set_id = change_set or None
            if change_set and result.state is not SessionState.SUCCEEDED:
                _set_changes(row, change_set, row.cwd)
            self._record_end(tx, row, more_events)
            return True

        return self._database.write(store_end)

    def _record_end(self, tx: Transaction, row: SessionRow, more_events: MoreEvents) -> None:
        """Tell the observers about a session that ended, and record its events."""
        view = row.view
        for observe in self._end_observers:
            observe(tx, view)
        for event in more_events(view):
            tx.record(event)
        tx.record(
            SessionEnded(
                **row.about, state=row.state, result=view.result or "", summary=row.summary, cost=row.cost_microusd
            )
        )

    def load_row(self, session_id: str) -> SessionRow:
        """One row. Raises `Refusal` `unknown_session`."""
        with self._database.read() as session:
            row = load(session, SessionRow, session_id)
        if row is None:
            raise Refusal("unknown_session", f"there is no session {session_id}", "`clawpy work` lists them")
        return row

    def load_rows(self, limit: int | None = None, **equal: str | None) -> list[SessionRow]:
        """Rows with these values in these columns, newest first. A value of None matches any."""
        with self._database.read() as session:
            return read_newest_rows(session, SessionRow, limit, **equal)

    def read_totals(self) -> dict[str, AgentActivity]:
        """The totals of all sessions of each agent that had one."""
        with self._database.read() as session:
            return {
                agent: AgentActivity(sessions=count, total_tokens=tokens, total_cost=cost)
                for agent, count, tokens, cost in ask(session, _SELECT_TOTALS)
            }

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of sessions, of any age, that begin with `prefix`; see `engine.storage`."""
        with self._database.read() as session:
            return find_ids_with_prefix(session, SessionRow, prefix)

    def compute_usual_cost(self, runner: str, channel: str) -> int | None:
        """The mean cost in micro-dollars of the latest sessions of this runner on this channel that were not free. None
        before the first of them."""
        with self._database.read() as session:
            mean = ask(session, _SELECT_USUAL_COST, {"runner": runner, "channel": channel}).scalar()
        return None if mean is None else round(mean)


def attach_changes(tx: Transaction, session_id: str, write: WriteChanges, *, cwd: str) -> bool:
    """Store the changes of a session that is over already. `write` is as in `SessionStore.end`. If the session has a
    change set, runs, or was undone, nothing is stored and the result is False."""
    row = load(tx.session, SessionRow, session_id)
    if row is None or not row.state.is_over or row.change_set_id or row.error == UNDONE:
        return False
    change_set = write(tx)
    if change_set:
        _set_changes(row, change_set, cwd)
        tx.session.add(row)
    return bool(change_set)


def _set_changes(row: SessionRow, change_set_id: str, cwd: str) -> None:
    """Put the change set and the folder into the row of a session that was stopped before its end."""
    row.change_set_id, row.cwd = change_set_id, cwd
    row.summary = f"{row.summary}; {CHANGES_WAIT}"


def _move_to(tx: Transaction, session_id: str, after: SessionState) -> SessionRow | None:
    """Change the state of a session to `after`. Returns its row, or None if the session was ended first, so that the
    change is not legal any more."""
    row = load(tx.session, SessionRow, session_id)
    if row is None or not is_legal_transition(row.state, after):
        return None
    row.state = after
    if after is SessionState.RUNNING:
        row.started_at = tx.now
    elif after.is_over:
        row.ended_at = tx.now
    return row


@frozen
class LateEnds:
    """The ends of sessions that are not stored yet. Each is tried again in a thread until the engine closes. Then it is
    left to the next start, which reports the session as interrupted.

    `closing` is set when the engine closes. `start_thread` starts a thread by its name and its work, or raises
    `RuntimeError`.
    """

    bus: EventBus
    closing: threading.Event
    start_thread: Callable[[str, Callable[[], None]], None]
    results: dict[str, SessionResult] = field(default_factory=dict)

    def store_now_or_later(self, session_id: str, result: SessionResult, store: Callable[[], object]) -> None:
        """Store the end of a session with `store`. If that fails, report it, and try again until it succeeds; until
        then the row is RUNNING."""
        try:
            store()
        except Exception as error:
            log.exception("the end of session %s could not be stored", session_id)
            self.results[session_id] = result
            self._retry(session_id, store, error)

    def _retry(self, session_id: str, store: Callable[[], object], failed: Exception) -> None:
        """Try again in a thread until the end is stored, and report that."""
        next_try = "it is tried again"
        try:
            self.start_thread(f"clawpy-late-{session_id}", partial(self._store_late, session_id, store))
        except RuntimeError:  # the machine has no thread left
            next_try = "the next start reports it as interrupted"
        self._report(session_id, f"the end of session {session_id} could not be stored; {next_try}: {failed}")

    def _store_late(self, session_id: str, store: Callable[[], object]) -> None:
        """Try `store` until it succeeds or the engine closes."""
        wait = FIRST_RETRY_S
        while not self.closing.wait(wait):
            try:
                store()
            except Exception as error:
                log.warning("the end of session %s still cannot be stored: %s", session_id, error)
                wait = min(2 * wait, MAX_RETRY_S)
            else:
                self._report(session_id, f"the end of session {session_id} is stored now")
                return

    def _report(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self.bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
