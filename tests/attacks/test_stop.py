"""`clawpy stop` against processes that want to live, while the engine does nothing (SPEC 3.7)."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import SESSION_MARK, Sandbox
from engine.execution.session_processes import get_pid_folder
from engine.home import Home
from tests.attacks.hostile_children import CHILDREN, IGNORE_SIGNALS, StoppedEngine, run_clawpy_stop
from tests.attacks.marks import find_sleepers

pytestmark = [
    pytest.mark.attack("stop"),
    pytest.mark.skipif(sys.platform != "linux", reason="there are no sessions to be found without an engine"),
]


@pytest.fixture
def attack(every_rung: Sandbox, outside: Path) -> Iterator[StoppedEngine]:
    running = StoppedEngine(outside, every_rung)
    yield running
    running.end()


@pytest.mark.long
@pytest.mark.parametrize("way", CHILDREN)
def test_stop_kills_every_child_of_a_stopped_engine(attack: StoppedEngine, way: str):
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
def test_stop_kills_processes_that_fork_all_the_time(attack: StoppedEngine, group: str):
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


def _read_stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def _make_earlier_stat(pid: int) -> str:
    head, _, tail = _read_stat(pid).rpartition(")")
    fields = tail.split()
    fields[19] = str(int(fields[19]) - 1)
    return f"{head}) {' '.join(fields)}"


FORGED_FILES: dict[str, tuple[str, Callable[[int], str]]] = {
    "its number and its beginning": ("sess_x.1.command", _read_stat),
    "its number alone": ("sess_x.1.command", str),
    "another beginning": ("sess_x.1.command", _make_earlier_stat),
    "an empty session": (".1.command", _read_stat),
    "a number below zero": ("sess_x.1.command", lambda pid: f"-{pid} (sleep) S" + " 1" * 40),
    "bytes": ("sess_x.1.command", lambda pid: "\xff\0" * 10_000),
    "the root of groups": ("sess_x.group", lambda pid: "/sys/fs/cgroup"),
}
"""By what is forged: the file's name, and its content for the id of a process."""


@pytest.fixture
def pids(outside: Path) -> Path:
    """The folder in which the engine of `outside`/home keeps the processes of its sessions."""
    folder = get_pid_folder(Home.locate(outside / "home"))
    folder.mkdir(parents=True)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name, content", FORGED_FILES.values(), ids=FORGED_FILES)
def test_a_forged_pid_file_kills_no_other_process(
    outside: Path, pids: Path, other_process: subprocess.Popen[bytes], name: str, content: Callable[[int], str]
):
    (pids / name).write_bytes(content(other_process.pid).encode("latin-1"))
    os.mkfifo(pids / "sess_y.1.command")  # nothing waits for it
    document = run_clawpy_stop(outside / "home")
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING
    assert (document["killed"], document["left"]) == (0, [])


@pytest.mark.long
def test_a_reused_process_id_is_not_killed(outside: Path, pids: Path):
    """The process that the file names is gone. The one that has its id now carries the mark of a session."""
    with subprocess.Popen(["sleep", "60"], env={SESSION_MARK: "sess_other"}) as process:
        (pids / "sess_x.1.command").write_text(_make_earlier_stat(process.pid))
        run_clawpy_stop(outside / "home")
        assert process.poll() is None
        process.kill()
