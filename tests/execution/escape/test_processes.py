"""Attempts on other processes, and to outlive the session (SPEC 3.7, 3.8)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from engine.execution.process_termination import end_processes
from engine.execution.processes import Processes
from engine.execution.sandbox import session_environment
from tests.execution.escape.jail import PRELUDE, Jail
from tests.execution.session_world import until


@pytest.fixture
def victim() -> Iterator[int]:
    """A process of the operator's with a secret in its environment."""
    with subprocess.Popen(["sleep", "60"], env={"TOKEN": "hunter2"}) as process:
        yield process.pid
        process.kill()


def test_environments_of_other_processes(jail: Jail, victim: int) -> None:
    jail.holds(
        "import glob\n"
        "def search():\n"
        "    for name in glob.glob('/proc/[0-9]*/environ'):\n"
        "        try: found = open(name, 'rb').read()\n"
        "        except OSError: continue\n"
        "        if b'hunter2' in found or b'sk-outside' in found: return name\n"
        "    raise OSError('none has it')\n"
        "attempt(search); attempt(read, f'/proc/{P[\"victim\"]}/environ')",
        victim=victim,
    )


def test_secrets_in_its_own_environment(jail: Jail) -> None:
    tried = jail.tries("print(dict(os.environ))")
    assert "sk-outside" not in tried.output


def test_another_root_through_proc(jail: Jail) -> None:
    jail.holds(
        "for pid in (1, P['engine'], os.getppid()):\n"
        "    for place in ('root', 'cwd'):\n"
        "        attempt(read, f'/proc/{pid}/{place}{P[\"user\"]}/.ssh/id_ed25519')\n"
        "        attempt(write, f'/proc/{pid}/{place}{P[\"user\"]}/.bashrc')"
    )
    assert (jail.user / ".bashrc").read_text() == "# the operator's\n"


def test_memory_of_the_engine(jail: Jail, victim: int) -> None:
    jail.holds(
        "for pid in (P['engine'], P['victim']):\n"
        "    attempt(open, f'/proc/{pid}/mem', 'rb'); attempt(open, f'/proc/{pid}/maps')\n"
        "    attempt(os.readlink, f'/proc/{pid}/fd/0'); attempt(os.open, f'/proc/{pid}/fd/0', os.O_RDONLY)\n"
        "    attempt(read, f'/proc/{pid}/fdinfo/0'); attempt(os.open, f'/proc/{pid}/ns/user', os.O_RDONLY)",
        victim=victim,
    )


def test_tracing_other_processes(jail: Jail, victim: int) -> None:
    jail.holds(
        "for pid in (P['engine'], P['victim']):\n"
        "    attempt(syscall, {'x86_64': 101, 'aarch64': 117}[os.uname().machine], 16, pid, 0, 0)  # PTRACE_ATTACH\n"
        "    attempt(lambda: syscall(438, os.pidfd_open(pid), 0, 0))  # pidfd_getfd\n"
        "    attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))\n"
        "    attempt(lambda: syscall(448, os.pidfd_open(pid), 0))  # process_mrelease",
        victim=victim,
    )


def test_signals_to_other_processes(jail: Jail, victim: int) -> None:
    jail.holds("for pid in (P['victim'], P['engine']): attempt(os.kill, pid, 0)", victim=victim)
    assert psutil.pid_exists(victim)


def test_signals_to_everybody(jail: Jail) -> None:
    """A signal that does nothing to those who do not wait for it. The kernel says that it went well even where it was
    allowed to send it to nobody."""
    arrived: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, frame: arrived.append(number))
    try:
        os.kill(os.getpid(), signal.SIGURG)
        assert arrived == [signal.SIGURG], "the attempt would not be seen"
        jail.tries("attempt(os.kill, -1, signal.SIGURG); attempt(os.kill, -os.getpgid(P['engine']), signal.SIGURG)")
        assert arrived == [signal.SIGURG]
    finally:
        signal.signal(signal.SIGURG, before)


def test_priorities_of_other_processes(jail: Jail, victim: int) -> None:
    before = psutil.Process(victim).nice()
    jail.tries(
        "attempt(os.setpriority, os.PRIO_PROCESS, P['victim'], 19)",
        victim=victim,
    )
    assert psutil.Process(victim).nice() == before


DETACHED = {
    "setsid": "subprocess.Popen(['sleep', P['time']], start_new_session=True)",
    "double fork": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 10); os.execve('/bin/sleep', ['sleep', P['time']], {})\n"
        "    os._exit(0)\n"
        "os.wait()"
    ),
    "nohup": "subprocess.Popen(['sh', '-c', f'nohup sleep {P[\"time\"]} >/dev/null 2>&1 &'],"
    " env={'PATH': '/usr/bin:/bin'})",
    "at and systemd-run": (
        "subprocess.Popen(['sh', '-c', f'systemd-run --user sleep {P[\"time\"]} || echo sleep {P[\"time\"]} | at now'])"
    ),
}


@pytest.mark.parametrize("way", DETACHED)
def test_a_detached_child_after_the_end(jail: Jail, way: str) -> None:
    """It went its own way, without the session's mark, and the command ended well."""
    seconds = f"{time.time() % 1000:.6f}{os.getpid()}"[:14]
    processes = Processes(jail.session_id)
    variables = f'{{"time": "{seconds}"}}'
    processes.run(
        jail.sandbox.wrap(
            [sys.executable, "-c", PRELUDE + DETACHED[way], variables], jail.confinement, cwd=jail.folder
        ),
        cwd=jail.folder,
        env=session_environment(jail.confinement, jail.sandbox, jail.session_id, jail.operator),
        on_output=lambda chunk: None,
    )
    until(lambda: not sleepers(seconds), 2.0)


def sleepers(seconds: str) -> list[int]:
    pids = []
    for process in psutil.process_iter(["cmdline"]):
        if seconds in (process.info["cmdline"] or []):
            pids.append(process.pid)
    return pids


def test_ignoring_every_signal(jail: Jail) -> None:
    seconds = f"{time.time() % 1000:.6f}{os.getpid()}"[:14]
    process = jail.start(
        "for number in range(1, 32):\n"
        "    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD): signal.signal(number, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', P['time']]); print('ready', flush=True); time.sleep(60)",
        {"time": seconds},
    )
    assert process.stdout is not None
    process.stdout.readline()
    began = time.monotonic()
    assert end_processes(jail.session_id, [psutil.Process(process.pid)], 0.1)
    assert time.monotonic() - began < 1.0
    assert not sleepers(seconds)
    process.communicate()


def test_the_engine_dies_first(jail: Jail) -> None:
    """Killed outright, it leaves no session behind."""
    seconds = f"{time.time() % 1000:.6f}{os.getpid()}"[:14]
    argv = jail.sandbox.wrap(["sleep", seconds], jail.confinement, cwd=jail.folder)
    with subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, time; subprocess.Popen({argv!r}); time.sleep(60)"]
    ) as engine:
        until(lambda: any(psutil.Process(pid).name() == "sleep" for pid in sleepers(seconds)))
        engine.kill()
    until(lambda: not sleepers(seconds), 3.0)
