"""Work with an agent's session: permissions, replies, going on with a finished one, the X-ray, its folder."""

from __future__ import annotations

import dataclasses
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission.details import Details
from clawpy_console.screens.mission.screen import MissionScreen
from clawpy_console.screens.mission.stack import CardStack
from clawpy_console.screens.work.session_actions import GUARD_S, PermissionPane, ReplyLine
from clawpy_console.screens.work.xray import XRay
from clawpy_console.widgets.prompt_lines import PromptLines
from clawpy_console.widgets.rows import Rows
from engine.events import PermissionAsked
from engine.model import ChangeState, Refusal, SessionState
from tests.console.conftest import at, live, running, screen_text, toasts, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, SHOP, SOUL_FILE, permissions
from tests.support.helpers import assert_contains

WIDE = (120, 40)


@pytest.fixture
def agent(engine: StandIn) -> StandIn:
    return engine.with_agent()


async def to_work(pilot: Pilot) -> PermissionPane:
    """On the work screen, on the agent's session, with the moment over in which no key answers."""
    await live(pilot)
    pilot.app.open("work", AGENT)
    await until(pilot, lambda: pilot.app.screen.query("#asked"))
    await until(pilot, lambda: pilot.app.screen.session and pilot.app.screen.session.id == AGENT)
    asked = pilot.app.screen.query_one(PermissionPane)
    settle(asked)
    return asked


def settle(asked: PermissionPane) -> None:
    later = asked.clock() + GUARD_S + 0.01  # sums of seconds since the start of the machine are not exact
    asked.clock = lambda: later


def answers(engine: StandIn) -> list[tuple[Any, ...]]:
    return [call[1:] for call in engine.noted if call[0] == "answer"]


# Permissions


async def test_a_request_shows_what_exactly_why_and_since_when(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE):
        text = screen_text(console)
        assert_contains(
            text, "run `git push origin main`", "it leaves this machine", "waits 1m 20s", "1 of 2", "ASKING YOU"
        )


@pytest.mark.parametrize(
    ("key", "answer"), [("a", "allow-once"), ("A", "allow-session"), ("n", "deny-once"), ("N", "deny-session")]
)
async def test_each_answer_has_a_key(console: ConsoleApp, agent: StandIn, key: str, answer: str) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: answers(agent) == [("perm_000000000001", answer)])


