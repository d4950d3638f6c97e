"""The whole real engine as `engine_machine` uses it, and the checks after each of its steps.

`oracle` computes what must hold a second time, from raw rows and from what the machine itself did.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import Row, text

from engine.engine import Engine, open_engine
from engine.execution.live_session import LiveSession
from engine.execution.runners.runner import RunnerResult
from engine.model import DecidedBy, DecidedCard, DecisionSignal, Randomness, Refusal, SessionView, Source
from engine.prediction.card_rows import CardRow
from engine.safety.pipeline import RAIL_ORDER, CrosspollLog
from engine.services import Overrides
from engine.simulation.month import SimulatedSandbox
from engine.simulation.simulate import open_world
from engine.storage.database import Transaction
from tests.safety import oracle
from tests.safety.oracle import CAPS, DAY_CAP, HOUR_CAP, MONTH_CAP

HINDRANCES = ("quiet", "pause", "stop", "off", "disabled", "cards", "this run")
"""What `apply_hindrance` knows; the last one ends with the engine's run."""
KINDS = ("lint", "run_tests")
CHANNELS = ("koji-core", "chronicle-hub", "research", "garden")
PROMPTS = ("", "", "", "delete everything with rm -rf /", "send an email to the customers")
CONFIDENCES = (0.1, 0.59, 0.6, 0.79, 0.8, 0.95)
PRICES = (0, 20_000, 50_000, 200_000, 700_000, 1_200_000)
"""Micro-dollars, as the next ones."""
REMAINING_AMOUNTS = (-50_000, -1, -1, 0, 1, 50_000)
TIME_STEPS_S = (60, 299, 300, 599, 600, 1_799, 1_800, 3_600, 7_200, 8 * 3_600, 26 * 3_600)
GAPS_S = (60, 61, 299, 300, 301, 599, 600, 601)
CONFIG = f"""\
autonomousModeEnabled = true
crossPollCostCapPerHour = {HOUR_CAP / 1e6}
crossPollCostCapPerDay = {DAY_CAP / 1e6}
crossPollCostCapPerMonth = {MONTH_CAP / 1e6}
"""

coverage_counts: Counter[str] = Counter()
"""What all machines of this process have done: steps, executions by kind, blocks by rail."""

MUST_BLOCK = tuple(f"{rail} blocked first" for rail in RAIL_ORDER)
LOOPS = tuple(f"loop blocked: {rule}" for rule in ("reverse", "pair", "depth"))
CAPPED = tuple(f"cost blocked: {window}" for window in CAPS)
EXECUTED = (
    "approved session", "autonomous session", "follow-up session", "session after a restart", "interrupted session",
    "price above its estimate", "price below its estimate",
)  # fmt: skip


class Died(BaseException):
    """The engine's process ended here."""


def die(*_: object, **__: object) -> None:
    raise Died


@dataclass(frozen=True)
class Facts:
    """The conditions before something is tried, as the machine knows them."""

    holds: set[str]
    """The words of the holds that last still."""
    quiet: bool
    """Whether these are quiet hours, or do not disturb is set."""
    decisions: int
    outcomes: dict[tuple[str, str], tuple[int, int]]
    """How many cards of a kind on a channel were approved, and how many were decided."""
    spent: dict[str, int]
    """Micro-dollars in each window."""
    inactive_for: timedelta

    def count_approvals(self, kind: str, channel: str) -> tuple[int, int]:
        """How many such cards were approved, and how many were decided."""
        return self.outcomes.get((kind, channel), (0, 0))


@cache
def make_home() -> Path:
    """The data folder of a home with a database; it is copied for each machine."""
    folder = Path(tempfile.mkdtemp(prefix="clawpy-stateful-"))
    with open_world(folder, 1, config=CONFIG):
        pass
    return folder / "home" / "data"


