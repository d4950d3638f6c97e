"""Servers of this machine are asked for their models; what is wrong with one harms no other (SPEC 2.3, 11.2)."""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from engine.config.external_sections import ProviderKind, ProviderSettings
from engine.execution.channel_setup import MAX_MODELS, TIMEOUT_S, query_local_models
from tests.support.web_server import WebServer

MODEL_LIST = b'{"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "llama3.2:3b"}]}'
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
MODELS_PATH = "/v1/models"
NewServer = Callable[[], WebServer]
Serve = Callable[..., str]


def find_address(server: WebServer) -> str:
    return f"http://127.0.0.1:{server.port}/v1"


@pytest.fixture
def new_server() -> Iterator[NewServer]:
    """Starts a server of this machine, which answers nothing yet."""
    servers = []

    def start() -> WebServer:
        servers.append(WebServer())
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def serve_body(new_server: NewServer) -> Serve:
    """Starts a server that answers with `body`; gives its address."""

    def start(body: bytes) -> str:
        server = new_server()
        server.send(MODELS_PATH, [HEAD + body])
        return find_address(server)

    return start


def make_provider(url: str, **more: object) -> ProviderSettings:
    return ProviderSettings(**({"kind": ProviderKind.OPENAI, "base_url": url, "keyless": True} | more))


def list_ids(url: str, **more: object) -> tuple[str, ...]:
    return query_local_models({"ollama": make_provider(url, **more)}).ids


def find_faults(url: str) -> list[str]:
    """The fault of a server that lists no models, without its address."""
    models = query_local_models({"ollama": make_provider(url)})
    where = f"ollama at {url.removeprefix('http://').removesuffix('/v1')} "
    assert not models.ids
    assert all(fault.startswith(where) for fault in models.faults)
    return [fault.removeprefix(where) for fault in models.faults]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"[]", b"3", b"{}", b'{"data": [1]}', b'{"data": {"id": 1}}', b'{"data": [{}]}'),
        *(b'{"data": [{"id": 3}]}', b"1" * 5_000, b"[" * 100_000, b'{"data":' * 20_000, b"\xff\xfe"),
    ],
)
def test_a_server_with_another_answer_is_a_fault(serve_body: Serve, body: bytes):
    assert find_faults(serve_body(body)) == ["answers, but without a list of models"]


def test_a_missing_server_is_no_fault():
    assert find_faults("http://127.0.0.1:9/v1") == []


def test_an_endless_answer_is_not_read_to_its_end(new_server: NewServer):
    server = new_server()
    server.send(MODELS_PATH, itertools.chain([HEAD], itertools.repeat(b" " * 65_536)))
    assert find_faults(find_address(server)) == ["answers, but without a list of models"]


@pytest.mark.long
def test_silent_servers_share_one_deadline(new_server: NewServer, serve_body: Serve):
    servers = {f"slow-{number}": new_server() for number in range(12)}
    for server in servers.values():
        server.drip(MODELS_PATH, HEAD, b" ", TIMEOUT_S / 10)
    slow = {name: make_provider(find_address(server)) for name, server in servers.items()}
    since = time.monotonic()
    models = query_local_models({**slow, "ollama": make_provider(serve_body(MODEL_LIST))})
    assert time.monotonic() - since < TIMEOUT_S * 10
    assert models.ids == ("ollama:qwen3:8b", "ollama:llama3.2:3b")
    assert len(models.faults) == len(slow)


def test_only_keyless_providers_of_this_machine_are_queried(serve_body: Serve):
    assert list_ids(serve_body(MODEL_LIST), keyless=False) == ()
    assert list_ids("http://192.0.2.1:11434/v1") == ()  # it would take its time, were it asked


def test_impossible_names_are_left_out_and_a_long_list_is_cut(serve_body: Serve):
    names = ["\\u001b[31mred", "", "x" * 500, *(f"m{number}" for number in range(30))]
    body = ", ".join(f'{{"id": "{name}"}}' for name in names)
    assert list_ids(serve_body(f'{{"data": [{body}]}}'.encode())) == tuple(
        f"ollama:m{number}" for number in range(MAX_MODELS)
    )
