"""The whole real engine as `engine_machine` uses it, and the checks after each of its steps.

`oracle` computes what must hold a second time, from raw rows and from what the machine itself did.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import text

from engine.engine import Engine, open_engine
from engine.execution.live_session import LiveSession
from engine.execution.runners.runner import RunnerResult
from engine.model import DecidedBy, DecidedCard, DecisionSignal, Randomness, Refusal, SessionView, Source
from engine.prediction.card_rows import CardRow
from engine.safety.pipeline import RAIL_ORDER, CrosspollLog
from engine.services import Overrides
from engine.simulation.month import SimulatedSandbox
from engine.simulation.simulate import open_world
from tests.safety import oracle
from tests.safety.oracle import CAPS, DAY_CAP, HOUR_CAP, MONTH_CAP

KINDS = ("lint", "run_tests")
CHANNELS = ("koji-core", "chronicle-hub", "research", "garden")
PROMPTS = ("", "", "", "delete everything with rm -rf /", "send an email to the customers")
CONFIDENCES = (0.1, 0.59, 0.6, 0.79, 0.8, 0.95)
PRICES = (0, 20_000, 50_000, 200_000, 700_000, 1_200_000)
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


@cache
def home_with_database() -> Path:
    """The data folder of a home with a database; it is copied for each machine."""
    folder = Path(tempfile.mkdtemp(prefix="clawpy-stateful-"))
    with open_world(folder, 1, config=CONFIG):
        pass
    return folder / "home" / "data"


class MachineWorld(RuleBasedStateMachine):
    """The engine, what was done to it so far, and the checks of what it did."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="clawpy-machine-")))
        shutil.copytree(home_with_database(), folder / "home" / "data")
        self.world = self._stack.enter_context(open_world(folder, 1, config=CONFIG))
        self.engine, self.clock = self.world.engine, self.world.clock
        self.workspace = self.world.projects[0].workspace
        self.world.runner.run = self._work  # type: ignore[method-assign]
        self.heard_at = self.clock.now()  # a new home counts silence from its opening
        self.clock.advance(timedelta(hours=9))
        self.cards = self.past = self.starts = 0
        self._let_pairs_have_run()
        self.dnd_until: datetime | None = None
        self.autonomous = self.enabled = self.enabled_this_run = True
        self.autonomy = "act"
        self.interval = 600_000
        self.price = 50_000
        self.dies = False
        self.seen_sessions = 0
        self.seen_passed = 0

    def teardown(self) -> None:
        for reason, verdicts in self._query("SELECT block_reason, verdicts FROM crosspoll_log WHERE blocked"):
            first = reason.partition(":")[0]
            coverage_counts[f"{first} blocked first"] += 1
            for verdict in json.loads(verdicts):
                if verdict["verdict"] == "allow":
                    continue
                coverage_counts[f"{verdict['rail']} blocked"] += 1
                if verdict["rail"] == first and first in ("loop", "cost"):
                    coverage_counts[f"{first} blocked: {verdict['rule']}"] += 1
        for settled, estimate, state in self._query(
            "SELECT c.amount_microusd, c.estimate_microusd, s.state FROM cost_entries c"
            " JOIN sessions s ON s.id = c.session_id WHERE c.state = 'settled'"
        ):
            if state != "interrupted" and settled != estimate:
                coverage_counts[f"price {'above' if settled > estimate else 'below'} its estimate"] += 1
        self.engine.close()
        self._stack.close()

    # -- inside

    def _make_card(self, kind: str, channel: str, confidence: float, after: str = "owner", prompt: str = "") -> str:
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

    def _reset_to_quiet_morning(self) -> None:
        for word in ("stop", "pause", "month"):
            self._try(lambda word=word: self.engine.safety.kill_switch.resume(word))
        if not self.enabled_this_run:
            self.the_api_toggles(True)  # type: ignore[attr-defined]
        self._switch(autonomous=True, enabled=True, autonomy="act")
        self.dnd_until = self.engine.autonomy.dnd(None)
        now = self.clock.now()
        ten = now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1)
        if oracle.spent(self._query, now)["month"] > MONTH_CAP // 2:
            ten = (ten.replace(day=1) + timedelta(days=32)).replace(day=1)
        self.clock.advance(ten - now)
        self.engine.safety.kill_switch.poll()
        self._earn_trust("lint", "koji-core")

    def _switch(
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

    def _set_trigger_interval(self, interval: int) -> None:
        if interval != self.interval:
            self.engine.settings.set("crossPollIntervalMs", interval)
            self.interval = interval

    def _meanwhile(self, what: str) -> None:
        """Something that holds back what runs by itself, or everything."""
        if what == "quiet":
            self.do_not_disturb(1)  # type: ignore[attr-defined]
        elif what == "pause":
            self.engine.database.write(lambda tx: self.engine.safety.kill_switch.place(tx, "pause", "test"))
        elif what == "stop":
            self.stop()  # type: ignore[attr-defined]
        elif what == "off":
            self._switch(autonomous=False)
        elif what == "disabled":
            self._switch(enabled=False)
        elif what == "cards":
            self._switch(autonomy="cards")
        elif what == "this run":
            self.the_api_toggles(False)  # type: ignore[attr-defined]

    def _let_pairs_have_run(self) -> None:
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

    def _card(self, data: st.DataObject) -> str:
        """One of the newest cards that are pending, or one that is decided; a new one if there is none."""
        found = self._query("SELECT id FROM predictions WHERE status = 'pending' ORDER BY rowid DESC LIMIT 6")
        found += self._query("SELECT id FROM predictions WHERE status != 'pending' ORDER BY rowid DESC LIMIT 1")
        if not found:
            return self._make_card("lint", "koji-core", 0.95)
        return str(found[data.draw(st.integers(0, len(found) - 1))][0])

    def _approve(self, card: str, by: DecidedBy) -> None:
        facts = self._present_facts()
        self._try(lambda: self.engine.cards.approve(card, by=by))
        self._settle()
        self._check_executions(facts)

    def _earn_trust(self, kind: str, channel: str) -> None:
        """Let such cards have enough approvals to run by themselves, beyond the first phase."""
        facts = self._present_facts()
        if facts["decisions"] < 40 or oracle.bound(*facts["like"].get((kind, channel), (0, 0))) < 0.82:
            self._record_decisions(DecisionSignal.APPROVED, kind, channel, 40)

    def _record_decisions(self, signal: DecisionSignal, kind: str, channel: str, count: int) -> None:
        def work(tx: Any) -> None:
            for _ in range(count):
                self.past += 1
                self.engine.decisions.record(
                    tx,
                    signal,
                    DecidedCard(f"past_{self.past}", kind, channel, self.workspace, kind, "past", 0.9,
                                DecidedBy.OPERATOR),
                )  # fmt: skip

        self.engine.database.write(work)

    def _try(self, act: Any) -> None:
        with suppress(Refusal):
            act()

    def _call(self, estimate: int, price: int | str | None) -> None:
        costs, before = self.engine.safety.costs, oracle.spent(self._query, self.clock.now())
        try:
            entry = self.engine.database.write(lambda tx: costs.reserve_call(tx, "twin", estimate))
        except Refusal:
            assert not oracle.fits(before, estimate), f"{estimate} fits {before} and was refused"
            coverage_counts["cost refused a call"] += 1
            return
        assert oracle.fits(before, estimate), f"{estimate} does not fit {before}"
        if price == "released":
            self.engine.database.write(lambda tx: costs.release(tx, entry))
        elif isinstance(price, int):
            # Who calls a model reserves the most that it can come to.
            self.engine.database.write(lambda tx: costs.settle(tx, entry, min(price, estimate)))

    def _estimate(self, channel: str) -> int:
        usual = self.engine.sessions.usual_cost("flow", channel)
        return 50_000 if usual is None else usual

    def _work(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """The runner: spends what it costs today; one that is to die leaves its session as a dead process does."""
        if self.dies:
            raise SystemExit
        live.reserve_cost(self.price)  # as every runner that pays: what it may come to is reserved before it is spent
        live.charge(self.price, tokens=100)
        return RunnerResult("made up")

    def _settle(self) -> None:
        """Wait until nothing runs any more, but what died."""
        if self.dies:
            for thread in list(self.engine.sessions._threads):
                thread.join(10)
            return
        for (session,) in self._query("SELECT id FROM sessions WHERE state IN ('queued', 'running')"):
            self.engine.sessions.wait(session, 10)

    def _restart(self) -> None:
        """The process is gone, and another opens the home."""
        old, self.starts = self.engine, self.starts + 1
        old.sessions._live.clear()
        old.close()
        self.enabled_this_run = True
        facts = self._present_facts()
        self.engine = self._reopened(old)
        self._settle()
        self._check_executions(facts, restart=True)

    def _reopened(self, old: Engine) -> Engine:
        return open_engine(
            old.home, workspaces=[self.workspace], clock=self.clock, randomness=Randomness(1_000 + self.starts),
            start_schedule=False,
            overrides=Overrides(
                runners=(self.world.runner,), contexts=old.contexts,
                sandbox=SimulatedSandbox(), throw_away=True, unreachable=True,
            ),
        )  # fmt: skip

    def _present_facts(self) -> dict[str, Any]:
        """The conditions before something is tried, as this machine knows them."""
        now = self.clock.now()
        holds = {word for word, until in self._query("SELECT word, until FROM holds")
                 if until is None or datetime.fromisoformat(until) > now}  # fmt: skip
        quiet = now.hour >= 23 or now.hour < 8 or (self.dnd_until is not None and now < self.dnd_until)
        counted = "taken_back_at IS NULL AND decided_by != 'autonomy'"
        said = "signal IN ('approved', 'dismissed', 'undone', 'discarded')"
        like = {
            (kind, channel): (approved, decided)
            for kind, channel, approved, decided in self._query(
                "SELECT kind, channel, sum(signal = 'approved' AND NOT edited), count(*) FROM decisions"
                f" WHERE {counted} AND {said} GROUP BY kind, channel"
            )
        }
        decisions = sum(decided for _, decided in like.values())
        return {
            "holds": holds, "quiet": quiet, "like": like, "decisions": decisions,
            "spent": oracle.spent(self._query, now), "silence": now - self.heard_at,
        }  # fmt: skip

    def _check_executions(self, facts: dict[str, Any], *, cycle: bool = False, restart: bool = False) -> None:
        """Every trigger that was let through since the last check, and every session that is new."""
        self._check_triggers(facts)
        rows = self._query(
            "SELECT s.id, s.mode, s.permit_id, p.kind, p.target_channel, p.confidence, t.digest, t.consumed_at,"
            " p.source,"
            " (SELECT count(*) FROM crosspoll_log l WHERE l.permit_id = s.permit_id AND NOT l.blocked"
            "   AND l.digest = t.digest AND l.prediction_id = s.prediction_id),"
            " (SELECT count(*) FROM sessions o WHERE o.permit_id = s.permit_id),"
            " (SELECT count(*) FROM sessions o WHERE o.prediction_id = s.prediction_id AND o.mode = 'autonomous')"
            " FROM sessions s LEFT JOIN predictions p ON p.id = s.prediction_id"
            " LEFT JOIN permits t ON t.id = s.permit_id"
            " WHERE s.rowid > :seen ORDER BY s.rowid",
            seen=self.seen_sessions,
        )
        self.seen_sessions += len(rows)
        for session, mode, permit, kind, channel, confidence, digest, consumed, source, passed, same, times in rows:
            coverage_counts[f"{mode} session"] += 1
            assert permit is not None, f"{session} has no permit"
            assert digest is not None, f"{session} has no permit"
            assert consumed is not None, f"the permit of {session} is not used up"
            assert passed == 1, f"{session} has {passed} passing rows in the log"
            assert same == 1, f"the permit of {session} started {same} sessions"
            assert self.enabled, f"{session} ran while disabled"
            assert self.enabled_this_run, f"{session} ran while switched off for this run"
            assert "stop" not in facts["holds"], f"{session} ran while stopped"
            assert "month" not in facts["holds"], f"{session} ran in a month stop"
            if mode != "autonomous":
                continue
            if source == Source.FOLLOW_UP:
                coverage_counts["follow-up session"] += 1
            assert times == 1, f"{session}: its card ran {times} times by itself"
            assert self.autonomous, f"{session} ran by itself though autonomous mode is off"
            assert self.autonomy == "act", f"{session} ran by itself in a workspace that is {self.autonomy}"
            assert "pause" not in facts["holds"], f"{session} ran by itself while paused"
            assert not facts["quiet"], f"{session} ran by itself in quiet hours"
            assert facts["decisions"] >= 30, f"{session} ran by itself in phase 0"
            assert confidence >= 0.8, f"{session} ran by itself with confidence {confidence}"
            approved, decided = facts["like"].get((kind, channel), (0, 0))
            assert oracle.bound(approved, decided) >= 0.8, f"{session} ran by itself after {approved} of {decided}"
            if cycle:
                # After a restart the last key press is known to half a minute.
                assert facts["silence"] >= timedelta(minutes=29, seconds=30), f"{session}: somebody was there"
        if not restart:
            assert sum(row[1] == "autonomous" for row in rows) <= 1, "two at once"

    def _check_triggers(self, facts: dict[str, Any]) -> None:
        passed = oracle.passed(self._query)
        for place in range(self.seen_passed, len(passed)):
            trigger, earlier = passed[place], passed[:place]
            assert oracle.fits(facts["spent"], trigger.estimate), f"{trigger} does not fit {facts['spent']}"
            assert oracle.loop(earlier, trigger) == "", f"{trigger} closed a loop"
            unattended = [previous.at for previous in earlier if previous.unattended]
            if trigger.unattended and unattended:
                interval = timedelta(milliseconds=self.interval)
                assert trigger.at - unattended[-1] >= interval, f"{trigger} came too soon"
        self.seen_passed = len(passed)

    def _query(self, query: str, **values: Any) -> list[Any]:
        with self.engine.database.read() as session:
            return [tuple(row) for row in session.connection().execute(text(query), values)]


def die(*_: object, **__: object) -> None:
    raise Died
