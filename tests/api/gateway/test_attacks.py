"""Requests that are refused (SPEC 10.1): each is made on a real socket, and none reaches the engine."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from engine.api.gateway.access import PASS_PREFIX
from engine.api.gateway.calls import Calls
from engine.model import Status
from tests.api.gateway.conftest import QUICK, Serve, Served, error_of

HOST = b"Host: 127.0.0.1\r\n"


@pytest.fixture(autouse=True)
def _engine_stays_as_it_is(served: Served) -> Iterator[None]:
    """Whatever is tried: no card is decided, no setting changed, nothing run."""
    engine = served.engine

    def state() -> object:
        return (
            [(card.id, card.status) for card in engine.cards.recent()],
            engine.settings.document(),
            engine.safety.triggers(),
            [level.thrown for level in engine.safety.kill_switch.levels()],
        )

    before = state()
    yield
    assert state() == before


@dataclass(frozen=True)
class Attempt:
    """A request as bytes, where `%T` is the right token, and how it is refused; 0 for a connection that is cut."""

    name: str
    request: bytes
    status: int
    code: str = ""


def get(path: bytes = b"/api/v1/health", *lines: bytes, host: bytes = HOST, token: bytes = b"%T") -> bytes:
    own = b"Authorization: Bearer " + token + b"\r\n" if token else b""
    return b"GET " + path + b" HTTP/1.1\r\n" + host + own + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(path: bytes, body: bytes, *lines: bytes) -> bytes:
    head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Authorization: Bearer %T\r\n"
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


TRIGGER = b"/api/v1/crosspoll/trigger"
JSON = b"Content-Type: application/json"
UPGRADE = (
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: " + base64.b64encode(b"sixteen bytes ok"),
)

ATTEMPTS = [
    Attempt("no token", get(token=b""), 401, "no_token"),
    Attempt("a wrong token", get(token=b"clawpy_" + b"A" * 43), 401, "no_token"),
    Attempt("an empty token", get(token=b" "), 401, "no_token"),
    Attempt("the beginning of the token", get(token=b"clawpy_"), 401, "no_token"),
    Attempt("the token and more", get(token=b"%Tx"), 401, "no_token"),
    Attempt("the token in capitals", get(token=b"%U"), 401, "no_token"),
    Attempt("the token as a password", get(b"/api/v1/health", b"Authorization: Basic %B", token=b""), 401, "no_token"),
    Attempt("the token in the address", get(b"/api/v1/health?token=%T", token=b""), 401, "no_token"),
    Attempt("the token in a cookie", get(b"/api/v1/health", b"Cookie: token=%T", token=b""), 401, "no_token"),
    Attempt("the token in a header of its own", get(b"/api/v1/health", b"X-Token: %T", token=b""), 401, "no_token"),
    Attempt("a pass that nobody gave", get(token=PASS_PREFIX.encode() + b"9999999999.AAAA"), 401, "no_token"),
    Attempt("a token of letters that are none", get(token=b"\xff\xfe\x00"[:2]), 401, "no_token"),
    Attempt("two tokens, one right", get(b"/api/v1/health", b"Authorization: Bearer wrong"), 400, "bad_request"),
    Attempt("the document without a token", get(b"/api/v1/openapi.json", token=b""), 401, "no_token"),
    Attempt("a page that rebinds its name", get(host=b"Host: evil.example:8477\r\n"), 421, "foreign_host"),
    Attempt("a name that ends as ours", get(host=b"Host: localhost.evil.example\r\n"), 421, "foreign_host"),
    Attempt("another address", get(host=b"Host: 192.168.1.7\r\n"), 421, "foreign_host"),
    Attempt("an address as one number", get(host=b"Host: 2130706433\r\n"), 421, "foreign_host"),
    Attempt("a user before the host", get(host=b"Host: 127.0.0.1@evil.example\r\n"), 421, "foreign_host"),
    Attempt("an empty host", get(host=b"Host: \r\n"), 421, "foreign_host"),
    Attempt("two hosts", get(host=HOST + b"Host: evil.example\r\n"), 400, "bad_request"),
    Attempt("no host", get(host=b""), 400, "bad_request"),
    Attempt("no host, as of old", get(host=b"").replace(b"HTTP/1.1", b"HTTP/1.0"), 421, "foreign_host"),
    Attempt("a foreign page", get(b"/api/v1/health", b"Origin: https://evil.example"), 403, "foreign_origin"),
    Attempt("a page of nowhere", get(b"/api/v1/health", b"Origin: null"), 403, "foreign_origin"),
    Attempt("a page of this machine", get(b"/api/v1/health", b"Origin: http://localhost:3000"), 403, "foreign_origin"),
    Attempt("a form of a page", get(b"/api/v1/health", b"Sec-Fetch-Site: cross-site"), 403, "cross_site"),
    Attempt("a page beside ours", get(b"/api/v1/health", b"Sec-Fetch-Site: same-site"), 403, "cross_site"),
    Attempt(
        "a page that asks first",
        get(token=b"").replace(b"GET", b"OPTIONS").replace(b"\r\n\r\n", b"\r\nOrigin: https://evil.example\r\n\r\n"),
        403,
        "foreign_origin",
    ),
    Attempt("a way up", get(b"/api/v1/../../etc/passwd"), 404, "unknown_path"),
    Attempt("a way up in disguise", get(b"/api/v1/%2e%2e/%2e%2e/etc/passwd"), 404, "unknown_path"),
    Attempt("a file", get(b"//etc/passwd"), 404, "unknown_path"),
    Attempt("another machine's page", get(b"http://evil.example/api/v1/health"), 404, "unknown_path"),
    Attempt(
        "a way up in an id", post(b"/api/v1/predictions/..%2f..%2fconfig/confirm", b"", b"Content-Length: 0"), 404,
        "unknown_path",
    ),
    Attempt(
        "an id that is a question", post(b"/api/v1/predictions/'%20OR%201=1--/reject", b"", b"Content-Length: 0"), 422,
        "bad_arguments",
    ),
    Attempt("a body too large", post(TRIGGER, b"", JSON, b"Content-Length: 65537"), 413, "too_large"),
    Attempt("a body without end", post(TRIGGER, b"", JSON, b"Content-Length: " + b"9" * 19), 413, "too_large"),
    Attempt(
        "a body too large in pieces",
        post(TRIGGER, b"10000\r\n" + b" " * 65536 + b"\r\n1\r\n \r\n0\r\n\r\n", JSON, b"Transfer-Encoding: chunked"),
        413,
        "too_large",
    ),
    Attempt("a packed body", post(TRIGGER, b"{}", JSON, b"Content-Length: 2", b"Content-Encoding: gzip"), 415,
            "bad_request"),
    Attempt("a length of words", post(TRIGGER, b"{}", JSON, b"Content-Length: two"), 400, "bad_request"),
    Attempt("a length below nothing", post(TRIGGER, b"", JSON, b"Content-Length: -1"), 400, "bad_request"),
    Attempt("a body too deep", post(TRIGGER, b"[" * 30_000, JSON, b"Content-Length: 30000"), 400, "bad_request"),
    Attempt("a number too long", post(TRIGGER, b"1" * 9_000, JSON, b"Content-Length: 9000"), 400, "bad_request"),
    Attempt(
        "letters that are none", post(TRIGGER, b'{"hint": "\xff"}', JSON, b"Content-Length: 13"), 400, "bad_request"
    ),
    Attempt(
        "half a letter", post(TRIGGER, b'{"hint": "\\ud800"}', JSON, b"Content-Length: 18"), 422, "bad_arguments"
    ),
    Attempt("no number", post(b"/api/v1/crosspoll/config", b'{"costCapPerHour": NaN}', JSON, b"Content-Length: 23")
            .replace(b"POST", b"PATCH"), 422, "bad_arguments"),
    Attempt("a form", post(TRIGGER, b"hint=rm", b"Content-Type: text/plain", b"Content-Length: 7"), 422,
            "bad_arguments"),
    Attempt("two lengths", post(TRIGGER, b"{}", JSON, b"Content-Length: 2", b"Content-Length: 4"), 400, "bad_request"),
    Attempt(
        "a length and pieces",
        post(TRIGGER, b"0\r\n\r\n", JSON, b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        400,
        "bad_request",
    ),
    Attempt("pieces of another kind", post(TRIGGER, b"{}", JSON, b"Transfer-Encoding: xchunked"), 400, "bad_request"),
    Attempt("a header with a hidden end", get(b"/api/v1/health", b"X-A: a\rAuthorization: Bearer %T", token=b""), 400,
            "bad_request"),
    Attempt("a space before the colon", get(b"/api/v1/health", b"Authorization : Bearer %T", token=b""), 400,
            "bad_request"),
    Attempt("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
    Attempt("a listener without a token", get(b"/pulse", *UPGRADE, token=b""), 401, "no_token"),
    Attempt("a listener of a foreign page", get(b"/pulse", *UPGRADE, b"Origin: https://evil.example"), 403,
            "foreign_origin"),
    Attempt("a listener of a rebound page", get(b"/pulse", *UPGRADE, host=b"Host: evil.example\r\n"), 421,
            "foreign_host"),
    Attempt("a listener with the token in the address", get(b"/pulse?token=%T", *UPGRADE, token=b""), 401, "no_token"),
]  # fmt: skip


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_an_attempt_is_refused(served: Served, attempt: Attempt) -> None:
    token = served.token.encode()
    request = attempt.request.replace(b"%T", token).replace(b"%U", token.upper())
    reply = served.raw(request.replace(b"%B", base64.b64encode(b"clawpy:" + token)))
    assert error_of(reply) == (attempt.status, attempt.code)
    assert token not in reply
    assert str(served.folder).encode() not in reply


def test_the_right_token_gets_in(served: Served) -> None:
    reply = served.raw(get().replace(b"%T", served.token.encode()))
    assert reply.startswith(b"HTTP/1.1 200")
    assert b"server:" not in reply.lower()


def test_a_pass_is_valid_for_one_request_and_for_a_time(served: Served) -> None:
    path = "/api/v1/predictions/pred_1/reject"
    credential = served.gateway.pass_for("POST", path, until=time.time() + 60)

    def ask(method: str, at: str, used: str = credential) -> int:
        return served.ask(method, at, headers={"Authorization": f"Bearer {used}"}).status_code

    assert ask("POST", path) == 404  # there is no such card, and it was asked for
    assert ask("POST", "/api/v1/predictions/pred_2/reject") == 401
    assert ask("POST", "/api/v1/predictions/pred_1/confirm") == 401
    assert ask("GET", "/api/v1/health") == 401
    late = served.gateway.pass_for("POST", path, until=time.time() - 1)
    assert ask("POST", path, late) == 401
    until, _, signed = credential.removeprefix(PASS_PREFIX).partition(".")
    assert ask("POST", path, f"{PASS_PREFIX}{int(until) + 1000}.{signed}") == 401


@pytest.mark.long
def test_a_pass_carries_no_content(serve: Serve) -> None:
    """A pass goes through served people's servers: they may press the button, and say nothing by it."""
    served = serve()
    card = served.card()
    path = f"/api/v1/predictions/{card.id}/confirm"
    ends = iter(range(60, 70))

    def by_pass(**more: Any) -> httpx.Response:
        credential = served.gateway.pass_for("POST", path, until=time.time() + next(ends))
        return served.ask("POST", path, headers={"Authorization": f"Bearer {credential}"}, **more)

    for more in ({"json": {"edit": "push it to production"}}, {"content": b" "}, {"params": {"a": "b"}}):
        refused = by_pass(**more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "pass_alone")
    assert served.engine.cards.get(card.id).status is Status.PENDING
    assert by_pass().status_code == 200
    assert by_pass().status_code == 409


