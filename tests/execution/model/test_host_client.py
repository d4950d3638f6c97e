"""The model host or its provider hangs, dies or does not obey: limits of time, tokens and cost hold (SPEC 3.4, 3.7,
3.8)."""

import contextlib
import json
import sqlite3
import subprocess
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from engine.background import HelperGone
from engine.execution.runners.model import Model, host_client
from engine.execution.runners.model.agent_loop import FIRST_BYTE_S, MAX_SILENCE_S
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.session_limits import Limits
from engine.model import SessionState
from tests.support.checks import wait_until
from tests.support.model_server import Reply, make_call
from tests.support.model_world import KEY, ModelWorld
from tests.support.programs import is_alive

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

HANGING = Reply(text="It begins, and then there is nothing.", hold=Event(), hold_after=2)
"""An answer that stops in the middle, for ever."""


@pytest.mark.parametrize("characters, seconds", [(0, FIRST_BYTE_S), (3, MAX_SILENCE_S)], ids=["first byte", "silence"])
def test_a_hanging_provider_is_given_up_after_its_time(world: ModelWorld, characters: int, seconds: float):
    hanging = Reply(text="One more word. " * 9, hold=Event(), hold_after=characters)
    world.server.script(hanging, "Done.")
    with world.opened():
        session = world.start()
        request = world.server.wait(1)
        if characters:
            wait_until(lambda: world.engine.sessions.read_unfinished_line(session.id))
        world.clock.advance(timedelta(seconds=seconds - 1))
        assert not request.gone.wait(0.3)
        notice = f"waiting for {world.model}, at most {seconds:.0f} s"
        wait_until(lambda: notice in world.read_lines(session, "note"))
        world.clock.advance(timedelta(seconds=1))
        if not request.gone.wait(5):  # a busy machine: it began to wait after the clock was moved
            world.clock.advance(timedelta(seconds=seconds))
        assert request.gone.wait(30)
        view = world.finish(session)
        assert (view.state, view.summary) == (SessionState.SUCCEEDED, "Done.")
        assert [call.price_known for call in world.read_calls(view)] == [False, True]
        world.check_end(view)


def test_a_host_that_dies_is_replaced_and_the_conversation_continues(fresh_world: ModelWorld):
    fresh_world.server.script(make_call("read", path="readme.md"), HANGING, "Done.")
    with fresh_world.opened():
        session = fresh_world.start()
        fresh_world.server.wait(2)
        (host,) = fresh_world.find_started_hosts()
        host.kill()
        view = fresh_world.finish(session)
        assert (view.state, view.summary) == (SessionState.SUCCEEDED, "Done.")
        last = fresh_world.server.requests[2]
        assert last.tool_results == fresh_world.server.requests[1].tool_results
        assert last.users == fresh_world.server.requests[1].users
        fresh_world.check_end(view)


def test_a_host_that_does_not_cancel_is_killed_and_other_sessions_continue(fresh_world: ModelWorld):
    fresh_world.server.script(HANGING, HANGING, "Done.")
    with fresh_world.opened() as engine:
        first, second = fresh_world.start("One"), fresh_world.start("Two")
        fresh_world.server.wait(2)
        (host,) = fresh_world.find_started_hosts()
        host.suspend()
        engine.sessions.stop(first.id, "enough")
        view = engine.sessions.wait(first.id, 10)
        assert view.state is SessionState.CANCELLED
        wait_until(lambda: not host.is_running())
        second_view = fresh_world.finish(second)
        assert (second_view.state, second_view.summary) == (SessionState.SUCCEEDED, "Done.")
        fresh_world.check_end(view)
        fresh_world.check_end(second_view)


def test_an_engine_that_is_killed_leaves_no_host():
    program = (
        "import sys, os, signal\n"
        "from engine.execution.runners.model.host_client import ModelHost\n"
        "host = ModelHost()\nhost.get_or_start()\nprint(host.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [host_client.COMMAND[0], "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    pid = int(killed.stdout)
    wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize("command", [("/nowhere/python",), ("sh", "-c", "echo nonsense; sleep 60"), ("sleep", "60")])
def test_a_host_that_cannot_work_fails_the_conversation(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_client, "WRITE_S", 0.3)
    host = ModelHost(command)
    large_tools = [{"name": "x" * 1_000_000, "description": "", "parameters": {}}]
    with contextlib.suppress(HelperGone):
        conversation = host.open_conversation()
        model = Model("p", "m", "openai", "http://127.0.0.1:9")
        conversation.open(model, instructions="", tools=large_tools, history=None)
        assert conversation.read_message(5)["type"] == "failed"
    host.close()
    assert host.pid is None


def test_a_session_ends_at_its_token_limit(world: ModelWorld, monkeypatch: pytest.MonkeyPatch):
    limits = Limits(120.0, None, 1_000_000, 12_000)
    monkeypatch.setattr(Limits, "of", lambda channel, mode: limits)
    read = make_call("read", path="readme.md").calls
    world.server.script(*[Reply(calls=read, usage=(2_500, 10)) for _ in range(9)])
    with world.opened():
        view = world.run()
        assert view.state is SessionState.FAILED
        assert "of 12,000 tokens" in view.error
        max_outputs = [request.max_tokens or 0 for request in world.server.requests]
        assert all(2_510 * earlier + max_output <= 12_000 for earlier, max_output in enumerate(max_outputs))
        world.check_end(view)


def test_the_key_appears_nowhere(fresh_world: ModelWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Though the provider repeats it, transcripts, calls, database, logs and process listings do not show it."""
    echo = f"your key is {KEY} and Bearer {KEY}"
    hold = Event()
    fresh_world.server.script(
        Reply(thought=echo, text=f"First\n{echo}\n", calls=make_call("read", path=echo).calls),
        Reply(text=echo, piece=7, hold=hold),
        Reply(status=401, error=echo),
    )
    with fresh_world.opened() as engine:
        session = fresh_world.start()
        fresh_world.server.wait(2)
        (host,) = fresh_world.find_started_hosts()
        assert KEY not in " ".join(host.cmdline()) + json.dumps(host.environ())
        hold.set()
        views = [fresh_world.finish(session), fresh_world.run("And now?")]
        assert views[0].state is SessionState.SUCCEEDED
        assert "refuses the key" in views[1].error
        texts = [caplog.text]
        for view in views:
            texts += [view.summary, view.error, *fresh_world.read_lines(view)]
            for call in fresh_world.read_calls(view):
                texts += [call.error, engine.calls.read_reply(call.id)]
                texts += [part.text for part in engine.calls.read_prompt(call.id)]
        assert KEY not in "\n".join(texts)
        assert "[secret cut]" in "\n".join(texts)
    for file in tmp_path.rglob("*"):
        if file.is_file() and ".git" not in file.parts:
            assert KEY.encode() not in file.read_bytes(), file
    with sqlite3.connect(fresh_world.home.database) as database:
        assert not any(KEY in line for line in database.iterdump())
