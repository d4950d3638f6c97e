"""The work screen: transcripts, diffs, and what becomes of a change set."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.formats import moment, workspace_name
from clawpy_console.screens.work.screen import WorkScreen
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.session import heading_lines
from clawpy_console.widgets.transcript import Transcript
from engine.events import SessionOutput
from engine.model import ChangeState, Refusal, SessionState, TranscriptLine
from tests.console.conftest import at, live, running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, NOW, sessions
from tests.support.helpers import assert_contains

CHANGE = "chg_000000000001"


async def to_the_change(pilot) -> None:
    await live(pilot)
    await pilot.press("2")
    await until(pilot, lambda: pilot.app.screen.change is not None)


async def test_the_diff_and_the_test_result_are_shown_by_file(console: ConsoleApp) -> None:
    async with at(console, to_the_change, size=(200, 60)) as pilot:
        await wait_for_text(pilot, "return round(sum(lines), 2)")
        text = screen_text(console)
        assert_contains(text, "pytest: 24 passed", "+18 -0")


@pytest.mark.long
async def test_commands_and_exit_codes_are_told_from_output(console: ConsoleApp) -> None:
    async with running(console, "2", "up", size=(200, 60)) as pilot:
        await wait_for_text(pilot, "$ python -m pytest")
        assert "✗ exit 1" in screen_text(console)
        await pilot.press("down")
        await wait_for_text(pilot, "→ exit 0")


@pytest.mark.long
async def test_it_opens_on_what_waits_for_the_operator_until_he_chooses(console: ConsoleApp, engine: StandIn) -> None:
    first = engine.changes.all[0]
    runs, lands, red, *_ = engine.sessions.all
    engine.changes.all.append(dataclasses.replace(first, id="chg_2", session_id=red.id))
    async with running(console, "2") as pilot:
        work = console.screen
        assert work.session.id == lands.id  # not the one that runs, which is listed first
        await pilot.press("1")
        engine.changes.all[0] = dataclasses.replace(first, state=ChangeState.DISCARDED)
        console.reload(["changes"])
        await until(pilot, lambda: console.state.changes[0].state is ChangeState.DISCARDED)
        await pilot.press("2")
        assert work.session.id == red.id  # nothing was chosen: the next that waits
        await pilot.press("up", "1", "2")
        assert work.session.id == runs.id


@pytest.mark.long
async def test_who_landed_something_finds_it_when_he_comes_back(console: ConsoleApp, engine: StandIn) -> None:
    first = engine.changes.all[0]
    engine.changes.all.append(dataclasses.replace(first, id="chg_2", session_id=engine.sessions.all[2].id))
    async with at(console, to_the_change) as pilot:
        await pilot.press("L")
        await wait_for_text(pilot, "3 files landed")
        await pilot.press("1", "2", "u")
        await until(pilot, lambda: ("undone", CHANGE) in engine.noted)


@pytest.mark.parametrize(("keys", "list"), [(("tab",), "#queue"), (("2",), "#sessions")])
async def test_what_waits_to_be_landed_has_a_mark_that_is_not_the_cursors(
    console: ConsoleApp, keys: tuple[str, ...], list: str
) -> None:
    async with running(console, *keys):
        rows = console.screen.query_one(list, Rows)
        assert rows.has_focus
        assert [line for line in screen_text(console).split("\n") if "▸▼ " in line]
        assert "▸▸" not in screen_text(console)


@pytest.mark.long
async def test_sessions_name_their_repository_where_there_are_several(console: ConsoleApp, engine: StandIn) -> None:
    first = engine.sessions.all[0]
    async with running(console, "2", size=(80, 24)) as pilot:
        await until(pilot, lambda: f"{workspace_name(first.workspace)}: {first.prompt}"[:30] in screen_text(console))
        engine.sessions.all = [
            dataclasses.replace(session, workspace=first.workspace) for session in engine.sessions.all
        ]
        console.reload(["sessions"])
        await until(pilot, lambda: f"{workspace_name(first.workspace)}: " not in screen_text(console))
        assert first.prompt[:30] in screen_text(console)


async def test_after_an_approval_it_opens_on_the_new_session(console: ConsoleApp, engine: StandIn) -> None:
    older = engine.sessions.all[1]
    async with running(console, "2", "down", "1") as pilot:
        card = console.state.cards[0]
        new = dataclasses.replace(older, id="sess_000000000777", prediction_id=card.id, created_at=NOW)
        engine.sessions.all.insert(0, new)
        await pilot.press("right", "2")
        console.reload(["sessions"])
        await until(pilot, lambda: console.screen.session.id == new.id)
        await pilot.press("down", "1", "2")
        assert console.screen.session.id != new.id, "only once"


@pytest.mark.parametrize(
    ("key", "said"),
    [("L", "L: land the changes"), ("c", "It works in the diff."), ("u", "Nothing of this session is landed."),
     ("R", "Nothing is stopped."), ("f", "No model works on this session.")],
)  # fmt: skip
async def test_a_key_that_can_do_nothing_now_says_why(
    console: ConsoleApp, engine: StandIn, key: str, said: str
) -> None:
    engine.sessions.all, engine.changes.all = engine.sessions.all[2:], []
    async with running(console, "2", key, notifications=True) as pilot:
        await wait_for_text(pilot, said)


async def test_it_opens_on_what_asks_before_what_can_be_landed(console: ConsoleApp, engine: StandIn) -> None:
    engine.with_agent()
    async with running(console, "2"):
        assert console.screen.session.id == AGENT


@pytest.mark.long
async def test_land_and_take_the_landing_back(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_the_change, notifications=True) as pilot:
        await pilot.press("u")  # nothing has landed yet
        assert not engine.changes.all[0].decided_at
        await pilot.press("L")
        await until(pilot, lambda: ("landed", CHANGE) in engine.noted)
        await wait_for_text(pilot, "3 files landed")
        await pilot.press("u")
        await until(pilot, lambda: ("undone", CHANGE) in engine.noted)
        await wait_for_text(pilot, "L lands it again")
        await pilot.press("L")  # taken back is not thrown away
        await until(pilot, lambda: engine.noted.count(("landed", CHANGE)) == 2)


@pytest.mark.long
async def test_a_key_pressed_while_an_undo_runs_is_answered(console: ConsoleApp, engine: StandIn) -> None:
    answered, undo = threading.Event(), engine.changes.undo
    engine.changes.undo = lambda id: (answered.wait(5), undo(id))[1]  # type: ignore[method-assign]
    async with at(console, to_the_change, notifications=True) as pilot:
        await pilot.press("L")
        await wait_for_text(pilot, "3 files landed")
        await pilot.press("u", "b")
        await wait_for_text(pilot, "is still running. Try again in a moment.")
        await pilot.press("u")
        answered.set()
        await wait_for_text(pilot, "anding undone")
        assert engine.noted.count(("undone", CHANGE)) == 1
        assert ("branched", CHANGE) not in engine.noted
        await pilot.press("b")
        await until(pilot, lambda: ("branched", CHANGE) in engine.noted)


@pytest.mark.long
async def test_after_an_undo_that_was_refused_its_keys_are_there_again(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["undone"] = Refusal("conflict", "shop/cart.py was edited since", "commit it first")
    async with at(console, to_the_change, notifications=True) as pilot:
        await pilot.press("L")
        await wait_for_text(pilot, "3 files landed")
        await pilot.press("u")
        await wait_for_text(pilot, "was edited since")
        await pilot.press("u")
        await wait_for_text(pilot, "anding undone")


async def test_branch(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_the_change) as pilot:
        await pilot.press("b")
        await until(pilot, lambda: ("branched", CHANGE) in engine.noted)


@pytest.mark.long
async def test_a_landing_that_conflicts_says_so_and_changes_nothing(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["landed"] = Refusal("conflict", "shop/cart.py was changed by both", "branch it instead")
    async with at(console, to_the_change, notifications=True) as pilot:
        await pilot.press("L")
        await wait_for_text(pilot, "changed by both")
        assert "to land" in screen_text(console)


@pytest.mark.long
async def test_discard_asks_for_a_second_key_of_its_own(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_the_change) as pilot:
        await pilot.press("D", "y", "up", "enter", "D")
        assert not [call for call in engine.noted if call[0] == "discarded"]
        await pilot.press("escape")
        assert len(console.screen_stack) == 1
        await pilot.press("D", "X")
        await until(pilot, lambda: ("discarded", CHANGE) in engine.noted)


async def test_discard_is_of_the_changes_that_were_asked_about(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_the_change) as pilot:
        await pilot.press("D")
        work = console.screen_stack[0]
        assert isinstance(work, WorkScreen)
        work.query_one("#sessions", Rows).action_first()  # as when another session takes the cursor meanwhile
        await until(pilot, lambda: work.change is None or work.change.id != CHANGE)
        await pilot.press("X")
        await until(pilot, lambda: ("discarded", CHANGE) in engine.noted)


async def test_stop_the_running_session(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "2", "up", "S") as pilot:
        await until(pilot, lambda: ("stop_session", "sess_000000000001") in engine.noted)
        await pilot.press("down", "S")
        assert len([call for call in engine.noted if call[0] == "stop_session"]) == 1


async def test_filter_keeps_the_sessions_with_these_words(console: ConsoleApp) -> None:
    async with running(console, "2", "slash", *"lint", "space", *"failed", "enter") as pilot:
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000004")
        assert "Summarise the day" not in screen_text(console)


@pytest.mark.long
async def test_the_transcript_follows_its_end_unless_one_scrolled_up(console: ConsoleApp, engine: StandIn) -> None:
    session = engine.sessions.all[0].id
    lines = engine.sessions.transcripts[session]

    def grow(count: int) -> None:
        start = len(lines)
        lines.extend(TranscriptLine(start + n + 1, NOW, "output", f"line {start + n + 1}") for n in range(count))
        engine.bus.publish(SessionOutput(subject=session, last_line=len(lines), text=""))

    async with running(console, "2", "up", "enter") as pilot:
        view = console.screen.query_one("#transcript", Transcript)
        grow(5000)
        await until(pilot, lambda: view.last_line == f"line {len(lines)}")
        assert view.at_end
        await pilot.press("pageup")
        where = view.scroll_offset.y
        grow(100)
        await until(pilot, lambda: view.last_line == f"line {len(lines)}")
        assert view.scroll_offset.y == where
        await pilot.press("G")
        grow(1)
        await wait_for_text(pilot, f"line {len(lines)}")


@pytest.mark.parametrize("scrolled", [False, True])
async def test_the_end_of_a_transcript_stays_in_sight_while_something_else_needs_lines(
    console: ConsoleApp, engine: StandIn, scrolled: bool
) -> None:
    session = engine.sessions.all[0]
    lines = [TranscriptLine(n, NOW, "output", f"line {n}") for n in range(1, 101)]
    engine.sessions.transcripts[session.id] = lines
    engine.sessions.all[0] = dataclasses.replace(session, lines=100)
    async with running(console, "2", "up", "enter", size=(80, 24), notifications=True) as pilot:
        view = console.screen.query_one("#transcript", Transcript)
        await until(pilot, lambda: view.last_line == "line 100" and view.at_end)
        if scrolled:
            await pilot.press("pageup")
        top = view.scroll_offset.y
        for n in range(3):
            console.show_toast(f"said {n}")
        await wait_for_text(pilot, "said 2")
        assert ("line 100" in screen_text(console)) != scrolled
        assert not scrolled or view.scroll_offset.y == top
        lines.append(TranscriptLine(101, NOW, "output", "line 101"))
        engine.bus.publish(SessionOutput(subject=session.id, last_line=101, text=""))
        await until(pilot, lambda: view.last_line == "line 101")
        await pilot.pause()
        assert ("line 101" in screen_text(console)) != scrolled


@pytest.mark.long
async def test_a_long_transcript_is_read_from_its_tail_and_capped(console: ConsoleApp, engine: StandIn) -> None:
    session = engine.sessions.all[0]
    engine.sessions.transcripts[session.id] = [TranscriptLine(n, NOW, "output", f"l{n}") for n in range(1, 30_001)]
    engine.sessions.all[0] = dataclasses.replace(session, lines=30_000)
    async with running(console, "2", "up") as pilot:
        view = console.screen.query_one("#transcript", Transcript)
        await until(pilot, lambda: view.last_line == "l30000")
        assert len(view._lines) == 20_000


async def test_older_sessions_are_listed_at_the_end_of_the_list(console: ConsoleApp, engine: StandIn) -> None:
    last = engine.sessions.all[-1]
    engine.sessions.all += [dataclasses.replace(last, id=f"sess_old_{n:03}", prompt=f"old one {n}") for n in range(70)]
    everything = [session.id for session in engine.sessions.all]
    async with running(console, "2") as pilot:
        await wait_for_text(pilot, "SESSIONS  60+")
        await pilot.press("G")
        await wait_for_text(pilot, "older: ⏎ lists 60 more")
        assert [session.id for session in console.state.sessions] == everything[:60]
        await pilot.press("enter")
        await until(pilot, lambda: console.screen.session and console.screen.session.id == everything[60])
        await wait_for_text(pilot, f"SESSIONS  {len(everything)} ")
        await pilot.press("G")
        assert console.screen.session.id == everything[-1]
        assert "older:" not in screen_text(console)


@pytest.mark.long
async def test_a_filter_says_that_it_looked_among_the_newest_only(console: ConsoleApp, engine: StandIn) -> None:
    last = engine.sessions.all[-1]
    engine.sessions.all += [dataclasses.replace(last, id=f"sess_old_{n:03}", prompt=f"old one {n}") for n in range(70)]
    async with running(console, "2", "slash", *"one 69", "enter") as pilot:
        await wait_for_text(pilot, "older: ⏎ looks further")
        await pilot.press("G", "enter")
        await wait_for_text(pilot, "old one 69")


def test_of_an_interrupted_session_nobody_knows_how_long_it_took() -> None:
    whole = next(session for session in sessions() if session.state is SessionState.SUCCEEDED)
    cut = dataclasses.replace(whole, state=SessionState.INTERRUPTED)
    told = "\n".join(line.plain for line in heading_lines(cut, (), NOW, 100))
    assert f"interrupted  started {moment(cut.started_at, NOW)}" in told
