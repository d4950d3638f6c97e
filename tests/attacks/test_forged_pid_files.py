"""Forged files that name a process which is not the engine's: `clawpy stop` does not kill it (SPEC 3.7)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import SESSION_MARK
from engine.execution.session_processes import find_parent_group, get_pid_folder
from engine.home import Home
from tests.attacks.stopped_attack import run_clawpy_stop

pytestmark = [
    pytest.mark.attack("stop"),
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="there are no sessions to be found without an engine"),
]


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


@pytest.mark.parametrize("way", [*FORGED_FILES, *NOT_REGULAR])
def test_a_forged_pid_file_kills_no_other_process(
    outside: Path, pids: Path, other_process: subprocess.Popen[bytes], way: str
):
    if way in NOT_REGULAR:
        NOT_REGULAR[way](pids / "sess_x.1.command", other_process.pid)
    else:
        name, content = FORGED_FILES[way]
        text = content(other_process.pid)
        (pids / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    document = run_clawpy_stop(outside / "home")
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING
    assert (document["killed"], document["left"]) == (0, [])


def test_a_reused_process_id_is_not_killed(outside: Path, pids: Path):
    """The process that the file names is gone. The one that has its id now carries the mark of a session."""
    with subprocess.Popen(["sleep", "60"], env={SESSION_MARK: "sess_other"}) as process:
        (pids / "sess_x.1.command").write_text(_make_earlier_stat(process.pid))
        run_clawpy_stop(outside / "home")
        assert process.poll() is None
        process.kill()


def test_a_control_group_of_another_name_is_not_killed(
    outside: Path, pids: Path, other_process: subprocess.Popen[bytes]
):
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
