"""The provider of models that tests talk to: what it says is what the real clients read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx2
import pytest

from tests.support.model_server import Call, ModelServer, Reply, calls


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def _ask(server: ModelServer, *, stream: bool = True, kind: str = "openai") -> httpx2.Response:
    url = f"{server.openai}/chat/completions" if kind == "openai" else f"{server.anthropic}/v1/messages"
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
    return httpx2.post(url, json=body, headers={"authorization": "Bearer sk-1"}, timeout=10)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [True, False])
def test_both_protocols_say_text_and_calls(server: ModelServer, kind: str, stream: bool) -> None:
    server.script(Reply(text="I look.", calls=(Call("read", {"path": "a"}),)), "Done now.")
    first, second = _ask(server, kind=kind, stream=stream), _ask(server, kind=kind, stream=stream)
    assert first.status_code == second.status_code == 200
    assert '"read"' in first.text
    assert "Done" in second.text
    assert [request.users for request in server.requests] == [["hello"]] * 2
    assert server.requests[0].key == "sk-1"


def test_an_error_has_the_protocols_form(server: ModelServer) -> None:
    server.script(Reply(status=429, error="slow down", headers={"retry-after": "7"}))
    told = _ask(server)
    assert (told.status_code, told.headers["retry-after"]) == (429, "7")
    assert json.loads(told.text)["error"]["message"] == "slow down"


def test_a_cut_stream_is_an_error_of_the_connection(server: ModelServer) -> None:
    server.script(Reply(text="x" * 100, drop_after=2))
    with pytest.raises(httpx2.TransportError):
        _ask(server)


def test_what_hangs_waits_for_its_release(server: ModelServer) -> None:
    hold = threading.Event()
    server.script(Reply(text="at last", piece=100, hold=hold))
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(_ask(server).text))
    asking.start()
    server.wait(1)
    assert not told
    hold.set()
    asking.join(10)
    assert "at last" in told[0]


def test_a_client_that_leaves_is_noticed(server: ModelServer) -> None:
    server.script(Reply(hold=threading.Event()))
    with httpx2.Client(timeout=0.05) as client, pytest.raises(httpx2.ReadTimeout):
        client.post(f"{server.openai}/chat/completions", json={"messages": []})
    assert server.requests[0].gone.wait(5)


def test_helpers(server: ModelServer) -> None:
    assert calls("write", path="a", content="b").calls == (Call("write", {"path": "a", "content": "b"}),)
    server.close()
    with pytest.raises(httpx2.ConnectError):
        _ask(server)
