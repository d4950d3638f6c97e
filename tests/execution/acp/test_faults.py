"""Coding agents that misbehave: the session ends with a reason, in time and within its cost (SPEC 3.4, 3.7, 3.8)."""

import threading
import time
from dataclasses import replace

import pytest

from engine.execution.model_calls import CallUsage
from engine.execution.session_processes import find_marked_processes
from engine.model import Assignment, SessionState
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld
from tests.execution.acp.steps import (
    Step,
    ask_permission,
    die,
    end_turn_with_usage,
    flood_with_requests,
    hang,
    keep_answer,
    read_and_listen_to_nothing,
    report_usage,
    request,
    say,
    say_elsewhere,
    send_line_without_end,
    send_raw,
    send_update,
    start_child,
    wait_for_cancel,
    write,
)
from tests.execution.session_world import ClaimsToConfine
from tests.support.helpers import wait_until

pytestmark = pytest.mark.long


# At the start of the agent


@pytest.mark.parametrize(
    "mode, words",
    [
        ("--silent", "did not answer `initialize` within"),
        ("--old", "speaks version 7"),
        ("--die", "cannot find my configuration"),
    ],
)
def test_an_agent_that_cannot_start_fails_with_its_reason(
    make_acp_world: MakeAcpWorld, database: Database, mode: str, words: str
):
    world = make_acp_world(modes=[mode], start_seconds=2 if mode == "--silent" else 20)
    view = world.run(say("never"))
    assert view.state is SessionState.CANNOT_RUN
    assert words in view.error or words in str(world.read_lines(view, ["error"]))
    assert world.calls.begun == []
    (erred,) = Ledger(database).latest(kinds=("AgentErred",))
    assert (erred.subject, erred.payload["tool"]) == (view.id, "acp:small")


def test_the_login_hint_names_the_agents_own_home(make_acp_world: MakeAcpWorld):
    world = make_acp_world(modes=["--login"])
    view = world.run(say("never"))
    assert "is not logged in" in view.error
    assert f"HOME={world.home.data / 'acp' / 'small'}" in view.error
    assert "env` of [acp.small]" in view.error


def test_lines_that_are_no_messages_are_shown_and_ignored(make_acp_world: MakeAcpWorld):
    world = make_acp_world(modes=["--garbage", "--chatter"])
    view = world.run(say("hello"))
    assert view.state is SessionState.SUCCEEDED
    assert world.read_words(view) == ["hello"]
    assert "Welcome to the agent!" in world.read_lines(view, ["output"])
    assert len([line for line in world.read_lines(view, ["error"]) if "not messages" in line]) == 1


def test_an_agent_that_is_not_installed_or_configured_is_no_runner(make_acp_world: MakeAcpWorld):
    assignment = Assignment("x", "koji-core", "/w", "acp:small")
    missing = make_acp_world(command=["no-such-agent"]).runner.check(assignment)
    assert not missing.available
    assert "not on the PATH" in missing.reason
    runner = make_acp_world().runner
    assert runner.check(assignment).available
    assert "in the settings" in runner.check(replace(assignment, runner="acp:other")).reason
    assert "text prompts" in runner.check(replace(assignment, flow="run_tests")).reason


# In a turn


def test_an_agent_that_dies_leaves_its_last_output_and_its_changes(world: AcpWorld):
    view = world.run(write("b.txt", "half\n"), die(9))
    assert view.state is SessionState.FAILED
    assert "ended with exit code 9 in the middle" in view.error
    assert "out of memory" in view.error
    assert "log it in" not in view.error
    assert world.calls.ended[-1]["state"] == "failed"
    assert world.find_change(view) is not None


def test_more_than_64_open_requests_are_refused(world: AcpWorld):
    all_sent = threading.Event()
    world.decide = lambda title: True if all_sent.is_set() else None
    view = world.start(flood_with_requests(500))
    wait_until(lambda: "sent" in world.read_words(view), 60)
    all_sent.set()
    assert world.finish(view, 60).state is SessionState.SUCCEEDED
    assert world.read_words(view) == ["sent", f"refused {500 - 64}"]


def test_a_line_without_end_ends_the_session(world: AcpWorld):
    view = world.run(send_line_without_end(33 * 2**20))
    assert view.state is SessionState.FAILED
    assert "a line of more than 32 MiB" in view.error


def test_an_agent_that_does_not_read_is_ended(world: AcpWorld):
    world.repository.commit("big", {"big.txt": "0123456789abcdef\n" * 130_000})
    view = world.run(read_and_listen_to_nothing("big.txt", times=60))
    assert view.state is SessionState.FAILED
    assert "does not read" in view.error


def test_control_characters_of_an_agent_are_sanitised(world: AcpWorld):
    update = '{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "%s"}}'
    message = (
        f'{{"jsonrpc": "2.0", "method": "session/update", "params": {{"sessionId": "agent-1", "update": {update}}}}}\n'
    )
    view = world.run(
        send_raw(message % "broken <FF> byte\\n"),
        send_raw(message % "half \\ud83d character\\n"),
        send_raw(message % "\\u001b[31mred\\u0007\\n"),
    )
    assert world.read_words(view) == ["broken \ufffd byte", "half \ufffd character", "red"]


