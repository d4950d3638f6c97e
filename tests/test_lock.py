"""A home has only one engine (SPEC 7.5). That the lock ends with its process is tested with a real one."""

import signal
import subprocess
import sys
import threading

import pytest

from engine import Engine, open_engine
from engine.clock import FakeClock
from engine.home import Home
from engine.lock import HomeLock, read_holder
from engine.model import Refusal
from engine.services import foundation
from tests.support.checks import refused

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
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_KILLED, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Refusal, match=f"process id {holder.pid}, running since 20"):
        HomeLock(home, clock=clock).acquire()
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    lock.release()


def test_a_failing_service_leaves_the_home_free(home: Home, shop_engine: Engine, monkeypatch: pytest.MonkeyPatch):
    threads = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(shop_engine.notify, "close", None)
        patched.setattr(foundation, "MemoryService", None)
        for act in (shop_engine.close, lambda: open_engine(home)):
            with pytest.raises(TypeError):
                act()
    assert read_holder(home) is None
    assert set(threading.enumerate()) < threads, "the database of the second one is closed, too"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "since": 3}'])
def test_a_damaged_file_of_the_holder_harms_nothing(home: Home, clock: FakeClock, text: str):
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    (home.data / "engine.json").write_text(text)
    assert read_holder(home) is None
    assert "is starting" in refused("home_held", HomeLock(home, clock=clock).acquire).message
    lock.release()
