"""The pipeline (SPEC 3.1): the order of the rails, their log, and a rail that fails."""

import pytest

from engine.model import Verdict
from engine.safety.pipeline import RAIL_ORDER
from engine.storage.ledger import Ledger
from tests.safety.rails import Rails, make_approval, make_unattended


def test_six_rails_are_asked_in_order_and_logged_in_one_row(rails: Rails):
    assert RAIL_ORDER == ("loop", "rate", "cost", "content", "gate", "kill")
    verdicts = rails.decide(make_approval()).verdicts
    assert tuple(verdict.rail for verdict in verdicts) == RAIL_ORDER
    entry = rails.safety.read_log()[0]
    assert (entry.blocked, entry.channel, entry.from_channel, entry.estimate) == (False, "koji-core", "owner", 50_000)
    assert entry.verdicts == verdicts


def test_the_first_rail_that_blocks_is_named_and_all_are_logged(rails: Rails):
    rails.decide(make_unattended())
    rails.kill_switch.stop("F12", "console")
    ruling = rails.decide(make_unattended(estimate=3_000_000, prediction_id="b"))
    assert ruling.blocked_by.rail == "rate"
    entry = rails.safety.read_log(blocked_only=True)[0]
    blocked = [verdict.rail for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW]
    assert blocked == ["rate", "cost", "gate", "kill"]
    assert entry.reason.startswith("rate: ")
    [event] = Ledger(rails.database).read_newest(kinds=("TriggerBlocked",))
    assert (event.subject, event.payload["rail"]) == ("b", "rate")


@pytest.mark.parametrize(
    "rail",
    [
        "pipeline.decide_loop",
        "pipeline.decide_rate",
        "costs.decide_cost",
        "pipeline.decide_content",
        "pipeline.decide_gate",
        "kill_switch.decide_kill",
    ],
)
def test_a_rail_that_raises_blocks(rails: Rails, monkeypatch: pytest.MonkeyPatch, rail: str):
    monkeypatch.setattr(f"engine.safety.{rail}", None)  # a call of it raises
    ruling = rails.decide(make_approval())
    assert ruling.permit is None
    assert ruling.blocked_by.rule == "fault"
