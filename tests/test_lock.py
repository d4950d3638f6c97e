"""A home has only one engine (SPEC 7.5). That the lock ends with its process is tested with a real one."""

import sys
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.home import Home
from engine.lock import HomeLock, read_holder
from engine.model import Refusal
from tests.support.checks import refused
from tests.support.programs import run_beside

HOLD_UNTIL_KILLED = """
import sys
from engine.clock import SystemClock
from engine.home import Home
from engine.lock import HomeLock
lock = HomeLock(Home.locate(sys.argv[1]), clock=SystemClock())
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_folders_of_a_home_are_private(home: Home, clock: FakeClock):
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    for folder in (home.config, home.data, home.cache, home.logs):
        assert folder.stat().st_mode & 0o777 == 0o700
    lock.release()
    lock.release()
    assert read_holder(home) is None


@pytest.mark.long
def test_kill_dash_nine_frees_the_home(home: Home, clock: FakeClock):
    with run_beside([sys.executable, "-c", HOLD_UNTIL_KILLED, str(home.root)], Path.cwd()) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Refusal, match=f"process id {holder.pid}, running since 20"):
            HomeLock(home, clock=clock).acquire()
        holder.kill()
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "since": 3}'])
def test_a_damaged_file_of_the_holder_harms_nothing(home: Home, clock: FakeClock, text: str):
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    (home.data / "engine.json").write_text(text)
    assert read_holder(home) is None
    assert "is starting" in refused("home_held", HomeLock(home, clock=clock).acquire).message
    lock.release()
