"""Coding agents that misbehave: the session ends with a reason, in time and within its cost (SPEC 3.4, 3.7, 3.8)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from engine.execution.model_calls import CallUsage
from engine.execution.session_processes import marked_processes
from engine.model import SessionState, SessionView
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.acp.acp_world import AcpWorld
from tests.execution.acp.conftest import Make
from tests.support.helpers import wait_until

ASK = {"title": "go on?", "kind": "edit"}


def stopped(world: AcpWorld, view: SessionView) -> float:
    """Stop it; seconds until it is over."""
    began = time.monotonic()
    world.sessions.stop(view.id, "enough")
    world.finish(view)
    return time.monotonic() - began


# At the beginning


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("--silent", "did not answer `initialize` within"),
        ("--old", "speaks version 7"),
        ("--die", "cannot find my configuration"),
    ],
)
def test_an_agent_that_cannot_start_fails_with_its_reason(
    make: Make, database: Database, mode: str, words: str
) -> None:
    world = make(modes=[mode], start_seconds=2 if mode == "--silent" else 20, command=())
    view = world.run({"say": "never"})
    assert view.state is SessionState.CANNOT_RUN
    assert words in view.error or words in str(world.texts(view, ["error"]))
    assert world.calls.begun == []
    (erred,) = Ledger(database).latest(kinds=("AgentErred",))
    assert (erred.subject, erred.payload["tool"]) == (view.id, "acp:small")


@pytest.mark.long
def test_the_login_hint_names_the_agents_own_home(make: Make) -> None:
    world = make(modes=["--login"])
    view = world.run({"say": "never"})
    assert "is not logged in" in view.error
    assert f"HOME={world.home.data / 'acp' / 'small'}" in view.error
    assert "env` of [acp.small]" in view.error


@pytest.mark.long
def test_lines_that_are_no_messages_are_shown_and_ignored(make: Make) -> None:
    world = make(modes=["--garbage", "--chatter"])
    view = world.run({"say": "hello"})
    assert view.state is SessionState.SUCCEEDED
    assert world.texts(view) == ["hello"]
    assert "Welcome to the agent!" in world.texts(view, ["output"])
    assert len([line for line in world.texts(view, ["error"]) if "not messages" in line]) == 1


def test_an_agent_that_is_not_installed_or_configured_is_no_runner(make: Make) -> None:
    from dataclasses import replace

    from engine.model import Assignment

    world = make(command=["no-such-agent"])
    here = Assignment("x", "koji-core", str(world.repository.path), "acp:small")
    assert "not on the PATH" in world.runner.check(here).reason
    assert "in the settings" in world.runner.check(replace(here, runner="acp:other")).reason
    assert not world.runner.check(here).available
    prose = make()
    assert "text prompts" in prose.runner.check(replace(here, flow="run_tests")).reason
    assert prose.runner.check(here).available


# In the middle


@pytest.mark.long
def test_an_agent_that_dies_leaves_its_last_output_and_its_changes(world: AcpWorld) -> None:
    view = world.run({"write": {"path": "b.txt", "content": "half\n"}}, {"die": 9})
    assert view.state is SessionState.FAILED
    assert "ended in the middle" in view.error
    assert "out of memory" in view.error
    assert world.calls.ended[-1]["state"] == "failed"
    assert world.changes.for_session(view.id) is not None


@pytest.mark.long
def test_more_than_64_open_requests_are_refused(world: AcpWorld) -> None:
    gate = threading.Event()
    world.answer = lambda title: True if gate.is_set() else None
    view = world.start({"flood_requests": 500})
    wait_until(lambda: "sent" in world.texts(view), 60)
    gate.set()
    assert world.finish(view, 60).state is SessionState.SUCCEEDED
    assert world.texts(view) == ["sent", f"refused {500 - 64}"]


@pytest.mark.long
def test_a_line_without_end_ends_the_session(world: AcpWorld) -> None:
    view = world.run({"bytes": 33 * 2**20})
    assert view.state is SessionState.FAILED
    assert "a line of more than 32 MiB" in view.error


@pytest.mark.long
def test_an_agent_that_does_not_read_is_ended(world: AcpWorld) -> None:
    world.repository.commit("big", {"big.txt": "0123456789abcdef\n" * 130_000})
    view = world.run({"deaf": {"path": "big.txt", "times": 60}})
    assert view.state is SessionState.FAILED
    assert "does not read" in view.error


@pytest.mark.long
def test_control_characters_of_an_agent_are_sanitised(world: AcpWorld) -> None:
    chunk = '{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "%s"}}'
    head = '{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1", "update": '
    view = world.run(
        {"raw": head + chunk % "broken <FF> byte\\n" + "}}\n"},
        {"raw": head + chunk % "half \\ud83d character\\n" + "}}\n"},
        {"raw": head + chunk % "\\u001b[31mred\\u0007\\n" + "}}\n"},
    )
    assert world.texts(view) == ["broken \ufffd byte", "half \ufffd character", "red"]


@pytest.mark.long
def test_invalid_updates_are_ignored_with_one_warning(world: AcpWorld) -> None:
    view = world.run(
        {"foreign": "psst"},
        {"foreign": "psst"},
        {"update": {"sessionUpdate": "telepathy", "text": "x"}},
        {"raw": '{"jsonrpc": "2.0", "method": "$/unknown", "params": 3}\n'},
        {"say": "ours"},
    )
    assert world.texts(view) == ["ours"]
    assert len([line for line in world.texts(view, ["error"]) if "another session" in line]) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "request_",
    [
        {"method": "fs/read_text_file", "params": {"path": "a.txt"}, "session": "another"},
        {"method": "fs/read_text_file", "params": {}},
        {"method": "terminal/output", "params": {"terminalId": "term_99"}},
        {"method": "elicitation/create", "params": {}},
        {"method": "_secret/backdoor", "params": {}},
    ],
)
def test_an_invalid_request_is_answered_with_an_error(world: AcpWorld, request_: dict[str, Any]) -> None:
    view = world.run({"request": request_}, {"say": "on"})
    assert '"code": -32' in world.texts(view)[0]
    assert world.texts(view)[-1] == "on"


# Stopping


@pytest.mark.long
def test_a_hanging_agent_is_ended_within_a_second(world: AcpWorld) -> None:
    view = world.start({"say": "now\n"}, {"child": True}, {"hang": True})
    wait_until(lambda: world.texts(view))
    wait_until(lambda: len(marked_processes(view.id)) >= 2)
    assert stopped(world, view) < 2  # 1 s, and a busy machine
    view = world.sessions.get(view.id)
    assert view.state is SessionState.CANCELLED
    assert world.changes.for_session(view.id) is None
    assert world.calls.ended[-1]["state"] == "cancelled"


@pytest.mark.long
def test_a_stop_cancels_the_turn_and_pending_permissions_and_refuses_later_requests(make: Make) -> None:
    world = make(modes=["--stubborn"])
    world.answer = lambda title: None
    cancellation, answer, late = (str(world.root / name) for name in ("cancellation", "answer", "late"))
    view = world.start(
        {"permission": ASK},
        {"told": answer},
        {"wait_cancel": cancellation},
        {"request": {"method": "fs/write_text_file", "params": {"path": "late.txt", "content": "x"}}},
        {"told": late},
        {"hang": True},
    )
    wait_until(lambda: world.permission_requests)
    stopped(world, view)
    assert (world.root / "cancellation").read_text() == "cancelled"
    assert (world.root / "answer").read_text() == "cancelled"
    assert "the session is ending" in (world.root / "late").read_text()


@pytest.mark.long
def test_terminals_do_not_outlive_the_session(world: AcpWorld) -> None:
    view = world.run({"request": {"method": "terminal/create", "params": {"command": "sleep", "args": ["3600"]}}})
    assert view.state is SessionState.SUCCEEDED
    assert marked_processes(view.id) == []


# What it costs


def usage(used: int, amount: float | None = None, currency: str = "USD") -> dict[str, Any]:
    cost = {} if amount is None else {"cost": {"amount": amount, "currency": currency}}
    return {"update": {"sessionUpdate": "usage_update", "used": used, "size": 200_000, **cost}}


@pytest.mark.long
def test_a_reported_cost_is_charged_once(world: AcpWorld) -> None:
    total = {"totalTokens": 1_500, "inputTokens": 1_000, "outputTokens": 500}
    view = world.run(usage(900, 0.01), usage(1_200, 0.03), usage(1_100, 0.02), {"usage": total})
    assert (view.cost, view.tokens) == (30_000, 1_500)
    (ended,) = world.calls.ended
    assert (ended["usage"], ended["price_known"]) == (CallUsage(1_000, 500, 30_000), True)


@pytest.mark.long
@pytest.mark.parametrize("report", [usage(100), usage(100, 5.0, "EUR"), usage(100, float("nan")), usage(100, -1.0)])
def test_an_unknown_price_is_charged_at_the_estimate_and_marked(world: AcpWorld, report: dict[str, Any]) -> None:
    view = world.run(report)
    assert (view.cost, view.tokens) == (50_000, 100)
    assert world.calls.ended[0]["price_known"] is False


@pytest.mark.long
def test_a_cost_cap_ends_the_session_in_the_middle_of_a_turn(make: Make) -> None:
    world = make(purse=lambda session_id, total: "the hour's $2.00 are spent" if total > 60_000 else "")
    view = world.run(usage(10, 0.07), {"hang": True})
    assert view.state is SessionState.FAILED
    assert "the hour's $2.00" in view.error


@pytest.mark.long
def test_no_turn_begins_beyond_the_caps(make: Make) -> None:
    world = make(purse=lambda session_id, total: "the day's $20.00 are spent")
    view = world.run({"say": "never"})
    assert "the day's $20.00" in view.error
    assert world.texts(view) == []
    assert world.calls.begun == []


@pytest.mark.long
def test_tokens_are_counted_while_the_turn_runs(make: Make) -> None:
    class Holding:
        """A sandbox as far as sessions ask."""

        name, confines, can_filter_hosts, has_process_namespaces = "holding", True, True, False

        def describe(self, *, network: bool, hosts: Any = ()) -> str:
            return "holding"

        def wrap(self, argv: Any, confinement: Any, *, cwd: Any) -> list[str]:
            return list(argv)

        def temporary_folder(self, confinement: Any) -> str:
            return str(confinement.scratch / "tmp")

    world = make(sandbox=Holding())
    view = world.run(usage(50_000), usage(50_001), {"hang": True}, mode="autonomous")
    assert view.state is SessionState.FAILED
    assert "50,001 of 50,000 tokens" in view.error
