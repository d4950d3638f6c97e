"""Three rejections in a row pause the engine for two hours, where it may act by itself (SPEC 3.6)."""

from datetime import timedelta

import pytest

from engine.config.settings import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.model import HoldKind
from engine.safety.kill_switch import PAUSE_DURATION
from tests.safety.rails import WORKSPACE, Rails, make_acting_settings, make_approval, make_unattended


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
    rails.write(rails.kill_switch.place, HoldKind.PAUSE, "test")
    rails.clock.advance(PAUSE_DURATION)
    assert rails.write(rails.kill_switch.place, HoldKind.PAUSE, "at its end another begins")


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
    assert rails.list_hold_words() == ["pause"], "once something may run, its first try pauses it"
