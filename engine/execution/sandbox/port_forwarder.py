"""Forwards ports on the loopback of a sandbox to the socket of the host gate (SPEC 3.8).

It runs as a script inside the sandbox: `python -I -S port_forwarder.py SOCKET HOSTS command…`. It forks a child that
forwards. The process itself becomes the command, so that pipes, signals and exit code are those of the command. It
uses only the standard library and imports nothing of the engine.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

SCRIPT = Path(__file__).resolve()
"""This file, which is run inside the sandbox."""
_CHUNK_BYTES = 65_536
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""The variables by which programs find a proxy."""
_NO_PROXY = "localhost,127.0.0.1,::1"
"""The hosts for which programs use no proxy."""


def make_command(gate: Path, local_hosts: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` with the socket `gate` as its only network.

    `local_hosts` are addresses on the operator's loopback, as "host:port". Commands reach them at the same address.
    """
    return [sys.executable, "-I", "-S", str(SCRIPT), str(gate), ",".join(local_hosts), *argv]


def _make_proxy_environment(port: int) -> dict[str, str]:
    """The variables that make curl, Python, Go, Rust, and node from version 24 on use the gate as their proxy. For the
    loopback of the sandbox they use none."""
    address = f"http://127.0.0.1:{port}"
    variables = {"NODE_USE_ENV_PROXY": "1"}
    for name, value in (*((name, address) for name in _PROXY_VARIABLES), ("NO_PROXY", _NO_PROXY)):
        variables[name] = variables[name.lower()] = value
    return variables


def main(arguments: Sequence[str]) -> None:
    """Listen on the ports, fork the child that forwards, and become the command."""
    gate, local_hosts, *argv = arguments
    proxy = _start_listening("127.0.0.1", 0)
    openings = {proxy: b""}
    for target in filter(None, local_hosts.split(",")):
        host, _, port = target.rpartition(":")
        address = {"[::1]": "::1", "localhost": "127.0.0.1"}.get(host, host)
        openings[_start_listening(address, int(port))] = f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()
    proxy_port = proxy.getsockname()[1]
    if os.fork() == 0:
        _detach()
        _serve(openings, gate)  # never returns
    for server in openings:
        server.close()
    os.environ.update(_make_proxy_environment(proxy_port))
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _start_listening(address: str, port: int) -> socket.socket:
    """A listening socket. With port 0 it gets a free port."""
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    server.bind((address, port))
    server.listen(64)
    return server


def _detach() -> None:
    """Close the pipes of the command, so that they end with the command and not with this process, and leave its
    terminal."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _serve(openings: Mapping[socket.socket, bytes], gate: str) -> NoReturn:
    """Forward every connection to the gate until the sandbox ends. For each listening socket, `openings` has the bytes
    that are sent to the gate first."""
    with selectors.DefaultSelector() as selector:
        for server, opening in openings.items():
            selector.register(server, selectors.EVENT_READ, opening)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                client = key.fileobj.accept()[0]
                threading.Thread(target=_forward, args=(client, gate, key.data), daemon=True).start()


def _forward(client: socket.socket, gate: str, opening: bytes) -> None:
    """Connect a client to the gate, and copy bytes both ways until both sides have ended."""
    with client, socket.socket(socket.AF_UNIX) as gate_connection:
        try:
            gate_connection.connect(gate)
            if opening and not _open_tunnel(gate_connection, opening):
                return
        except OSError:
            return  # the gate is closed: the session is ending
        answers = threading.Thread(target=_copy_bytes, args=(gate_connection, client), daemon=True)
        answers.start()
        _copy_bytes(client, gate_connection)
        answers.join()


def _open_tunnel(gate_connection: socket.socket, opening: bytes) -> bool:
    """Whether the gate answers `opening` with status 200. The answer is read byte by byte, because the bytes after its
    head come from the host and belong to the client."""
    gate_connection.sendall(opening)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = gate_connection.recv(1)
        if not byte:
            return False
        answer += byte
    return b" 200 " in answer


def _copy_bytes(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one side to the other until the first one ends."""
    with contextlib.suppress(OSError):  # if one side is gone, the other is closed as well
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1:])
