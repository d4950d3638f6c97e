"""Attacks on `clawpy stop`: an engine that does nothing, and processes that want to live or to have others killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.execution.sandbox import SESSION_MARK, Sandbox
from engine.execution.session_processes import find_parent_group, get_pid_folder
from engine.home import Home
from tests.attacks.victim import find_sleepers, make_unique_seconds
from tests.support.helpers import wait_until

pytestmark = [
    pytest.mark.attack("stop"),
    pytest.mark.skipif(sys.platform != "linux", reason="there are no sessions to be found without an engine"),
]


def run_clawpy_stop(home: Path) -> dict[str, Any]:
    """The JSON document of the real program."""
    completed = subprocess.run(
        [sys.executable, "-m", "clawpy_console", "--home", str(home), "stop", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


@dataclass
class Attack:
    """An engine that runs one hostile command and is then stopped by SIGSTOP."""

    root: Path
    rung: Sandbox
    session: str = field(default_factory=lambda: f"sess_{uuid.uuid4().hex[:12]}")
    seconds: str = field(default_factory=make_unique_seconds)
    """The argument of `sleep` by which the command's children are found."""
    engine: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.root / "home"

    def start(self, code: str, children: int) -> None:
        """Have it run `code` until it has `children` that carry `seconds`, and stop the engine."""
        imports = "import os, signal, subprocess, time"
        code = f"{imports}\nT = {self.seconds!r}\n{code}\nprint('ready', flush=True)\ntime.sleep(600)"
        arguments = [str(self.home), str(self.root), self.rung.name, self.session, code]
        self.engine = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.stopped_engine", *arguments], stdout=subprocess.PIPE
        )
        assert self.engine.stdout.readline() == b"ready\n"
        wait_until(lambda: len(find_sleepers(self.seconds)) >= children)
        self.engine.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    @property
    def pid(self) -> int:
        return self.engine.pid

    def living(self) -> list[psutil.Process]:
        """The processes of the engine's session that have not ended."""
        family = psutil.Process(self.pid).children(recursive=True)
        return [process for process in family if process.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        if self.engine is not None:
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
            self.engine.kill()
            self.engine.communicate()
        for pid in find_sleepers(self.seconds):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def attack(every_rung: Sandbox, outside: Path) -> Iterator[Attack]:
    running = Attack(outside, every_rung)
    yield running
    running.end()


CHILDREN = {
    "ignored signals": "for _ in range(20): subprocess.Popen(['sleep', T])",
    "setsid": "for _ in range(20): subprocess.Popen(['sleep', T], start_new_session=True)",
    "an empty environment": "for _ in range(20): subprocess.Popen(['/bin/sleep', T], env={})",
    "forking twice": (
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: os.execv('/bin/sleep', ['sleep', T])\n"
        "        os._exit(0)\n"
        "    os.wait()"
    ),
    "all of it": (
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            os.setsid(); os.chdir('/'); os.closerange(0, 50); os.execve('/bin/sleep', ['sleep', T], {})\n"
        "        os._exit(0)\n"
        "    os.wait()"
    ),
    "stopped children": "for _ in range(20): os.kill(subprocess.Popen(['sleep', T]).pid, signal.SIGSTOP)",
}
"""Code that starts twenty children, by what makes them hard to end."""
IGNORE_SIGNALS = "for n in range(1, 65):\n    if n not in (9, 17, 19, 32, 33): signal.signal(n, signal.SIG_IGN)\n"


@pytest.mark.long
@pytest.mark.parametrize("way", CHILDREN)
def test_stop_kills_every_child_of_a_stopped_engine(attack: Attack, way: str) -> None:
    attack.start(IGNORE_SIGNALS + CHILDREN[way], 20)
    before = len(attack.living())
    assert before >= 21
    document = run_clawpy_stop(attack.home)
    assert not find_sleepers(attack.seconds)
    assert not attack.living()
    assert document["killed"] == before
    assert document["left"] == []
    assert document["stopped"] == [attack.session]
    assert psutil.Process(attack.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.attack(slow=True)
@pytest.mark.parametrize("group", ["its own group", "no group"])
def test_stop_kills_processes_that_fork_all_the_time(
    attack: Attack, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert not attack.living()
    assert not find_sleepers(attack.seconds)
    assert document["killed"]  # how many is chance


@pytest.mark.long
def test_stop_ends_two_sessions(every_rung: Sandbox, outside: Path) -> None:
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
        assert not any(session.living() for session in attacks)
    finally:
        for session in attacks:
            session.end()


@pytest.mark.long
def test_stop_finds_nothing_of_a_killed_engine(attack: Attack) -> None:
    """An engine that is killed takes its sessions with it. A later stop finds nothing and forgets them."""
    attack.start(CHILDREN["all of it"], 20)
    attack.engine.kill()
    attack.engine.communicate()
    attack.engine = None
    wait_until(lambda: not find_sleepers(attack.seconds))
    document = run_clawpy_stop(attack.home)
    assert document["left"] == []
    assert not list(get_pid_folder(Home.locate(attack.home)).glob("*.command"))


# Forged files that name a process which is not the engine's


def _read_stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def _make_earlier_stat(pid: int) -> str:
    head, _, tail = _read_stat(pid).rpartition(")")
    fields = tail.split()
    fields[19] = str(int(fields[19]) - 1)
    return f"{head}) {' '.join(fields)}"


FORGED_FILES: dict[str, tuple[str, Callable[[int], str | bytes]]] = {
    "its number and its beginning": ("sess_x.1.command", _read_stat),
    "its number alone": ("sess_x.1.command", str),
    "another beginning": ("sess_x.1.command", _make_earlier_stat),
    "an empty session": (".1.command", _read_stat),
    "the first process": ("sess_x.1.command", lambda pid: _read_stat(1)),
    "a number below zero": ("sess_x.1.command", lambda pid: f"-{pid} (sleep) S" + " 1" * 40),
    "a number without end": ("sess_x.1.command", lambda pid: "9" * 400 + " (x) S" + " 1" * 40),
    "bytes": ("sess_x.1.command", lambda pid: b"\xff\0" * 10_000),
    "its control group": ("sess_x.group", lambda pid: "/sys/fs/cgroup/unified"),
    "the root of groups": ("sess_x.group", lambda pid: "/sys/fs/cgroup"),
    "no group": ("sess_x.group", lambda pid: "../../../clawpy-sess_x"),
}
"""By what is forged: the file's name, and its content for the id of a process."""
NOT_REGULAR: dict[str, Callable[[Path, int], object]] = {
    "a link": lambda path, pid: path.symlink_to(f"/proc/{pid}/stat"),
    "a pipe": lambda path, pid: os.mkfifo(path),
    "a folder": lambda path, pid: path.mkdir(),
}


@pytest.fixture
def pids(outside: Path) -> Path:
    """The folder in which the engine of `outside`/home keeps the processes of its sessions."""
    folder = get_pid_folder(Home.locate(outside / "home"))
    folder.mkdir(parents=True)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("way", [*FORGED_FILES, *NOT_REGULAR])
def test_a_forged_pid_file_kills_no_other_process(
    outside: Path, pids: Path, other_process: subprocess.Popen[bytes], way: str
) -> None:
    if way in NOT_REGULAR:
        NOT_REGULAR[way](pids / "sess_x.1.command", other_process.pid)
    else:
        name, content = FORGED_FILES[way]
        text = content(other_process.pid)
        (pids / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    document = run_clawpy_stop(outside / "home")
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING
    assert (document["killed"], document["left"]) == (0, [])


@pytest.mark.long
def test_a_reused_process_id_is_not_killed(outside: Path, pids: Path) -> None:
    """The process that the file names is gone. The one that has its id now carries the mark of a session."""
    with subprocess.Popen(["sleep", "60"], env={SESSION_MARK: "sess_other"}) as process:
        (pids / "sess_x.1.command").write_text(_make_earlier_stat(process.pid))
        run_clawpy_stop(outside / "home")
        assert process.poll() is None
        process.kill()


@pytest.mark.long
def test_a_control_group_of_another_name_is_not_killed(
    outside: Path, pids: Path, other_process: subprocess.Popen[bytes]
) -> None:
    parent = find_parent_group()
    if parent is None:
        pytest.skip("no control group can be made here")
    group = parent / f"operators-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(other_process.pid))
        (pids / "sess_x.group").write_text(str(group))
        assert run_clawpy_stop(outside / "home")["killed"] == 0
        assert other_process.poll() is None
        (parent / "cgroup.procs").write_text(str(other_process.pid))
    finally:
        group.rmdir()
