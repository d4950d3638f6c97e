"""Attempts on other processes, and to outlive the session (SPEC 3.7, 3.8)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
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


# Attempts to reach anything outside (SPEC 3.8).


CONNECT = """
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(tuple(address) if isinstance(address, list) else address)
        one.send(b"hello")
        return address
"""


@pytest.fixture
def service() -> Iterator[socket.socket]:
    """A service of the operator's on loopback."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server


def test_services_of_the_operators_on_loopback(jail: Jail, service: socket.socket) -> None:
    jail.holds(
        CONNECT
        + "attempt(connect, socket.AF_INET, P['at']); attempt(connect, socket.AF_INET, ['0.0.0.0', P['at'][1]])",
        at=service.getsockname(),
    )


def test_hosts_outside_by_tcp(jail: Jail) -> None:
    jail.holds(
        CONNECT + "attempt(connect, socket.AF_INET, ['192.0.2.1', 80]); \n"
        "attempt(connect, socket.AF_INET, ['198.51.100.1', 443])\n"
        "attempt(connect, socket.AF_INET6, ['2001:db8::1', 443])"
    )


def test_the_clouds_metadata_service(jail: Jail) -> None:
    jail.holds(CONNECT + "attempt(connect, socket.AF_INET, ['169.254.169.254', 80])")


@pytest.mark.long
def test_udp(jail: Jail) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.2)
        jail.tries(
            CONNECT + "attempt(connect, socket.AF_INET, P['at'], socket.SOCK_DGRAM)\n"
            "attempt(connect, socket.AF_INET, ['192.0.2.1', 53], socket.SOCK_DGRAM)",
            at=server.getsockname(),
        )
        with pytest.raises(TimeoutError):
            server.recv(10)


def test_names(jail: Jail) -> None:
    """A question to a name server carries whatever is asked."""
    jail.holds("attempt(socket.getaddrinfo, 'secret-in-a-name.example.org', 80)")


def test_raw_packets(jail: Jail) -> None:
    jail.holds(
        "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)\n"
        "attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3)"
    )


def test_the_virtual_machines_host(jail: Jail) -> None:
    """These families know no network namespace: a vsock leads out of it."""
    jail.holds(
        "for family in ('AF_VSOCK', 'AF_BLUETOOTH', 'AF_ALG', 'AF_TIPC', 'AF_RDS'):\n"
        "    if hasattr(socket, family): attempt(socket.socket, getattr(socket, family), socket.SOCK_SEQPACKET)\n"
        "attempt(socket.socket, 40, socket.SOCK_STREAM)"
    )


def test_sockets_of_other_programs_in_the_file_system(jail: Jail) -> None:
    """Docker, an ssh agent, a database: wherever they lie, also outside /run and /tmp."""
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as two:
        paths = [str(jail.user / "agent.sock"), str(jail.user / "log.sock")]
        for server, path in zip((one, two), paths, strict=True):
            server.bind(path)
        one.listen()
        jail.holds(
            CONNECT + "attempt(connect, socket.AF_UNIX, P['paths'][0])\n"
            "attempt(connect, socket.AF_UNIX, P['paths'][1], socket.SOCK_DGRAM)",
            paths=paths,
        )


def test_sockets_inside_the_writable_folder(jail: Jail) -> None:
    jail.in_the_operators_tree()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(jail.project / "dev.sock"))
        server.listen()
        jail.holds(CONNECT + "attempt(connect, socket.AF_UNIX, P['project'] + '/dev.sock')")


def test_sockets_in_tmp_and_run(jail: Jail) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        server.listen()
        jail.holds(
            CONNECT + "attempt(connect, socket.AF_UNIX, P['path'])\n"
            "for path in ('/run/docker.sock', '/var/run/docker.sock', f'/run/user/{os.getuid()}/bus',"
            " '/run/dbus/system_bus_socket',"
            " '/run/systemd/private', f'/run/user/{os.getuid()}/gnupg/S.gpg-agent'):\n"
            "    attempt(connect, socket.AF_UNIX, path)",
            path=f"{folder}/s",
        )


def test_abstract_sockets(jail: Jail) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has them")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0clawpy-{jail.root.name}")
        server.listen()
        jail.holds(CONNECT + "attempt(connect, socket.AF_UNIX, '\\0' + P['name'])", name=f"clawpy-{jail.root.name}")


def test_services_reached_by_commands(jail: Jail) -> None:
    jail.holds(
        "for argv in (['systemctl', '--user', 'list-units'], ['systemd-run', '--user', 'true'], ['docker', 'ps'],\n"
        "             ['ssh-add', '-l'], ['dbus-send', '--session', '--dest=org.freedesktop.DBus', '/', 'x.y'],\n"
        "             ['curl', '-sS', '-m', '2', 'http://example.org']):\n"
        "    attempt(run, *argv)"
    )


def test_a_pipe_of_the_operators(jail: Jail) -> None:
    """A named pipe that someone reads commands from."""
    pipe = jail.user / "commands"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        jail.holds("attempt(os.open, P['pipe'], os.O_WRONLY | os.O_NONBLOCK)", pipe=str(pipe))
    finally:
        os.close(reader)
