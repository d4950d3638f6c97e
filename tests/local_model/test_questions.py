"""Services that ask a real model single questions (SPEC 2.3, 4.5, 6.4).

A model of this size rarely answers in the form that is asked for. Whatever it says must either be used or be refused
with a reason, must be charged, and must harm nothing else.
"""

from collections.abc import Iterator

import pytest

from engine import Engine
from engine.model import Answer, DecidedBy, DecidedCard, DecisionSignal, Layer, ModelCall, NoAnswer, Question, Source
from engine.storage.database import Transaction
from tests.execution.model.model_world import ModelWorld
from tests.local_model.conftest import SESSION_TIMEOUT_S
from tests.local_model.server import Proxy, Smollm2

SMOLLM2 = "local:smollm2"


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Smollm2]:
    """The model as it is: asked for JSON it writes prose."""
    with Smollm2(context="1024") as server:
        yield server


@pytest.fixture
def engine(world: ModelWorld) -> Iterator[Engine]:
    with world.opened() as engine:
        yield engine


def ask(engine: Engine, **changes: object) -> Answer:
    fields = {
        "purpose": "summary", "subject": "session_1", "instructions": "You are brief.",
        "text": "Say hello.", "max_tokens": 200, "budget": 50_000, "seconds": 30.0,
    }  # fmt: skip
    return engine.single_questions.ask(SMOLLM2, Question(**{**fields, **changes}))


def get_only_call(engine: Engine, subject: str = "session_1") -> ModelCall:
    [call] = engine.calls.for_session(subject)
    return call


def record_decisions(engine: Engine, count: int):
    """The operator dismisses and approves cards in turn, on different channels."""

    def record(tx: Transaction):
        for number in range(count):
            for signal, channel in ((DecisionSignal.DISMISSED, "garden"), (DecisionSignal.APPROVED, "research")):
                id, title, now = f"pred_{channel}_{number}", f"{channel} {number}", f"now {number}"
                card = DecidedCard(id, "own", channel, "/shop", "", title, 0.4, DecidedBy.OPERATOR, now)
                engine.decisions.record(tx, signal, card)

    engine.database.write(record)


def test_a_question_is_answered_and_counted(engine: Engine, proxy: Proxy):
    answer = ask(engine)
    call = get_only_call(engine)
    assert call.state == "done"
    assert engine.calls.reply(call.id) == answer.text
    assert 10 < call.input_tokens < 60
    assert 0 < call.output_tokens < 200
    assert answer.cost == 0


def test_an_answer_that_is_cut_off_is_no_answer(engine: Engine):
    with pytest.raises(NoAnswer, match="cut off in the middle"):
        ask(engine, instructions="You tell long stories.", text="Begin.", max_tokens=8)
    call = get_only_call(engine)
    assert (call.state, call.output_tokens) == ("failed", 8)


def test_text_that_is_longer_than_the_model_reads_is_refused_in_words(engine: Engine):
    with pytest.raises(NoAnswer, match="the conversation is too long for smollm2"):
        ask(engine, text="zq9 " * 2_500)


def test_the_twin_model_proposes_nothing_with_an_unusable_answer(engine: Engine, proxy: Proxy):
    engine.settings.set("twinModelEnabled", True)
    engine.settings.set("twinModelId", SMOLLM2)
    record_decisions(engine, 15)
    engine.checks.run()
    [event] = engine.ledger.latest(kinds=("TwinAnswered",))
    assert (event.subject, event.payload["usable"]) == (SMOLLM2, False)
    assert event.payload["reason"]
    assert [card for card in engine.cards.list_pending() if card.source is Source.TWIN_MODEL] == []
    assert proxy.requests[0]["temperature"] == 0.3
    assert len(proxy.requests) <= 2, "it is asked again once"
    assert all(call.state != "running" for call in engine.calls.for_session("twin"))


def test_a_session_is_summarised_by_the_model_or_by_its_record(engine: Engine, world: ModelWorld):
    session = world.run("Say hello in one short sentence", seconds=SESSION_TIMEOUT_S)
    engine.settings.set("memory.model", SMOLLM2)
    engine.knowledge.catch_up()
    [summary] = [entry.text for entry in engine.memory.read_entries(Layer.CONTEXT) if entry.session == session.id]
    [call] = [call for call in engine.calls.for_session(session.id) if call.run_kind == "summary"]
    assert call.input_tokens > 100
    if call.state == "done":
        assert summary.split()[:5] == engine.calls.reply(call.id).split()[:5]
    else:
        assert call.error
        assert summary.startswith("Task: Say hello")
    assert len(summary.split()) <= 120


def test_with_an_unusable_answer_the_rules_extract_learnings_and_the_judge_promotes_nothing(
    engine: Engine, world: ModelWorld
):
    rule = "Never touch the changelog by hand"
    for number in range(3):
        card = world.propose("Say hello in one short sentence")
        engine.cards.approve(card.id, edit=f"Say hello in one short sentence. {rule}", without_sandbox=True)
        session = engine.sessions.of_card(card.id)
        world.finish(session, SESSION_TIMEOUT_S)
        engine.settings.set("memory.model", SMOLLM2 if number == 2 else "")
        engine.learnings.catch_up()
    assert [call.run_kind for call in engine.calls.for_session(session.id)][-1] == "learnings"
    [fault] = engine.ledger.latest(kinds=("FaultReported",))
    assert f"no model said what {session.id} taught, the rules did" in fault.payload["message"]
    [entry] = engine.learnings.list_entries("project")
    assert entry.text == rule
    report = engine.learnings.run_chain(judge=True)
    assert report.judged[entry.id].startswith("no answer: ")
    assert engine.learnings.list_entries("global") == []
    [call] = engine.calls.for_session(entry.id)
    assert call.run_kind == "learnings-judge"
    assert call.output_tokens > 0
