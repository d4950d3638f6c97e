"""The whole real engine as `engine_machine` uses it, and the steps that its rules share.

`execution_checks` checks what was executed after each step.
"""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import Row, text

from engine.engine import Engine
from engine.execution.live_session import LiveSession
from engine.execution.runners.runner import RunnerResult
from engine.model import DecidedBy, DecidedCard, DecisionSignal, Refusal, SessionView, Source
from engine.randomness import Randomness
from engine.safety.pipeline import CrosspollLog
from engine.simulation.world import SimulatedSandbox, open_world
from engine.storage.database import Transaction
from tests.safety import oracle
from tests.safety.execution_checks import ExecutionChecks, MachineState, coverage_counts
from tests.safety.oracle import DAY_CAP, HOUR_CAP, MONTH_CAP
from tests.support.card_rows import make_card_row
from tests.support.engines import open_idle_engine

KINDS = ("lint", "run_tests")
CHANNELS = ("koji-core", "chronicle-hub", "research", "garden")
PROMPTS = ("", "", "", "delete everything with rm -rf /", "send an email to the customers")
"""Prompts, "" for that of the kind; the content filter stops the last two."""

CONFIDENCES = (0.1, 0.59, 0.6, 0.79, 0.8, 0.95)
"""Confidences on both sides of each bound."""

PRICES = (0, 20_000, 50_000, 200_000, 700_000, 1_200_000)
"""Micro-dollars, as the next ones."""

REMAINING_AMOUNTS = (-50_000, -1, -1, 0, 1, 50_000)
"""What is left below a cap."""

TIME_STEPS_S = (60, 299, 300, 599, 600, 1_799, 1_800, 3_600, 7_200, 8 * 3_600, 26 * 3_600)
GAPS_S = (60, 61, 299, 300, 301, 599, 600, 601)
"""Seconds between triggers, on both sides of each bound."""

CONFIG = f"""\
autonomousModeEnabled = true
crossPollCostCapPerHour = {HOUR_CAP / 1e6}
crossPollCostCapPerDay = {DAY_CAP / 1e6}
crossPollCostCapPerMonth = {MONTH_CAP / 1e6}
"""


class Died(BaseException):
    """The engine's process ended here."""


def die(*_: object, **__: object):
    raise Died


@cache
def make_home() -> Path:
    """The data folder of a home with a database; it is copied for each machine."""
    folder = Path(tempfile.mkdtemp(prefix="clawpy-stateful-"))
    atexit.register(shutil.rmtree, folder)
    with open_world(folder, 1, config=CONFIG):
        pass
    return folder / "home" / "data"


