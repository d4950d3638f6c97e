"""Models that answer on this machine are found; nothing else is asked, and nothing else is believed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engine.config_agents import ProviderKind, ProviderSettings
from engine.execution.local_models import MOST, running

LIST = b'{"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "llama3.2:3b"}]}'
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server of this machine that answers every question with `body`; gives its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(body: bytes, status: int = 200, location: str = "") -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/v1/models" else 404)
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def provider(url: str, **more: object) -> ProviderSettings:
    return ProviderSettings(**({"kind": ProviderKind.OPENAI, "base_url": url, "keyless": True} | more))


def test_what_answers_is_told_by_the_id_that_the_settings_take(serve: Serve) -> None:
    assert running({"ollama": provider(serve(LIST))}) == ["ollama:qwen3:8b", "ollama:llama3.2:3b"]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"3", b'{"data": null}', b'{"data": [1]}', b'{"data": {"id": 1}}', b'{"data": [{}]}'],
)
def test_what_answers_something_else_has_none(serve: Serve, body: bytes) -> None:
    assert running({"ollama": provider(serve(body))}) == []


def test_nobody_listens_refuses_or_sends_elsewhere(serve: Serve) -> None:
    other = serve(LIST)
    assert running({"ollama": provider("http://127.0.0.1:9/v1")}) == []
    assert running({"ollama": provider(serve(LIST, 401))}) == []
    assert running({"ollama": provider(serve(b"", 302, f"{other}/models"))}) == []


def test_only_this_machine_and_only_providers_without_a_key_are_asked(serve: Serve) -> None:
    url = serve(LIST)
    assert running({"mine": provider(url, keyless=False)}) == []
    assert running({"near": provider("http://192.0.2.1:11434/v1")}) == []  # it would take its time, were it asked


def test_names_that_no_model_has_are_passed_over_and_a_long_list_is_cut(serve: Serve) -> None:
    names = ["\\u001b[31mred", "", "x" * 500, *(f"m{number}" for number in range(30))]
    body = ", ".join(f'{{"id": "{name}"}}' for name in names)
    found = running({"ollama": provider(serve(f'{{"data": [{body}]}}'.encode()))})
    assert found == [f"ollama:m{number}" for number in range(MOST)]
