"""A state machine that makes the actions of operator, engine and time in any order, on the whole real engine.

`test_stateful` runs it; `stateful_world` checks after each action, by what `oracle` says may run, what was executed.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from engine.autonomy.autonomy import ACT, STATE
from engine.model import DecidedBy, DecisionSignal, Refusal
from tests.safety import oracle
from tests.safety.oracle import CAPS, DAY_CAP
from tests.safety.stateful_world import (
    CHANNELS,
    CONFIDENCES,
    GAPS_S,
    KINDS,
    PRICES,
    PROMPTS,
    REMAINING_AMOUNTS,
    TIME_STEPS_S,
    Died,
    MachineWorld,
    coverage_counts,
    die,
)


class EngineMachine(MachineWorld):
    """Cards of any confidence and price, chains of them, decisions of anyone, holds, switches, quiet hours, settings,
    crashes, and time."""

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
        self._record_decisions(DecisionSignal.APPROVED, kind, channel, count)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def trust_was_lost(self, kind: str, channel: str) -> None:
        self._record_decisions(DecisionSignal.DISMISSED, kind, channel, 1)

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
        gaps=st.lists(st.sampled_from(GAPS_S), min_size=5, max_size=5),
        interval=st.sampled_from((60_000, 60_000, 600_000)),
        price=st.sampled_from(PRICES[:3]),
    )
    def follow_ups_lead_from_channel_to_channel(
        self, path: list[str], gaps: list[int], interval: int, price: int
    ) -> None:
        """The operator approves the first; each leads to the next, on a good morning and well earned."""
        self._reset_to_quiet_morning()
        self.price = price
        self._set_trigger_interval(interval)
        for channel in set(path):
            self._earn_trust("lint", channel)
        self._approve(self._make_card("lint", path[0], 0.95), DecidedBy.OPERATOR)
        for (before, channel), gap in zip(pairwise(path), gaps, strict=False):
            self.clock.advance(timedelta(seconds=gap))
            self._approve(self._make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(
        before=st.sampled_from(CHANNELS),
        channel=st.sampled_from(CHANNELS),
        gaps=st.lists(st.sampled_from(GAPS_S[:6]), min_size=4, max_size=4),
    )
    def the_same_step_is_made_again_and_again(self, before: str, channel: str, gaps: list[int]) -> None:
        self._reset_to_quiet_morning()
        self._set_trigger_interval(60_000)
        self._earn_trust("lint", channel)
        for gap in gaps:
            self._approve(self._make_card("lint", before, 0.95), DecidedBy.OPERATOR)
            self.clock.advance(timedelta(seconds=gap))
            self._approve(self._make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(prompt=st.sampled_from(PROMPTS[3:]), by=st.sampled_from(tuple(DecidedBy)), again=st.booleans())
    def something_hostile_is_approved(self, prompt: str, by: DecidedBy, again: bool) -> None:
        self._reset_to_quiet_morning()
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
        self._reset_to_quiet_morning()
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

    @rule(
        window=st.sampled_from(tuple(CAPS)),
        remaining=st.sampled_from(REMAINING_AMOUNTS),
        by=st.sampled_from(tuple(DecidedBy)),
    )
    def a_cap_is_almost_reached(self, window: str, remaining: int, by: DecidedBy) -> None:
        """All but `remaining` micro-dollars of what the next trigger is thought to cost are spent."""
        self._restart()  # what a call left reserved is settled, and counts in its windows only
        self._reset_to_quiet_morning()
        self._spend_up_to(window, CAPS[window] - self._estimate("koji-core") - remaining)
        self._approve(self._make_card("lint", "koji-core", 0.95), by)

    def _spend_up_to(self, window: str, wanted: int) -> None:
        """Make calls until `wanted` is spent in a window, by as many hours and days as the other caps need; not beyond
        the 28th, since a new month would begin with nothing spent."""
        for _ in range(40):
            spent = oracle.spent(self._query, self.clock.now())
            missing = wanted - spent[window]
            free = min(cap - spent[other] for other, cap in CAPS.items() if other != window)
            if missing <= 0 or self.clock.now().day == 28:
                return
            if free <= 0:
                self.clock.advance(timedelta(hours=1 if spent["day"] < DAY_CAP else 24))
                continue
            self._call(min(missing, free), min(missing, free))

    # -- crashes

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 16 * 60)),
        price=st.sampled_from(PRICES),
    )
    def the_engine_dies_in_a_session(self, by: DecidedBy, gap: int, price: int) -> None:
        """Between reserve and settle: what was set aside is what it cost, unless more is known."""
        self._reset_to_quiet_morning()
        self.price = price
        self.dies = True
        self._approve(self._make_card("lint", "koji-core", 0.95), by)
        self.dies = False
        cut = self._query("SELECT id, estimate_microusd FROM sessions WHERE state = 'running'")
        self.clock.advance(timedelta(seconds=gap))
        self._restart()
        for session, estimate in cut:
            [(state,)] = self._query("SELECT state FROM sessions WHERE id = :id", id=session)
            assert state == "interrupted", f"{session} is {state} after a crash"
            [(settled, amount)] = self._query(
                "SELECT state, amount_microusd FROM cost_entries WHERE session_id = :id", id=session
            )
            assert settled == "settled"
            assert amount >= estimate, f"{session} may have spent {estimate}, and is said to have cost {amount}"
            coverage_counts["interrupted session"] += 1

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 15 * 60, 16 * 60)),
        meanwhile=st.sampled_from(("nothing", "quiet", "pause", "stop", "off", "disabled", "cards")),
    )
    def the_engine_dies_before_a_session(self, by: DecidedBy, gap: int, meanwhile: str) -> None:
        """Between permit and session: it starts once, if it still may, or is pending again and costs nothing."""
        self._reset_to_quiet_morning()
        card = self._make_card("lint", "koji-core", 0.95)
        self.engine.cards.approvals._start = die  # type: ignore[method-assign]
        facts = self._present_facts()
        with suppress(Refusal, Died):
            self.engine.cards.approve(card, by=by)
        self._check_triggers(facts)
        self._meanwhile(meanwhile)
        self.clock.advance(timedelta(seconds=gap))
        before = self.seen_sessions
        self._restart()
        if self.seen_sessions > before:
            coverage_counts["session after a restart"] += 1
        else:
            held = self._query("SELECT 1 FROM cost_entries WHERE state = 'reserved' AND prediction_id = :id", id=card)
            assert not held, f"{card} never ran, and its reservation is kept"

    @rule()
    def the_engine_is_restarted(self) -> None:
        self._restart()

    # -- time, and what comes round

    @rule()
    def the_schedule_comes_round(self) -> None:
        schedule = self.engine.autonomy.schedule
        schedule.run(STATE)
        facts = self._present_facts()
        if schedule.due(ACT) <= self.clock.now():
            schedule.run(ACT)
            self._settle()
        self._check_executions(facts, cycle=True)

    @rule()
    def the_autonomous_cycle_comes_early(self) -> None:
        facts = self._present_facts()
        self.engine.autonomy.run_autonomous_cycle()
        self._settle()
        self._check_executions(facts, cycle=True)

    @rule(seconds=st.sampled_from(TIME_STEPS_S))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.engine.safety.kill_switch.poll()

    @rule()
    def the_operator_is_there(self) -> None:
        self.engine.autonomy.note_activity("key")
        self.heard_at = self.clock.now()

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def everything_is_well(self, kind: str, channel: str) -> None:
        """Nothing stands against acting at ten in the morning on a card that has earned it; other rules may."""
        self._reset_to_quiet_morning()
        self._earn_trust(kind, channel)
        self._make_card(kind, channel, 0.95)

    # -- holds and switches

    @rule(hours=st.sampled_from((None, 1, 3)))
    def do_not_disturb(self, hours: int | None) -> None:
        self.dnd_until = self.engine.autonomy.dnd(None if hours is None else timedelta(hours=hours))

    @rule()
    def stop(self) -> None:
        self.engine.safety.kill_switch.stop("F12", "test")

    @rule(word=st.sampled_from(("stop", "stop", "pause", "month")))
    def resume(self, word: str) -> None:
        self._try(lambda: self.engine.safety.kill_switch.resume(word))

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
        self._set_trigger_interval(interval)

    # -- what must hold

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        coverage_counts["steps"] += 1
        for window, spent in oracle.spent(self._query, self.clock.now()).items():
            assert spent <= CAPS[window], f"{spent} is more than the {window}'s {CAPS[window]}"
