"""A machine that does whatever operator, engine and time can do, in any order, on the whole real engine.

What must hold is computed a second time by `oracle.py`, from raw rows and from what the machine itself did.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import text

from engine.autonomy.autonomy import ACT, STATE
from engine.engine import Engine, open_engine
from engine.execution.live import LiveSession
from engine.execution.runners.base import RunnerResult
from engine.prediction.cards_store import Prediction
from engine.safety.pipeline import ORDER, CrosspollLog
from engine.simulation.runners import MadeSandbox
from engine.simulation.simulate import made_world
from engine.stand_ins import StandIns
from engine.values import DecidedBy, DecidedCard, DecisionSignal, Randomness, Refusal, SessionView, Source
from tests.safety import oracle
from tests.safety.oracle import CAPS, DAY_CAP, HOUR_CAP, MONTH_CAP

KINDS = ("lint", "run_tests")
CHANNELS = ("koji-core", "chronicle-hub", "research", "garden")
PROMPTS = ("", "", "", "delete everything with rm -rf /", "send an email to the customers")
CONFIDENCES = (0.1, 0.59, 0.6, 0.79, 0.8, 0.95)
PRICES = (0, 20_000, 50_000, 200_000, 700_000, 1_200_000)
LEFT = (-50_000, -1, -1, 0, 1, 50_000)
SPANS = (60, 299, 300, 599, 600, 1_799, 1_800, 3_600, 7_200, 8 * 3_600, 26 * 3_600)
GAPS = (60, 61, 299, 300, 301, 599, 600, 601)
CONFIG = f"""\
autonomousModeEnabled = true
crossPollCostCapPerHour = {HOUR_CAP / 1e6}
crossPollCostCapPerDay = {DAY_CAP / 1e6}
crossPollCostCapPerMonth = {MONTH_CAP / 1e6}
"""

done: Counter[str] = Counter()
"""What all machines of this process have done: steps, executions by kind, blocks by rail."""

MUST_BLOCK = tuple(f"{rail} blocked first" for rail in ORDER)
LOOPS = tuple(f"loop blocked: {rule}" for rule in ("reverse", "pair", "depth"))
CAPPED = tuple(f"cost blocked: {window}" for window in CAPS)
EXECUTED = (
    "approved session", "autonomous session", "follow-up session", "session after a restart", "interrupted session",
    "price above its estimate", "price below its estimate",
)  # fmt: skip


class Died(BaseException):
    """The engine's process ended here."""


@cache
def migrated() -> Path:
    """A home whose database is made already; copied for each machine."""
    folder = Path(tempfile.mkdtemp(prefix="clawpy-stateful-"))
    with made_world(folder, 1, config=CONFIG, instant=True):
        pass
    return folder / "home" / "data"


