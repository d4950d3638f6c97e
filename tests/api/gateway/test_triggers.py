"""Triggers of other programs over the gateway: which approve a card, and which only ask (SPEC 3.3, 3.6, 10.1)."""

import re

import pytest

from engine.api.gateway import replies
from engine.engine import Engine
from engine.model import DecidedBy, Status, TriggerType, Verdict
from tests.api.gateway.calls import trigger
from tests.api.gateway.served import Served


@pytest.mark.parametrize("mismatch", [{"hint": "Delete the project"}, {"targetChannel": "garden"}], ids=str)
def test_a_trigger_that_describes_another_card_approves_none(served: Served, engine: Engine, mismatch: dict[str, str]):
    card = served.propose_card()
    document = trigger(served, {"predictionId": card.id} | mismatch, 409)
    assert document["error"]["code"] == "another_card"
    assert engine.cards.get(card.id).status is Status.PENDING


def test_a_trigger_approves_the_card_that_it_describes(served: Served, engine: Engine):
    card = served.propose_card()
    described = {"predictionId": card.id, "targetChannel": "research", "hint": card.assignment.prompt, "force": False}
    document = trigger(served, described)
    replies.Triggered.model_validate(document)
    assert document["triggered"] is True
    engine.sessions.wait(document["session"]["id"], 20)


def test_the_card_of_a_programs_hint_waits_for_the_operator(served: Served, engine: Engine):
    """Without an id it is no approval. The human gate is asked as for what runs by itself, and `force` does not open
    it."""
    body = {"targetChannel": "koji-core", "force": True, "workspace": None}
    pending = len(engine.cards.list_pending())
    document = trigger(served, body | {"hint": "lint"})
    assert document["triggered"] is False
    assert re.search("gate|runner|tool", document["message"]), document["message"]
    assert document["session"] is None
    assert document["prediction"]["reasoning"] == "requested over the gateway"
    again = trigger(served, body | {"hint": document["prediction"]["prompt"]})
    assert again["prediction"]["id"] == document["prediction"]["id"], "the same hint makes no second card"
    assert again["triggered"] is False, "nor does saying it twice approve it"
    assert len(engine.cards.list_pending()) == pending + 1


def test_an_agent_that_names_its_channel_asks_and_does_not_approve(served: Served, engine: Engine):
    card = served.propose_card("report_branches days=9")
    body = {"predictionId": card.id, "fromChannel": "garden"}
    assert trigger(served, body)["triggered"] is False
    [logged] = [entry for entry in engine.safety.log() if entry.prediction_id == card.id]
    assert (logged.from_channel, logged.decided_by) == ("garden", DecidedBy.AUTONOMY)
    unknown = trigger(served, body | {"fromChannel": "nowhere"}, 404)
    assert unknown["error"]["code"] == "unknown_channel"
    engine.cards.dismiss(card.id)


@pytest.mark.parametrize("force", [False, True])
def test_a_programs_trigger_passes_every_rail(served: Served, engine: Engine, force: bool):
    hint = "report_branches days=8" if force else "summarise_day"
    document = trigger(served, {"hint": hint, "force": force})
    [logged] = [entry for entry in engine.safety.log() if entry.prediction_id == document["prediction"]["id"]]
    assert logged.blocked
    assert (logged.trigger_type, logged.decided_by) == (TriggerType.CRON, DecidedBy.AUTONOMY)
    assert [verdict.rail for verdict in logged.verdicts] == ["loop", "rate", "cost", "content", "gate", "kill"]
    assert (logged.verdicts[1].rule == "force") is force
    assert logged.verdicts[4].verdict is Verdict.ASK
    assert "suggested" in logged.verdicts[4].rule, "whatever its confidence and its record"
    assert document["prediction"]["source"] == "predictor-hook"
    engine.cards.dismiss(document["prediction"]["id"])
