"""Services that ask a real model single questions (SPEC 6.4).

A model of this size rarely answers in the form that is asked for. Whatever it says must either be used or be refused
with a reason, must be charged, and must harm nothing else.
"""

from collections.abc import Iterator

import pytest

from engine import Engine
from engine.model import Answer, ModelCall, NoAnswer, Question
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