def closes_within(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.long
@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        post(TRIGGER, b"{", JSON, b"Content-Length: 100"),
        post(TRIGGER, b"5\r\n{", JSON, b"Transfer-Encoding: chunked"),
    ],
    ids=["nothing", "a head", "a body", "a piece"],
)
def test_a_request_that_never_ends_is_cut_off(served: Served, beginning: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(beginning.replace(b"%T", served.token.encode()))
        assert closes_within(connection, 10 * QUICK.head_seconds)


def test_wrong_tokens_are_limited_and_the_right_one_is_not(serve: Serve) -> None:
    served = serve()
    wrong = get(token=b"no")
    statuses = [error_of(served.raw(wrong))[0] for _ in range(QUICK.failure_burst + 5)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert served.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_no_secret_in_a_reply_or_the_log(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked, and even when something inside breaks with the token in its words."""
    served = serve()
    token = served.token.encode()
    credential = served.gateway.pass_for("GET", "/api/v1/health", until=time.time() + 60)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"broken by {served.token} and {credential}")

    monkeypatch.setattr(Calls, "carry_out", broken)
    replies = [served.raw(attempt.request.replace(b"%T", token)) for attempt in ATTEMPTS]
    replies += [served.raw(get().replace(b"%T", token)), served.raw(get().replace(b"%T", credential.encode()))]
    assert [error_of(reply) for reply in replies[-2:]] == [(500, "internal")] * 2
    rpc_call = {"jsonrpc": "2.0", "id": 1, "method": "pulse.crosspoll.status"}
    replies.append(served.ask("POST", "/api/v1/rpc", json=rpc_call).content)
    assert b"-32603" in replies[-1]
    text = served.log()
    assert "RuntimeError: broken by" in text, "the fault itself is kept"
    for secret in (served.token, credential):
        assert secret not in text
        assert not [reply for reply in replies if secret.encode() in reply]
