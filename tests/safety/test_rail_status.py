"""What the safety screen reads of the rails: true to what they decide, and fast with a long log."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Autonomy, WorkspaceSettings
from engine.model import MICRO, RailState, StopLevel, Verdict
from engine.safety.cost import bucket_edges, burn
from engine.safety.stop_file import request_stop

from .helpers import WORKSPACE, Rails, approval, on, unattended

NOW = datetime(2026, 3, 10, 14, 12, tzinfo=UTC)


def rail(rails: Rails, name: str) -> RailState:
    return next(state for state in rails.safety.rails() if state.rail == name)


def level(rails: Rails, name: str) -> StopLevel:
    return next(stop_level for stop_level in rails.safety.levels() if stop_level.name == name)


def test_the_rate_limiter_says_until_when_it_waits(rails: Rails) -> None:
    began = rails.clock.now()
    assert rails.rule(unattended()).permit is not None
    assert rail(rails, "rate").until == began + timedelta(minutes=10)
    rails.clock.advance(timedelta(minutes=10))
    free = rail(rails, "rate")
    assert (free.verdict, free.brief, free.until, free.last_at) == (Verdict.ALLOW, "free", None, began)


def test_a_pause_says_until_when_it_holds_and_a_stop_has_no_end(rails: Rails) -> None:
    rails.database.write(lambda tx: rails.safety.kill_switch.place(tx, "pause", "3 rejections in a row"))
    paused = rail(rails, "kill")
    assert (paused.verdict, paused.until) == (Verdict.BLOCK, rails.clock.now() + timedelta(hours=2))
    rails.safety.stop("lunch", "operator")
    assert (rail(rails, "kill").brief, rail(rails, "kill").until) == ("stop", None)


def test_the_newest_decision_is_every_rails_last_word_and_the_first_that_stopped_counts(rails: Rails) -> None:
    rails.rule(approval("clean up with rm -rf /"))
    content, gate = rail(rails, "content"), rail(rails, "gate")
    assert content.last is not None
    assert content.last.verdict is Verdict.BLOCK
    assert content.last_at == rails.clock.now()
    assert (content.stopped, gate.stopped) == (1, 0)
    rails.clock.advance(timedelta(hours=24))
    assert rail(rails, "content").stopped == 0


def test_what_was_allowed_once_is_told_until_it_is_used(rails: Rails) -> None:
    trigger = approval("clean up with rm -rf /")
    rails.rule(trigger)
    assert not rails.safety.log()[0].lifted
    rails.safety.allow_once(trigger.prediction_id)
    assert rail(rails, "content").brief == "1 lifted"
    assert rails.safety.log(blocked_only=True)[0].lifted
    assert rails.rule(trigger).permit is not None
    assert rail(rails, "content").brief == "on"
    assert not rails.safety.log(blocked_only=True)[0].lifted


def test_whatever_stops_everything_is_told_and_a_pause_or_a_spent_month_is_none_of_it(rails: Rails, tmp_path) -> None:
    """SPEC 3.7: what was begun and costs elsewhere ends at every one of the four levels, and at no other hold."""
    switch = rails.safety.kill_switch
    for word in ("pause", "month"):
        rails.database.write(lambda tx, word=word: switch.place(tx, word, "the cap is reached"))
    assert switch.ask().verdict is Verdict.BLOCK
    assert switch.kill_reason() == ""
    rails.settings.change(cross_poll_enabled=False)
    assert switch.kill_reason() == "crossPollEnabled is false"
    rails.settings.change(cross_poll_enabled=True)
    switch.set_enabled(False)
    assert switch.kill_reason() == "switched off for this run"
    switch.set_enabled(True)
    request_stop(tmp_path / "data", "enough", "clawpy stop")
    switch.poll()
    assert switch.kill_reason() == "enough"
    rails.safety.resume("stop")
    assert switch.kill_reason() == ""
    rails.safety.stop("F12 pressed", "operator")
    assert switch.kill_reason() == "F12 pressed"


def test_the_four_levels_are_told_apart(rails: Rails, tmp_path) -> None:
    names = [stop_level.name for stop_level in rails.safety.levels()]
    assert names == ["config", "api", "key", "outside"]
    assert not any(stop_level.thrown for stop_level in rails.safety.levels())
    rails.safety.stop("F12 pressed", "operator")
    assert level(rails, "key").thrown
    assert not level(rails, "outside").thrown
    assert rail(rails, "kill").brief == "stop"
    rails.safety.resume("stop")
    request_stop(tmp_path / "data")
    rails.safety.kill_switch.poll()
    assert level(rails, "outside").thrown
    assert not level(rails, "key").thrown
    rails.safety.resume("stop")
    rails.safety.kill_switch.set_enabled(False)
    assert level(rails, "api").thrown
    rails.settings.change(cross_poll_enabled=False)
    assert level(rails, "config").thrown


def test_the_chain_tells_depth_runs_and_how_long_an_answer_is_blocked(rails: Rails) -> None:
    rails.rule(approval())
    rails.clock.advance(timedelta(minutes=10))
    rails.know_pairs(("koji-core", "garden"))
    assert rails.rule(on("garden", unattended(from_channel="koji-core"))).permit is not None
    newest, first = rails.safety.chain()
    assert (newest.from_channel, newest.to_channel, newest.depth, newest.runs) == ("koji-core", "garden", 2, 1)
    assert newest.answer_until == rails.clock.now() + timedelta(minutes=5)
    assert (first.from_channel, first.depth, first.runs, first.answer_until) == ("owner", 1, 0, None)
    rails.clock.advance(timedelta(minutes=5))
    assert rails.safety.chain(limit=1)[0].answer_until is None


def test_a_link_counts_the_links_of_its_own_workspace_alone(rails: Rails) -> None:
    elsewhere = "/srv/other"
    rails.settings.change(
        workspaces={path: WorkspaceSettings(autonomy=Autonomy.ACT) for path in (WORKSPACE, elsewhere)}
    )
    rails.know_pairs(("koji-core", "garden"))
    here = on("garden", unattended(from_channel="koji-core", force=True))
    there = replace(here, assignment=replace(here.assignment, workspace=elsewhere))
    for trigger in (there, here):
        assert rails.rule(trigger).permit is not None
    assert [(link.workspace, link.runs) for link in rails.safety.chain()] == [(WORKSPACE, 1), (elsewhere, 1)]


# Burn


def test_what_is_reserved_is_told_apart_from_what_was_spent(rails: Rails) -> None:
    rails.rule(approval(estimate=60_000))
    costs = rails.safety.costs
    entry = rails.database.write(lambda tx: costs.reserve_call(tx, "twin", 50_000))
    rails.database.write(lambda tx: costs.settle(tx, entry, 10_000))
    burns = [(burn.window, burn.spent, sum(burn.buckets), burn.reserved) for burn in costs.history()]
    assert burns == [(window, 10_000, 10_000, 60_000) for window in ("hour", "day", "month")]
    assert costs.settled_since(rails.clock.now() - timedelta(minutes=1)) == 10_000


def test_the_hour_has_five_minute_buckets_that_end_now() -> None:
    spent = [(NOW - timedelta(minutes=61), 9), (NOW - timedelta(hours=1), 1), (NOW - timedelta(minutes=3), 2), (NOW, 4)]
    hour = burn("hour", NOW, spent, 0, MICRO)
    assert hour.buckets == (1, *[0] * 10, 6)
    assert (hour.spent, hour.elapsed) == (7, 12)


@pytest.mark.parametrize(
    ("day", "buckets"), [("2026-03-28", 24), ("2026-03-29", 23), ("2026-10-25", 25)], ids=["plain", "spring", "autumn"]
)
def test_a_day_has_as_many_buckets_as_hours(day: str, buckets: int) -> None:
    local = datetime.fromisoformat(f"{day}T12:30").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    assert len(burn("day", local, [], 0, MICRO).buckets) == buckets
    assert len(bucket_edges("month", local)) == 32


def test_the_cap_is_reached_at_the_pace_of_late() -> None:
    day = burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 10 * MICRO)
    assert day.pace == MICRO
    assert day.reached_at == NOW + timedelta(hours=6)
    late = burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 14 * MICRO)
    assert late.reached_at is None  # midnight comes first
    assert burn("day", NOW, [], MICRO, MICRO).reached_at == NOW
    assert burn("day", NOW, [], 0, MICRO).reached_at is None


@given(
    st.lists(st.tuples(st.integers(0, 3600 * 24 * 9), st.integers(0, 5 * MICRO)), max_size=30),
    st.integers(0, 3 * MICRO),
    st.integers(0, 20 * MICRO),
    st.sampled_from(["hour", "day", "month"]),
)
def test_no_price_is_lost_and_the_cap_is_never_reached_in_the_past(
    ages: list[tuple[int, int]], reserved: int, cap: int, window: str
) -> None:
    spent = sorted((NOW - timedelta(seconds=age), amount) for age, amount in ages)
    result = burn(window, NOW, spent, reserved, cap)
    assert sum(result.buckets) == result.spent == sum(amount for at, amount in spent if at >= result.begin)
    assert result.reached_at is None or result.reached_at >= NOW
    if result.spent + reserved >= cap:
        assert result.reached_at == NOW
