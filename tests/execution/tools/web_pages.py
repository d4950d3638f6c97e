"""A web server on loopback, and a world that may reach it by the name `here.test`."""

from typing import Any

from tests.execution.tools.belt_world import BeltWorld, MakeBeltWorld
from tests.support.web_server import WebServer


def open_world(make_belt_world: MakeBeltWorld, server: WebServer, *, seconds: float = 5.0, **options: Any) -> BeltWorld:
    """A world that may reach the server, as `here.test`, and nothing else of this machine. A page has `seconds`."""
    allowed = {"web": {"allow": [f"here.test:{server.port}"]}}
    web = {"resolve": lambda host, port: ["127.0.0.1"], "seconds": seconds}
    return make_belt_world(settings=allowed, web=web, **options)


def make_url(server: WebServer, path: str = "/", host: str = "here.test") -> str:
    return f"http://{host}:{server.port}{path}"
