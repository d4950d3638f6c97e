"""A model carries out a text prompt: its conversation, its changes, its costs, and what is learned of it (SPEC 3.8,
5.2)."""

import threading
from unittest.mock import Mock

import pytest

from engine.execution.runners.model import FILE_SUFFIX, ConversationStore
from engine.model import Outcome, SessionState, Status
from tests.support.checks import wait_until
from tests.support.model_server import Call, Reply, make_call
from tests.support.model_world import ModelWorld

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_card_in_prose_becomes_a_change_that_lands(world: ModelWorld):
    write = Call("write", {"path": "hello.txt", "content": "Hello\n"})
    world.server.script(
        Reply(thought="A file it is.", text="I write it.\nThen I am done.", calls=(write,)),
        Reply(text="I wrote a greeting into hello.txt."),
    )
    with world.opened() as engine:
        view = world.run()
        assert (view.state, view.summary) == (SessionState.SUCCEEDED, "I wrote a greeting into hello.txt.")
        assert world.read_lines(view, "thought") == ["A file it is."]
        assert world.read_lines(view, "say") == ["I write it.", "Then I am done.", view.summary]
        assert not (world.repository.path / "hello.txt").exists()
        engine.changes.land(view.change_set_id)
        assert (world.repository.path / "hello.txt").read_text() == "Hello\n"
        first, second = world.read_calls(view)
        assert (first.input_tokens, first.output_tokens, first.price_known) == (100, 20, True)
        assert view.cost == first.cost + second.cost == world.sum_costs() > 0
        world.check_end(view)
        card = world.find_card(view)
        assert (card.status, card.outcome) == (Status.EXECUTED, Outcome.SUCCEEDED)


def test_a_reply_reaches_the_model_with_its_next_request(world: ModelWorld):
    hold = threading.Event()
    world.server.script(Reply(text="Half of it.", hold=hold), "All of it.")
    with world.opened() as engine:
        session = world.start()
        world.server.wait(1)
        engine.sessions.reply(session.id, "and say goodbye too")
        hold.set()
        view = world.finish(session)
        assert view.summary == "All of it."
        assert world.server.requests[1].users[-1] == "and say goodbye too"
        assert "and say goodbye too" in engine.calls.read_prompt(world.read_calls(view)[1].id)[-1].text
        world.check_end(view)


def test_a_finished_session_is_continued_with_its_conversation(world: ModelWorld):
    world.server.script(make_call("write", path="hello.txt", content="Hello\n"), "Written.", "It is in English.")
    with world.opened():
        first = world.run()
        with (world.home.transcripts / f"{first.id}{FILE_SUFFIX}").open("a") as file:
            file.write('{"kind": "resp')  # a crash leaves the last message half-written
        second = world.run("Which language is it?", continues=first.id)
        assert (second.state, second.summary) == (SessionState.SUCCEEDED, "It is in English.")
        request = world.server.requests[2]
        assert request.users[0] == world.server.requests[0].users[0]
        assert "Which language is it?" in request.users[-1]
        assert "The files hold what you changed in them before." in request.users[-1]
        assert request.tool_results
        (call,) = world.read_calls(second)
        assert call.follows == world.read_calls(first)[-1].id
        world.check_end(second)


def test_a_paid_answer_counts_though_it_cannot_be_stored(world: ModelWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ConversationStore, "add", Mock(side_effect=OSError(28, "No space left on device")))
    world.server.script("Done.")
    with world.opened():
        view = world.run()
        assert view.state is SessionState.SUCCEEDED
        assert "cannot be continued: No space" in str(world.read_lines(view, "error"))


def test_a_stop_ends_the_call_and_counts_its_cost_and_the_host_stays(world: ModelWorld):
    world.server.script(Reply(text="One more word. " * 9, hold=threading.Event(), hold_after=3))
    with world.opened() as engine:
        session = world.start()
        request = world.server.wait(1)
        wait_until(lambda: (line := engine.sessions.read_unfinished_line(session.id)) and "One more" in line.text)
        engine.sessions.stop(session.id, "enough")
        view = engine.sessions.wait(session.id, 10)
        assert (view.state, view.error) == (SessionState.CANCELLED, "enough")
        assert request.gone.wait(10)
        (call,) = world.read_calls(view)
        assert (call.state, call.output_tokens > 0) == ("cancelled", True)
        world.check_end(view)
        assert world.run("Another").state is SessionState.SUCCEEDED


def test_the_kill_switch_leaves_no_process_behind(fresh_world: ModelWorld):
    fresh_world.server.script(Reply(hold=threading.Event()))
    with fresh_world.opened() as engine:
        session = fresh_world.start()
        fresh_world.server.wait(1)
        assert fresh_world.find_started_hosts()
        engine.safety.kill_switch.stop("F12", "operator")
        assert engine.sessions.get(session.id).state is SessionState.CANCELLED
        wait_until(lambda: not fresh_world.find_started_hosts())
        fresh_world.check_end(engine.sessions.get(session.id))
