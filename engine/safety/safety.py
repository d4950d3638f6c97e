"""The service `engine.safety`: all rails of one home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlmodel import Session, col, desc, func, select

from engine.clock import Clock
from engine.config import Autonomy, SettingsSource
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    MICRO,
    Assignment,
    ChainStep,
    DecidedBy,
    Hold,
    LogEntry,
    RailState,
    RailVerdict,
    Randomness,
    SessionView,
    StopLevel,
    Trigger,
    TriggerType,
    Verdict,
    microusd,
)
from engine.model.text import count
from engine.safety import costs, gate, loops
from engine.safety.content import OwnRules, check_command, check_prompt, own_rules, programs_of
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.pipeline import LOOPS_KEY, ORDER, Allowance, CrosspollLog, Permits, Pipeline, last_unattended
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import as_stored, ask, value_of

# The state of the rails, for display: nothing here decides or writes (SPEC 9.1).
#
# Each rail's own function judges a sample trigger without approval that breaks no other rule, so that
# what is shown and what decides cannot drift apart.


COUNTED_WITHIN = timedelta(hours=24)
"""Stopped decisions of this long are counted."""
MAX_COUNTED = 2000
"""Counting stops here."""

GATE_BRIEF = {
    "rejections": "rejected", "day-cost": "day 80 %", "onboarding": "first 10", "autonomy-off": "asks you",
    "workspace": "asks you", "no-sandbox": "no sandbox", "quiet": "quiet",
}  # fmt: skip
KILL_BRIEF = {"stop-file": "stop", "config": "off", "api": "api off"}

SAMPLE_TRIGGER = Trigger(
    prediction_id="",
    type=TriggerType.AUTONOMOUS,
    assignment=Assignment("", "", "", ""),
    agent="",
    confidence=1.0,
    estimate=0,
    decided_by=DecidedBy.AUTONOMY,
    phase=1,
    approval_bound=1.0,
)
"""Work by the engine itself, with nothing against it."""


def _state(verdict: RailVerdict, brief: str, until: datetime | None = None) -> RailState:
    return RailState(verdict.rail, verdict.verdict, brief, verdict.reason, until)


def _stopped(session: Session, since: datetime) -> Counter[str]:
    """How many decisions each rail was the first to stop."""
    reasons = ask(session, _STOPPED, {"since": as_stored(since), "limit": MAX_COUNTED})
    return Counter(rail for (reason,) in reasons if (rail := reason.partition(":")[0]) in ORDER)


_STOPPED = """
    SELECT block_reason FROM crosspoll_log WHERE blocked IS 1 AND created_at > :since ORDER BY id DESC LIMIT :limit
