"""A host gate with clients on the other side of its socket."""

import contextlib
import socket
from collections.abc import Callable, Iterator

from engine.execution.sandbox.host_gate import HostGate

LISTED = "api.example.com"
"""The host that the gates of most tests let through."""

PUBLIC_ADDRESS = {LISTED: ["93.184.216.34"]}
"""Its address."""


class GateWorld:
    """A gate, what it reported, and the hosts that it resolved. Its clients are on the other side of its socket."""

    def __init__(self, *hosts: str, addresses: dict[str, list[str]] | None = None):
        self.reports: list[str] = []
        self.resolved: list[str] = []

        def resolve(host: str, port: int) -> list[str]:
            self.resolved.append(host)
            return (addresses or {}).get(host, [host])

        self.host_gate = HostGate(hosts, self.reports.append, resolve)

    def connect(self) -> socket.socket:
        """A client that has sent nothing yet."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(str(self.host_gate.path))
        return client

    @contextlib.contextmanager
    def tunnel(self, target: str = f"{LISTED}:443") -> Iterator[socket.socket]:
        """A client whose bytes go to this host from now on."""
        with self.connect() as client:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            yield client

    def send(self, request: str, after: bytes = b"") -> bytes:
        """The answer to a request and to what is sent `after` it, until the end."""
        with self.connect() as client:
            client.sendall(request.encode().replace(b"\n", b"\r\n") + after)
            answer = b""
            while chunk := client.recv(65_536):
                answer += chunk
            return answer


GateOpener = Callable[..., GateWorld]
"""Opens a gate for these hosts."""
