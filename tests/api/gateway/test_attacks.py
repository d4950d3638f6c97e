"""Requests that are refused, and how far a pass reaches (SPEC 10.1). Each request is made on a real socket."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api.gateway.access import PASS_PREFIX
from engine.api.gateway.routes import OperationRunner
from engine.model import Status
from tests.api.gateway.served import SMALL, Serve, Served, parse_error
from tests.support import read_table


@pytest.fixture
def unchanged_engine(served: Served) -> Iterator[None]:
    """After each test: no card was decided, no setting changed, and nothing ran."""
    engine = served.engine

    def state() -> object:
        return (
            [(card.id, card.status) for card in engine.cards.list_recent()],
            engine.settings.make_document(),
            engine.safety.count_passed_triggers(),
            [level.is_active for level in engine.safety.kill_switch.list_levels()],
        )

    before = state()
    yield
    assert state() == before


def spell(request: str, token: str) -> bytes:
    """A request as it is sent. `%T` stands for the token, `%U` for it in capitals, `%B` for it as Basic."""
    basic = base64.b64encode(f"clawpy:{token}".encode()).decode()
    spelled = request.replace("\n", "\r\n").replace("%T", token).replace("%U", token.upper()).replace("%B", basic)
    return spelled.encode("latin-1")


TOKEN = "Authorization: Bearer %T"
TRIGGER = f"POST /api/v1/crosspoll/trigger HTTP/1.1\nHost: 127.0.0.1\n{TOKEN}\nContent-Type: application/json\n"
IN_PIECES = f"{TRIGGER}Transfer-Encoding: chunked\n\n"

ATTEMPTS = {row["name"]: (row["request"], row["status"], row["code"]) for row in read_table(__file__)["refused"]} | {
    "a body too large in pieces": (f"{IN_PIECES}10000\n{' ' * 65536}\n1\n \n0\n\n", 413, "too_large"),
    "a body too deep": (f"{TRIGGER}Content-Length: 30000\n\n{'[' * 30_000}", 400, "bad_request"),
    "a number too long": (f"{TRIGGER}Content-Length: 9000\n\n{'1' * 9_000}", 400, "bad_request"),
}
"""Requests by name, with the status and the code of their refusal."""

HEALTH = f"GET /api/v1/health HTTP/1.1\nHost: 127.0.0.1\n{TOKEN}\n\n"


@pytest.mark.usefixtures("unchanged_engine")
@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_refused(served: Served, name: str):
    request, status, code = ATTEMPTS[name]
    reply = served.send_raw(spell(request, served.token))
    assert parse_error(reply) == (status, code)
    assert served.token.encode() not in reply
    assert str(served.folder).encode() not in reply


@pytest.mark.usefixtures("unchanged_engine")
def test_a_pass_is_valid_for_one_request_and_for_a_time(served: Served):
    path = "/api/v1/predictions/pred_1/reject"
    credential = served.gateway.issue_pass("POST", path, until=time.time() + 60)

    def ask(method: str, path: str, credential: str = credential) -> int:
        return served.ask(method, path, headers={"Authorization": f"Bearer {credential}"}).status_code

    assert ask("POST", path) == 404  # there is no such card, and it was asked for
    assert ask("POST", "/api/v1/predictions/pred_2/reject") == 401
    assert ask("POST", "/api/v1/predictions/pred_1/confirm") == 401
    assert ask("GET", "/api/v1/health") == 401
    late = served.gateway.issue_pass("POST", path, until=time.time() - 1)
    assert ask("POST", path, late) == 401
    until, _, signed = credential.removeprefix(PASS_PREFIX).partition(".")
    assert ask("POST", path, f"{PASS_PREFIX}{int(until) + 1000}.{signed}") == 401


@pytest.mark.long
@pytest.mark.parametrize(
    "content", [{"json": {"edit": "push it to production"}}, {"content": b" "}, {"params": {"a": "b"}}], ids=str
)
def test_a_pass_carries_no_content(serve: Serve, content: dict[str, Any]):
    """Other people's servers see a pass. Who has it can press the button and nothing else."""
    served = serve()
    card = served.propose_card()
    path = f"/api/v1/predictions/{card.id}/confirm"
    credential = served.gateway.issue_pass("POST", path, until=time.time() + 60)
    reply = served.ask("POST", path, headers={"Authorization": f"Bearer {credential}"}, **content)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "pass_alone")
    assert served.engine.cards.get(card.id).status is Status.PENDING


def test_wrong_tokens_are_limited_and_the_right_one_is_not(serve: Serve):
    served = serve()
    statuses = [parse_error(served.send_raw(spell(HEALTH, "no")))[0] for _ in range(SMALL.failure_burst + 5)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert served.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_no_secret_in_a_reply_or_the_log(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    """Also when something inside fails with an error that contains the token."""
    served = serve()
    credential = served.gateway.issue_pass("GET", "/api/v1/health", until=time.time() + 60)

    def fail(*_: object, **__: object):
        raise RuntimeError(f"broken by {served.token} and {credential}")

    monkeypatch.setattr(OperationRunner, "run", fail)
    replies = [served.send_raw(spell(request, served.token)) for request, *_ in ATTEMPTS.values()]
    replies += [served.send_raw(spell(HEALTH, secret)) for secret in (served.token, credential)]
    assert [parse_error(reply) for reply in replies[-2:]] == [(500, "internal")] * 2
    rpc_call = {"jsonrpc": "2.0", "id": 1, "method": "pulse.crosspoll.status"}
    replies.append(served.ask("POST", "/api/v1/rpc", json=rpc_call).content)
    assert b"-32603" in replies[-1]
    log = served.read_log()
    assert "RuntimeError: broken by" in log, "the fault itself is kept"
    for secret in (served.token, credential):
        assert secret not in log
        assert not [reply for reply in replies if secret.encode() in reply]