class WholeEngine(RuleBasedStateMachine):
    """Cards of any confidence and price, chains of them, decisions of anyone, holds, switches, quiet hours, settings,
    crashes, and time."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="clawpy-machine-")))
        shutil.copytree(migrated(), folder / "home" / "data")
        self.world = self._stack.enter_context(made_world(folder, 1, config=CONFIG, instant=True))
        self.engine, self.clock = self.world.engine, self.world.clock
        self.workspace = self.world.projects[0].workspace
        self.world.runner.run = self._work  # type: ignore[method-assign]
        self.heard_at = self.clock.now()  # a new home counts silence from its opening
        self.clock.advance(timedelta(hours=9))
        self.cards = self.past = self.starts = 0
        self._know_channels()
        self.dnd_until: datetime | None = None
        self.autonomous = self.enabled = self.enabled_this_run = True
        self.autonomy = "act"
        self.interval = 600_000
        self.price = 50_000
        self.dies = False
        self.seen_sessions = 0
        self.seen_passed = 0

    def teardown(self) -> None:
        for reason, verdicts in self._ask("SELECT block_reason, verdicts FROM crosspoll_log WHERE blocked"):
            first = reason.partition(":")[0]
            done[f"{first} blocked first"] += 1
            for one in json.loads(verdicts):
                if one["verdict"] == "allow":
                    continue
                done[f"{one['rail']} blocked"] += 1
                if one["rail"] == first and first in ("loop", "cost"):
                    done[f"{first} blocked: {one['rule']}"] += 1
        for settled, estimate, state in self._ask(
            "SELECT c.amount_microusd, c.estimate_microusd, s.state FROM cost_entries c"
            " JOIN sessions s ON s.id = c.session_id WHERE c.state = 'settled'"
        ):
            if state != "interrupted" and settled != estimate:
                done[f"price {'above' if settled > estimate else 'below'} its estimate"] += 1
        self.engine.close()
        self._stack.close()

    # -- cards and decisions

    @rule(
        kind=st.sampled_from(KINDS),
        channel=st.sampled_from(CHANNELS),
        confidence=st.sampled_from(CONFIDENCES),
        after=st.sampled_from(("owner", *CHANNELS)),
        prompt=st.sampled_from(PROMPTS),
    )
    def a_card_is_made(self, kind: str, channel: str, confidence: float, after: str, prompt: str) -> None:
        self._make_card(kind, channel, confidence, after, prompt)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS), count=st.sampled_from((1, 11, 20)))
    def trust_was_earned(self, kind: str, channel: str, count: int) -> None:
        self._decided(DecisionSignal.APPROVED, kind, channel, count)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def trust_was_lost(self, kind: str, channel: str) -> None:
        self._decided(DecisionSignal.DISMISSED, kind, channel, 1)

    @rule(data=st.data())
    def the_operator_approves(self, data: st.DataObject) -> None:
        self._approve(self._card(data), DecidedBy.OPERATOR)

    @rule(data=st.data())
    def something_approves_past_the_cycle(self, data: st.DataObject) -> None:
        """As autonomy, without the cycle's own questions: the rails alone must hold."""
        self._approve(self._card(data), DecidedBy.AUTONOMY)

    @rule(data=st.data())
    def the_operator_dismisses(self, data: st.DataObject) -> None:
        self._try(lambda: self.engine.cards.dismiss(self._card(data)))

    @rule(data=st.data())
    def the_operator_undoes(self, data: st.DataObject) -> None:
        self._try(lambda: self.engine.cards.undo(self._card(data)))

    @rule(data=st.data())
    def the_operator_allows_it_once(self, data: st.DataObject) -> None:
        self._try(lambda: self.engine.safety.allow_once(self._card(data)))

    @rule(
        path=st.lists(st.sampled_from(CHANNELS), min_size=2, max_size=6),
        gaps=st.lists(st.sampled_from(GAPS), min_size=5, max_size=5),
        interval=st.sampled_from((60_000, 60_000, 600_000)),
        price=st.sampled_from(PRICES[:3]),
    )
    def follow_ups_lead_from_channel_to_channel(
        self, path: list[str], gaps: list[int], interval: int, price: int
    ) -> None:
        """The operator approves the first; each leads to the next, on a good morning and well earned."""
        self._well()
        self.price = price
        self._every(interval)
        for channel in set(path):
            self._trusted("lint", channel)
        self._approve(self._make_card("lint", path[0], 0.95), DecidedBy.OPERATOR)
        for (before, channel), gap in zip(pairwise(path), gaps, strict=False):
            self.clock.advance(timedelta(seconds=gap))
            self._approve(self._make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(
        before=st.sampled_from(CHANNELS),
        channel=st.sampled_from(CHANNELS),
        gaps=st.lists(st.sampled_from(GAPS[:6]), min_size=4, max_size=4),
    )
    def the_same_step_is_made_again_and_again(self, before: str, channel: str, gaps: list[int]) -> None:
        self._well()
        self._every(60_000)
        self._trusted("lint", channel)
        for gap in gaps:
            self._approve(self._make_card("lint", before, 0.95), DecidedBy.OPERATOR)
            self.clock.advance(timedelta(seconds=gap))
            self._approve(self._make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(prompt=st.sampled_from(PROMPTS[3:]), by=st.sampled_from(tuple(DecidedBy)), again=st.booleans())
    def something_hostile_is_approved(self, prompt: str, by: DecidedBy, again: bool) -> None:
        self._well()
        card = self._make_card("lint", "koji-core", 0.95, prompt=prompt)
        self._approve(card, by)
        if again:
            self._try(lambda: self.engine.safety.allow_once(card))
            self._approve(card, by)

    @rule(
        meanwhile=st.sampled_from(("quiet", "pause", "stop", "off", "disabled", "cards", "this run")),
        by=st.sampled_from(tuple(DecidedBy)),
    )
    def something_is_approved_though_it_must_not(self, meanwhile: str, by: DecidedBy) -> None:
        self._well()
        self._meanwhile(meanwhile)
        self._approve(self._make_card("lint", "koji-core", 0.95), by)

    # -- money

    @rule(price=st.sampled_from(PRICES))
    def runners_have_a_price(self, price: int) -> None:
        self.price = price

    @rule(
        estimate=st.sampled_from((*PRICES, 2_500_000)),
        price=st.sampled_from((None, None, *PRICES, "released")),
    )
    def a_model_is_called(self, estimate: int, price: int | str | None) -> None:
        """No session: the Twin or the judge. With None nobody settles it: the engine died, or it still waits."""
        self._call(estimate, price)

    @rule(window=st.sampled_from(tuple(CAPS)), left=st.sampled_from(LEFT), by=st.sampled_from(tuple(DecidedBy)))
    def a_cap_is_almost_reached(self, window: str, left: int, by: DecidedBy) -> None:
        """All but `left` micro-dollars of what the next trigger is thought to cost are spent."""
        self._restart()  # what a call left reserved is settled, and counts in its windows only
        self._well()
        wanted = CAPS[window] - self._estimate("koji-core") - left
        for _ in range(40):
            spent = oracle.spent(self._ask, self.clock.now())
            missing = wanted - spent[window]
            free = min(cap - spent[one] for one, cap in CAPS.items() if one != window)
            if missing <= 0 or self.clock.now().day == 28:
                break
            if free <= 0:
                self.clock.advance(timedelta(hours=1 if spent["day"] < DAY_CAP else 24))
                continue
            self._call(min(missing, free), min(missing, free))
        self._approve(self._make_card("lint", "koji-core", 0.95), by)

    # -- crashes

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 16 * 60)),
        price=st.sampled_from(PRICES),
    )
    def the_engine_dies_in_a_session(self, by: DecidedBy, gap: int, price: int) -> None:
        """Between reserve and settle: what was set aside is what it cost, unless more is known."""
        self._well()
        self.price = price
        self.dies = True
        self._approve(self._make_card("lint", "koji-core", 0.95), by)
        self.dies = False
        cut = self._ask("SELECT id, estimate_microusd FROM sessions WHERE state = 'running'")
        self.clock.advance(timedelta(seconds=gap))
        self._restart()
        for session, estimate in cut:
            [(state,)] = self._ask("SELECT state FROM sessions WHERE id = :id", id=session)
            assert state == "interrupted", f"{session} is {state} after a crash"
            [(settled, amount)] = self._ask(
                "SELECT state, amount_microusd FROM cost_entries WHERE session_id = :id", id=session
            )
            assert settled == "settled"
            assert amount >= estimate, f"{session} may have spent {estimate}, and is said to have cost {amount}"
            done["interrupted session"] += 1

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 15 * 60, 16 * 60)),
        meanwhile=st.sampled_from(("nothing", "quiet", "pause", "stop", "off", "disabled", "cards")),
    )
    def the_engine_dies_before_a_session(self, by: DecidedBy, gap: int, meanwhile: str) -> None:
        """Between permit and session: it starts once, if it still may, or is pending again and costs nothing."""
        self._well()
        card = self._make_card("lint", "koji-core", 0.95)
        self.engine.cards._start = _die  # type: ignore[method-assign]
        facts = self._allowed()
        with suppress(Refusal, Died):
            self.engine.cards.approve(card, by=by)
        self._check_triggers(facts)
        self._meanwhile(meanwhile)
        self.clock.advance(timedelta(seconds=gap))
        before = self.seen_sessions
        self._restart()
        if self.seen_sessions > before:
            done["session after a restart"] += 1
        else:
            held = self._ask("SELECT 1 FROM cost_entries WHERE state = 'reserved' AND prediction_id = :id", id=card)
            assert not held, f"{card} never ran, and its reservation is kept"

    @rule()
    def the_engine_is_restarted(self) -> None:
        self._restart()

    # -- time, and what comes round

    @rule()
    def the_schedule_comes_round(self) -> None:
        schedule = self.engine.autonomy.schedule
        schedule.run(STATE)
        facts = self._allowed()
        if schedule.due(ACT) <= self.clock.now():
            schedule.run(ACT)
            self._settle()
        self._check(facts, cycle=True)

    @rule()
    def the_autonomous_cycle_comes_early(self) -> None:
        facts = self._allowed()
        self.engine.autonomy.act()
        self._settle()
        self._check(facts, cycle=True)

    @rule(seconds=st.sampled_from(SPANS))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.engine.safety.kill_switch.poll()

    @rule()
    def the_operator_is_there(self) -> None:
        self.engine.autonomy.heard("key")
        self.heard_at = self.clock.now()

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def everything_is_well(self, kind: str, channel: str) -> None:
        """Nothing stands against acting at ten in the morning on a card that has earned it; other rules may."""
        self._well()
        self._trusted(kind, channel)
        self._make_card(kind, channel, 0.95)

    # -- holds and switches

    @rule(hours=st.sampled_from((None, 1, 3)))
    def do_not_disturb(self, hours: int | None) -> None:
        self.dnd_until = self.engine.autonomy.dnd(None if hours is None else timedelta(hours=hours))

    @rule()
    def stop(self) -> None:
        self.engine.safety.stop("F12", "test")

    @rule(word=st.sampled_from(("stop", "stop", "pause", "month")))
    def resume(self, word: str) -> None:
        self._try(lambda: self.engine.safety.resume(word))

    @rule(on=st.booleans())
    def autonomous_mode(self, on: bool) -> None:
        self._switch(autonomous=on)

    @rule(on=st.sampled_from((True, True, False)))
    def cross_poll(self, on: bool) -> None:
        self._switch(enabled=on)

    @rule(on=st.sampled_from((True, True, False)))
    def the_api_toggles(self, on: bool) -> None:
        self.engine.safety.kill_switch.set_enabled(on)
        self.enabled_this_run = on

    @rule(autonomy=st.sampled_from(("off", "cards", "act")))
    def the_workspace_may(self, autonomy: str) -> None:
        self._switch(autonomy=autonomy)

    @rule(interval=st.sampled_from((60_000, 600_000)))
    def triggers_may_come_every(self, interval: int) -> None:
        self._every(interval)

    # -- what must hold

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        done["steps"] += 1
        for window, spent in oracle.spent(self._ask, self.clock.now()).items():
            assert spent <= CAPS[window], f"{spent} is more than the {window}'s {CAPS[window]}"

    # -- inside

    def _make_card(self, kind: str, channel: str, confidence: float, after: str = "owner", prompt: str = "") -> str:
        self.cards += 1
        number, now = self.cards, self.clock.now()
        row = Prediction(
            id=f"pred_{number}", prompt=prompt or f"{kind} {number}", target_agent="backend_builder",
            target_channel=channel, confidence=confidence, created_at=now, kind=kind, workspace=self.workspace,
            runner="flow", flow=kind, parameters={"paths": []}, fingerprint=f"{number}",
            expires_at=now + timedelta(hours=24), from_channel=after,
            source=(Source.TEMPLATE if after == "owner" else Source.FOLLOW_UP).value,
        )  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add(row))
        return f"pred_{number}"

    def _well(self) -> None:
        for word in ("stop", "pause", "month"):
            self._try(lambda word=word: self.engine.safety.resume(word))
        if not self.enabled_this_run:
            self.the_api_toggles(True)
        self._switch(autonomous=True, enabled=True, autonomy="act")
        self.dnd_until = self.engine.autonomy.dnd(None)
        now = self.clock.now()
        ten = now.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1)
        if oracle.spent(self._ask, now)["month"] > MONTH_CAP // 2:
            ten = (ten.replace(day=1) + timedelta(days=32)).replace(day=1)
        self.clock.advance(ten - now)
        self.engine.safety.kill_switch.poll()
        self._trusted("lint", "koji-core")

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

    def _every(self, interval: int) -> None:
        if interval != self.interval:
            self.engine.settings.set("crossPollIntervalMs", interval)
            self.interval = interval

    def _meanwhile(self, what: str) -> None:
        """Something that holds back what runs by itself, or everything."""
        if what == "quiet":
            self.do_not_disturb(1)
        elif what == "pause":
            self.engine.database.write(lambda tx: self.engine.safety.kill_switch.place(tx, "pause", "test"))
        elif what == "stop":
            self.stop()
        elif what == "off":
            self._switch(autonomous=False)
        elif what == "disabled":
            self._switch(enabled=False)
        elif what == "cards":
            self._switch(autonomy="cards")
        elif what == "this run":
            self.the_api_toggles(False)

    def _know_channels(self) -> None:
        """Work was let through on every channel long ago: no pair is novel for its own sake."""
        rows = [
            CrosspollLog(
                prediction_id="old", trigger_type="manual", target_channel=channel, prompt="", verdicts=[], digest="",
                created_at=self.clock.now() - timedelta(days=9), workspace=self.workspace, from_channel=after,
                decided_by="operator", unattended=False,
            )
            for channel in CHANNELS for after in ("owner", *CHANNELS)
        ]  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add_all(rows))

    def _card(self, data: st.DataObject) -> str:
        """One of the newest cards that are pending, or one that is decided; a new one if there is none."""
        found = self._ask("SELECT id FROM predictions WHERE status = 'pending' ORDER BY rowid DESC LIMIT 6")
        found += self._ask("SELECT id FROM predictions WHERE status != 'pending' ORDER BY rowid DESC LIMIT 1")
        if not found:
            return self._make_card("lint", "koji-core", 0.95)
        return str(found[data.draw(st.integers(0, len(found) - 1))][0])

    def _approve(self, card: str, by: DecidedBy) -> None:
        facts = self._allowed()
        self._try(lambda: self.engine.cards.approve(card, by=by))
        self._settle()
        self._check(facts)

    def _trusted(self, kind: str, channel: str) -> None:
        """Such cards have earned it, and this is not the first phase."""
        facts = self._allowed()
        if facts["decisions"] < 40 or oracle.bound(*facts["like"].get((kind, channel), (0, 0))) < 0.82:
            self._decided(DecisionSignal.APPROVED, kind, channel, 40)

    def _decided(self, signal: DecisionSignal, kind: str, channel: str, count: int) -> None:
        def work(tx: Any) -> None:
            for _ in range(count):
                self.past += 1
                self.engine.feedback.record(
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
        costs, before = self.engine.safety.costs, oracle.spent(self._ask, self.clock.now())
        try:
            entry = self.engine.database.write(lambda tx: costs.reserve_call(tx, "twin", estimate))
        except Refusal:
            assert not oracle.fits(before, estimate), f"{estimate} fits {before} and was refused"
            done["cost refused a call"] += 1
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
        live.afford(self.price)  # as every runner that pays: what it may come to is reserved before it is spent
        live.charge(self.price, tokens=100)
        return RunnerResult("made up")

    def _settle(self) -> None:
        """Wait until nothing runs any more, but what died."""
        if self.dies:
            for thread in list(self.engine.sessions._threads):
                thread.join(10)
            return
        for (session,) in self._ask("SELECT id FROM sessions WHERE state IN ('queued', 'running')"):
            self.engine.sessions.wait(session, 10)

    def _restart(self) -> None:
        """The process is gone, and another opens the home."""
        old, self.starts = self.engine, self.starts + 1
        old.sessions._live.clear()
        old.close()
        self.enabled_this_run = True
        facts = self._allowed()
        self.engine = self._reopened(old)
        self._settle()
        self._check(facts, restart=True)

    def _reopened(self, old: Engine) -> Engine:
        return open_engine(
            old.home, workspaces=[self.workspace], clock=self.clock, randomness=Randomness(1_000 + self.starts),
            start_schedule=False,
            stand_ins=StandIns(
                runners=(self.world.runner,), contexts=old._contexts, calibrator=self.world.calibrator,
                sandbox=MadeSandbox(), throw_away=True, deaf=True,
            ),
        )  # fmt: skip

    def _allowed(self) -> dict[str, Any]:
        """What is so before something is tried, as this machine knows it."""
        now = self.clock.now()
        holds = {word for word, until in self._ask("SELECT word, until FROM holds")
                 if until is None or datetime.fromisoformat(until) > now}  # fmt: skip
        quiet = now.hour >= 23 or now.hour < 8 or (self.dnd_until is not None and now < self.dnd_until)
        counted = "taken_back_at IS NULL AND decided_by != 'autonomy'"
        said = "signal IN ('approved', 'dismissed', 'undone', 'discarded')"
        like = {
            (kind, channel): (approved, decided)
            for kind, channel, approved, decided in self._ask(
                "SELECT kind, channel, sum(signal = 'approved' AND NOT edited), count(*) FROM decisions"
                f" WHERE {counted} AND {said} GROUP BY kind, channel"
            )
        }
        decisions = sum(decided for _, decided in like.values())
        return {
            "holds": holds, "quiet": quiet, "like": like, "decisions": decisions,
            "spent": oracle.spent(self._ask, now), "silence": now - self.heard_at,
        }  # fmt: skip

    def _check(self, facts: dict[str, Any], *, cycle: bool = False, restart: bool = False) -> None:
        """Every trigger that was let through since the last check, and every session that is new."""
        self._check_triggers(facts)
        rows = self._ask(
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
            done[f"{mode} session"] += 1
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
                done["follow-up session"] += 1
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
        passed = oracle.passed(self._ask)
        for place in range(self.seen_passed, len(passed)):
            one, before = passed[place], passed[:place]
            assert oracle.fits(facts["spent"], one.estimate), f"{one} does not fit {facts['spent']}"
            assert oracle.loop(before, one) == "", f"{one} closed a loop"
            alone = [other.at for other in before if other.unattended]
            if one.unattended and alone:
                assert one.at - alone[-1] >= timedelta(milliseconds=self.interval), f"{one} came too soon"
        self.seen_passed = len(passed)

    def _ask(self, query: str, **values: Any) -> list[Any]:
        with self.engine.database.read() as session:
            return [tuple(row) for row in session.connection().execute(text(query), values)]


def _die(*_: object, **__: object) -> None:
    raise Died