"""
_PASSED = "SELECT count(*), max(created_at) FROM crosspoll_log WHERE blocked IS 0"


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

    def check_command(self, text: str) -> RailVerdict:
        """The content filter on a shell command (SPEC 3.5)."""
        return check_command(text, own=self._own())

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
            lifted = set(session.exec(select(Allowance.digest).where(col(Allowance.used_at).is_(None))))
        return [_entry(row, row.blocked and row.digest in lifted) for row in rows]

    def rails(self) -> tuple[RailState, ...]:
        """The state of every rail in the pipeline's order, with its verdict on the newest trigger."""
        now = self._clock.now()
        with self._database.read() as session:
            states = (
                self._loop(session, now),
                self._rate(session, now),
                self._cost(session),
                self._content(session),
                self._gate(session),
                self._kill(),
            )
            newest = session.exec(
                select(CrosspollLog.created_at, CrosspollLog.verdicts).order_by(desc(col(CrosspollLog.id))).limit(1)
            ).first()
            stopped = _stopped(session, now - COUNTED_WITHIN)
        at, verdicts = newest if newest is not None else (None, ())
        last = {verdict.rail: verdict for verdict in verdicts}
        return tuple(
            replace(
                state,
                last=last.get(state.rail),
                last_at=at if state.rail in last else None,
                stopped=stopped.get(state.rail, 0),
            )
            for state in states
        )

    def chain(self, limit: int = 20) -> list[ChainStep]:
        """The newest links of the loop detector first, each with what counts of it now."""
        now = self._clock.now()
        with self._database.read() as session:
            links = [link for link in loops.recent_links(session, now) if link.ran]
        steps = []
        for index in range(len(links) - 1, max(-1, len(links) - 1 - limit), -1):
            link = links[index]
            links_so_far = [earlier for earlier in links[: index + 1] if earlier.workspace == link.workspace]
            pair = (link.from_channel, link.to_channel)
            counted = link.from_channel != loops.OWNER
            run_count = sum(
                (earlier.from_channel, earlier.to_channel) == pair and now - earlier.at < loops.PAIR_WINDOW
                for earlier in links_so_far
            )
            until = link.at + loops.REVERSE_WINDOW
            steps.append(
                ChainStep(
                    link.from_channel,
                    link.to_channel,
                    link.prediction_id,
                    link.workspace,
                    link.at,
                    depth=loops.chain_depth(links_so_far, link.to_channel),
                    runs=run_count if counted else 0,
                    answer_until=until if counted and now < until else None,
                )
            )
        return steps

    def _rate(self, session: Session, now: datetime) -> RailState:
        interval = timedelta(milliseconds=self._settings.current.cross_poll_interval_ms)
        last = last_unattended(session)
        verdict = loops.decide_rate(SAMPLE_TRIGGER, last, now, interval)
        until = last + interval if last is not None and verdict.verdict is Verdict.BLOCK else None
        return _state(verdict, "waits" if until else "free", until)

    def _loop(self, session: Session, now: datetime) -> RailState:
        counted = [
            link
            for link in loops.recent_links(session, now)
            if link.from_channel != loops.OWNER and now - link.at < loops.PAIR_WINDOW
        ]
        stopped = state.get(session, LOOPS_KEY, 0)
        words = f"{count(len(counted), 'link')} in the last 10 min; {count(stopped, 'loop')} stopped so far"
        brief = count(len(counted), "link") if counted else "clear"
        return _state(RailVerdict(loops.LOOP, Verdict.ALLOW, words), brief)

    def _cost(self, session: Session) -> RailState:
        spent, estimate = self.costs.spent(session), microusd(self._settings.current.cost_per_trigger)
        verdict = costs.decide_cost(spent, estimate, costs.AgentBudget(""))
        remaining = min(spent.hour_cap - spent.hour, spent.day_cap - spent.day, spent.month_cap - spent.month)
        brief = f"${max(0, remaining) / MICRO:.2f}" if verdict.verdict is Verdict.ALLOW else verdict.rule
        return _state(verdict, brief)

    def _content(self, session: Session) -> RailState:
        open_ = session.exec(select(func.count()).where(col(Allowance.used_at).is_(None))).one()
        words = "checks every prompt, edit and command of a session"
        if open_:
            words += f"; {open_} allowed once and not used yet"
        return _state(RailVerdict("content", Verdict.ALLOW, words), f"{open_} lifted" if open_ else "on")

    def _gate(self, session: Session) -> RailState:
        workspaces = self._settings.current.workspaces.values()
        facts = replace(
            self.pipeline.gate_facts(session, SAMPLE_TRIGGER, self.costs.spent(session), by_operator=False),
            novel_pair=False,
            workspace_acts=any(workspace.autonomy is Autonomy.ACT for workspace in workspaces),
        )
        verdict = gate.decide_gate(facts)
        first = verdict.rule.partition(",")[0]
        return _state(verdict, GATE_BRIEF.get(first, "asks") if first else "free")

    def _kill(self) -> RailState:
        verdict = self.kill_switch.ask()
        until = next((hold.until for hold in self.kill_switch.holds() if hold.word == verdict.rule), None)
        return _state(verdict, KILL_BRIEF.get(verdict.rule, verdict.rule) if verdict.rule else "open", until)

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
