"""The learnings that are written for a session: when, in which scope, and by which answers of a model (SPEC 6.4,
6.6)."""

import json

import pytest

from engine.events import Event
from engine.events.work import ChangeSetLanded, LandingUndone, SessionStarted
from engine.learning.learnings import Basis, Impact, SessionRecord
from engine.learning.learnings.questions import read_claims, read_verdict
from engine.model import LearningEntry, LearningScope, ModelAnswer, ModelQuestion
from engine.storage.erasing import SearchTerms
from engine.storage.ledger import LedgerEntry
from tests.learning.learnings.chain_world import (
    SHOP,
    ChainWorld,
    MakeWorld,
    ScriptedModel,
    fail_with_full_disk,
    make_view,
)
from tests.support import MONDAY_MORNING

TEST = "tests/test_cart.py::test_total"
HEALED = LedgerEntry(1, MONDAY_MORNING, "ValidationHealed", "s1", SHOP, {"failing": [TEST], "attempts": 2, "cost": 0})
UV = "We install with uv"


def test_risks_are_written_when_a_session_starts(world: ChainWorld):
    world.end_session("s1", entries=(HEALED,))
    world.sessions.records["s2"] = SessionRecord(make_view("s2"), "backend_lead")
    world.record(SessionStarted(subject="s2", workspace=SHOP, prediction_id="p", sandbox="none"))
    world.learnings.catch_up()
    (risk,) = world.learnings.list_entries(session="s2")
    assert (risk.phase, risk.scope, risk.about) == ("prospective", LearningScope.SESSION, f"risk/healed/{TEST}")
    assert risk.created_at == make_view("s2").started_at


def test_the_last_landing_or_undo_decides_whether_work_was_wanted(world: ChainWorld):
    world.end_session("s1")
    landed = ChangeSetLanded(subject="change_1", workspace=SHOP, session_id="s1", files=2)
    undone = LandingUndone(subject="change_1", workspace=SHOP, session_id="s1")

    def record_and_list(event: Event) -> list[LearningEntry]:
        world.record(event)
        world.learnings.catch_up()
        return world.learnings.list_entries()

    assert record_and_list(landed) == []
    (entry,) = record_and_list(undone)
    assert entry.text == "What was made of “round cart totals” was landed and undone: agree on the result first."
    assert (entry.confidence, entry.reasons[0], entry.scope) == (0.5, "it was observed once", LearningScope.TEAM)
    (retired,) = record_and_list(landed)
    assert (retired.is_active, retired.retired_because) == (False, "its changes were landed after all")
    assert record_and_list(undone) == [entry]


def test_words_that_are_forgotten_while_a_model_answers_are_not_written(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
):
    claim = {"text": f"{UV}, says Ann", "scope": "observations", "about": "team", "type": "declarative"}
    model = ScriptedModel(json.dumps({"learnings": [claim, claim | {"text": "Prices are net"}]}))
    world, ask = make_world(model), model.ask

    def forget_and_answer(question: ModelQuestion) -> ModelAnswer | None:
        assert world.learnings.texts.erase(SearchTerms([UV])) == 0, "nothing is written yet"
        return ask(question)

    with monkeypatch.context() as patch:
        patch.setattr(model, "ask", forget_and_answer)
        world.end_session("s1", UV, "Tea is at four")
    assert world.learnings.list_entries() == []
    assert world.read_pages() == {}
    world.learnings.catch_up()
    assert "Prices are net" in {entry.text for entry in world.learnings.list_entries()}, "the session is read again"


def test_pending_changes_are_written_before_words_are_forgotten(world: ChainWorld, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr("engine.learning.learnings.store.write_atomic", fail_with_full_disk)
        world.end_session("s1", UV)
        assert world.read_pages() == {}
    assert world.learnings.texts.erase(SearchTerms([UV])) == 1
    world.learnings.catch_up()
    assert all(UV.encode() not in data for data in world.read_pages().values())


# Answers of models: only the required form counts

CLAIM = {"text": "Amounts are cents", "scope": "corrective", "about": "team", "type": "directive"}


@pytest.mark.parametrize(
    "answer, generalises",
    [
        ('{"generalises": true, "reason": "it always helps"}', True),
        ('```\n{"generalises": true}\n```', True),
        ("[true]", None),
        ('{"generalises": "true"}', None),
        ('I think so: {"generalises": true}', None),
        ("[" * 5000, None),
    ],
)
def test_a_verdict_is_the_object_that_was_asked_for_or_none(answer: str, generalises: bool | None):
    assert read_verdict(answer).generalises is generalises


def test_at_most_six_claims_are_read_with_the_confidence_of_a_claim():
    claims = read_claims(f"```json\n{json.dumps({'learnings': [CLAIM] * 9})}\n```", Impact())
    assert [(claim.basis, claim.phase) for claim in claims] == [(Basis.MODEL, "corrective")] * 6


def test_an_answer_with_a_secret_is_refused():
    secret = CLAIM | {"text": "the key is sk-test-0123456789abcdefghijklmnop"}
    with pytest.raises(ValueError, match="secret"):
        read_claims(json.dumps({"learnings": [secret]}), Impact())
