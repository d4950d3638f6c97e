"""`clawpy stop` against processes that want to live, while the engine does nothing (SPEC 3.7)."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import Sandbox
from engine.execution.session_processes import get_pid_folder
from engine.home import Home
from tests.attacks.stopped_attack import CHILDREN, IGNORE_SIGNALS, Attack, run_clawpy_stop
from tests.attacks.victim import find_sleepers
from tests.support.helpers import wait_until

pytestmark = [
    pytest.mark.attack("stop"),
    pytest.mark.skipif(sys.platform != "linux", reason="there are no sessions to be found without an engine"),
]


@pytest.fixture
def attack(every_rung: Sandbox, outside: Path) -> Iterator[Attack]:
    running = Attack(outside, every_rung)
    yield running
    running.end()


@pytest.mark.long
@pytest.mark.parametrize("way", CHILDREN)
def test_stop_kills_every_child_of_a_stopped_engine(attack: Attack, way: str):
    attack.start(IGNORE_SIGNALS + CHILDREN[way], 20)
    before = len(attack.find_living())
    assert before >= 21
    document = run_clawpy_stop(attack.home)
    assert not find_sleepers(attack.seconds)
    assert not attack.find_living()
    assert document["killed"] == before
    assert document["left"] == []
    assert document["stopped"] == [attack.session]
    assert psutil.Process(attack.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.slow_attack
@pytest.mark.parametrize("group", ["its own group", "no group"])
def test_stop_kills_processes_that_fork_all_the_time(attack: Attack, group: str):
    """None of them lives long enough to be killed by a process id that was listed."""
    hydra = (
        "end = time.monotonic() + 60\n"  # so that it ends even if the test is killed
        "for _ in range(15):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while time.monotonic() < end:\n"
        "            if os.fork(): os._exit(0)\n"
        "            os.setsid(); time.sleep(0.001)\n"
        "        os._exit(0)\n"
    )
    attack.start(IGNORE_SIGNALS + hydra + "subprocess.Popen(['sleep', T])", 1)
    if group == "no group":
        for file in get_pid_folder(Home.locate(attack.home)).glob("*.group"):
            file.unlink()
    document = run_clawpy_stop(attack.home)
    assert not attack.find_living()
    assert not find_sleepers(attack.seconds)
    assert document["killed"]  # how many is chance


@pytest.mark.long
def test_stop_ends_two_sessions(every_rung: Sandbox, outside: Path):
    attacks = []
    for name in ("a", "b"):
        (outside / name).mkdir()
        attacks.append(Attack(outside / name, every_rung))
    home = outside / "a" / "home"
    attacks[1].root.joinpath("home").symlink_to(home)
    try:
        for session in attacks:
            session.start(CHILDREN["setsid"], 20)
        document = run_clawpy_stop(home)
        assert document["stopped"] == sorted(session.session for session in attacks)
        assert not any(session.find_living() for session in attacks)
    finally:
        for session in attacks:
            session.end()


@pytest.mark.long
def test_stop_in_a_copy_of_the_home_ends_nothing_of_the_original(attack: Attack):
    """The files that name the processes are copied with the home."""
    attack.start(CHILDREN["setsid"], 20)
    before = attack.find_living()
    copy = attack.root / "copy"
    shutil.copytree(attack.home, copy, symlinks=True)
    document = run_clawpy_stop(copy)
    assert attack.find_living() == before
    assert (document["killed"], document["stopped"]) == (0, [])


@pytest.mark.long
def test_stop_finds_nothing_of_a_killed_engine(attack: Attack):
    """An engine that is killed takes its sessions with it. A later stop finds nothing and forgets them."""
    attack.start(CHILDREN["all of it"], 20)
    attack.engine.kill()
    attack.engine.communicate()
    attack.engine = None
    wait_until(lambda: not find_sleepers(attack.seconds))
    document = run_clawpy_stop(attack.home)
    assert document["left"] == []
    assert not list(get_pid_folder(Home.locate(attack.home)).glob("*.command"))
