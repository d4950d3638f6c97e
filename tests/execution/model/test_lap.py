"""The whole lap with a model: card, approval, session, tools, change set, landing, undo (SPEC 3.8, 3.9, 9.4, 9.6)."""

from __future__ import annotations

import sys
import threading

import pytest

from engine.model import Outcome, SessionState, Status
from tests.execution.model.world import ModelWorld, hosts, until
from tests.support.model_server import Call, Reply, calls


@pytest.mark.long
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_card_in_prose_becomes_a_change_that_lands(world: ModelWorld) -> None:
    write = Call("write", {"path": "hello.txt", "content": "Hello\n"})
    world.server.script(
        Reply(thought="A file it is.", text="I write it.\nThen I am done.", calls=(write,)),
        Reply(text="I wrote a greeting into hello.txt."),
    )
    with world.opened() as engine:
        card = world.propose()
        assert card.assignment.runner == "model"
        view = world.run()
        assert (view.state, view.error) == (SessionState.SUCCEEDED, "")
        assert view.summary == "I wrote a greeting into hello.txt."
        assert world.texts(view, "thought") == ["A file it is."]
        assert world.texts(view, "say") == ["I write it.", "Then I am done.", "I wrote a greeting into hello.txt."]
        assert any("hello.txt" in text for text in world.texts(view, "tool"))
        assert view.change_set_id is not None
        assert not (world.repository.path / "hello.txt").exists()
        engine.changes.land(view.change_set_id)
        assert (world.repository.path / "hello.txt").read_text() == "Hello\n"
        engine.changes.undo(view.change_set_id)
        assert not (world.repository.path / "hello.txt").exists()
        world.close_well(view)
        done = world.card_of(view)
        assert (done.status, done.outcome) == (Status.EXECUTED, Outcome.SUCCEEDED)
        first, second = world.calls(view)
        assert (first.state, second.state, second.follows) == ("done", "done", first.id)
        assert (first.input_tokens, first.output_tokens, first.price_known) == (100, 20, True)
        assert view.cost == first.cost + second.cost == world.spent() > 0
        assert view.tokens == 240
        (used,) = engine.ledger.latest(kinds=("ToolsUsed",))
        assert (used.subject, used.payload["calls"]) == (view.id, ["write"])
        parts = engine.calls.prompt(second.id)
        assert [part.role for part in parts][-2:] == ["assistant", "tool"]
        request = world.server.requests[1]
        assert "hello.txt" in request.tool_results[0]
        assert "Write a greeting" in world.server.requests[0].users[0]
        assert "worktree" in request.system


@pytest.mark.long
def test_one_host_serves_all_sessions_and_ends_with_the_engine(alone: ModelWorld) -> None:
    before = hosts()
    with alone.opened():
        alone.run("First thing")
        (host,) = [process for process in hosts() if process not in before]
        alone.run("Second thing")
        assert [process for process in hosts() if process not in before] == [host]
        assert host.status() != "zombie"
        assert "CLAWPY_OPENAI_API_KEY" not in host.environ()
    assert not host.is_running()


@pytest.mark.long
def test_a_reply_reaches_the_model_with_its_next_request(world: ModelWorld) -> None:
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
        assert "and say goodbye too" in engine.calls.prompt(world.calls(view)[1].id)[-1].text
        world.close_well(view)


@pytest.mark.long
def test_a_finished_session_is_continued_with_its_conversation(world: ModelWorld) -> None:
    world.server.script(calls("write", path="hello.txt", content="Hello\n"), "Written.", "It is in English.")
    with world.opened() as engine:
        first = world.run()
        second = world.run("Which language is it?", continues=first.id)
        assert (second.state, second.summary) == (SessionState.SUCCEEDED, "It is in English.")
        request = world.server.requests[2]
        assert request.users[0] == world.server.requests[0].users[0]
        assert "Which language is it?" in request.users[-1]
        assert "The files hold what you changed in them before." in request.users[-1]
        assert request.tool_results
        (call,) = world.calls(second)
        assert call.follows == world.calls(first)[-1].id
        roles = [part.role for part in engine.calls.prompt(call.id)]
        assert roles[-1] == "user"
        assert roles.count("assistant") == 2
        world.close_well(second)


@pytest.mark.long
def test_after_a_red_test_the_summary_is_what_it_said_last(world: ModelWorld) -> None:
    (world.repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    quick = "[pytest]\naddopts = --disable-plugin-autoload\n"
    test = "import cart\n\n\ndef test_total():\n    assert cart.total() == 3\n"
    files = {"cart.py": "def total():\n    return 3\n", "test_cart.py": test, ".gitignore": ".venv\n"}
    world.repository.commit("Begin", files | {"pytest.ini": quick})
    world.configure(validation=True)
    world.server.script(
        calls("write", path="cart.py", content="def total():\n    return 4\n"),
        "The total is 4 now.",
        calls("write", path="cart.py", content="def total():\n    return 1 + 2\n"),
        "The total is a sum now.",
    )
    with world.opened():
        view = world.run("Compute the total")
    assert view.check is not None
    assert view.check.green
    assert "The total is a sum now." in view.summary
    assert "The total is 4 now." not in view.summary


@pytest.mark.long
def test_stop_ends_the_call_at_once_counts_what_came_and_the_host_stays(world: ModelWorld) -> None:
    world.server.script(Reply(text="One more word. " * 9, hold=threading.Event(), hold_after=3))
    with world.opened() as engine:
        session = world.start()
        request = world.server.wait(1)
        until(lambda: any("One more" in text for text in world.texts(session, "say")))
        engine.sessions.stop(session.id, "enough")
        view = engine.sessions.wait(session.id, 2)
        assert (view.state, view.error) == (SessionState.CANCELLED, "enough")
        assert request.gone.wait(2)
        (call,) = world.calls(view)
        assert call.state == "cancelled"
        assert call.output_tokens > 0
        world.close_well(view)
        assert world.run("Another").state is SessionState.SUCCEEDED


@pytest.mark.long
def test_the_kill_switch_leaves_no_process_behind(alone: ModelWorld) -> None:
    before = hosts()
    alone.server.script(Reply(hold=threading.Event()))
    with alone.opened() as engine:
        session = alone.start()
        alone.server.wait(1)
        assert hosts() != before
        engine.safety.kill_switch.stop("F12", "operator")
        assert engine.sessions.get(session.id).state is SessionState.CANCELLED
        until(lambda: hosts() == before, 2)
        alone.close_well(engine.sessions.get(session.id))
