"""Three rejections in a row pause what runs by itself, for two hours or until it is resumed (SPEC 3.6, 7.1)."""

from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.learning.decisions.decisions import Decisions
from engine.model import DecidedBy, DecidedCard, DecisionSignal
from engine.safety.kill_switch import PAUSE, PAUSE_DURATION
from engine.storage.database import Database, Transaction
from tests.safety.rails import WORKSPACE, Rails, make_acting_settings, make_approval, make_rails, make_unattended


def test_the_third_rejection_in_a_row_pauses_and_resuming_starts_a_new_count(rails: Rails):
    rails.decisions.rejections = 2
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.list_hold_words() == []
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.list_hold_words() == ["pause"]
    assert rails.decide(make_unattended()).permit is None
    assert rails.decide(make_approval()).permit, "a pause does not stop what the operator approves"
    rails.kill_switch.resume("pause")
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.list_hold_words() == []
    assert rails.decide(make_unattended(prediction_id="b")).permit
    rails.decisions.rejections, rails.decisions.decisions = 6, 106
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.list_hold_words() == ["pause"]


def test_a_pause_ends_after_two_hours_and_starts_a_new_count(rails: Rails):
    rails.decisions.rejections = 3
    rails.write(rails.kill_switch.pause_after_rejections)
    rails.clock.advance(PAUSE_DURATION - timedelta(microseconds=1))
    assert rails.list_hold_words() != []
    assert rails.decide(make_unattended()).permit is None
    rails.clock.advance(timedelta(microseconds=1))
    assert rails.list_hold_words() == []
    assert rails.decide(make_unattended()).permit, "the rejections before the pause are forgiven"
    rails.write(rails.kill_switch.place, PAUSE, "test")
    rails.clock.advance(PAUSE_DURATION)
    assert rails.write(rails.kill_switch.place, PAUSE, "at its end another begins")


def test_undoing_an_older_decision_after_a_resume_changes_no_count_of_rejections(
    rails: Rails, database: Database, clock: FakeClock
):
    decisions = Decisions(database, clock)
    rails.kill_switch.decisions = decisions

    def decide(name: str, signal: DecisionSignal):
        card = DecidedCard(name, "lint", "koji-core", "/srv/shop", "lint", "lint", 0.5, DecidedBy.OPERATOR)

        def record(tx: Transaction):
            decisions.record(tx, signal, card)
            rails.kill_switch.pause_after_rejections(tx)

        database.write(record)

    decide("older", DecisionSignal.APPROVED)
    for name in "abc":
        decide(name, DecisionSignal.DISMISSED)
    assert rails.list_hold_words() == [PAUSE]
    rails.kill_switch.resume(PAUSE)
    database.write(lambda tx: decisions.take_back(tx, "older"))
    decide("d", DecisionSignal.DISMISSED)
    decide("e", DecisionSignal.DISMISSED)
    assert rails.list_hold_words() == []
    decide("f", DecisionSignal.DISMISSED)
    assert rails.list_hold_words() == [PAUSE], "the third since the resume"


@pytest.mark.parametrize("enabled, autonomy", [(False, WorkspaceAutonomy.ACT), (True, WorkspaceAutonomy.CARDS)])
def test_rejections_pause_nothing_where_nothing_runs_by_itself(
    rails: Rails, enabled: bool, autonomy: WorkspaceAutonomy
):
    rails.settings.current = Settings(
        autonomous_mode_enabled=enabled, workspaces={WORKSPACE: WorkspaceSettings(autonomy=autonomy)}
    )
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.list_hold_words() == []
    assert rails.decide(make_unattended()).permit is None, "what a program asks for waits for the operator all the same"
    assert rails.list_hold_words() == []
    rails.settings.current = make_acting_settings()
    assert rails.decide(make_unattended()).permit is None
    assert rails.list_hold_words() == [PAUSE], "once something may run, its first try pauses it"


def test_who_ended_the_last_pause_is_known_after_a_restart(database: Database, clock: FakeClock, tmp_path: Path):
    changes = []
    rails = make_rails(database, clock, tmp_path, on_change=lambda: changes.append(1))
    kill_switch = rails.kill_switch
    for by_operator in (True, False):
        assert rails.write(kill_switch.place, PAUSE, "test")
        clock.advance(PAUSE_DURATION - timedelta(microseconds=1))
        assert not rails.write(kill_switch.place, PAUSE, "another"), "it lasts still"
        if by_operator:
            kill_switch.resume(PAUSE)
        else:
            clock.advance(timedelta(microseconds=1))
            kill_switch.poll()
        kill_switch.stop("F12", "console")
        kill_switch.resume("stop")
        restarted = make_rails(database, clock, tmp_path).kill_switch
        assert kill_switch.was_resumed_by_operator() is restarted.was_resumed_by_operator() is by_operator
    assert len(changes) == 8, "whoever shows the state hears of each change at once"
