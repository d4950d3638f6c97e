"""A provider that refuses, fails, breaks off or makes no sense: the session ends with a reason, within its limits, and
leaves nothing (SPEC 3.4, 3.8).

The scenarios are in `test_provider_faults.toml`. After each, `ModelWorld.check_end` checks that session and calls are
over, that the sums agree and pass no cap, that no process is left, and that the key can be read nowhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.model import Card, Outcome, SessionState, SessionView, Status
from tests.support import read_table
from tests.support.model_server import Call, Reply
from tests.support.model_world import KEY, ModelWorld


@dataclass(frozen=True)
class Scenario:
    """What the provider answers, request by request, and what becomes of the session."""

    name: str
    replies: list[str]
    """The names of its answers in the table, one for each request."""
    repetitions: int = 1
    """How often these answers come, one after the other."""
    error: str | None = None
    """What the error of the session contains; None if it succeeds."""
    is_pending_again: bool = False
    """Whether the card can be approved again afterwards, because nothing was begun."""
    requests: int | None = None
    """How many requests are made; None if that is not checked."""
    protocol: str = "openai"
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of provider and channel, named as in `ModelWorld.configure`."""
    tool_result: str = ""
    """What the result of the model's tool call contains."""
    further_check: str = ""
    """The name of a function of `FURTHER_CHECKS`, or ""."""

    def check(self, world: ModelWorld, view: SessionView):
        """Check the session, its card and its requests."""
        self._check_session(view)
        self._check_card(view, world.find_card(view))
        if self.requests is not None:
            assert len(world.server.requests) == self.requests
        if self.tool_result:
            assert self.tool_result in world.server.requests[1].tool_results[0]
        if self.further_check:
            FURTHER_CHECKS[self.further_check](world, view)

    def _check_session(self, view: SessionView):
        if self.error is None:
            assert view.state is SessionState.SUCCEEDED, view.error
        else:
            failed = SessionState.CANNOT_RUN if self.is_pending_again else SessionState.FAILED
            assert view.state is failed, view.error
            assert self.error in view.error
        assert view.not_begun is self.is_pending_again

    def _check_card(self, view: SessionView, card: Card):
        if self.is_pending_again:
            assert (card.status, card.note) == (Status.PENDING, f"not done: {view.error}")
        else:
            outcome = Outcome.SUCCEEDED if self.error is None else Outcome.FAILED
            assert (card.status, card.outcome) == (Status.EXECUTED, outcome)


def stream_without_end() -> Iterable[bytes]:
    """A hundred megabytes, which stand for a stream without end."""
    return (b": nothing to say\n" * 60_000 for _ in range(100))


def check_half_is_kept(world: ModelWorld, view: SessionView):
    """What the session changed before its error waits as a change set."""
    assert [file.path for file in world.engine.changes.get(view.change_set_id).files] == ["hello.txt"]


def check_costs_are_estimated(world: ModelWorld, view: SessionView):
    assert [call.price_known for call in world.read_calls(view)] == [False]
    assert view.cost > 0


def check_costs_are_zero(world: ModelWorld, view: SessionView):
    """A model that nobody is paid for costs nothing, on the card and afterwards."""
    assert world.find_card(view).estimate == 0
    assert view.cost == 0


def check_cost_is_that_of_a_trigger(world: ModelWorld, view: SessionView):
    """If the price is unknown, a session costs the estimate of a trigger, and each call a guess in addition."""
    assert 50_000 <= view.cost < 51_000
    assert [call.price_known for call in world.read_calls(view)] == [False, False]


def check_claims_are_bounded(world: ModelWorld, view: SessionView):
    check_costs_are_estimated(world, view)
    assert view.tokens < 100_000
    assert view.cost < 100_000


def check_nothing_was_sent(world: ModelWorld, view: SessionView):
    assert world.server.requests == []


def check_every_call_is_answered(world: ModelWorld, view: SessionView):
    results = world.server.requests[1].tool_results
    assert len(results) == 40
    assert ["not carried out" in result for result in results[31:33]] == [False, True]


def check_summary_says_incomplete(world: ModelWorld, view: SessionView):
    assert "I beg\nits last answer was cut off; the work may be incomplete" in view.summary


FURTHER_CHECKS = {name: check for name, check in globals().items() if name.startswith("check_")}

TABLE = read_table(__file__)
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


SCENARIOS = [Scenario(**row) for row in (*TABLE["scenarios"], *TABLE["scenarios_with_settings"])]


@pytest.mark.long
@pytest.mark.parametrize(
    "scenario, kind",
    [(scenario, scenario.protocol) for scenario in SCENARIOS],
    ids=[scenario.name for scenario in SCENARIOS],
)
def test_a_session_with_a_faulty_provider_ends_with_a_reason_within_its_limits(world: ModelWorld, scenario: Scenario):
    world.configure(**scenario.settings)
    with world.opened():
        world.server.script(*map(make_reply, scenario.replies * scenario.repetitions))
        view = world.run(f"Write a greeting into hello.txt: {scenario.name}")
        world.check_end(view)
        scenario.check(world, view)
