"""A real engine whose gateway listens, requests to it, and the documents of its replies."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.api.gateway import Gateway
from engine.api.gateway.guard import GatewayLimits
from engine.api.gateway.routes import build_server
from engine.api.notify import Notifications
from engine.engine import Engine
from engine.home import Home
from engine.model import Card
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

SMALL = GatewayLimits(
    max_body_bytes=65_536,
    max_head_bytes=16_384,
    head_seconds=2.0,
    body_seconds=2.0,
    messages_per_second=0.05,
    failures_per_second=0.05,
)
"""Small sizes. Once a burst is used up, nothing more is allowed within a test. A slow machine meets the deadlines."""


@dataclass
class Served:
    """An engine whose gateway listens, with its token."""

    engine: Engine
    gateway: Gateway
    token: str
    folder: Path

    @property
    def url(self) -> str:
        return self.gateway.state().url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def server(self) -> Any:
        """The HTTP server, whose end or whose connections are nobody's business but a test's."""
        return self.gateway._server

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.headers | options.pop("headers", {})
        return httpx.request(method, self.url + path, headers=headers, timeout=30, trust_env=False, **options)

    def propose_card(self, text: str = "report_branches") -> Card:
        """A new card; by default one of a flow that ends at once."""
        return self.engine.cards.propose(text, workspace=str(self.folder / "shop"))

    def send_raw(self, *pieces: bytes) -> bytes:
        """Send bytes on a bare connection. Returns the reply, up to the end of the answer or of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            for piece in pieces:
                connection.sendall(piece)
            received = b""
            try:
                while chunk := connection.recv(65536):
                    received += chunk
                    if b"connection: close" not in received.lower() and _is_whole(received):
                        break
            except ConnectionResetError:
                pass
            return received

    def read_log(self) -> str:
        return (self.engine.home.logs / "clawpy.log").read_text()


def _is_whole(received: bytes) -> bool:
    """Whether a response has the length that its head states."""
    head, gap, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(gap and lengths) and len(body) >= int(lengths[0].partition(b":")[2])


def parse_error(received: bytes) -> tuple[int, str]:
    """Status and code of a refusal. A request that is no HTTP is answered in plain text; its code is `bad_request`."""
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"] if body.startswith(b"{") else "bad_request"


def open_served(place: Path, *, limits: GatewayLimits = SMALL, throw_away: bool = True, **options: Any) -> Served:
    """Open an engine with a home and a repository in `place`. `options` are those of `Gateway.open`."""
    shop = Repository(place / "shop")
    shop.commit("begin", {"cart.py": "total = 0\n"}, at="2026-01-02T12:00:00+00:00")
    home = Home.locate(place / "home")
    engine = open_idle_engine(home, shop.path, throw_away=throw_away)
    # `open_engine` takes no limits for its gateway.
    build = partial(build_server, limits=limits)
    engine.gateway = Gateway(engine, build, announce=engine._lock.announce_gateway)
    engine.notify = Notifications(engine, issue_pass=engine.gateway.issue_pass)
    return Served(engine, engine.gateway, engine.gateway.open(**{"port": 0} | options), place)


Serve = Callable[..., Served]
"""Opens an engine with a gateway; its options are those of `open_served`."""


def request(served: Served, method: str, path: str, status: int = 200, **options: Any) -> dict[str, Any]:
    """The document of a reply that must have this status."""
    reply = served.ask(method, f"/api/v1{path}", **options)
    assert reply.status_code == status, reply.text
    assert reply.headers["cache-control"] == "no-store"
    return reply.json()


def trigger(served: Served, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    """The document of a reply to a trigger, which must have this status."""
    return request(served, "POST", "/crosspoll/trigger", status, json=body)


def call(served: Served, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a reply to a call over JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})
    return request(served, "POST", "/rpc", json=body)


@pytest.fixture(scope="module")
def serve(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Callable[[], bytes], git_config: Path
) -> Iterator[Serve]:
    """Opens engines with a gateway; closes them after the module."""
    opened = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(git_config))
        patch.delenv("CLAWPY_GATEWAY_API_KEY", raising=False)

        def open_next(**options: Any) -> Served:
            place = tmp_path_factory.mktemp("served")
            home = Home.locate(place / "home")
            home.data.mkdir(parents=True)
            home.database.write_bytes(empty_database())
            opened.append(open_served(place, **options))
            return opened[-1]

        yield open_next
        for served in opened:
            served.engine.close()
