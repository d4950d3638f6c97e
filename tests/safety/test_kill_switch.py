"""SPEC 3.7: four levels, three holds that are each ended by their own word, and a stop that survives a crash and a
restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import Settings, WorkspaceAutonomy, WorkspaceSettings
from engine.learning.decisions.decisions import Decisions
from engine.model import DecidedBy, DecidedCard, DecisionSignal, Refusal, Verdict
from engine.safety import stop_file
from engine.safety.kill_switch import PAUSE, PAUSE_DURATION
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from tests.safety.helpers import WORKSPACE, Rails, acting_settings, make_approval, make_rails, make_unattended
from tests.support.helpers import refused, wait_until


def find_blocking_rule(rails: Rails) -> str:
    """RAIL:RULE that blocks an approval; "" if none does."""
    ruling = rails.decide(make_approval())
    return "" if ruling.blocked_by is None else f"{ruling.blocked_by.rail}:{ruling.blocked_by.rule}"


def request_stop_from_outside(rails: Rails) -> None:
    stop_file.request_stop(rails.data, "enough", "ann")


# Levels and holds


@pytest.mark.parametrize(
    ("level", "throw", "end", "rule", "reason"),  # `throw` activates the level, `end` ends it
    [
        (
            "config",
            lambda rails: rails.settings.change(cross_poll_enabled=False),
            lambda rails: rails.settings.change(cross_poll_enabled=True),
            "config",
            "crossPollEnabled is false",
        ),
        (
            "api",
            lambda rails: rails.kill_switch.set_enabled(False),
            lambda rails: rails.kill_switch.set_enabled(True),
            "api",
            "switched off for this run",
        ),
        (
            "key",
            lambda rails: rails.kill_switch.stop("F12 pressed", "operator"),
            lambda rails: rails.kill_switch.resume("stop"),
            "stop",
            "F12 pressed",
        ),
        ("outside", request_stop_from_outside, lambda rails: rails.kill_switch.resume("stop"), "stop", "enough"),
    ],
    ids=["config", "api", "key", "outside"],
)
def test_each_level_blocks_ends_running_sessions_and_is_shown(
    rails: Rails,
    level: str,
    throw: Callable[[Rails], None],
    end: Callable[[Rails], None],
    rule: str,
    reason: str,
) -> None:
    throw(rails)
    rails.kill_switch.poll()
    assert find_blocking_rule(rails) == f"kill:{rule}"
    assert len(rails.stopped) == 1
    assert rails.kill_switch.kill_reason() == reason
    assert [shown.name for shown in rails.kill_switch.levels() if shown.thrown] == [level]
    end(rails)
    assert (find_blocking_rule(rails), rails.kill_switch.kill_reason()) == ("", "")
    assert not any(shown.thrown for shown in rails.kill_switch.levels())


def test_a_pause_and_a_month_stop_end_no_running_session(rails: Rails) -> None:
    for word in ("pause", "month"):
        rails.write(rails.kill_switch.place, word, "the cap is reached")
    assert rails.kill_switch.current_verdict().verdict is Verdict.BLOCK
    assert rails.kill_switch.kill_reason() == ""


def test_a_switch_is_off_although_sessions_cannot_be_ended_and_ends_them_later(rails: Rails) -> None:
    def fail(reason: str) -> None:
        raise OSError("a process could not be reached")

    rails.kill_switch._stop_sessions = fail
    rails.kill_switch.set_enabled(False)
    assert find_blocking_rule(rails) == "kill:api"
    rails.kill_switch._stop_sessions = rails.stopped.append
    rails.kill_switch.poll()
    assert len(rails.stopped) == 1


def test_the_switch_of_the_gateway_and_the_setting_are_holds_and_only_the_first_is_resumed(
    rails: Rails, clock: FakeClock
) -> None:
    rails.settings.change(cross_poll_enabled=False)
    rails.kill_switch.poll()
    clock.advance(timedelta(minutes=30))
    rails.kill_switch.set_enabled(False)
    holds = [(hold.word, hold.since) for hold in rails.kill_switch.holds()]
    assert holds == [("config", None), ("api", clock.now())], "the settings do not say when they were changed"
    with pytest.raises(Refusal, match="crossPollEnabled is false") as refused:
        rails.kill_switch.resume("config")
    assert "clawpy config set crossPollEnabled true" in refused.value.fix
    rails.kill_switch.resume("api")
    assert find_blocking_rule(rails) == "kill:config"
    rails.settings.change(cross_poll_enabled=True)
    assert rails.kill_switch.holds() == []
    with pytest.raises(Refusal, match="not active"):
        rails.kill_switch.resume("api")


def test_a_stop_survives_a_restart(rails: Rails, database: Database, clock: FakeClock, tmp_path: Path) -> None:
    rails.kill_switch.stop("F12", "console")
    restarted = make_rails(database, clock, tmp_path / "data")
    assert restarted.hold_words() == ["stop"]
    assert find_blocking_rule(restarted) == "kill:stop"


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_stop_holds_when_the_database_does_not_answer(
    rails: Rails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_is_full: bool
) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    if disk_is_full:
        monkeypatch.setattr(stop_file, "request_stop", fail)
    rails.database.close()
    with pytest.raises(Refusal):
        rails.kill_switch.stop("F12", "console")
    assert rails.stopped == ["F12"]
    assert rails.kill_switch.current_verdict(by_operator=True).verdict == "block"
    assert (tmp_path / "data" / "STOP").exists() is not disk_is_full, "the file outlives the engine"


def test_a_permit_is_not_consumed_while_stopped(rails: Rails) -> None:
    permit = rails.decide(make_approval()).permit
    assert permit
    rails.kill_switch.stop("F12", "console")
    refused("stopped", lambda: rails.write(rails.safety.permits.consume, permit, permit.digest))
    rails.kill_switch.resume("stop")
    rails.write(rails.safety.permits.consume, permit, permit.digest)


def test_each_hold_ends_by_its_own_word_only(rails: Rails) -> None:
    rails.kill_switch.stop("F12", "console")
    rails.write(rails.kill_switch.place, PAUSE, "test")
    with pytest.raises(Refusal, match="month"):
        rails.kill_switch.resume("month")
    with pytest.raises(Refusal, match="no stop or pause called 'everything'"):
        rails.kill_switch.resume("everything")
    rails.kill_switch.resume("pause")
    assert rails.hold_words() == ["stop"]
    rails.kill_switch.resume("stop")
    assert rails.hold_words() == []
    with pytest.raises(Refusal, match="`stop` is not active; nothing is"):
        rails.kill_switch.resume("stop")
    kinds = [entry.kind for entry in Ledger(rails.database).latest(kinds=("HoldPlaced", "HoldLifted"))]
    assert sorted(kinds) == ["HoldLifted", "HoldLifted", "HoldPlaced", "HoldPlaced"]


# Stop files


def test_a_stop_file_blocks_at_once_and_becomes_a_hold(rails: Rails, tmp_path: Path) -> None:
    ended = threading.Event()
    rails.kill_switch._stop_sessions = lambda reason: ended.set()
    rails.kill_switch.start()
    file = stop_file.request_stop(tmp_path / "data", "the demo \x1b[31mwent wrong", "ann")
    assert rails.kill_switch.current_verdict().verdict == "block"
    assert ended.wait(10)
    wait_until(lambda: not file.exists())
    assert [(hold.word, hold.reason, hold.by) for hold in rails.kill_switch.holds()] == [
        ("stop", "the demo went wrong", "ann")
    ]
    rails.kill_switch.resume("stop")
    assert rails.kill_switch.current_verdict().verdict == "allow"


def test_an_empty_stop_file_found_at_start_is_adopted(database: Database, clock: FakeClock, tmp_path: Path) -> None:
    (tmp_path / "STOP").touch()
    rails = make_rails(database, clock, tmp_path)
    assert find_blocking_rule(rails).startswith("kill:stop-file")
    rails.kill_switch.start()
    try:
        assert [(hold.word, hold.by) for hold in rails.kill_switch.holds()] == [("stop", "outside")]
    finally:
        rails.kill_switch.close()


def test_a_folder_that_cannot_be_searched_counts_as_a_stop(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert stop_file.is_requested(tmp_path / "data" / "STOP")


def test_resume_removes_a_stop_file_or_says_that_it_cannot(rails: Rails, tmp_path: Path) -> None:
    file = stop_file.request_stop(tmp_path / "data")
    rails.kill_switch.resume("stop")
    assert (file.exists(), find_blocking_rule(rails)) == (False, "")
    file.mkdir()
    with pytest.raises(Refusal, match="cannot be removed"):
        rails.kill_switch.resume("stop")
    assert find_blocking_rule(rails) == "kill:stop-file"


# Pauses after rejections


def test_the_third_rejection_in_a_row_pauses_and_resuming_starts_a_new_count(rails: Rails) -> None:
    rails.decisions.rejections = 2
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.hold_words() == []
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.hold_words() == ["pause"]
    assert rails.decide(make_unattended()).permit is None
    assert rails.decide(make_approval()).permit, "a pause does not stop what the operator approves"
    rails.kill_switch.resume("pause")
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.hold_words() == []
    assert rails.decide(make_unattended(prediction_id="b")).permit
    rails.decisions.rejections, rails.decisions.decisions = 6, 106
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.hold_words() == ["pause"]


def test_a_pause_ends_after_two_hours_and_starts_a_new_count(rails: Rails) -> None:
    rails.decisions.rejections = 3
    rails.write(rails.kill_switch.pause_after_rejections)
    rails.clock.advance(PAUSE_DURATION - timedelta(microseconds=1))
    assert rails.hold_words() != []
    assert rails.decide(make_unattended()).permit is None
    rails.clock.advance(timedelta(microseconds=1))
    assert rails.hold_words() == []
    assert rails.decide(make_unattended()).permit, "the rejections before the pause are forgiven"
    rails.write(rails.kill_switch.place, PAUSE, "test")
    rails.clock.advance(PAUSE_DURATION)
    assert rails.write(rails.kill_switch.place, PAUSE, "at its end another begins")


def test_undoing_an_older_decision_after_a_resume_changes_no_count_of_rejections(
    rails: Rails, database: Database, clock: FakeClock
) -> None:
    decisions = Decisions(database, clock)
    rails.kill_switch.decisions = decisions

    def decide(name: str, signal: DecisionSignal) -> None:
        card = DecidedCard(name, "lint", "koji-core", "/srv/shop", "lint", "lint", 0.5, DecidedBy.OPERATOR)

        def record(tx: Transaction) -> None:
            decisions.record(tx, signal, card)
            rails.kill_switch.pause_after_rejections(tx)

        database.write(record)

    decide("older", DecisionSignal.APPROVED)
    for name in "abc":
        decide(name, DecisionSignal.DISMISSED)
    assert rails.hold_words() == [PAUSE]
    rails.kill_switch.resume(PAUSE)
    database.write(lambda tx: decisions.take_back(tx, "older"))
    decide("d", DecisionSignal.DISMISSED)
    decide("e", DecisionSignal.DISMISSED)
    assert rails.hold_words() == []
    decide("f", DecisionSignal.DISMISSED)
    assert rails.hold_words() == [PAUSE], "the third since the resume"


@pytest.mark.parametrize(("enabled", "autonomy"), [(False, WorkspaceAutonomy.ACT), (True, WorkspaceAutonomy.CARDS)])
def test_rejections_pause_nothing_where_nothing_runs_by_itself(
    rails: Rails, enabled: bool, autonomy: WorkspaceAutonomy
) -> None:
    rails.settings.current = Settings(
        autonomous_mode_enabled=enabled, workspaces={WORKSPACE: WorkspaceSettings(autonomy=autonomy)}
    )
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.write(rails.kill_switch.pause_after_rejections)
    assert rails.hold_words() == []
    assert rails.decide(make_unattended()).permit is None, "what a program asks for waits for the operator all the same"
    assert rails.hold_words() == []
    rails.settings.current = acting_settings()
    assert rails.decide(make_unattended()).permit is None
    assert rails.hold_words() == [PAUSE], "once something may run, its first try pauses it"


def test_who_ended_the_last_pause_is_known_after_a_restart(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    changes: list[int] = []
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
