"""Faults between a session and its model: the session ends with a reason, within its limits, and leaves nothing.

Every scenario also checks `ModelWorld.check_end`: session and calls are over, the sums agree and pass no cap, no
process is left, the key can be read nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.agent_loop import MAX_REQUESTS
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Outcome, SessionState, SessionView, Status
from tests.conftest import MONDAY_MORNING
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import Call, ModelServer, Reply, calls

WRITE = calls("write", path="hello.txt", content="Hello\n")
READ = calls("read", path="readme.md")

Checks = Callable[[ModelWorld, SessionView], None]


@dataclass(frozen=True)
class Scenario:
    """What the provider answers, request by request, and what comes of it. `given_back`: the card is pending again."""

    name: str
    replies: tuple[Reply | str, ...]
    words: str = ""
    given_back: bool = False
    requests: int = 0
    kind: str = "openai"
    settings: dict[str, Any] = field(default_factory=dict)
    also: Checks = lambda world, view: None

    @property
    def fails(self) -> bool:
        return bool(self.words)


def endless() -> Iterable[bytes]:
    """A hundred megabytes."""
    return (b": nothing to say\n" * 60_000 for _ in range(100))


def result_says(text: str) -> Checks:
    """The result of the model's call says so."""

    def check(world: ModelWorld, view: SessionView) -> None:
        assert text in world.server.requests[1].tool_results[0]

    return check


def keeps_half(world: ModelWorld, view: SessionView) -> None:
    """What it had done waits."""
    assert view.change_set_id is not None
    assert [file.path for file in world.engine.changes.get(view.change_set_id).files] == ["hello.txt"]


def is_estimated(world: ModelWorld, view: SessionView) -> None:
    assert [call.price_known for call in world.calls(view)] == [False]
    assert view.cost > 0


def costs_nothing(world: ModelWorld, view: SessionView) -> None:
    """Nobody is paid: not estimated on the card, not counted."""
    assert (world.card_of(view).estimate, view.cost) == (0, 0)


def costs_a_trigger(world: ModelWorld, view: SessionView) -> None:
    """Nobody knows the price: what a trigger is thought to cost, once a session, and a guess for what follows."""
    assert 50_000 <= view.cost < 51_000
    assert [call.price_known for call in world.calls(view)] == [False, False]


def is_bounded(world: ModelWorld, view: SessionView) -> None:
    is_estimated(world, view)
    assert view.tokens < 100_000
    assert view.cost < 100_000


def nothing_was_sent(world: ModelWorld, view: SessionView) -> None:
    assert world.server.requests == []


def all_calls_are_answered(world: ModelWorld, view: SessionView) -> None:
    results = world.server.requests[1].tool_results
    assert len(results) == 40
    assert "not carried out" in results[39]


REFUSED = Reply(status=401, error=f"Incorrect API key provided: {KEY}")
BUSY, BROKEN, DOWN = Reply(status=429), Reply(status=500), Reply(status=503)
SHORT = Reply(text="Half of it, and no more", end_after=3)
CUT, DROPPED = Reply(text="x" * 200, drop_after=3), Reply(drop_after=0)
LLAMA_CPP = json.dumps(
    {
        "error": {
            "code": 400,
            "message": "request (4130 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 4130,
            "n_ctx": 4096,
        }
    }
).encode()
NOISE = Reply(body=b"data: {nonsense\n\n")

