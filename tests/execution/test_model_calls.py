"""Model calls: the exact prompt of each, conversations stored once, no secrets, no call left running (SPEC 9.6)."""

from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.model_calls import CallState, CallUsage, ModelCalls
from engine.model import Prompt, PromptLine, PromptPart, PromptSource, SessionState, SourceKind
from engine.randomness import Randomness
from engine.storage.database import Database
from tests.support.sessions import make_session_view

SECRET = "hunter2hunter2"


@pytest.fixture
def calls(database: Database) -> ModelCalls:
    return ModelCalls(database, Randomness(1), secrets=lambda: [SECRET], on_prompt=lambda *about: None)


def make_part(name: str, text: str, role: str = "user", kind: SourceKind = SourceKind.CONVERSATION) -> PromptPart:
    lines = tuple(PromptLine(line, PromptSource(kind, "ref", name)) for line in text.split("\n"))
    return PromptPart(name, lines, role)


PROMPT = Prompt(
    (make_part("identity", "You are\nthe builder", "system", SourceKind.SOUL), make_part("task", "fix it")),
    ("recall was left out: no answer within 0.5 s",),
    {"leadership_chain": ["cto"]},
)


def begin_call(calls: ModelCalls, session_id: str = "sess_1", **options: Any) -> str:
    """Store a call of a session. Returns its id."""
    return calls.begin(
        make_session_view(id=session_id), provider="openai", model="gpt-5-mini", run_kind="task", **options
    )


def test_a_call_is_stored_before_it_is_made_and_finished_once_with_its_usage(calls: ModelCalls, clock: FakeClock):
    call = begin_call(calls, prompt=PROMPT)
    assert (calls.get(call).state, calls.get(call).seconds) == ("running", None)

    clock.advance(timedelta(seconds=3))
    calls.finish(call, state=CallState.DONE, usage=CallUsage(120, 9, 1500), price_known=False, reply="done")
    calls.finish(call, state=CallState.FAILED, usage=CallUsage(cost=9))

    [stored] = calls.list_for_session("sess_1")
    assert (stored.state, stored.seconds, stored.input_tokens, stored.output_tokens) == ("done", 3.0, 120, 9)
    assert (stored.cost, stored.price_known, stored.agent) == (1500, False, "builder")
    assert (stored.notes, stored.provenance) == (PROMPT.notes, {"leadership_chain": ["cto"]})
    assert calls.read_reply(call) == "done"


def test_no_secret_of_a_call_is_stored(calls: ModelCalls, database: Database):
    task = make_part("task", f"log in with {SECRET}\nsk-{'x9' * 20}")
    call = begin_call(calls, prompt=Prompt((task,), (f"{SECRET} note",)))
    calls.finish(call, state=CallState.FAILED, error=f"401 for {SECRET}", reply=f"I used {SECRET}")

    stored = repr((calls.read_prompt(call), calls.get(call), calls.read_reply(call)))
    assert (SECRET in stored, "sk-x9" in stored, stored.count("[secret cut]")) == (False, False, 5)
    assert SECRET.encode() not in database.path.read_bytes()


def test_calls_that_ran_during_a_crash_are_interrupted(calls: ModelCalls):
    finished, unfinished = begin_call(calls), begin_call(calls)
    calls.finish(finished, state=CallState.DONE)

    assert calls.recover() == 1
    assert calls.get(unfinished).state == "interrupted"
    assert calls.get(finished).state == "done"
    assert calls.recover() == 0


def test_calls_are_cancelled_with_their_session_and_late_usage_is_stored(
    calls: ModelCalls, database: Database, bus: EventBus
):
    call, unrelated = begin_call(calls), begin_call(calls, session_id="sess_2")
    subscription = bus.subscribe(lambda: None)
    database.write(lambda tx: calls.session_ended(tx, make_session_view(state=SessionState.CANCELLED)))
    assert (calls.get(call).state, calls.get(unrelated).state) == ("cancelled", "running")
    assert [event.kind for event in subscription.drain()] == ["ModelCallEnded"]

    calls.finish(call, state=CallState.FAILED, usage=CallUsage(7, 0, 3))
    stored = calls.get(call)
    assert (stored.state, stored.input_tokens, stored.cost) == ("cancelled", 7, 3)
    assert stored.error == "its session ended: cancelled"


def test_the_calls_that_recalled_a_memory_are_found(calls: ModelCalls):
    def begin(*memory_ids: str) -> str:
        sources = [{"id": memory_id, "layer": "C", "score": 0.5} for memory_id in memory_ids]
        return begin_call(calls, prompt=Prompt(PROMPT.parts, (), {"memory_sources": sources}))

    first, _, second, _ = begin("mem_a", "fact_1"), begin("mem_ab"), begin("mem_a"), begin()
    assert [call.id for call in calls.find_calls_with_memory("mem_a")] == [second, first]
    assert calls.find_calls_with_memory("mem%") == []
