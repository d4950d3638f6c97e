"""The service of the rails for other packages (SPEC 3)."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlmodel import col, desc, select

from engine.clock import Clock
from engine.config import SettingsSource
from engine.learning.decisions.decisions import Decisions
from engine.model import ChainStep, LogEntry, RailState, RailVerdict, Randomness, SessionView, microusd
from engine.safety import trigger_history
from engine.safety.content import OwnRules, check_command, check_prompt, own_rules
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.permits import Permits
from engine.safety.pipeline import LOOP_COUNT_KEY, Allowance, CrosspollLog, Pipeline
from engine.safety.rail_states import RailStates
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import ask, value_of

_PASSED = "SELECT count(*), max(created_at) FROM crosspoll_log WHERE blocked IS 0"


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions of services above, which the rails call."""

    stop_sessions: Callable[[str], object]
    """Ends every running session within a second; takes the reason."""
    agent_budget: Callable[[str], int | None] = lambda agent: None
    """An agent's budget for a day in micro-dollars."""
    quiet: Callable[[], bool] = lambda: False
    """Whether quiet hours apply now."""
    confined: Callable[[], bool] = lambda: True
    """Whether a sandbox works on this machine."""
    on_change: Callable[[], None] = lambda: None
    """Called after holds changed, possibly on the writer thread, so it must neither write nor wait."""


class Safety:
    """All rails of one home. `pipeline`, `permits`, `costs`, `kill_switch` are its parts."""

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        randomness: Randomness,
        *,
        data: Path,
        decisions: Decisions,
        hooks: Hooks,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self.kill_switch = KillSwitch(
            database,
            settings,
            clock,
            data=data,
            decisions=decisions,
            stop_sessions=hooks.stop_sessions,
            on_change=hooks.on_change,
        )
        self.costs = Costs(
            database,
            settings,
            clock,
            agent_budget=hooks.agent_budget,
            cap_reached=self.kill_switch.cap_reached,
        )
        self.permits = Permits(database, randomness, self.kill_switch)
        self.pipeline = Pipeline(
            database,
            settings,
            clock,
            costs=self.costs,
            permits=self.permits,
            kill_switch=self.kill_switch,
            quiet=hooks.quiet,
            confined=hooks.confined,
        )
        self._rail_states = RailStates(
            database,
            settings,
            clock,
            costs=self.costs,
            kill_switch=self.kill_switch,
            pipeline=self.pipeline,
        )

    def recover(self, session_of: Callable[[str], SessionView | None], lasting: Set[int] = frozenset()) -> int:
        """Release reservations that a crash left, but not the `lasting` ones; returns how many. Call it at start-up,
        after the sessions are recovered."""

        def work(transaction: Transaction) -> int:
            trigger_history.delete_old_links(transaction)
            waiting = {permit.id for permit in self.permits.unconsumed() if transaction.now < permit.expires_at}
            return self.costs.recover(transaction, session_of, waiting, lasting)

        return self._database.write(work)

    def session_ended(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: settle the cost, and write the result into the log."""
        self.costs.session_ended(transaction, view)
        self.pipeline.session_ended(transaction, view)

    def allow_once(self, prediction_id: str) -> str:
        """Allow one run of the content of this card that the filter blocked last. Raises `Refusal`
        `nothing_blocked`."""
        return self._database.write(lambda transaction: self.pipeline.allow_once(transaction, prediction_id))

    def check_command(self, text: str) -> RailVerdict:
        """The content filter's verdict on a shell command (SPEC 3.5)."""
        return check_command(text, own=self._own_rules())

    def check_prompt(self, text: str) -> RailVerdict:
        """The content filter's verdict on a prompt (SPEC 3.5)."""
        return check_prompt(text, own=self._own_rules())

    def _own_rules(self) -> OwnRules:
        content = self._settings.current.content
        return own_rules(content.allow, content.block)

    def loop_detection_count(self) -> int:
        """The number of all blocked loops (`loopDetectionCount`)."""
        with self._database.read() as session:
            return int(state.get(session, LOOP_COUNT_KEY, 0))

    def triggers(self) -> tuple[int, datetime | None]:
        """The number of all triggers that passed (`totalTriggers`), and the time of the last (`lastTriggerAt`)."""
        with self._database.read() as session:
            number, last = ask(session, _PASSED).one()
        return number, None if last is None else datetime.fromisoformat(last)

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[LogEntry]:
        """The newest decisions first."""
        query = select(CrosspollLog).order_by(desc(col(CrosspollLog.id))).limit(limit)
        if blocked_only:
            query = query.where(col(CrosspollLog.blocked).is_(True))
        with self._database.read() as session:
            rows = session.exec(query).all()
            allowed = set(session.exec(select(Allowance.digest).where(col(Allowance.used_at).is_(None))))
        return [_entry(row, row.blocked and row.digest in allowed) for row in rows]

    def rails(self) -> tuple[RailState, ...]:
        """The state of every rail in the pipeline's order, with its verdict on the newest trigger."""
        return self._rail_states.read()

    def chain(self, limit: int = 20) -> list[ChainStep]:
        """The links of the loop detector, newest first, each with its effect on a decision now."""
        return self._rail_states.read_chain(limit)


def _entry(row: CrosspollLog, allowed_once: bool) -> LogEntry:
    return value_of(
        row,
        LogEntry,
        at=row.created_at,
        prediction_id=row.prediction_id or "",
        channel=row.target_channel,
        estimate=microusd(row.cost_estimate),
        reason=row.block_reason or "",
        allowed_once=allowed_once,
    )
