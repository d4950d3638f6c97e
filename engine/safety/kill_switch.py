"""The kill switch (SPEC 3.7), and the holds that stop or pause work.

Each of four levels stops everything: `crossPollEnabled = false`, the API's switch for this run, F12 in the console, and
the stop file (`engine.safety`). F12 and the stop file place the hold `stop`, which survives a restart. The
hold `pause` (three rejections in a row) lasts two hours. It stops work that runs by itself, but not work that the
operator approves (SPEC 3.2, 3.6). The hold `month` stops everything until the operator resumes it. The other two levels
are shown as the holds `config` and `api` while they stop everything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlmodel import Field, Session

from engine.clock import Clock
from engine.config.settings import SettingsSource
from engine.events.engine import HoldLifted, HoldPlaced
from engine.frozen import frozen
from engine.learning.decisions.decisions import Decisions
from engine.model import MAX_REJECTIONS, Hold, HoldKind, RailVerdict, Refusal, StopLevel, Verdict
from engine.safety import STOPPED, get_stop_file, is_stop_requested, read_stop_request, request_stop
from engine.storage import Row, load, read_all, state, value_of
from engine.storage.database import Database, Transaction
from engine.text import sanitise

log = logging.getLogger(__name__)

RAIL = "kill"
"""The name of the rail in verdicts."""

SETTING_OFF = "crossPollEnabled is false in the settings"
"""The reason of the hold `config`."""

SWITCHED_OFF = "switched off for this run through the API"
"""The reason of the hold `api`."""

BY_CONSOLE = "operator"
"""The value of `by` of a stop by F12. Any other value means that the stop came from outside the console."""

BY_COST_CAP = "cost cap"
"""The value of `by` of a pause or month stop because a cost cap was reached."""

PAUSE_DURATION = timedelta(hours=2)
"""How long a pause lasts."""

WATCH_INTERVAL_S = 0.2
"""Seconds between two checks of the stop file and the settings. At 0.1 they were two thirds of the cost of idling."""

_LAST_DECISION_AT_RESUME = "safety.last_decision_at_resume"
"""Key in the state table: the id of the last decision when the last pause ended."""

_RESUMED_BY_OPERATOR = "safety.lifted_by_hand"
"""Key in the state table: whether the operator ended the last pause or month stop."""


@frozen
class KillFacts:
    """The conditions that the kill switch checks. `stop_request` is the reason of a stop that is no hold yet, "" for
    none. `holds` are the active holds."""

    is_enabled: bool
    is_enabled_this_run: bool
    stop_request: str
    holds: tuple[Hold, ...]


def decide_kill(facts: KillFacts, *, by_operator: bool) -> RailVerdict:
    """The verdict of the kill switch. A pause stops only work that no operator approved."""
    if facts.stop_request:
        return RailVerdict(RAIL, Verdict.BLOCK, facts.stop_request, "stop-file")
    for hold in facts.holds:
        if hold.word is HoldKind.PAUSE and by_operator:
            continue
        until = f" until {hold.until:%H:%M} UTC" if hold.until else ""
        return RailVerdict(RAIL, Verdict.BLOCK, f"{hold.word}{until}: {hold.reason}", hold.word)
    if not facts.is_enabled:
        return RailVerdict(RAIL, Verdict.BLOCK, SETTING_OFF, HoldKind.CONFIG)
    if not facts.is_enabled_this_run:
        return RailVerdict(RAIL, Verdict.BLOCK, SWITCHED_OFF, HoldKind.API)
    return RailVerdict(RAIL, Verdict.ALLOW, "not stopped")


def list_levels(facts: KillFacts) -> tuple[StopLevel, ...]:
    """The four levels in SPEC's order, each with its state and how to end it.

    F12 and a stop from outside place the same hold; `by` distinguishes them.
    """
    stop = next((hold for hold in facts.holds if hold.word is HoldKind.STOP), None)
    by_key = stop is not None and stop.by == BY_CONSOLE
    from_outside = bool(facts.stop_request) or (stop is not None and not by_key)
    by = f" by {stop.by}" if stop is not None and stop.by else ""
    return (
        StopLevel(
            HoldKind.CONFIG,
            not facts.is_enabled,
            f"crossPollEnabled is {'true' if facts.is_enabled else 'false'}",
            "turn crossPollEnabled on",
        ),
        StopLevel(
            HoldKind.API,
            not facts.is_enabled_this_run,
            "on" if facts.is_enabled_this_run else "switched off for this run",
            "resume api",
        ),
        StopLevel("key", by_key, "pressed" if by_key else "not pressed", "resume stop"),
        StopLevel("outside", from_outside, f"stopped{by}" if from_outside else "no stop file", "resume stop"),
    )


def select_active_holds(holds: Sequence[Hold], now: datetime) -> tuple[Hold, ...]:
    """The holds that are active at `now`, strictest first. A hold ends exactly at its `until`."""
    active = [hold for hold in holds if hold.until is None or now < hold.until]
    return tuple(sorted(active, key=lambda hold: list(HoldKind).index(hold.word)))


class HoldRow(Row, table=True):
    """One active hold."""

    __tablename__ = "holds"

    word: HoldKind = Field(primary_key=True)
    reason: str
    by: str
    since: datetime
    until: datetime | None = None


class KillSwitch:
    """Decides whether anything may run, and ends running sessions when nothing may.

    `stop_sessions(reason)` ends every running session within a second. `on_change` is called after holds changed,
    possibly on the writer thread, so it must be quick and must not write.
    """

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        *,
        data: Path,
        decisions: Decisions,
        stop_sessions: Callable[[str], object],
        on_change: Callable[[], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._file = get_stop_file(data)
        self.decisions = decisions
        self._stop_sessions = stop_sessions
        self._on_change = on_change
        self._is_enabled_this_run = True
        self._stopping: Hold | None = None
        """A stop that is being carried out, or could not be recorded."""
        self._was_stopped = False
        self._switched_off_at = clock.now()
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        with database.read() as session:
            self._holds = _read_holds(session)
            self.was_resumed_by_operator = bool(state.get(session, _RESUMED_BY_OPERATOR, False))
            """Whether the operator ended the last pause or month stop (SPEC 7.1)."""

    def start(self) -> None:
        """Watch the stop file and the settings from now on. A stop that was requested before takes effect at once."""
        self.poll()
        self._watcher = threading.Thread(target=self._watch, name="clawpy-kill-switch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def list_holds(self) -> list[Hold]:
        """The active holds, strictest first, with `config` and `api`, and a stop that could not be recorded."""
        facts, stopping = self._make_facts(self._holds), self._stopping
        is_recorded = any(hold.word is HoldKind.STOP for hold in facts.holds)
        switches = [] if stopping is None or is_recorded else [stopping]
        switches += [] if facts.is_enabled else [Hold(HoldKind.CONFIG, SETTING_OFF, None)]
        switches += [] if facts.is_enabled_this_run else [Hold(HoldKind.API, SWITCHED_OFF, self._switched_off_at)]
        return list(select_active_holds([*facts.holds, *switches], self._clock.now()))

    def decide_now(self, *, by_operator: bool = False) -> RailVerdict:
        """Whether anything may run now. It does not read the database, so it is cheap enough to ask before each cycle
        and session, and during a session."""
        return decide_kill(self._make_facts(self._holds), by_operator=by_operator)

    def find_obstacle(self) -> str:
        """Why nothing may begin now, not even work that the operator approved; "" if work may begin. A pause does not
        count."""
        return _explain_verdict(self.decide_now(by_operator=True))

    def find_autonomous_obstacle(self) -> str:
        """Why nothing may run by itself now, "" if it may."""
        return _explain_verdict(self.decide_now())

    def list_levels(self) -> tuple[StopLevel, ...]:
        """The state of each of the four levels."""
        return list_levels(self._make_facts(self._holds))

    def find_session_end_reason(self) -> str:
        """Why running sessions must end, "" if they may go on. A pause or a month stop does not end them (SPEC 3.7)."""
        for hold in self.list_holds():
            if hold.word is HoldKind.STOP:
                return hold.reason
        return next((level.description for level in self.list_levels() if level.is_active), "")

    def decide_within(self, session: Session, *, by_operator: bool) -> RailVerdict:
        """The verdict for a decision inside a transaction: it reads the holds from the database."""
        return decide_kill(self._make_facts(_read_holds(session)), by_operator=by_operator)

    def stop(self, reason: str, by: str) -> None:
        """Stop everything (F12, `clawpy stop`): end all sessions, and place the hold `stop`.

        The stop file is written first, so that the stop lasts even if the database hangs or this process dies.
        Raises `Refusal` if the stop cannot be recorded; it holds all the same.
        """
        self._stopping = Hold(HoldKind.STOP, sanitise(reason) or STOPPED, self._clock.now(), by=by)
        try:
            request_stop(self._file.parent, reason, by)
        except OSError:
            log.exception("the stop file could not be written; the stop continues without it")
        try:
            self._stop_sessions(reason)
        finally:
            try:
                self._place_stop(reason, by)
            except Refusal as error:
                message = f"everything was stopped, but the stop could not be recorded: {error.message}"
                fix = f"{error.fix}; until then the stop lasts only as long as this engine runs"
                raise Refusal(error.code, message, fix) from error

    def resume(self, word: str) -> None:
        """End the hold `word`. Raises `Refusal`: `unknown_hold`, `not_held` if it is not active, `setting_off`."""
        if word not in list(HoldKind):
            raise Refusal("unknown_hold", f"there is no stop or pause called {word!r}", f"one of {', '.join(HoldKind)}")
        if word == HoldKind.API and not self._is_enabled_this_run:
            self.set_enabled(True)
            return
        with self._changing:
            has_file = word == HoldKind.STOP and is_stop_requested(self._file)
            active = [hold.word for hold in self.list_holds()]
            if word not in active and not has_file:
                verb = "is" if len(active) == 1 else "are"
                active_holds = f"{' and '.join(active)} {verb}" if active else "nothing is"
                raise Refusal("not_held", f"`{word}` is not active; {active_holds}", "see `clawpy status`")
            if word == HoldKind.CONFIG:
                raise Refusal("setting_off", SETTING_OFF, "turn it on: clawpy config set crossPollEnabled true")
            if has_file:
                self._remove_file()
            self._database.write(lambda transaction: self._end(transaction, HoldKind(word), by_operator=True))
            if word == HoldKind.STOP:
                self._stopping = None

    def _remove_file(self) -> None:
        """Remove the stop file. Raises `Refusal` `stop_file`."""
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            raise Refusal("stop_file", f"{self._file} cannot be removed: {error}", "remove it by hand") from error

    def set_enabled(self, enabled: bool) -> None:
        """Switch everything on or off for this run, by the API. Switching off ends running sessions; if that fails, the
        watcher tries it again."""
        if not enabled and self._is_enabled_this_run:
            self._switched_off_at = self._clock.now()
        self._is_enabled_this_run = enabled
        try:
            self.poll()
        except Exception:
            log.exception("applying the new setting failed; it is tried again")
        self._on_change()

    def place(self, transaction: Transaction, word: HoldKind, reason: str, *, by: str = "engine") -> bool:
        """Place a hold in the caller's transaction. Returns False if it is active already."""
        existing = load(transaction.session, HoldRow, word)
        if existing is not None and (existing.until is None or transaction.now < existing.until):
            return False
        until = transaction.now + PAUSE_DURATION if word is HoldKind.PAUSE else None
        reason = sanitise(reason)  # that of a stop comes from outside
        transaction.session.merge(HoldRow(word=word, reason=reason, by=by, since=transaction.now, until=until))
        transaction.session.flush()
        if word is not HoldKind.STOP:
            state.put(transaction, _RESUMED_BY_OPERATOR, False)
        transaction.record(HoldPlaced(subject=word, reason=reason))
        transaction.after_commit(self._refresh_after(transaction))
        return True

    def place_hold_of_cap(self, transaction: Transaction, window: str, reason: str) -> None:
        """Place the hold of a reached cost cap (SPEC 3.4, 7.1): a month stop for the month's cap, else a pause."""
        self.place(transaction, HoldKind.MONTH if window == "month" else HoldKind.PAUSE, reason, by=BY_COST_CAP)

    def count_rejections(self, session: Session) -> int:
        """Number of rejections in a row since the last pause ended (SPEC 7.1)."""
        after = state.get(session, _LAST_DECISION_AT_RESUME, 0)
        return self.decisions.count_consecutive_rejections(session, after)

    def pause_after_rejections(self, transaction: Transaction) -> None:
        """Place a pause after the third rejection in a row (SPEC 3.6), if cards may run by themselves. Call it in the
        transaction of a decision."""
        if not self._settings.current.acts_by_itself:
            return
        count = self.count_rejections(transaction.session)
        if count >= MAX_REJECTIONS:
            self.place(transaction, HoldKind.PAUSE, f"{count} dismissals in a row")

    def end_expired(self, transaction: Transaction) -> None:
        """Remove holds whose time is over."""
        for hold in _read_holds(transaction.session):
            if hold.until is not None and transaction.now >= hold.until:
                self._end(transaction, hold.word, by_operator=False)

    def poll(self) -> None:
        """Check once: turn a stop file into a hold, remove expired holds, and end sessions if a level stopped
        everything since the last check."""
        facts = self._make_facts(self._holds)
        if facts.stop_request and not self._stopping:
            request = read_stop_request(self._file)
            self.stop(request.reason, request.by)
            facts = self._make_facts(self._holds)
        now = self._clock.now()
        if any(hold.until is not None and now >= hold.until for hold in self._holds):
            self._database.write(self.end_expired)
        is_stopped = bool(facts.stop_request) or not (facts.is_enabled and facts.is_enabled_this_run)
        if is_stopped and not self._was_stopped:
            self._stop_sessions(decide_kill(facts, by_operator=True).reason)
        if is_stopped != self._was_stopped:
            self._was_stopped = is_stopped
            self._on_change()

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_INTERVAL_S):
            try:
                self.poll()
            except Exception:
                # The watcher goes on after a disk error: the next check may succeed, and nothing may run meanwhile.
                log.exception("the kill switch could not act on what it found")

    def _make_facts(self, holds: tuple[Hold, ...]) -> KillFacts:
        stop_request = ""
        if (stopping := self._stopping) is not None:
            stop_request = stopping.reason
        elif is_stop_requested(self._file):
            stop_request = STOPPED
        return KillFacts(
            is_enabled=self._settings.current.cross_poll_enabled,
            is_enabled_this_run=self._is_enabled_this_run,
            stop_request=stop_request,
            holds=select_active_holds(holds, self._clock.now()),
        )

    def _place_stop(self, reason: str, by: str) -> None:
        """Turn a stop into a hold, then remove the file, so that one of them always exists."""
        with self._changing:
            self._database.write(lambda transaction: self.place(transaction, HoldKind.STOP, reason, by=by))
            try:
                self._file.unlink(missing_ok=True)
            except OSError:
                log.exception("the stop file could not be removed; `resume stop` reports it")
            self._stopping = None

    def _end(self, transaction: Transaction, word: HoldKind, *, by_operator: bool) -> None:
        row = load(transaction.session, HoldRow, word)
        if row is None:
            return
        transaction.session.delete(row)
        transaction.session.flush()
        if word is HoldKind.PAUSE:
            # The id of the last decision is stored, not the number of decisions, because an undo changes the number.
            state.put(transaction, _LAST_DECISION_AT_RESUME, self.decisions.find_newest_id(transaction.session))
        if word is not HoldKind.STOP:
            state.put(transaction, _RESUMED_BY_OPERATOR, by_operator)
        reason = "resumed by you" if by_operator else "it has expired"
        transaction.record(HoldLifted(subject=word, reason=reason))
        transaction.after_commit(self._refresh_after(transaction))

    def _refresh_after(self, transaction: Transaction) -> Callable[[], None]:
        """A function that takes over the holds which this transaction leaves, to be called when it is committed."""
        holds = _read_holds(transaction.session)
        resumed_by_operator = bool(state.get(transaction.session, _RESUMED_BY_OPERATOR, False))

        def refresh() -> None:
            self._holds, self.was_resumed_by_operator = holds, resumed_by_operator
            self._on_change()

        return refresh


def _explain_verdict(verdict: RailVerdict) -> str:
    """Why a verdict does not allow work, "" if it does."""
    return "" if verdict.allows else verdict.reason


def _read_holds(session: Session) -> tuple[Hold, ...]:
    return tuple(value_of(row, Hold) for row in read_all(session, HoldRow, ""))