def test_invalid_updates_are_ignored_with_one_warning(world: AcpWorld):
    view = world.run(
        say_elsewhere(),
        say_elsewhere(),
        send_update("telepathy", text="x"),
        send_raw('{"jsonrpc": "2.0", "method": "$/unknown", "params": 3}\n'),
        say("ours"),
    )
    assert world.read_words(view) == ["ours"]
    assert len([line for line in world.read_lines(view, ["error"]) if "another session" in line]) == 1


@pytest.mark.parametrize(
    "invalid",
    [
        request("fs/read_text_file", session="another", path="a.txt"),
        request("fs/read_text_file"),
        request("terminal/output", terminalId="term_99"),
        request("elicitation/create"),
        request("_secret/backdoor"),
    ],
)
def test_an_invalid_request_is_answered_with_an_error(world: AcpWorld, invalid: Step):
    view = world.run(invalid, say("on"))
    assert '"code": -32' in world.read_words(view)[0]
    assert world.read_words(view)[-1] == "on"


# Stopping


def test_a_hanging_agent_is_ended_within_a_second(world: AcpWorld):
    view = world.start(say("now\n"), start_child(), hang())
    wait_until(lambda: world.read_words(view))
    wait_until(lambda: len(find_marked_processes(view.id)) >= 2)
    stopped_at = time.monotonic()
    world.sessions.stop(view.id, "enough")
    world.finish(view)
    assert time.monotonic() - stopped_at < 8  # 1 s, and a busy machine
    view = world.sessions.get(view.id)
    assert view.state is SessionState.CANCELLED
    assert world.find_change(view) is None
    assert world.calls.ended[-1]["state"] == "cancelled"


def test_a_stop_cancels_the_turn_and_pending_permissions_and_refuses_later_requests(
    make_acp_world: MakeAcpWorld,
):
    world = make_acp_world(modes=["--stubborn"])
    world.decide = lambda title: None
    view = world.start(
        ask_permission("go on?", "edit"),
        keep_answer(world.root / "answer"),
        wait_for_cancel(world.root / "cancellation"),
        request("fs/write_text_file", path="late.txt", content="x"),
        keep_answer(world.root / "late"),
        hang(),
    )
    wait_until(lambda: world.permission_requests)
    world.sessions.stop(view.id, "enough")
    world.finish(view)
    assert (world.root / "cancellation").read_text() == "cancelled"
    assert (world.root / "answer").read_text() == "cancelled"
    assert "the session is ending" in (world.root / "late").read_text()


def test_terminals_do_not_outlive_the_session(world: AcpWorld):
    view = world.run(request("terminal/create", command="sleep", args=["3600"]))
    assert view.state is SessionState.SUCCEEDED
    assert find_marked_processes(view.id) == []


# Costs and tokens


def test_a_reported_cost_is_charged_once(world: AcpWorld):
    view = world.run(
        report_usage(900, 0.01), report_usage(1_200, 0.03), report_usage(1_100, 0.02), end_turn_with_usage(1_000, 500)
    )
    assert (view.cost, view.tokens) == (30_000, 1_500)
    (ended,) = world.calls.ended
    assert (ended["usage"], ended["price_known"]) == (CallUsage(1_000, 500, 30_000), True)


@pytest.mark.parametrize(
    "report",
    [
        report_usage(100),
        report_usage(100, 5.0, "EUR"),
        report_usage(100, float("nan")),
        report_usage(100, -1.0),
    ],
)
def test_nothing_is_charged_without_a_price_and_the_call_is_marked(world: AcpWorld, report: Step):
    view = world.run(report)
    assert (view.cost, view.tokens) == (0, 100)
    assert world.calls.ended[0]["price_known"] is False


def test_a_cost_cap_ends_the_session_in_the_middle_of_a_turn(make_acp_world: MakeAcpWorld):
    world = make_acp_world(reserve=lambda session_id, total: "the hour's $2.00 are spent" if total > 60_000 else "")
    view = world.run(report_usage(10, 0.07), hang())
    assert view.state is SessionState.FAILED
    assert "the hour's $2.00" in view.error


def test_no_turn_begins_beyond_the_caps(make_acp_world: MakeAcpWorld):
    world = make_acp_world(reserve=lambda session_id, total: "the day's $20.00 are spent")
    view = world.run(say("never"))
    assert "the day's $20.00" in view.error
    assert world.read_words(view) == []
    assert world.calls.begun == []


def test_tokens_are_counted_while_the_turn_runs(make_acp_world: MakeAcpWorld):
    world = make_acp_world(sandbox=ClaimsToConfine())
    view = world.run(report_usage(50_000), report_usage(50_001), hang(), mode="autonomous")
    assert view.state is SessionState.FAILED
    assert "50,001 of 50,000 tokens" in view.error
