"""A machine that does whatever operator, engine and time can do, in any order, on the whole real engine.

What must hold is computed here a second time, from raw rows and from what the machine itself did, not by the code
under test.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import text

from engine.autonomy.autonomy import ACT, STATE
from engine.prediction.cards_store import Prediction
from engine.safety.pipeline import CrosspollLog
from engine.simulation.simulate import made_world
from engine.values import DecidedBy, DecidedCard, DecisionSignal, Refusal, SessionView, Source

KINDS = ("lint", "run_tests")
CHANNELS = ("koji-core", "chronicle-hub", "research")
CONFIDENCES = (0.1, 0.59, 0.6, 0.79, 0.8, 0.95)
ESTIMATES = (0, 50_000, 400_000, 1_000_000, 1_000_001)
SPANS = (60, 299, 300, 599, 600, 1_799, 1_800, 3_600, 7_200, 8 * 3_600, 26 * 3_600)
HOUR_CAP, DAY_CAP, MONTH_CAP = 1_500_000, 4_000_000, 9_000_000
CONFIG = f"""\
autonomousModeEnabled = true
crossPollCostCapPerHour = {HOUR_CAP / 1e6}
crossPollCostCapPerDay = {DAY_CAP / 1e6}
crossPollCostCapPerMonth = {MONTH_CAP / 1e6}
"""

done: Counter[str] = Counter()
"""What all machines of this process have done: steps, sessions by mode, blocks by rail."""


@cache
def migrated() -> Path:
    """A home whose database is made already; copied for each machine."""
    folder = Path(tempfile.mkdtemp(prefix="clawpy-stateful-"))
    with made_world(folder, 1, config=CONFIG, instant=True):
        pass
    return folder / "home" / "data"


class WholeEngine(RuleBasedStateMachine):
    """Cards of any confidence, decisions of anyone, holds, switches, quiet hours, settings, and time."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="clawpy-machine-")))
        shutil.copytree(migrated(), folder / "home" / "data")
        self.world = self._stack.enter_context(made_world(folder, 1, config=CONFIG, instant=True))
        self.engine, self.clock = self.world.engine, self.world.clock
        self.world.runner.at_most = self._estimate
        self.clock.advance(timedelta(hours=9))
        self.cards = self.past = 0
        self._know_channels()
        self.dnd_until: datetime | None = None
        self.autonomous = True
        self.enabled = True
        self.seen_sessions = 0
        self.seen_costs = 0

    def teardown(self) -> None:
        for (reason,) in self._ask("SELECT block_reason FROM crosspoll_log WHERE blocked"):
            done[f"blocked by {reason.partition(':')[0]}"] += 1
        self._stack.close()

    # -- what can happen

    @rule(
        kind=st.sampled_from(KINDS),
        channel=st.sampled_from(CHANNELS),
        confidence=st.sampled_from(CONFIDENCES),
        estimate=st.sampled_from(ESTIMATES),
        after=st.sampled_from(("owner", *CHANNELS)),
    )
    def a_card_is_made(self, kind: str, channel: str, confidence: float, estimate: int, after: str) -> None:
        self._make_card(kind, channel, confidence, estimate, after)

    def _make_card(self, kind: str, channel: str, confidence: float, estimate: int, after: str) -> None:
        self.cards += 1
        number, now = self.cards, self.clock.now()
        row = Prediction(
            id=f"pred_{number}", prompt=f"{kind} {number}", target_agent="backend_builder", target_channel=channel,
            confidence=confidence, created_at=now, kind=kind, workspace=self.workspace, runner="flow", flow=kind,
            parameters={"paths": []}, fingerprint=f"{number}", expires_at=now + timedelta(hours=24),
            estimate_microusd=estimate, from_channel=after,
            source=(Source.TEMPLATE if after == "owner" else Source.FOLLOW_UP).value,
        )  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add(row))

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS), count=st.sampled_from((1, 11, 20)))
    def trust_was_earned(self, kind: str, channel: str, count: int) -> None:
        self._decided(DecisionSignal.APPROVED, kind, channel, count)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def trust_was_lost(self, kind: str, channel: str) -> None:
        self._decided(DecisionSignal.DISMISSED, kind, channel, 1)

    @rule(data=st.data())
    def the_operator_approves(self, data: st.DataObject) -> None:
        self._approve(data, DecidedBy.OPERATOR)

    @rule(data=st.data())
    def something_approves_past_the_cycle(self, data: st.DataObject) -> None:
        """As autonomy, without the cycle's own questions: the rails alone must hold."""
        self._approve(data, DecidedBy.AUTONOMY)

    @rule(data=st.data())
    def the_operator_dismisses(self, data: st.DataObject) -> None:
        self._try(lambda: self.engine.cards.dismiss(self._card(data)))

    @rule(data=st.data())
    def the_operator_undoes(self, data: st.DataObject) -> None:
        self._try(lambda: self.engine.cards.undo(self._card(data)))

    @rule()
    def the_schedule_comes_round(self) -> None:
        schedule = self.engine.autonomy.schedule
        schedule.run(STATE)
        facts = self._allowed()
        if schedule.due(ACT) <= self.clock.now():
            schedule.run(ACT)
            self._settle()
        self._check_sessions(facts)

    @rule()
    def the_autonomous_cycle_comes_early(self) -> None:
        facts = self._allowed()
        self.engine.autonomy.act()
        self._settle()
        self._check_sessions(facts)

    @rule(seconds=st.sampled_from(SPANS))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.engine.safety.kill_switch.poll()

    @rule()
    def the_operator_is_there(self) -> None:
        self.engine.autonomy.heard("key")

    @rule(hours=st.sampled_from((None, 1, 3)))
    def do_not_disturb(self, hours: int | None) -> None:
        self.dnd_until = self.engine.autonomy.dnd(None if hours is None else timedelta(hours=hours))

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def everything_is_well(self, kind: str, channel: str) -> None:
        """Nothing stands against acting at ten in the morning on a card that has earned it; other rules may."""
        for word in ("stop", "pause", "month"):
            self._try(lambda word=word: self.engine.safety.resume(word))
        self._switch(autonomous=True, enabled=True)
        self.dnd_until = self.engine.autonomy.dnd(None)
        now = self.clock.now()
        self.clock.advance(timedelta(days=1) + now.replace(hour=10, minute=0, second=0, microsecond=0) - now)
        self._decided(DecisionSignal.APPROVED, kind, channel, 20)
        self._make_card(kind, channel, 0.95, 50_000, "owner")

    @rule()
    def stop(self) -> None:
        self.engine.safety.stop("F12", "test")

    @rule(word=st.sampled_from(("stop", "stop", "pause", "month")))
    def resume(self, word: str) -> None:
        self._try(lambda: self.engine.safety.resume(word))

    @rule(on=st.booleans())
    def autonomous_mode(self, on: bool) -> None:
        self._switch(autonomous=on, enabled=self.enabled)

    @rule(on=st.sampled_from((True, True, False)))
    def cross_poll(self, on: bool) -> None:
        self._switch(autonomous=self.autonomous, enabled=on)

    # -- what must hold

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        done["steps"] += 1
        now = self.clock.now()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        begins = ((HOUR_CAP, now - timedelta(hours=1)), (DAY_CAP, midnight), (MONTH_CAP, midnight.replace(day=1)))
        for cap, begin in begins:
            spent = self._ask(
                "SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries"
                " WHERE state = 'reserved' OR (state = 'settled' AND at >= :begin)",
                begin=begin.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            )[0][0]
            assert spent <= cap, f"{spent} is more than {cap}"

    # -- inside

    @property
    def workspace(self) -> str:
        return self.world.projects[0].workspace

    def _switch(self, *, autonomous: bool, enabled: bool) -> None:
        for key, on, was in (
            ("autonomousModeEnabled", autonomous, self.autonomous),
            ("crossPollEnabled", enabled, self.enabled),
        ):
            if on != was:
                self.engine.settings.set(key, on)
        self.autonomous, self.enabled = autonomous, enabled

    def _know_channels(self) -> None:
        """Work for the operator was let through on every channel long ago: no pair is novel for its own sake."""
        rows = [
            CrosspollLog(
                prediction_id="old", trigger_type="manual", target_channel=channel, prompt="", verdicts=[], digest="",
                created_at=self.clock.now() - timedelta(days=9), workspace=self.workspace, from_channel=after,
                decided_by="operator", unattended=False,
            )
            for channel in CHANNELS for after in ("owner", "koji-core")
        ]  # fmt: skip
        self.engine.database.write(lambda tx: tx.session.add_all(rows))

    def _card(self, data: st.DataObject) -> str:
        """One of the newest cards that are pending, or one that is decided; a new one if there is none."""
        found = self._ask("SELECT id FROM predictions WHERE status = 'pending' ORDER BY rowid DESC LIMIT 6")
        found += self._ask("SELECT id FROM predictions WHERE status != 'pending' ORDER BY rowid DESC LIMIT 1")
        if not found:
            self._make_card("lint", "koji-core", 0.95, 50_000, "owner")
            return f"pred_{self.cards}"
        return str(found[data.draw(st.integers(0, len(found) - 1))][0])

    def _approve(self, data: st.DataObject, by: DecidedBy) -> None:
        card, facts = self._card(data), self._allowed()
        self._try(lambda: self.engine.cards.approve(card, by=by))
        self._settle()
        self._check_sessions(facts, rails_alone=True)

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

    def _settle(self) -> None:
        self.world.bench.settle(
            self.engine.settings.current.max_running_sessions, lambda one: self.engine.sessions.wait(one, 10)
        )

    def _estimate(self, view: SessionView) -> int:
        """What was reserved: no price is higher, so that only the rails decide whether a cap holds."""
        return int(self._ask("SELECT estimate_microusd FROM cost_entries WHERE session_id = :id", id=view.id)[0][0])

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
        return {"holds": holds, "quiet": quiet, "like": like, "decisions": decisions}

    def _check_sessions(self, facts: dict[str, Any], *, rails_alone: bool = False) -> None:
        """Every session that is new since the last check."""
        rows = self._ask(
            "SELECT s.id, s.mode, s.permit_id, s.prediction_id, p.kind, p.target_channel, p.confidence, t.digest,"
            " t.consumed_at, (SELECT count(*) FROM crosspoll_log l WHERE l.permit_id = s.permit_id AND NOT l.blocked"
            "   AND l.digest = t.digest AND l.prediction_id = s.prediction_id),"
            " (SELECT count(*) FROM sessions o WHERE o.permit_id = s.permit_id),"
            " (SELECT count(*) FROM sessions o WHERE o.prediction_id = s.prediction_id AND o.mode = 'autonomous')"
            " FROM sessions s LEFT JOIN predictions p ON p.id = s.prediction_id"
            " LEFT JOIN permits t ON t.id = s.permit_id"
            " WHERE s.rowid > :seen ORDER BY s.rowid",
            seen=self.seen_sessions,
        )
        self.seen_sessions += len(rows)
        for session, mode, permit, _, kind, channel, confidence, digest, consumed, passed, same, times in rows:
            done[f"{mode} sessions"] += 1
            assert permit is not None, f"{session} has no permit"
            assert digest is not None, f"{session} has no permit"
            assert consumed is not None, f"the permit of {session} is not used up"
            assert passed == 1, f"{session} has {passed} passing rows in the log"
            assert same == 1, f"the permit of {session} started {same} sessions"
            assert self.enabled, f"{session} ran while disabled"
            assert "stop" not in facts["holds"], f"{session} ran while stopped"
            assert "month" not in facts["holds"], f"{session} ran in a month stop"
            if mode != "autonomous":
                continue
            assert times == 1, f"{session}: its card ran {times} times by itself"
            assert self.autonomous, f"{session} ran by itself though autonomous mode is off"
            assert "pause" not in facts["holds"], f"{session} ran by itself while paused"
            assert not facts["quiet"], f"{session} ran by itself in quiet hours"
            assert facts["decisions"] >= 30, f"{session} ran by itself in phase 0"
            assert confidence >= 0.8, f"{session} ran by itself with confidence {confidence}"
            approved, decided = facts["like"].get((kind, channel), (0, 0))
            assert bound(approved, decided) >= 0.8, f"{session} ran by itself after {approved} of {decided}"
        if not rails_alone:
            assert sum(row[1] == "autonomous" for row in rows) <= 1, "two in one cycle"

    def _ask(self, query: str, **values: Any) -> list[Any]:
        with self.engine.database.read() as session:
            return [tuple(row) for row in session.connection().execute(text(query), values)]


def bound(approved: int, decided: int, z: float = 1.645) -> float:
    """Wilson's one-sided lower bound, written down once more."""
    if decided == 0:
        return 0.0
    share, weight = approved / decided, z * z / decided
    return (share + weight / 2 - z * sqrt(share * (1 - share) / decided + weight / (4 * decided))) / (1 + weight)
