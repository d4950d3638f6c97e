"""The service `engine.safety`: all rails of one home."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlmodel import col, desc, func, select

from engine.clock import Clock
from engine.config import SettingsSource
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    ChainStep,
    Hold,
    LogEntry,
    RailState,
    RailVerdict,
    Randomness,
    SessionView,
    StopLevel,
    microusd,
)
from engine.safety import loops
from engine.safety.content import OwnRules, check_command, check_prompt, own_rules, programs_of
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.permits import Permits
from engine.safety.pipeline import LOOPS_KEY, Allowance, CrosspollLog, Pipeline
from engine.safety.rail_status import RailStatus
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import value_of


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions of services above, which the rails call."""

    stop_sessions: Callable[[str], object]
    """Ends every running session within a second; takes the reason."""
    agent_budget: Callable[[str], int | None] = lambda agent: None
    """An agent's budget of a day in micro-dollars."""
    quiet: Callable[[], bool] = lambda: False
    """Whether it is quiet hours."""
    confined: Callable[[], bool] = lambda: True
    """Whether a sandbox works on this machine."""
    on_change: Callable[[], None] = lambda: None
    """Called after holds changed, possibly on the writer thread; must neither write nor wait."""


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
        self._status = RailStatus(database, clock, self.pipeline)

    def start(self) -> None:
        """Begin to watch for a stop from outside."""
        self.kill_switch.start()

    def close(self) -> None:
        """Stop watching."""
        self.kill_switch.close()

    def recover(self, session_of: Callable[[str], SessionView | None], lasting: Set[int] = frozenset()) -> int:
        """Release reservations that a crash left, but not the `lasting` ones; returns how many. Call it at start-up,
        after the sessions are recovered."""

        def mend(transaction: Transaction) -> int:
            loops.forget_links(transaction)
            waiting = {permit.id for permit in self.permits.unconsumed() if transaction.now < permit.expires_at}
            return self.costs.recover(transaction, session_of, waiting, lasting)

        return self._database.write(mend)

    def holds(self) -> list[Hold]:
        """The active holds, strictest first."""
        return self.kill_switch.holds()

    def stop(self, reason: str, by: str) -> None:
        """Stop everything now (SPEC 3.7)."""
        self.kill_switch.stop(reason, by)

    def resume(self, word: str) -> None:
        """End `stop`, `pause` or `month`. Raises `Refusal` `unknown_hold` or `not_held`."""
        self.kill_switch.resume(word)

    def decided(self, transaction: Transaction) -> None:
        """Call in the transaction that recorded an operator's decision, after recording it."""
        self.kill_switch.decided(transaction)

    def allow_once(self, prediction_id: str) -> str:
        """Allow one run of what the content filter last blocked of this card. Raises `Refusal` `nothing_blocked`."""
        return self._database.write(lambda transaction: self.pipeline.allow_once(transaction, prediction_id))

    def check_command(self, text: str, cwd: Path | None = None) -> RailVerdict:
        """The content filter on a shell command (SPEC 3.5)."""
        return check_command(text, cwd=cwd, own=self._own())

    def check_prompt(self, text: str) -> RailVerdict:
        """The content filter on words."""
        return check_prompt(text, own=self._own())

    def programs(self, text: str) -> list[str]:
        """Each program that a shell command really runs, with its arguments, whatever wraps or disguises it."""
        return programs_of(text)

    def _own(self) -> OwnRules:
        content = self._settings.current.content
        return own_rules(content.allow, content.block)

    def loop_detection_count(self) -> int:
        """The number of all blocked loops (`loopDetectionCount`)."""
        with self._database.read() as session:
            return int(state.get(session, LOOPS_KEY, 0))

    def triggers(self) -> tuple[int, datetime | None]:
        """The number of all triggers that passed (`totalTriggers`), and the time of the last (`lastTriggerAt`)."""
        query = select(func.count(), func.max(col(CrosspollLog.created_at))).where(col(CrosspollLog.blocked).is_(False))
        with self._database.read() as session:
            count, last = session.exec(query).one()
        return int(count), last

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[LogEntry]:
        """The newest decisions first."""
        query = select(CrosspollLog).order_by(desc(col(CrosspollLog.id))).limit(limit)
        if blocked_only:
            query = query.where(col(CrosspollLog.blocked).is_(True))
        with self._database.read() as session:
            rows = session.exec(query).all()
            lifted = set(session.exec(select(Allowance.digest).where(col(Allowance.used_at).is_(None))))
        return [_entry(row, row.blocked and row.digest in lifted) for row in rows]

    def rails(self) -> tuple[RailState, ...]:
        """The state of each rail, with its verdict on the newest trigger."""
        return self._status.rails()

    def chain(self, limit: int = 20) -> list[ChainStep]:
        """The newest links that the loop detector keeps, newest first."""
        return self._status.chain(limit)

    def levels(self) -> tuple[StopLevel, ...]:
        """The four levels of the kill switch (SPEC 3.7)."""
        return self.kill_switch.levels()

    def session_started(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: the reservation is theirs now."""
        self.costs.session_started(transaction, view)

    def session_ended(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: settle the cost, write the result into the log."""
        self.costs.session_ended(transaction, view)
        self.pipeline.session_ended(transaction, view)


def _entry(row: CrosspollLog, lifted: bool) -> LogEntry:
    return value_of(
        row,
        LogEntry,
        at=row.created_at,
        prediction_id=row.prediction_id or "",
        channel=row.target_channel,
        estimate=microusd(row.cost_estimate),
        reason=row.block_reason or "",
        lifted=lifted,
    )
