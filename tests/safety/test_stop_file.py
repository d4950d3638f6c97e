"""The file by which `clawpy stop` stops an engine from outside (SPEC 3.7)."""

from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import Refusal
from engine.safety import stop_file
from engine.storage.database import Database
from tests.safety.rails import Rails, make_rails
from tests.support.helpers import wait_until


def test_a_stop_file_blocks_at_once_and_becomes_a_hold(rails: Rails, tmp_path: Path):
    rails.kill_switch.start()
    file = stop_file.request_stop(tmp_path / "data", "the demo \x1b[31mwent wrong", "ann")
    assert rails.kill_switch.current_verdict().verdict == "block"
    wait_until(lambda: rails.stopped)
    wait_until(lambda: not file.exists())
    assert [(hold.word, hold.reason, hold.by) for hold in rails.kill_switch.holds()] == [
        ("stop", "the demo went wrong", "ann")
    ]
    rails.kill_switch.resume("stop")
    assert rails.kill_switch.current_verdict().verdict == "allow"


def test_an_empty_stop_file_found_at_start_is_adopted(database: Database, clock: FakeClock, tmp_path: Path):
    (tmp_path / "STOP").touch()
    rails = make_rails(database, clock, tmp_path)
    assert rails.find_blocking_rule().startswith("kill:stop-file")
    rails.kill_switch.start()
    try:
        assert [(hold.word, hold.by) for hold in rails.kill_switch.holds()] == [("stop", "outside")]
    finally:
        rails.kill_switch.close()


def test_a_folder_that_cannot_be_searched_counts_as_a_stop(tmp_path: Path):
    (tmp_path / "data").touch()
    assert stop_file.is_requested(tmp_path / "data" / "STOP")


def test_resume_removes_a_stop_file_or_says_that_it_cannot(rails: Rails, tmp_path: Path):
    file = stop_file.request_stop(tmp_path / "data", "enough", "ann")
    rails.kill_switch.resume("stop")
    assert not file.exists()
    assert rails.find_blocking_rule() == ""
    file.mkdir()
    with pytest.raises(Refusal, match="cannot be removed"):
        rails.kill_switch.resume("stop")
    assert rails.find_blocking_rule() == "kill:stop-file"