@pytest.mark.long
async def test_enter_answers_nothing(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        await pilot.press("enter", "space", "y", "enter")
        assert answers(agent) == []


async def test_no_key_answers_for_a_moment_after_the_request_changed(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        asked = await to_work(pilot)
        await pilot.press("a")
        await until(pilot, lambda: asked.current and asked.current.id == "perm_000000000002")
        await pilot.press("a", "A", "n")  # the second came under the finger
        assert len(answers(agent)) == 1
        settle(asked)
        await pilot.press("n")
        await until(pilot, lambda: answers(agent)[1:] == [("perm_000000000002", "deny-once")])
        await until(pilot, lambda: asked.current is None)
        await pilot.press("a")
        assert len(answers(agent)) == 2


async def test_several_requests_are_answered_in_any_order(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        asked = await to_work(pilot)
        await pilot.press("m")
        await wait_for_text(pilot, "branches: [main]")
        assert "write deploy.yml" in screen_text(console)
        settle(asked)
        await pilot.press("a")
        await until(pilot, lambda: answers(agent) == [("perm_000000000002", "allow-once")])


async def test_a_long_request_leaves_its_keys_in_sight_and_says_that_it_goes_on(
    console: ConsoleApp, agent: StandIn
) -> None:
    long = "\n".join(f"line {number} of the script" for number in range(60))
    agent.permissions.all = [dataclasses.replace(permissions()[0], detail=long)]
    async with at(console, to_work, size=(80, 24)) as pilot:
        await wait_for_text(pilot, "more below")
        assert_contains(screen_text(console), "deny for this session", "line 0 of the script")
        console.screen.go_to("asked-detail")
        await pilot.press("G")
        await wait_for_text(pilot, "line 59 of the script")
        assert "a allow once" in screen_text(console)


@pytest.mark.long
async def test_a_request_that_was_answered_elsewhere_is_said_and_goes(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        asked = await to_work(pilot)
        agent.refuse["answer"] = Refusal("permission_answered", "it was answered already: denied", "")
        agent.permissions.all = []
        await pilot.press("a")
        await wait_for_text(pilot, "answered already")
        await until(pilot, lambda: asked.current is None)


async def test_a_request_that_comes_up_is_seen_at_once(console: ConsoleApp, agent: StandIn) -> None:
    agent.permissions.all = []
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        asked = await to_work(pilot)
        assert asked.current is None
        agent.permissions.all = permissions()
        agent.bus.publish(PermissionAsked(subject="perm_000000000001", session_id=AGENT, tool="exec", title="run x"))
        await until(pilot, lambda: asked.current is not None)
        await wait_for_text(pilot, "Permission needed: run x")


async def test_mission_control_has_it_in_the_one_queue_and_leads_to_it(console: ConsoleApp, agent: StandIn) -> None:
    async with running(console, size=WIDE) as pilot:
        assert "backend_builder asks: run" in screen_text(console) or "backend_builder asks" in screen_text(console)
        queue = console.screen.query_one("#queue", Rows)
        console.screen.set_focus(queue)
        queue.select("perm_000000000001")
        await pilot.press("enter")
        await until(pilot, lambda: console.screen.query("#asked"))
        await until(pilot, lambda: console.screen.query_one(PermissionPane).current is not None)


# Replies


async def test_a_reply_goes_to_the_session_it_was_opened_for(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        await pilot.press("f", *"use", "space", *"tax.py")
        console.screen.query_one("#sessions", Rows).cursor += 2  # the list moved meanwhile
        await pilot.press("enter")
        await until(pilot, lambda: ("reply", AGENT, "use tax.py") in agent.noted)
        assert not console.screen.query_one(ReplyLine).has_class("-shown")


async def test_keys_of_the_screen_are_letters_while_one_writes(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        await pilot.press("f", *"aANSLDx2")
        assert console.screen.query_one(ReplyLine).value == "aANSLDx2"
        assert answers(agent) == []
        await pilot.press("escape")
        assert not console.screen.query_one(ReplyLine).has_class("-shown")
        assert not [call for call in agent.noted if call[0] in ("reply", "stop_session")]


@pytest.mark.long
async def test_a_finished_session_is_continued_by_a_card_on_top(console: ConsoleApp, agent: StandIn) -> None:
    agent.permissions.all = []
    agent.sessions.all[0] = dataclasses.replace(
        agent.sessions.all[0], state=SessionState.SUCCEEDED, ended_at=agent.now - timedelta(minutes=1)
    )
    async with running(console, "2", size=WIDE) as pilot:
        await until(pilot, lambda: console.screen.query("#asked"))
        console.screen.query_one("#sessions", Rows).select(AGENT)
        await until(pilot, lambda: console.screen.session and console.screen.session.id == AGENT)
        await pilot.press("f", *"and", "space", *"docs", "enter")
        await until(pilot, lambda: ("propose", "and docs", SHOP, AGENT) in agent.noted)
        await until(pilot, lambda: isinstance(console.screen, MissionScreen))
        stack = console.screen.query_one(CardStack)
        await until(pilot, lambda: stack.front.assignment.prompt == "and docs")
        await until(pilot, lambda: not console._is_reading and not console.cards._unsettled)
        assert stack.front.assignment.prompt == "and docs"


@pytest.mark.long
async def test_one_that_ended_while_one_wrote_can_be_continued_with_the_same_words(
    console: ConsoleApp, agent: StandIn
) -> None:
    agent.refuse["reply"] = Refusal("not_running", f"{AGENT} is succeeded", "continue it")
    async with at(console, to_work, size=WIDE) as pilot:
        await pilot.press("f", *"more")
        agent.sessions.all[0] = dataclasses.replace(
            agent.sessions.all[0], state=SessionState.SUCCEEDED, ended_at=agent.now - timedelta(seconds=1)
        )
        await pilot.press("enter")
        line = console.screen.query_one(ReplyLine)
        await until(pilot, lambda: line.has_class("-shown") and line.value == "more")
        await pilot.press("enter")
        await until(pilot, lambda: ("propose", "more", SHOP, AGENT) in agent.noted)


async def test_a_flow_takes_no_reply(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "2", "f", "down", "f", size=WIDE):
        assert not console.screen.query_one(ReplyLine).has_class("-shown")


# Header and transcript


@pytest.mark.long
async def test_the_heading_says_model_tokens_and_that_a_price_is_estimated(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        await wait_for_text(pilot, "openai:gpt-5-mini")
        text = screen_text(console)
        assert_contains(text, "≈$0.02", "4.2k tokens", "2 calls")


# X-ray


async def xray(pilot: Pilot) -> PromptLines:
    await to_work(pilot)
    await pilot.press("x")
    await until(pilot, lambda: isinstance(pilot.app.screen, XRay))
    view = pilot.app.screen.query_one(PromptLines)
    await until(pilot, lambda: "Use Decimal for money." in view.prompt_text)
    return view


@pytest.mark.long
async def test_the_xray_shows_the_newest_call_whole_with_sources(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=(200, 60)) as pilot:
        view = await xray(pilot)
        assert "use Decimal, not float" in view.prompt_text  # what came later in the conversation too
        text = screen_text(console)
        assert_contains(
            text,
            "2 gpt-5-mini",
            "soul.md        │ # Builder",
            "AGENTS.md      │ Use Decimal for money.",
            "unknown price",
        )
        await pilot.press("up")
        await wait_for_text(pilot, "recall was left out")
        assert "use Decimal, not float" not in view.prompt_text
        assert "I look at the cart first." in screen_text(console)  # what it answered


async def test_of_a_flow_no_xray_is_offered(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE) as pilot:
        assert "x x-ray" in screen_text(console)
        flow = next(session for session in console.state.sessions if session.flow)
        console.screen.query_one("#sessions", Rows).select(flow.id)
        await until(pilot, lambda: console.screen.session == flow)
        await until(pilot, lambda: "x x-ray" not in screen_text(console))
        await pilot.press("x")
        assert not isinstance(console.screen, XRay), "no model was asked"


@pytest.mark.long
async def test_enter_on_a_line_opens_the_file_it_came_from(
    console: ConsoleApp, agent: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    async with console.run_test(size=WIDE) as pilot:
        await xray(pilot)
        await pilot.press("enter", "down", "enter")
        await until(pilot, lambda: opened == [SOUL_FILE])
        assert not isinstance(console.screen, XRay)


@pytest.mark.long
async def test_enter_on_the_task_opens_the_card(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        view = await xray(pilot)
        await pilot.press("tab")
        while view.line != "Round cart totals to whole cents, with a test":
            await pilot.press("down")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, Details))


@pytest.mark.long
async def test_copy_a_line_and_the_whole_prompt(console: ConsoleApp, agent: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        view = await xray(pilot)
        await pilot.press("tab", "down", "y")
        assert console.clipboard == "# Builder"
        await pilot.press("Y")
        assert console.clipboard == view.prompt_text
        assert console.clipboard.startswith('<identity agent="backend_builder">\n# Builder\nBuilds small')


# The folder


async def test_the_folder_opens_in_a_window_of_tmux(
    console: ConsoleApp, agent: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    agent.sessions.all[0] = dataclasses.replace(agent.sessions.all[0], cwd=str(tmp_path))
    async with at(console, to_work, size=WIDE, notifications=True) as pilot:
        await pilot.press("o")
        await until(pilot, lambda: ran == [["tmux", "new-window", "-c", str(tmp_path)]])
        await wait_for_text(pilot, "new tmux window")
        assert_contains(screen_text(console), "To come back", "The session keeps")


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "fix"),
    [
        (ChangeState.WAITING, "L lands it. For a folder: b makes a branch, `git worktree add FOLDER BRANCH` opens it"),
        (ChangeState.UNDONE, "L lands it. For a folder: b makes a branch, `git worktree add FOLDER BRANCH` opens it"),
        (ChangeState.LANDED, "its diff is in the pane on the right"),
        (None, "the files are in "),
    ],
)
async def test_a_session_whose_folder_is_gone_says_what_to_do_instead(
    console: ConsoleApp, agent: StandIn, state: ChangeState | None, fix: str
) -> None:
    gone = "its worktree is gone"
    session = dataclasses.replace(agent.sessions.all[0], state=SessionState.SUCCEEDED, gone=gone)
    agent.sessions.all[0] = session
    change = dataclasses.replace(agent.changes.all[0], session_id=session.id, state=state or ChangeState.WAITING)
    agent.changes.all = [change] if state else []
    async with at(console, to_work, size=WIDE, notifications=True) as pilot:
        await pilot.press("o")
        await until(pilot, lambda: f"{gone}: {fix}" in toasts(console))


@pytest.mark.long
async def test_a_folder_that_is_gone_is_said(console: ConsoleApp, agent: StandIn) -> None:
    async with at(console, to_work, size=WIDE, notifications=True) as pilot:
        await pilot.press("o")
        await wait_for_text(pilot, "only the diff is left")
