"""Attempts to reach anything outside (SPEC 3.8)."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.execution.escape.jail import Jail

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