SCENARIOS = [
    Scenario("the key is refused", (REFUSED,), "clawpy key set openai", given_back=True, requests=1),
    Scenario("the key may not", (Reply(status=403),), "refuses the key", given_back=True, requests=1, kind="anthropic"),
    Scenario("the account is empty", (Reply(status=402),), "no credit left", given_back=True, requests=1),
    Scenario("too many requests once", (BUSY, "Done."), requests=2),
    Scenario("too many requests for good", (BUSY,) * 5, "no more requests", given_back=True, requests=5),
    Scenario("asked to wait", (Reply(status=429, headers={"retry-after": "90"}), "Done."), requests=2),
    Scenario(
        "asked to wait for an hour",
        (Reply(status=429, headers={"retry-after": "3600"}),),
        "no more requests",
        given_back=True,
        requests=1,
    ),
    Scenario("errors four times", (BROKEN, DOWN, BROKEN, Reply(status=502), "Done."), requests=5),
    Scenario("down for good", (DOWN,) * 5, "is not working at the moment", given_back=True, requests=5),
    Scenario("overloaded once", (Reply(status=529), "Done."), requests=2, kind="anthropic"),
    Scenario("down when half was done", (WRITE, *(DOWN,) * 5), "is not working", requests=6, also=keeps_half),
    Scenario("no such model", (Reply(status=404),), "has no model gpt-5-mini", given_back=True, requests=1),
    Scenario("too long", (Reply(status=400, error="maximum context length is 10"),), "too long for", requests=1),
    Scenario("too long for the door", (Reply(status=413),), "too long for", requests=1, kind="anthropic"),
    Scenario("too long for a server of this machine", (Reply(status=400, body=LLAMA_CPP),), "too long for", requests=1),
    Scenario("taken for wrong", (Reply(status=400),), "does not accept the request", requests=1),
    Scenario(
        "sent elsewhere",
        (Reply(status=307, headers={"location": "http://127.0.0.1:9/v1/chat/completions"}),),
        "not followed",
        given_back=True,
        requests=1,
    ),
    Scenario(
        "a web page",
        (Reply(body=b"<html>Sign in</html>", content_type="text/html"),) * 2,
        "an unknown format",
        given_back=True,
        requests=2,
    ),
    Scenario("a web page of an error", (Reply(status=502, body=b"<html>Bad</html>"), "Done."), requests=2),
    Scenario("rubbish", (NOISE,) * 2, "an unknown format", given_back=True, requests=2),
    Scenario(
        "rubbish of the other kind", (NOISE,) * 2, "unknown format", given_back=True, requests=2, kind="anthropic"
    ),
    Scenario("rubbish once", (NOISE, "Done."), requests=2),
    Scenario("no answer at all", (Reply(body=b""),) * 2, "unknown format", given_back=True, requests=2),
    Scenario(
        "compressed unasked",
        (Reply(body=b"\x1f\x8b", headers={"content-encoding": "gzip"}),) * 2,
        "compressed",
        given_back=True,
        requests=2,
    ),
    Scenario("cut off once", (CUT, "Done."), requests=2),
    Scenario("cut short politely", (SHORT, "Done."), requests=2),
    Scenario("cut short politely, the other kind", (SHORT, "Done."), requests=2, kind="anthropic"),
    Scenario("cut off for good", (CUT,) * 5, "closed the connection", given_back=True, requests=5),
    Scenario(
        "cut off for good, the other kind",
        (CUT,) * 5,
        "closed the connection",
        given_back=True,
        requests=5,
        kind="anthropic",
    ),
    Scenario("hung up on", (DROPPED,) * 5, "cannot be reached", given_back=True, requests=5),
    Scenario("an answer without end", (Reply(body=endless),), "was too long", given_back=True, requests=1),
    Scenario(
        "an answer longer than allowed",
        (Reply(text="words " * 100_000, piece=50_000),),
        "was too long",
        given_back=True,
        requests=1,
        kind="anthropic",
    ),
    Scenario("an error of 20 MB", (Reply(status=500, body=b"e" * 20_000_000),), "was too long", given_back=True),
    Scenario("nothing to say", (Reply(),) * 3, "answered nothing", requests=3, kind="anthropic"),
    Scenario("nothing to say, the other kind", (Reply(),) * 3, "answered nothing", requests=3),
    Scenario("nothing to say once", (Reply(), "Done."), requests=2, kind="anthropic"),
    Scenario("nothing to say after its work", (WRITE, *(Reply(),) * 3), requests=4, kind="anthropic", also=keeps_half),
    Scenario(
        "arguments that are not JSON",
        (Reply(calls=(Call("read", '{"path": '),)), "Done."),
        requests=2,
        also=result_says("not JSON"),
    ),
    Scenario(
        "arguments that are no object",
        (Reply(calls=(Call("read", "[1]"),)), "Done."),
        requests=2,
        also=result_says("not a JSON object"),
    ),
    Scenario(
        "a tool that is not there",
        (calls("launch", what="x"), "Done."),
        requests=2,
        also=result_says("there is no tool 'launch'; there are read"),
    ),
    Scenario(
        "more calls than one can do",
        (Reply(calls=(READ.calls[0],) * 40), "Done."),
        requests=2,
        also=all_calls_are_answered,
    ),
    Scenario("calls without end", (READ,) * MAX_REQUESTS, "did not finish", requests=MAX_REQUESTS),
    Scenario("stopped by its filter", (Reply(text="I", finish="content_filter"),), "content filter", requests=1),
    Scenario("cut off by its limit", (Reply(text="I beg", finish="length"), "Done."), requests=2),
    Scenario(
        "an error in the stream",
        (
            Reply(
                body=b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
            ),
            "Done.",
        ),
        requests=2,
        kind="anthropic",
    ),
    Scenario("no word of what it used", (Reply(text="Done.", usage=None),), requests=1, also=is_estimated),
    Scenario("it claims millions", (Reply(text="Done.", usage=(90_000_000, 9_000_000)),), requests=1, also=is_bounded),
    Scenario("it claims less than nothing", (Reply(text="Done.", usage=(-5, -7)),), requests=1, also=is_estimated),
    Scenario(
        "a model without a price",
        (WRITE, "Done."),
        requests=2,
        settings={"model": "nobody-knows-it"},
        also=costs_a_trigger,
    ),
    Scenario(
        "a model of this machine",
        (WRITE, "Done."),
        requests=2,
        settings={"model": "tiny", "keyless": True},
        also=costs_nothing,
    ),
    Scenario(
        "too dear for its session",
        ("Done.",),
        "the next call may cost",
        settings={"sessionCostCap": 0.0002},
        also=nothing_was_sent,
    ),
    Scenario(
        "it used its money up",
        (Reply(calls=READ.calls, usage=(2_000, 16_000)),) * 9,
        "the next call may cost",
        settings={"sessionCostCap": 0.05},
    ),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, warm: ModelHost) -> Iterator[Callable[[str], ModelWorld]]:
    """Engines that stay open from scenario to scenario, one for each protocol."""
    worlds: dict[str, ModelWorld] = {}
    with ExitStack() as stack:

        def world(kind: str) -> ModelWorld:
            if kind not in worlds:
                server = stack.enter_context(ModelServer())
                clock = FakeClock(MONDAY_MORNING)
                worlds[kind] = ModelWorld(tmp_path_factory.mktemp(kind), clock, server, kind=kind, host=warm)
                stack.enter_context(worlds[kind].opened())
            worlds[kind].server.reset()
            worlds[kind].clock.advance(timedelta(hours=2))
            return worlds[kind]

        yield world


