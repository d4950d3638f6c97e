"""The kill switch (SPEC 3.7): four levels, what each ends and blocks, the file by which `clawpy stop` stops, and
holds that end by their own word alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import HoldKind, Refusal, Verdict
from engine.safety import is_stop_requested, kill_switch, request_stop
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.safety.rails import Rails, make_approval, make_rails
from tests.support.checks import refused, wait_until

LEVELS: dict[str, tuple[Callable[[Rails], object], Callable[[Rails], object], str, str]] = {
    "config": (
        lambda rails: rails.settings.change(cross_poll_enabled=False),
        lambda rails: rails.settings.change(cross_poll_enabled=True),
        "config",
        "crossPollEnabled is false",
    ),
    "api": (
        lambda rails: rails.kill_switch.set_enabled(False),
        lambda rails: rails.kill_switch.resume("api"),
        "api",
        "switched off for this run",
    ),
    "key": (
        lambda rails: rails.kill_switch.stop("F12 pressed", "operator"),
        lambda rails: rails.kill_switch.resume("stop"),
        "stop",
        "F12 pressed",
    ),
    "outside": (
        lambda rails: request_stop(rails.data, "enough", "ann"),
        lambda rails: rails.kill_switch.resume("stop"),
        "stop",
        "enough",
    ),
}
"""By level: what activates it, what ends it, the rule that then blocks, and the reason."""


def test_a_switch_in_the_settings_is_announced_once(database: Database, clock: FakeClock, tmp_path: Path):
    announced = []
    rails = make_rails(database, clock, tmp_path, on_change=lambda: announced.append(1))
    rails.settings.change(cross_poll_enabled=False)
    rails.kill_switch.poll()
    rails.kill_switch.poll()
    assert announced == [1]


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_blocks_ends_running_sessions_and_is_shown(rails: Rails, level: str):
    activate, end, rule, reason = LEVELS[level]
    activate(rails)
    rails.kill_switch.poll()
    assert rails.find_blocking_rule() == f"kill:{rule}"
    assert len(rails.stopped) == 1
    assert rails.kill_switch.find_session_end_reason() == reason
    assert [shown.name for shown in rails.kill_switch.list_levels() if shown.is_active] == [level]
    end(rails)
    assert (rails.find_blocking_rule(), rails.kill_switch.find_session_end_reason()) == ("", "")
    assert not any(shown.is_active for shown in rails.kill_switch.list_levels())


def test_the_setting_is_a_hold_that_only_the_setting_ends(rails: Rails):
    rails.settings.change(cross_poll_enabled=False)
    rails.kill_switch.poll()
    assert rails.list_hold_words() == ["config"]
    with pytest.raises(Refusal, match="crossPollEnabled is false") as raised:
        rails.kill_switch.resume("config")
    assert "clawpy config set crossPollEnabled true" in raised.value.fix


def test_a_pause_and_a_month_stop_end_no_running_session(rails: Rails):
    for word in ("pause", "month"):
        rails.write(rails.kill_switch.place, word, "the cap is reached")
    assert rails.kill_switch.decide_now().verdict is Verdict.BLOCK
    assert rails.kill_switch.find_session_end_reason() == ""


def test_a_switch_is_off_although_sessions_cannot_be_ended_and_ends_them_later(rails: Rails):
    rails.cannot_stop = True
    rails.kill_switch.set_enabled(False)
    assert rails.find_blocking_rule() == "kill:api"
    rails.cannot_stop = False
    rails.kill_switch.poll()
    assert len(rails.stopped) == 1


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_stop_holds_when_the_database_does_not_answer(
    rails: Rails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_is_full: bool
):
    def fail(*_: object):
        raise OSError("No space left on device")

    if disk_is_full:
        monkeypatch.setattr(kill_switch, "request_stop", fail)
    rails.database.close()
    with pytest.raises(Refusal):
        rails.kill_switch.stop("F12", "console")
    assert rails.stopped == ["F12"]
    verdict = rails.kill_switch.decide_now(by_operator=True)
    assert (verdict.verdict, verdict.reason) == ("block", "F12")
    assert (tmp_path / "data" / "STOP").exists() is not disk_is_full, "the file outlives the engine"
    assert [(hold.word, hold.reason, hold.by) for hold in rails.kill_switch.list_holds()] == [
        ("stop", "F12", "console")
    ]


def test_a_permit_is_not_consumed_while_stopped(rails: Rails):
    permit = rails.decide(make_approval()).permit
    rails.kill_switch.stop("F12", "console")
    refused("stopped", lambda: rails.write(rails.safety.permits.consume, permit, permit.digest))
    rails.kill_switch.resume("stop")
    rails.write(rails.safety.permits.consume, permit, permit.digest)


def test_each_hold_ends_by_its_own_word_only(rails: Rails):
    rails.kill_switch.stop("F12", "console")
    rails.write(rails.kill_switch.place, HoldKind.PAUSE, "test")
    with pytest.raises(Refusal, match="month"):
        rails.kill_switch.resume("month")
    with pytest.raises(Refusal, match="no stop or pause called 'everything'"):
        rails.kill_switch.resume("everything")
    rails.kill_switch.resume("pause")
    assert rails.list_hold_words() == ["stop"]
    rails.kill_switch.resume("stop")
    assert rails.list_hold_words() == []
    with pytest.raises(Refusal, match="`stop` is not active; nothing is"):
        rails.kill_switch.resume("stop")
    kinds = [entry.kind for entry in Ledger(rails.database).read_newest(kinds=("HoldPlaced", "HoldLifted"))]
    assert sorted(kinds) == ["HoldLifted", "HoldLifted", "HoldPlaced", "HoldPlaced"]


def test_a_stop_file_blocks_at_once_and_becomes_a_hold(rails: Rails, tmp_path: Path):
    rails.kill_switch.start()
    file = request_stop(tmp_path / "data", "the demo \x1b[31mwent wrong", "ann")
    assert rails.kill_switch.decide_now().verdict == "block"
    wait_until(lambda: rails.stopped)
    wait_until(lambda: not file.exists())
    assert [(hold.word, hold.reason, hold.by) for hold in rails.kill_switch.list_holds()] == [
        ("stop", "the demo went wrong", "ann")
    ]
    rails.kill_switch.resume("stop")
    assert rails.kill_switch.decide_now().verdict == "allow"


def test_an_empty_stop_file_found_at_start_is_adopted(database: Database, clock: FakeClock, tmp_path: Path):
    (tmp_path / "STOP").touch()
    rails = make_rails(database, clock, tmp_path)
    assert rails.find_blocking_rule().startswith("kill:stop-file")
    rails.kill_switch.start()
    try:
        assert [(hold.word, hold.by) for hold in rails.kill_switch.list_holds()] == [("stop", "outside")]
    finally:
        rails.kill_switch.close()


def test_a_folder_that_cannot_be_searched_counts_as_a_stop(tmp_path: Path):
    (tmp_path / "data").touch()
    assert is_stop_requested(tmp_path / "data" / "STOP")


def test_resume_removes_a_stop_file_or_says_that_it_cannot(rails: Rails, tmp_path: Path):
    file = request_stop(tmp_path / "data", "enough", "ann")
    rails.kill_switch.resume("stop")
    assert not file.exists()
    assert rails.find_blocking_rule() == ""
    file.mkdir()
    with pytest.raises(Refusal, match="cannot be removed"):
        rails.kill_switch.resume("stop")
    assert rails.find_blocking_rule() == "kill:stop-file"