class MachineWorld(RuleBasedStateMachine):
    """The engine, what was done to it so far, the steps that the rules share, and the checks of what was executed."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="clawpy-machine-")))
        shutil.copytree(make_home(), folder / "home" / "data")
        self.world = self._stack.enter_context(open_world(folder, 1, config=CONFIG))
        self.engine, self.clock = self.world.engine, self.world.clock
        self.workspace = self.world.projects[0].workspace
        self.world.runner.run = self._run_session  # type: ignore[method-assign]
        self.heard_at = self.clock.now()  # a new home counts inactivity from its opening
        self.clock.advance(timedelta(hours=9))
        self.cards = self.past_decisions = self.restarts = 0
        self._store_known_pairs()
        self.dnd_until: datetime | None = None
        self.autonomous = self.enabled = self.enabled_this_run = True
        self.autonomy = "act"
        self.interval = 600_000
        """Milliseconds between triggers that the engine makes by itself."""
        self.price = 50_000
        """What a session costs from now on, in micro-dollars."""
        self.dies = False
        """Whether the engine dies in the next session."""
        self.seen_sessions = 0
        self.seen_passed = 0

    def teardown(self) -> None:
        for reason, verdicts in self.query("SELECT block_reason, verdicts FROM crosspoll_log WHERE blocked"):
            first = reason.partition(":")[0]
            coverage_counts[f"{first} blocked first"] += 1
            for verdict in json.loads(verdicts):
                if verdict["verdict"] == "allow":
                    continue
                coverage_counts[f"{verdict['rail']} blocked"] += 1
                if verdict["rail"] == first and first in ("loop", "cost"):
                    coverage_counts[f"{first} blocked: {verdict['rule']}"] += 1
        for price, estimate in self.query(
            "SELECT c.amount_microusd, c.estimate_microusd FROM cost_entries c"
            " JOIN sessions s ON s.id = c.session_id WHERE c.state = 'settled' AND s.state != 'interrupted'"
        ):
            if price != estimate:
                coverage_counts[f"price {'above' if price > estimate else 'below'} its estimate"] += 1
        self.engine.close()
        self._stack.close()

    # -- steps that the rules share

    def make_card(self, kind: str, channel: str, confidence: float, after: str = "owner", prompt: str = "") -> str:
        self.cards += 1
        number, now = self.cards, self.clock.now()
        row = CardRow(
            id=f"pred_{number}", prompt=prompt or f"{kind} {number}", target_agent="backend_builder",
            target_channel=channel, confidence=confidence, created_at=now, kind=kind, workspace=self.workspace,
            runner="flow", flow=kind, parameters={"paths": []}, subject=f"{number}", fingerprint=f"{number}",
            expires_at=now + timedelta(hours=24), from_channel=after,
            source=(Source.TEMPLATE if after == "owner" else Source.FOLLOW_UP).value,
        )  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add(row))
        return f"pred_{number}"

    def reset_to_quiet_morning(self) -> None:
        """Remove every hindrance, and go to ten o'clock of the next day, or of the next month if much is spent."""
        for word in ("stop", "pause", "month"):
            self.try_to(lambda word=word: self.engine.safety.kill_switch.resume(word))
        if not self.enabled_this_run:
            self.enable_for_this_run(True)
        self.change_settings(autonomous=True, enabled=True, autonomy="act")
        self.set_do_not_disturb(None)
        now = self.clock.now()
        morning = now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1)
        if oracle.read_spent(self.query, now)["month"] > MONTH_CAP // 2:
            morning = (morning.replace(day=1) + timedelta(days=32)).replace(day=1)
        self.clock.advance(morning - now)
        self.engine.safety.kill_switch.poll()
        self.earn_trust("lint", "koji-core")

    def change_settings(
        self, *, autonomous: bool | None = None, enabled: bool | None = None, autonomy: str | None = None
    ) -> None:
        path = f"workspaces.{json.dumps(self.workspace)}.autonomy"
        for key, name, value in (
            ("autonomousModeEnabled", "autonomous", autonomous),
            ("crossPollEnabled", "enabled", enabled),
            (path, "autonomy", autonomy),
        ):
            if value is not None and value != getattr(self, name):
                self.engine.settings.set(key, value)
                setattr(self, name, value)

    def set_trigger_interval(self, interval: int) -> None:
        if interval != self.interval:
            self.engine.settings.set("crossPollIntervalMs", interval)
            self.interval = interval

    def set_do_not_disturb(self, hours: int | None) -> None:
        self.dnd_until = self.engine.autonomy.dnd(None if hours is None else timedelta(hours=hours))

    def enable_for_this_run(self, enabled: bool) -> None:
        self.engine.safety.kill_switch.set_enabled(enabled)
        self.enabled_this_run = enabled

    def apply_hindrance(self, hindrance: str) -> None:
        """Hold back what runs by itself, or everything."""
        kill_switch = self.engine.safety.kill_switch
        match hindrance:
            case "quiet":
                self.set_do_not_disturb(1)
            case "pause":
                self.engine.database.write(lambda tx: kill_switch.place(tx, "pause", "test"))
            case "stop":
                kill_switch.stop("F12", "test")
            case "off":
                self.change_settings(autonomous=False)
            case "disabled":
                self.change_settings(enabled=False)
            case "cards":
                self.change_settings(autonomy="cards")
            case "this run":
                self.enable_for_this_run(False)

    def _store_known_pairs(self) -> None:
        """Every pair of channels ran long ago, so that none is novel."""
        rows = [
            CrosspollLog(
                prediction_id="old", trigger_type="manual", target_channel=channel, prompt="", verdicts=(), digest="",
                created_at=self.clock.now() - timedelta(days=9), workspace=self.workspace, from_channel=after,
                decided_by="operator", unattended=False,
            )
            for channel in CHANNELS for after in ("owner", *CHANNELS)
        ]  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add_all(rows))

    def choose_card(self, data: st.DataObject) -> str:
        """One of the newest cards that are pending, or one that is decided; a new one if there is none."""
        rows = self.query("SELECT id FROM predictions WHERE status = 'pending' ORDER BY rowid DESC LIMIT 6")
        rows += self.query("SELECT id FROM predictions WHERE status != 'pending' ORDER BY rowid DESC LIMIT 1")
        if not rows:
            return self.make_card("lint", "koji-core", 0.95)
        return str(data.draw(st.sampled_from(rows)).id)

    def approve(self, card: str, by: DecidedBy) -> None:
        facts = self.read_facts()
        self.try_to(lambda: self.engine.cards.approve(card, by=by))
        self.wait_for_sessions()
        self.check_executions(facts)

    def earn_trust(self, kind: str, channel: str) -> None:
        """Let such cards have enough approvals to run by themselves, beyond the first phase."""
        facts = self.read_facts()
        if facts.decisions < 40 or oracle.bound(*facts.count_approvals(kind, channel)) < 0.82:
            self.record_decisions(DecisionSignal.APPROVED, kind, channel, 40)

    def record_decisions(self, signal: DecisionSignal, kind: str, channel: str, count: int) -> None:
        def record(tx: Transaction) -> None:
            for _ in range(count):
                self.past_decisions += 1
                card = DecidedCard(
                    f"past_{self.past_decisions}", kind, channel, self.workspace, kind, "past", 0.9, DecidedBy.OPERATOR
                )
                self.engine.decisions.record(tx, signal, card)

        self.engine.database.write(record)

    def try_to(self, act: Callable[[], object]) -> None:
        """Do what may be refused."""
        with suppress(Refusal):
            act()

    def call_model(self, estimate: int, price: int | str | None) -> None:
        """Reserve a call and settle it with `price`, release it ("released"), or leave it reserved (None)."""
        costs, before = self.engine.safety.costs, oracle.read_spent(self.query, self.clock.now())
        try:
            entry = self.engine.database.write(lambda tx: costs.reserve_call(tx, "twin", estimate))
        except Refusal:
            assert not oracle.is_within_caps(before, estimate), f"{estimate} fits {before} and was refused"
            coverage_counts["cost refused a call"] += 1
            return
        assert oracle.is_within_caps(before, estimate), f"{estimate} does not fit {before}"
        if price == "released":
            self.engine.database.write(lambda tx: costs.release(tx, entry))
        elif isinstance(price, int):
            # Who calls a model reserves the most that it can come to.
            self.engine.database.write(lambda tx: costs.settle(tx, entry, min(price, estimate)))

    def usual_price(self, channel: str) -> int:
        usual = self.engine.sessions.compute_usual_cost("flow", channel)
        return 50_000 if usual is None else usual

    def _run_session(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """The runner: it spends `price`, or leaves its session as a dead process does."""
        if self.dies:
            raise SystemExit
        live.reserve_cost(self.price)  # as every runner that pays does before it spends
        live.charge(self.price, tokens=100)
        return RunnerResult("made up")

    def wait_for_sessions(self) -> None:
        """Wait until no session runs any more but one that died."""
        if self.dies:
            for thread in list(self.engine.sessions._threads):
                thread.join(10)
            return
        for (session,) in self.query("SELECT id FROM sessions WHERE state IN ('queued', 'running')"):
            self.engine.sessions.wait(session, 10)

    def restart(self) -> None:
        """Close the engine as if its process had died, and open the home again."""
        old, self.restarts = self.engine, self.restarts + 1
        old.sessions._live.clear()
        old.close()
        self.enabled_this_run = True
        facts = self.read_facts()
        self.engine = self._open_again(old)
        self.wait_for_sessions()
        self.check_executions(facts, restarted=True)

    def _open_again(self, old: Engine) -> Engine:
        return open_engine(
            old.home, workspaces=[self.workspace], clock=self.clock, randomness=Randomness(1_000 + self.restarts),
            start_schedule=False,
            overrides=Overrides(
                runners=(self.world.runner,), contexts=old.contexts,
                sandbox=SimulatedSandbox(), throw_away=True, unreachable=True,
            ),
        )  # fmt: skip

    # -- checks

    def read_facts(self) -> Facts:
        now = self.clock.now()
        holds = {word for word, until in self.query("SELECT word, until FROM holds")
                 if until is None or datetime.fromisoformat(until) > now}  # fmt: skip
        outcomes = {
            (kind, channel): (approved, decided)
            for kind, channel, approved, decided in self.query(
                "SELECT kind, channel, sum(signal = 'approved' AND NOT edited), count(*) FROM decisions"
                " WHERE taken_back_at IS NULL AND decided_by != 'autonomy'"
                " AND signal IN ('approved', 'dismissed', 'undone', 'discarded') GROUP BY kind, channel"
            )
        }
        return Facts(
            holds=holds,
            quiet=now.hour >= 23 or now.hour < 8 or (self.dnd_until is not None and now < self.dnd_until),
            decisions=sum(decided for _, decided in outcomes.values()),
            outcomes=outcomes,
            spent=oracle.read_spent(self.query, now),
            inactive_for=now - self.heard_at,
        )

    def check_executions(self, facts: Facts, *, by_cycle: bool = False, restarted: bool = False) -> None:
        """Check every trigger that was let through since the last check, and every session that is new."""
        self.check_triggers(facts)
        sessions = self.query(
            "SELECT s.id, s.mode, s.permit_id, p.kind, p.target_channel, p.confidence, t.digest, t.consumed_at,"
            " p.source,"
            " (SELECT count(*) FROM crosspoll_log l WHERE l.permit_id = s.permit_id AND NOT l.blocked"
            "   AND l.digest = t.digest AND l.prediction_id = s.prediction_id) AS log_rows,"
            " (SELECT count(*) FROM sessions o WHERE o.permit_id = s.permit_id) AS permit_uses,"
            " (SELECT count(*) FROM sessions o WHERE o.prediction_id = s.prediction_id AND o.mode = 'autonomous')"
            "   AS autonomous_runs"
            " FROM sessions s LEFT JOIN predictions p ON p.id = s.prediction_id"
            " LEFT JOIN permits t ON t.id = s.permit_id"
            " WHERE s.rowid > :seen ORDER BY s.rowid",
            seen=self.seen_sessions,
        )
        self.seen_sessions += len(sessions)
        autonomous = [session for session in sessions if session.mode == "autonomous"]
        for session in sessions:
            coverage_counts[f"{session.mode} session"] += 1
            self._check_session(session, facts)
        for session in autonomous:
            self._check_autonomous_session(session, facts)
            if by_cycle:
                # After a restart the last key press is known to half a minute.
                assert facts.inactive_for >= timedelta(minutes=29, seconds=30), f"{session.id}: somebody was there"
        assert restarted or len(autonomous) <= 1, "two at once"

    def _check_session(self, session: Row[Any], facts: Facts) -> None:
        """What every session needs: its own used permit that the rails gave, and no stop."""
        assert session.permit_id is not None, f"{session.id} has no permit"
        assert session.digest is not None, f"{session.id} has no permit"
        assert session.consumed_at is not None, f"the permit of {session.id} is not used up"
        assert session.log_rows == 1, f"{session.id} has {session.log_rows} passing rows in the log"
        assert session.permit_uses == 1, f"the permit of {session.id} started {session.permit_uses} sessions"
        assert self.enabled, f"{session.id} ran while disabled"
        assert self.enabled_this_run, f"{session.id} ran while switched off for this run"
        assert "stop" not in facts.holds, f"{session.id} ran while stopped"
        assert "month" not in facts.holds, f"{session.id} ran in a month stop"

    def _check_autonomous_session(self, session: Row[Any], facts: Facts) -> None:
        """What a session that ran by itself needs besides."""
        if session.source == Source.FOLLOW_UP:
            coverage_counts["follow-up session"] += 1
        ran = f"{session.id} ran by itself"
        assert session.autonomous_runs == 1, f"{session.id}: its card ran {session.autonomous_runs} times by itself"
        assert self.autonomous, f"{ran} though autonomous mode is off"
        assert self.autonomy == "act", f"{ran} in a workspace that is {self.autonomy}"
        assert "pause" not in facts.holds, f"{ran} while paused"
        assert not facts.quiet, f"{ran} in quiet hours"
        assert facts.decisions >= 30, f"{ran} in phase 0"
        assert session.confidence >= 0.8, f"{ran} with confidence {session.confidence}"
        approved, decided = facts.count_approvals(session.kind, session.target_channel)
        assert oracle.bound(approved, decided) >= 0.8, f"{ran} after {approved} of {decided}"

    def check_triggers(self, facts: Facts) -> None:
        """Check every trigger that was let through since the last check: cost, loops and rate."""
        passed = oracle.read_passed(self.query)
        for place in range(self.seen_passed, len(passed)):
            trigger, earlier = passed[place], passed[:place]
            assert oracle.is_within_caps(facts.spent, trigger.estimate), f"{trigger} does not fit {facts.spent}"
            assert oracle.find_loop(earlier, trigger) == "", f"{trigger} closed a loop"
            unattended = [previous.at for previous in earlier if previous.unattended]
            if trigger.unattended and unattended:
                interval = timedelta(milliseconds=self.interval)
                assert trigger.at - unattended[-1] >= interval, f"{trigger} came too soon"
        self.seen_passed = len(passed)

    def query(self, sql: str, **values: object) -> list[Row[Any]]:
        """The rows of a query with named values."""
        with self.engine.database.read() as session:
            return list(session.connection().execute(text(sql), values))