class MachineWorld(RuleBasedStateMachine):
    """The engine, what was done to it so far, the steps that the rules share, and the `checks` of what was
    executed."""

    def __init__(self):
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="clawpy-machine-")))
        shutil.copytree(make_home(), folder / "home" / "data")
        self.world = self._stack.enter_context(open_world(folder, 1, config=CONFIG))
        self.engine, self.clock = self.world.engine, self.world.clock
        self.workspace = self.world.projects[0].workspace
        self.world.runner.run = self._run_session
        self.state = MachineState(heard_at=self.clock.now())  # a new home counts inactivity from its opening
        self.checks = ExecutionChecks(self.query, self.state)
        self.clock.advance(timedelta(hours=9))
        self.card_count = self.past_decisions = self.restarts = 0
        self._store_known_pairs()
        self.price = 50_000
        """What a session costs from now on, in micro-dollars."""
        self.dies = False
        """Whether the engine dies in the next session."""

    def teardown(self):
        self.checks.count_coverage()
        self.engine.close()
        self._stack.close()

    # -- steps that the rules share

    def make_card(self, kind: str, channel: str, confidence: float, after: str = "owner", prompt: str = "") -> str:
        self.card_count += 1
        number, now = self.card_count, self.clock.now()
        row = make_card_row(
            f"pred_{number}", now, prompt=prompt or f"{kind} {number}", target_agent="backend_builder",
            target_channel=channel, confidence=confidence, kind=kind, workspace=self.workspace, flow=kind,
            parameters={"paths": []}, expires_at=now + timedelta(hours=24), from_channel=after,
            source=(Source.TEMPLATE if after == "owner" else Source.FOLLOW_UP).value,
        )  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add(row))
        return f"pred_{number}"

    def reset_to_quiet_morning(self):
        """Remove every hindrance, and go to ten o'clock of the next day, or of the next month if much is spent."""
        for word in ("stop", "pause", "month"):
            self.try_to(lambda word=word: self.engine.safety.kill_switch.resume(word))
        if not self.state.enabled_this_run:
            self.enable_for_this_run(True)
        self.set_autonomous_mode(True)
        self.set_enabled(True)
        self.set_autonomy("act")
        self.set_do_not_disturb(None)
        now = self.clock.now()
        morning = now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1)
        if oracle.read_spent(self.query, now)["month"] > MONTH_CAP // 2:
            morning = (morning.replace(day=1) + timedelta(days=32)).replace(day=1)
        self.clock.advance(morning - now)
        self.engine.safety.kill_switch.poll()
        self.earn_trust("lint", "koji-core")

    def set_autonomous_mode(self, on: bool):
        if on is not self.state.autonomous:
            self.engine.settings.set("autonomousModeEnabled", on)
            self.state.autonomous = on

    def set_enabled(self, on: bool):
        if on is not self.state.enabled:
            self.engine.settings.set("crossPollEnabled", on)
            self.state.enabled = on

    def set_autonomy(self, autonomy: str):
        """What the workspace allows: "off", "cards" or "act"."""
        if autonomy != self.state.autonomy:
            self.engine.settings.set(f"workspaces.{json.dumps(self.workspace)}.autonomy", autonomy)
            self.state.autonomy = autonomy

    def set_trigger_interval(self, milliseconds: int):
        if milliseconds != self.state.trigger_interval_ms:
            self.engine.settings.set("crossPollIntervalMs", milliseconds)
            self.state.trigger_interval_ms = milliseconds

    def set_do_not_disturb(self, hours: int | None):
        self.state.dnd_until = self.engine.autonomy.set_dnd(None if hours is None else timedelta(hours=hours))

    def enable_for_this_run(self, enabled: bool):
        self.engine.safety.kill_switch.set_enabled(enabled)
        self.state.enabled_this_run = enabled

    def pause(self):
        self.engine.database.write(lambda tx: self.engine.safety.kill_switch.place(tx, "pause", "test"))

    def _store_known_pairs(self):
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

    def approve(self, card: str, by: DecidedBy):
        facts = self.checks.read_facts(self.clock.now())
        self.try_to(lambda: self.engine.cards.approve(card, by=by))
        self.wait_for_sessions()
        self.checks.check_executions(facts)

    def earn_trust(self, kind: str, channel: str):
        """Let such cards have enough approvals to run by themselves, beyond the first phase."""
        facts = self.checks.read_facts(self.clock.now())
        if facts.decisions < 40 or oracle.compute_bound(*facts.count_approvals(kind, channel)) < 0.82:
            self.record_decisions(DecisionSignal.APPROVED, kind, channel, 40)

    def record_decisions(self, signal: DecisionSignal, kind: str, channel: str, count: int):
        def record(tx: Transaction):
            for _ in range(count):
                self.past_decisions += 1
                card = DecidedCard(
                    f"past_{self.past_decisions}", kind, channel, self.workspace, kind, "past", 0.9, DecidedBy.OPERATOR
                )
                self.engine.decisions.record(tx, signal, card)

        self.engine.database.write(record)

    def try_to(self, act: Callable[[], object]):
        """Do what may be refused."""
        with suppress(Refusal):
            act()

    def call_model(self, estimate: int, price: int | str | None):
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
        usual = self.engine.sessions.store.compute_usual_cost("flow", channel)
        return 50_000 if usual is None else usual

    def _run_session(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """The runner: it spends `price`, or leaves its session as a dead process does."""
        if self.dies:
            raise SystemExit
        live.reserve_cost(self.price)  # as every runner that pays does before it spends
        live.charge(self.price, tokens=100)
        return RunnerResult("made up")

    def wait_for_sessions(self):
        """Wait until no session runs any more but one that died."""
        if self.dies:
            for thread in list(self.engine.sessions._threads):
                thread.join(10)
            return
        for (session,) in self.query("SELECT id FROM sessions WHERE state IN ('queued', 'running')"):
            self.engine.sessions.wait(session, 10)

    def restart(self):
        """Close the engine as if its process had died, and open the home again."""
        old, self.restarts = self.engine, self.restarts + 1
        old.sessions._live.clear()
        old.close()
        self.state.enabled_this_run = True
        facts = self.checks.read_facts(self.clock.now())
        self.engine = self._open_again(old)
        self.wait_for_sessions()
        self.checks.check_executions(facts, restarted=True)

    def _open_again(self, old: Engine) -> Engine:
        return open_idle_engine(
            old.home,
            self.workspace,
            clock=self.clock,
            randomness=Randomness(1_000 + self.restarts),
            runners=(self.world.runner,),
            contexts=old.contexts,
            sandbox=SimulatedSandbox(),
            throw_away=True,
            unreachable=True,
        )

    def query(self, sql: str, **values: object) -> list[Row[Any]]:
        """The rows of a query with named values."""
        with self.engine.database.read() as session:
            return list(session.connection().execute(text(sql), values))


LASTING_HINDRANCES: dict[str, Callable[[MachineWorld], object]] = {
    "quiet": lambda world: world.set_do_not_disturb(1),
    "pause": MachineWorld.pause,
    "stop": lambda world: world.engine.safety.kill_switch.stop("F12", "test"),
    "off": lambda world: world.set_autonomous_mode(False),
    "disabled": lambda world: world.set_enabled(False),
    "cards": lambda world: world.set_autonomy("cards"),
}
"""What holds back what runs by itself, or everything, also after a restart."""

HINDRANCES = LASTING_HINDRANCES | {"this run": lambda world: world.enable_for_this_run(False)}
"""The same, and what ends with the engine's run."""
