"""Faults between a session and its model: it ends with a reason, within its limits, and leaves nothing (SPEC 3.4, 3.8).

The scenarios are in `test_agent_loop.toml`. After each, `ModelWorld.check_end` checks that session and calls are over,
that the sums agree and pass no cap, that no process is left, and that the key can be read nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Outcome, SessionState, SessionView, Status
from tests.conftest import MONDAY_MORNING
from tests.execution.model.model_world import KEY, ModelWorld
from tests.support.helpers import read_table
from tests.support.model_server import Call, ModelServer, Reply

Checks = Callable[[ModelWorld, SessionView], None]


@dataclass(frozen=True)
class Scenario:
    """What the provider answers, request by request, and what becomes of the session."""

    name: str
    replies: list[str]
    """The names of its answers in the table, one for each request."""

    times: int = 1
    """How often these answers come, one after the other."""

    words: str = ""
    """What the error of the session contains; "" if it succeeds."""

    given_back: bool = False
    """Whether the card is pending again."""

    requests: int = 0
    """How many requests are made; 0 if that is not checked."""

    kind: str = "openai"
    """The protocol of the provider."""

    settings: dict[str, Any] = field(default_factory=dict)
    also: str = ""
    """The name of a further check of `CHECKS`."""

    result: str = ""
    """What the result of the model's tool call contains."""


def stream_without_end() -> Iterable[bytes]:
    """A hundred megabytes, which stand for a stream without end."""
    return (b": nothing to say\n" * 60_000 for _ in range(100))


def keeps_half(world: ModelWorld, view: SessionView) -> None:
    """What the session changed before its error waits as a change set."""
    assert [file.path for file in world.engine.changes.get(view.change_set_id).files] == ["hello.txt"]


def is_estimated(world: ModelWorld, view: SessionView) -> None:
    assert [call.price_known for call in world.read_calls(view)] == [False]
    assert view.cost > 0


def costs_nothing(world: ModelWorld, view: SessionView) -> None:
    """A model that nobody is paid for costs nothing, on the card and afterwards."""
    assert world.find_card(view).estimate == 0
    assert view.cost == 0


def costs_a_trigger(world: ModelWorld, view: SessionView) -> None:
    """If the price is unknown, a session costs the estimate of a trigger, and each call a guess in addition."""
    assert 50_000 <= view.cost < 51_000
    assert [call.price_known for call in world.read_calls(view)] == [False, False]


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


def may_be_incomplete(world: ModelWorld, view: SessionView) -> None:
    assert "I beg\nits last answer was cut off; the work may be incomplete" in view.summary


CHECKS: dict[str, Checks] = {
    check.__name__: check
    for check in (
        keeps_half, is_estimated, costs_nothing, costs_a_trigger, is_bounded, nothing_was_sent, all_calls_are_answered,
        may_be_incomplete,
    )
}  # fmt: skip

TABLE = read_table(__file__)
SCENARIOS = [Scenario(**row) for row in TABLE["scenario"]]
SPECIAL_REPLIES = {
    "refused": Reply(status=401, error=f"Incorrect API key provided: {KEY}"),
    "an answer without end": Reply(body=stream_without_end),
    "an answer longer than allowed": Reply(text="words " * 100_000, piece=50_000),
    "an error of 20 MB": Reply(status=500, body=b"e" * 20_000_000),
    "more calls than one can do": Reply(calls=(Call("read", {"path": "readme.md"}),) * 40),
    "no word of what it used": Reply(text="Done.", usage=None),
}


def make_reply(name: str) -> Reply:
    """The answer of this name, from the table or of `SPECIAL_REPLIES`."""
    if name in SPECIAL_REPLIES:
        return SPECIAL_REPLIES[name]
    fields = dict(TABLE["replies"][name])
    if "body" in fields:
        fields["body"] = fields["body"].encode("latin-1")
    if "call" in fields:
        fields["calls"] = (Call(fields.pop("call"), fields.pop("arguments")),)
    return Reply(**fields)


@pytest.fixture(scope="module")
def get_shared_world(
    tmp_path_factory: pytest.TempPathFactory, model_host: ModelHost
) -> Iterator[Callable[[str], ModelWorld]]:
    """Gives the world of a protocol. Its engine stays open from scenario to scenario."""
    worlds: dict[str, ModelWorld] = {}
    with ExitStack() as stack:

        def get(kind: str) -> ModelWorld:
            if kind not in worlds:
                server = stack.enter_context(ModelServer())
                clock = FakeClock(MONDAY_MORNING)
                worlds[kind] = ModelWorld(tmp_path_factory.mktemp(kind), clock, server, kind=kind, host=model_host)
                stack.enter_context(worlds[kind].opened())
            worlds[kind].server.reset()
            worlds[kind].clock.advance(timedelta(hours=2))
            return worlds[kind]

        yield get


def check_scenario(world: ModelWorld, scenario: Scenario) -> None:
    """Run a session with the answers of a scenario, and check what becomes of it."""
    world.server.script(*map(make_reply, scenario.replies * scenario.times))
    view = world.run(f"Write a greeting into hello.txt: {scenario.name}")
    world.check_end(view)
    failed = SessionState.CANNOT_RUN if view.not_begun else SessionState.FAILED
    assert view.state is (failed if scenario.words else SessionState.SUCCEEDED), view.error
    assert scenario.words in view.error
    if scenario.requests:
        assert len(world.server.requests) == scenario.requests
    card = world.find_card(view)
    if scenario.given_back:
        assert card.status == Status.PENDING
        assert view.not_begun
        assert card.note == f"not done: {view.error}"
    else:
        assert card.status == Status.EXECUTED
        assert not view.not_begun
        assert card.outcome is (Outcome.FAILED if scenario.words else Outcome.SUCCEEDED)
    if scenario.result:
        assert scenario.result in world.server.requests[1].tool_results[0]
    if scenario.also:
        CHECKS[scenario.also](world, view)


@pytest.mark.long
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if not scenario.settings], ids=lambda scenario: scenario.name
)
def test_any_faulty_provider_ends_the_session_with_a_reason_within_its_limits(
    get_shared_world: Callable[[str], ModelWorld], scenario: Scenario
) -> None:
    check_scenario(get_shared_world(scenario.kind), scenario)


@pytest.mark.long
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if scenario.settings], ids=lambda scenario: scenario.name
)
def test_a_faulty_provider_with_other_settings_ends_the_session_too(world: ModelWorld, scenario: Scenario) -> None:
    world.configure(**scenario.settings)
    with world.opened():
        check_scenario(world, scenario)