@pytest.mark.long
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if not scenario.settings], ids=lambda scenario: scenario.name
)
def test_any_faulty_provider_ends_the_session_with_a_reason_within_its_limits(
    shared: Callable[[str], ModelWorld], scenario: Scenario
) -> None:
    check_scenario(shared(scenario.kind), scenario)


@pytest.mark.long
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if scenario.settings], ids=lambda scenario: scenario.name
)
def test_faulty_providers_with_other_settings(world: ModelWorld, scenario: Scenario) -> None:
    world.configure(**scenario.settings)
    with world.opened():
        check_scenario(world, scenario)


def check_scenario(world: ModelWorld, scenario: Scenario) -> None:
    world.server.script(*scenario.replies)
    view = world.run(f"Write a greeting into hello.txt: {scenario.name}")
    world.check_end(view)
    failed = SessionState.CANNOT_RUN if view.not_begun else SessionState.FAILED
    assert view.state is (failed if scenario.fails else SessionState.SUCCEEDED), view.error
    assert scenario.words in view.error
    if scenario.requests:
        assert len(world.server.requests) == scenario.requests
    card = world.card_of(view)
    if scenario.given_back:
        assert (card.status, view.not_begun) == (Status.PENDING, True)
        assert card.note == f"not done: {view.error}"
    else:
        assert (card.status, view.not_begun) == (Status.EXECUTED, False)
        assert card.outcome is (Outcome.FAILED if scenario.fails else Outcome.SUCCEEDED)
    scenario.also(world, view)
