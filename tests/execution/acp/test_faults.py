"""Coding agents that misbehave: the session ends with a reason, in time and within its cost (SPEC 3.4, 3.7, 3.8)."""

import time
from dataclasses import replace

import pytest

from engine.execution.session_processes import find_marked_processes
from engine.model import Assignment, SessionState
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld
from tests.execution.acp.steps import (
    ask_permission,
    die,
    hang,
    report_usage,
    say,
    send_line_without_end,
    start_child,
    write,
)
from tests.execution.session_world import ClaimsToConfine
from tests.support.checks import wait_until

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
    (erred,) = Ledger(database).read_newest(kinds=("AgentErred",))
    assert (erred.subject, erred.payload["tool"]) == (view.id, "acp:small")


def test_the_login_hint_names_the_agents_own_home(make_acp_world: MakeAcpWorld):
    world = make_acp_world(modes=["--login"])
    view = world.run(say("never"))
    assert "is not logged in" in view.error
    assert f"HOME={world.home.data / 'acp' / 'small'}" in view.error
    assert "env` of [acp.small]" in view.error


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


def test_a_line_without_end_ends_the_session(world: AcpWorld):
    view = world.run(send_line_without_end(33 * 2**20))
    assert view.state is SessionState.FAILED
    assert "a line of more than 32 MiB" in view.error


# Stopping


def test_an_agent_that_waits_for_a_permission_is_ended_soon(world: AcpWorld):
    world.decide = lambda title: None
    view = world.start(start_child(), ask_permission("go on?", "edit"))
    wait_until(lambda: world.permission_requests)
    wait_until(lambda: len(find_marked_processes(view.id)) >= 2)
    stopped_at = time.monotonic()
    world.sessions.stop(view.id, "enough")
    world.finish(view)
    assert time.monotonic() - stopped_at < 8  # 1 s, and a busy machine
    view = world.sessions.get(view.id)
    assert view.state is SessionState.CANCELLED
    assert world.find_change(view) is None
    assert world.calls.ended[-1]["state"] == "cancelled"


# Costs and tokens


def test_a_cost_cap_ends_the_session_in_the_middle_of_a_turn(make_acp_world: MakeAcpWorld):
    world = make_acp_world(reserve=lambda session_id, total: "the hour's $2.00 are spent" if total > 60_000 else "")
    view = world.run(report_usage(10, 0.07), hang())
    assert view.state is SessionState.FAILED
    assert "the hour's $2.00" in view.error


def test_tokens_are_counted_while_the_turn_runs(make_acp_world: MakeAcpWorld):
    world = make_acp_world(sandbox=ClaimsToConfine())
    view = world.run(report_usage(50_000), report_usage(50_001), hang(), mode="autonomous")
    assert view.state is SessionState.FAILED
    assert "50,001 of 50,000 tokens" in view.error
