"""Single questions to a model, those of memory among them, with a real model host, real calls and costs (SPEC 3.4,
4.8)."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import Mock

import pytest
from sqlmodel import col, select

from engine import Engine
from engine.background import HelperGone
from engine.execution.runners.model.host_client import Conversation
from engine.model import Assignment, Layer, ModelCall, ModelQuestion, NoAnswer
from engine.safety.costs import CostEntry
from tests.support.checks import refused
from tests.support.model_server import ModelServer, Reply
from tests.support.model_world import GPT, KEY, ModelWorld


@pytest.fixture
def engine(world: ModelWorld) -> Iterator[Engine]:
    with world.opened() as engine:
        engine.settings.set("memory.model", f"openai:{GPT}")
        yield engine


def make_question(**changes: object) -> ModelQuestion:
    """A question with the key in its text."""
    fields = {
        "purpose": "summary", "subject": "session_1", "instructions": "Be brief.", "text": f"The key is {KEY}. Sum up.",
        "max_tokens": 512, "budget": 50_000, "seconds": 30.0, "agent": "backend_builder",
    }  # fmt: skip
    return ModelQuestion(**{**fields, **changes})


def read_charges(engine: Engine) -> list[tuple[str, str, int]]:
    """Purpose, state and micro-dollars of each cost that belongs to no card, the oldest first."""
    with engine.database.read() as session:
        rows = session.exec(select(CostEntry).where(col(CostEntry.prediction_id).is_(None)).order_by(col(CostEntry.id)))
        return [(row.purpose, row.state, row.amount_microusd) for row in rows]


def get_only_call(engine: Engine, subject: str = "session_1") -> ModelCall:
    (call,) = engine.calls.list_for_session(subject)
    return call


def run_session(engine: Engine, world: ModelWorld, server: ModelServer) -> str:
    """Run a session of the model that says something, and return its id."""
    server.script(Reply(text="Decision: we keep the old parser. It is done."))
    return world.run("Look at the parser").id


def find_summary(engine: Engine, session: str) -> str:
    return next(entry.text for entry in engine.memory.read_entries(Layer.CONTEXT) if entry.session == session)


# Questions


def ask(engine: Engine, **changes: object) -> str:
    return engine.single_questions.ask(f"openai:{GPT}", make_question(**changes)).text


def test_an_answer_is_charged_and_stored_without_secrets(engine: Engine, server: ModelServer):
    server.script(Reply(text=f"It is fixed, not {KEY}.", usage=(1_000, 100)))
    assert ask(engine) == "It is fixed, not [secret cut]."
    assert server.requests[0].system == "Be brief."
    assert KEY not in server.requests[0].users[0]
    call = get_only_call(engine)
    assert (call.state, call.run_kind, call.input_tokens, call.output_tokens) == ("done", "summary", 1_000, 100)
    assert call.cost > 0
    assert read_charges(engine) == [("summary", "settled", call.cost)]
    assert [part.role for part in engine.calls.read_prompt(call.id)] == ["system", "user"]
    assert engine.calls.read_reply(call.id) == "It is fixed, not [secret cut]."


@pytest.mark.parametrize(
    "reply, words",
    [
        (Reply(status=500, error="overloaded"), "is not working at the moment"),
        (Reply(status=401, error="no such key"), "clawpy key set openai"),
        (Reply(text="The task was", finish="length"), "cut off"),
        (Reply(text=""), "answer was empty"),
    ],
)
def test_a_failure_is_reported_and_charged(engine: Engine, server: ModelServer, reply: Reply, words: str):
    server.script(reply)
    with pytest.raises(NoAnswer, match=words) as failed:
        ask(engine)
    call = get_only_call(engine)
    assert (call.state, call.cost) == ("failed", failed.value.cost)
    assert read_charges(engine) == [("summary", "settled", call.cost)]
    assert len(server.requests) == 1, "nothing is tried again, for rules can answer instead"


def test_a_host_that_has_ended_is_the_stored_reason(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Conversation, "ask", Mock(side_effect=HelperGone("the model host has ended")))
    with pytest.raises(NoAnswer, match="has ended"):
        ask(engine)
    call = get_only_call(engine)
    assert (call.state, call.error) == ("failed", "the model host has ended")


@pytest.mark.long
def test_a_slow_question_is_given_up_and_its_request_cancelled(engine: Engine, world: ModelWorld, server: ModelServer):
    never = threading.Event()

    def answer(request: object) -> Reply:
        world.clock.advance(timedelta(seconds=30))
        return Reply(hold=never)

    server.answer = answer
    with pytest.raises(NoAnswer, match="no answer within 30 s"):
        ask(engine)
    assert server.requests[0].gone.wait(10)
    assert get_only_call(engine).cost > 0, "a provider may ask money for what it read"


def test_a_question_never_passes_a_cap(engine: Engine, server: ModelServer):
    engine.settings.set("crossPollCostCapPerHour", 0.0001)
    with pytest.raises(NoAnswer, match="the hour's cap"):
        ask(engine)
    with pytest.raises(NoAnswer, match="may cost more"):
        ask(engine, budget=10)
    assert server.requests == []
    assert read_charges(engine) == []


def test_no_question_is_asked_while_the_engine_is_stopped(engine: Engine, server: ModelServer):
    engine.safety.kill_switch.stop("looking into something", "test")
    with pytest.raises(NoAnswer, match="looking into something"):
        ask(engine)
    assert server.requests == []


def test_a_text_prompt_would_run_on_the_model(engine: Engine, world: ModelWorld):
    assignment = Assignment("?", "koji-core", str(world.repository.path), "model")
    info = engine.sessions.check(assignment)
    assert (info.available, info.check_only, info.executor) == (True, False, f"openai:{GPT}")
    assert engine.sessions.apply_edit(assignment, " and then? \n").prompt == "and then?"
    refused("bad_parameters", lambda: engine.sessions.apply_edit(assignment, " \n"))


# Summaries of sessions


@pytest.mark.long
def test_the_model_summarises_a_session_and_rules_while_it_fails(
    engine: Engine, world: ModelWorld, server: ModelServer
):
    first = run_session(engine, world, server)
    server.script(Reply(status=500, error="overloaded"))
    engine.knowledge.catch_up()
    assert find_summary(engine, first).startswith("Task: Look at the parser.")
    second = run_session(engine, world, server)
    engine.knowledge.catch_up()
    assert find_summary(engine, second).startswith("Task: Look at the parser.")
    assert len(server.requests) == 3, "it rests for five minutes"
    (fault,) = (row.payload for row in engine.ledger.read_newest(200) if row.kind == "FaultReported")
    assert "summarised by rules" in fault["message"]
    world.clock.advance(timedelta(minutes=5))
    third = run_session(engine, world, server)
    server.script(Reply(text="It answers again."))
    engine.knowledge.catch_up()
    assert find_summary(engine, third) == "It answers again."
    assert "Decision: we keep the old parser" in server.requests[-1].users[0]
