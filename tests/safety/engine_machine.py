"""A state machine that makes the actions of operator, engine and time in any order, on the whole real engine.

`test_stateful` runs it. Each rule that lets something run compares it with what `oracle` allows (`execution_checks`). A
value that stands twice in `sampled_from` is chosen twice as often.
"""

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from engine.autonomy.autonomy import ACT_JOB, STATE_JOB
from engine.model import DecidedBy, DecisionSignal, Refusal
from tests.safety import oracle
from tests.safety.execution_checks import coverage_counts
from tests.safety.oracle import CAPS, DAY_CAP
from tests.safety.stateful_world import (
    CHANNELS,
    CONFIDENCES,
    GAPS_S,
    HINDRANCES,
    KINDS,
    LASTING_HINDRANCES,
    PRICES,
    PROMPTS,
    REMAINING_AMOUNTS,
    TIME_STEPS_S,
    Died,
    MachineWorld,
    die,
)


class EngineMachine(MachineWorld):
    """The rules: cards, decisions, prices, crashes, time, holds and switches. The steps that they share are in
    `MachineWorld`."""

    # -- cards and decisions

    @rule(
        kind=st.sampled_from(KINDS),
        channel=st.sampled_from(CHANNELS),
        confidence=st.sampled_from(CONFIDENCES),
        after=st.sampled_from(("owner", *CHANNELS)),
        prompt=st.sampled_from(PROMPTS),
    )
    def a_card_is_made(self, kind: str, channel: str, confidence: float, after: str, prompt: str):
        self.make_card(kind, channel, confidence, after, prompt)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS), count=st.sampled_from((1, 11, 20)))
    def trust_was_earned(self, kind: str, channel: str, count: int):
        self.record_decisions(DecisionSignal.APPROVED, kind, channel, count)

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def trust_was_lost(self, kind: str, channel: str):
        self.record_decisions(DecisionSignal.DISMISSED, kind, channel, 1)

    @rule(data=st.data())
    def the_operator_approves(self, data: st.DataObject):
        self.approve(self.choose_card(data), DecidedBy.OPERATOR)

    @rule(data=st.data())
    def something_approves_past_the_cycle(self, data: st.DataObject):
        """As autonomy, without the cycle's own questions: the rails alone must hold."""
        self.approve(self.choose_card(data), DecidedBy.AUTONOMY)

    @rule(data=st.data())
    def the_operator_dismisses(self, data: st.DataObject):
        self.try_to(lambda: self.engine.cards.dismiss(self.choose_card(data)))

    @rule(data=st.data())
    def the_operator_undoes(self, data: st.DataObject):
        self.try_to(lambda: self.engine.cards.undo(self.choose_card(data)))

    @rule(data=st.data())
    def the_operator_allows_it_once(self, data: st.DataObject):
        self.try_to(lambda: self.engine.safety.allow_once(self.choose_card(data)))

    @rule(
        path=st.lists(st.sampled_from(CHANNELS), min_size=2, max_size=6),
        gaps=st.lists(st.sampled_from(GAPS_S), min_size=5, max_size=5),
        interval=st.sampled_from((60_000, 60_000, 600_000)),
        price=st.sampled_from(PRICES[:3]),
    )
    def follow_ups_lead_from_channel_to_channel(self, path: list[str], gaps: list[int], interval: int, price: int):
        """The operator approves the first; each leads to the next, on a good morning and well earned."""
        self.reset_to_quiet_morning()
        self.price = price
        self.set_trigger_interval(interval)
        for channel in set(path):
            self.earn_trust("lint", channel)
        self.approve(self.make_card("lint", path[0], 0.95), DecidedBy.OPERATOR)
        for (before, channel), gap in zip(pairwise(path), gaps, strict=False):
            self.clock.advance(timedelta(seconds=gap))
            self.approve(self.make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(
        before=st.sampled_from(CHANNELS),
        channel=st.sampled_from(CHANNELS),
        gaps=st.lists(st.sampled_from(GAPS_S[:6]), min_size=4, max_size=4),
    )
    def the_same_step_is_made_again_and_again(self, before: str, channel: str, gaps: list[int]):
        self.reset_to_quiet_morning()
        self.set_trigger_interval(60_000)
        self.earn_trust("lint", channel)
        for gap in gaps:
            self.approve(self.make_card("lint", before, 0.95), DecidedBy.OPERATOR)
            self.clock.advance(timedelta(seconds=gap))
            self.approve(self.make_card("lint", channel, 0.95, before), DecidedBy.AUTONOMY)

    @rule(prompt=st.sampled_from(PROMPTS[3:]), by=st.sampled_from(tuple(DecidedBy)), again=st.booleans())
    def something_hostile_is_approved(self, prompt: str, by: DecidedBy, again: bool):
        self.reset_to_quiet_morning()
        card = self.make_card("lint", "koji-core", 0.95, prompt=prompt)
        self.approve(card, by)
        if again:
            self.try_to(lambda: self.engine.safety.allow_once(card))
            self.approve(card, by)

    @rule(hindrance=st.sampled_from(tuple(HINDRANCES)), by=st.sampled_from(tuple(DecidedBy)))
    def something_is_approved_though_it_must_not(self, hindrance: str, by: DecidedBy):
        self.reset_to_quiet_morning()
        HINDRANCES[hindrance](self)
        self.approve(self.make_card("lint", "koji-core", 0.95), by)

    # -- money

    @rule(price=st.sampled_from(PRICES))
    def runners_have_a_price(self, price: int):
        self.price = price

    @rule(estimate=st.sampled_from((*PRICES, 2_500_000)), price=st.sampled_from((None, None, *PRICES, "released")))
    def a_model_is_called(self, estimate: int, price: int | str | None):
        """A call outside of sessions, by the Twin or the judge. With None nobody settles it: the engine died, or the
        call still waits."""
        self.call_model(estimate, price)

    @rule(
        window=st.sampled_from(tuple(CAPS)),
        remaining=st.sampled_from(REMAINING_AMOUNTS),
        by=st.sampled_from(tuple(DecidedBy)),
    )
    def a_cap_is_almost_reached(self, window: str, remaining: int, by: DecidedBy):
        """So much is spent that `remaining` micro-dollars are left beside what the next trigger is thought to cost."""
        self.restart()  # what a call left reserved is settled, and counts in its windows only
        self.reset_to_quiet_morning()
        self._spend_up_to(window, CAPS[window] - self.usual_price("koji-core") - remaining)
        self.approve(self.make_card("lint", "koji-core", 0.95), by)

    def _spend_up_to(self, window: str, wanted: int):
        """Make calls until `wanted` micro-dollars are spent in a window. Hours and days pass where another cap needs
        them, but not beyond the 28th: a new month would begin with nothing spent."""
        for _ in range(40):
            spent = oracle.read_spent(self.query, self.clock.now())
            missing = wanted - spent[window]
            free = min(cap - spent[other] for other, cap in CAPS.items() if other != window)
            if missing <= 0 or self.clock.now().day == 28:
                return
            if free <= 0:
                self.clock.advance(timedelta(hours=1 if spent["day"] < DAY_CAP else 24))
                continue
            self.call_model(min(missing, free), min(missing, free))

    # -- crashes

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 16 * 60)),
        price=st.sampled_from(PRICES),
    )
    def the_engine_dies_in_a_session(self, by: DecidedBy, gap: int, price: int):
        """Between reserving and settling. The session then costs what was reserved, or more if more is known."""
        self.reset_to_quiet_morning()
        self.price = price
        self.dies = True
        self.approve(self.make_card("lint", "koji-core", 0.95), by)
        self.dies = False
        running_sessions = self.query("SELECT id, estimate_microusd FROM sessions WHERE state = 'running'")
        self.clock.advance(timedelta(seconds=gap))
        self.restart()
        for session, estimate in running_sessions:
            [(state,)] = self.query("SELECT state FROM sessions WHERE id = :id", id=session)
            assert state == "interrupted", f"{session} is {state} after a crash"
            [(cost_state, amount)] = self.query(
                "SELECT state, amount_microusd FROM cost_entries WHERE session_id = :id", id=session
            )
            assert cost_state == "settled"
            assert amount >= estimate, f"{session} may have spent {estimate}, and is said to have cost {amount}"
            coverage_counts["interrupted session"] += 1

    @rule(
        by=st.sampled_from((DecidedBy.OPERATOR, DecidedBy.AUTONOMY)),
        gap=st.sampled_from((0, 14 * 60, 15 * 60, 16 * 60)),
        hindrance=st.sampled_from(("", *LASTING_HINDRANCES)),
    )
    def the_engine_dies_before_a_session(self, by: DecidedBy, gap: int, hindrance: str):
        """Between permit and session. After the restart the session starts once, if it still may; else the card is
        pending again and costs nothing."""
        self.reset_to_quiet_morning()
        card = self.make_card("lint", "koji-core", 0.95)
        self.engine.approvals._start = die
        facts = self.checks.read_facts(self.clock.now())
        with suppress(Refusal, Died):
            self.engine.cards.approve(card, by=by)
        self.checks.check_triggers(facts)
        if hindrance:
            LASTING_HINDRANCES[hindrance](self)
        self.clock.advance(timedelta(seconds=gap))
        before = self.checks.seen_sessions
        self.restart()
        if self.checks.seen_sessions > before:
            coverage_counts["session after a restart"] += 1
        else:
            reserved = self.query(
                "SELECT 1 FROM cost_entries WHERE state = 'reserved' AND prediction_id = :id", id=card
            )
            assert not reserved, f"{card} never ran, and its reservation is kept"

    @rule()
    def the_engine_is_restarted(self):
        self.restart()

    # -- time, and what comes round

    @rule()
    def the_schedule_comes_round(self):
        schedule = self.engine.autonomy.schedule
        schedule.run(STATE_JOB)
        facts = self.checks.read_facts(self.clock.now())
        if schedule.find_next_run(ACT_JOB) <= self.clock.now():
            schedule.run(ACT_JOB)
            self.wait_for_sessions()
        self.checks.check_executions(facts, by_cycle=True)

    @rule()
    def the_autonomous_cycle_comes_early(self):
        facts = self.checks.read_facts(self.clock.now())
        self.engine.autonomy.run_autonomous_cycle()
        self.wait_for_sessions()
        self.checks.check_executions(facts, by_cycle=True)

    @rule(seconds=st.sampled_from(TIME_STEPS_S))
    def time_passes(self, seconds: int):
        self.clock.advance(timedelta(seconds=seconds))
        self.engine.safety.kill_switch.poll()

    @rule()
    def the_operator_is_there(self):
        self.engine.autonomy.note_activity()
        self.state.heard_at = self.clock.now()

    @rule(kind=st.sampled_from(KINDS), channel=st.sampled_from(CHANNELS))
    def everything_is_well(self, kind: str, channel: str):
        """At ten in the morning nothing hinders a card that has earned trust. A later rule may let it run."""
        self.reset_to_quiet_morning()
        self.earn_trust(kind, channel)
        self.make_card(kind, channel, 0.95)

    # -- holds and switches

    @rule(hours=st.sampled_from((None, 1, 3)))
    def do_not_disturb(self, hours: int | None):
        self.set_do_not_disturb(hours)

    @rule()
    def stop(self):
        self.engine.safety.kill_switch.stop("F12", "test")

    @rule(word=st.sampled_from(("stop", "stop", "pause", "month")))
    def resume(self, word: str):
        self.try_to(lambda: self.engine.safety.kill_switch.resume(word))

    @rule(on=st.booleans())
    def autonomous_mode(self, on: bool):
        self.set_autonomous_mode(on)

    @rule(on=st.sampled_from((True, True, False)))
    def cross_poll(self, on: bool):
        self.set_enabled(on)

    @rule(on=st.sampled_from((True, True, False)))
    def the_api_toggles(self, on: bool):
        self.enable_for_this_run(on)

    @rule(autonomy=st.sampled_from(("off", "cards", "act")))
    def the_workspace_may(self, autonomy: str):
        self.set_autonomy(autonomy)

    @rule(interval=st.sampled_from((60_000, 600_000)))
    def triggers_may_come_every(self, interval: int):
        self.set_trigger_interval(interval)

    # -- what must hold

    @invariant()
    def no_cap_is_exceeded(self):
        coverage_counts["steps"] += 1
        for window, spent in oracle.read_spent(self.query, self.clock.now()).items():
            assert spent <= CAPS[window], f"{spent} is more than the {window}'s {CAPS[window]}"
