"""Mission control around the cards: its panes, their lists, and what they open (SPEC 9.3)."""

import dataclasses
from datetime import timedelta

import pytest
from rich.cells import cell_len
from textual.content import Content

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission_panes import make_glance
from clawpy_console.widgets.rows import Rows
from engine.model import SessionState
from tests.console.card_steps import FIRST, in_front
from tests.console.driving import read_screen, running
from tests.console.mission_steps import add_problem, go_to, in_pane, remove_all_that_waits, with_session
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, read_sessions
from tests.console.stories import (
    Given,
    Stories,
    Until,
    called,
    carry_out,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    sees,
)

PANES = ("queue", "tasks", "agents", "sessions", "live")


def has_row(list_id: str, text: str, below: str = "", mark: str = "") -> Until:
    """A list has a row with `text`; with `below` in the row below it and with this mark, "" for any."""

    def is_met(app: ConsoleApp) -> bool:
        rows = app.screen.query_one(list_id, Rows).rows
        index = next(index for index, row in enumerate(rows) if text in row.text)
        return (not below or below in rows[index + 1].text) and mark in ("", rows[index].mark)

    return Until(f"a row with {text}", is_met)


def remove_tasks_and_channels(app: ConsoleApp):
    """The engine has no task and no channel any more."""
    find_stand_in(app).tasks.list = lambda **_: []
    find_stand_in(app).settings.current.channels = ()
    app.reload(["tasks", "settings"])


def with_changes_that_wait_for(span: timedelta) -> Given:
    """The changes have waited so long."""

    def change(engine: StandIn):
        engine.changes.all = [dataclasses.replace(item, created_at=engine.now - span) for item in engine.changes.all]

    return Given(change)


LANDED_SESSION = Until("its session", lambda app: app.screen.session.id == "sess_000000000002")
STORIES: Stories = {
    "the list of sessions says how each ended and when": (
        with_session(1, discarded_at=NOW - timedelta(minutes=2)),
        has_row("#sessions", "Hunt flakes: 4 slowest", "15s · running", "◐"),
        # when it was discarded, not when it ended
        has_row("#sessions", "Format and fix", "14:10 · 1m 00s · discarded"),
        has_row("#sessions", "Run the tests of", "13:51 · 1m 00s · 1 test failed"),
        has_row("#sessions", "blog: Summarise the day", "13:09 · 1m 00s · 4 commits, 2 test"),
        hides("succeeded"),
    ),
    "what could not run is not called a failure": (
        with_session(3, state=SessionState.CANNOT_RUN, error="ruff is not found"),
        has_row("#sessions", "Lint the 6 files", "could not run", "○"),
    ),
    **{
        f"an empty stack is silent about a {kind} that is out of the history again": (
            Given(remove_all_that_waits),
            Given(lambda engine, kind=kind: add_problem(engine, checked_at=engine.now, kind=kind)),
            sees("✓ Nothing needs you"),
            hides("Do not push"),
        )
        for kind in ("secret", "large_file")
    },
    "tasks and agents are shown only while there are any": (
        has_row("#tasks", "cart rounding", mark="○"),
        has_row("#agents", "koji-core"),
        hides("research"),
        remove_tasks_and_channels,
        hides("TASKS", "AGENTS"),
    ),
    "keys of the stack do nothing while another pane has the focus": (
        press("tab"),
        in_pane("queue"),
        press("l h right left s j k"),
        in_front(FIRST),
        never_called("approve", "dismiss", "snooze"),
    ),
    "the queue leads to the session": (press("tab enter"), on_screen("work"), LANDED_SESSION),
    "an agent that never worked is shown in the hierarchy": (
        Given(lambda engine: engine.sessions.all.clear()),
        go_to("agents"),
        press("enter"),
        on_screen("hierarchy"),
    ),
}


test_story = make_story_test(STORIES)


@pytest.mark.long
async def test_tab_walks_through_all_panes_of_a_narrow_terminal(console: ConsoleApp):
    walk = [step for name in (*PANES, "stack") for step in (press("tab"), in_pane(name))]
    high = Until("its height", lambda app: app.screen.query_one("#live").region.height > 3)
    await play(console, *walk, press("shift+tab"), in_pane("live"), high, size=(80, 24))


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", PANES)
async def test_every_pane_has_the_common_keys_and_escape_leads_back_to_the_cards(
    console: ConsoleApp, name: str, size: tuple[int, int]
):
    useless = Until("no key of cards", lambda app: "→ approve" not in read_screen(app).split("\n")[-1])
    common = (press("w p"), called("check", True), press("n"), sees("New prompt"), press("escape"))
    leave = (press("escape"), in_pane("stack"), sees("only shop"), press("right"), called("approve", FIRST, None))
    await play(console, go_to(name), in_pane(name), useless, *common, *leave, size=size)


async def test_the_heading_says_how_many_cards_the_list_hides_above(console: ConsoleApp):
    async with running(console, size=(80, 24)) as pilot:
        console.screen.greet([Content(f"line {number}") for number in range(4)])
        await carry_out(pilot, press("G"), sees("CARDS 5 of 5 ▲ 4 more above"), press("g"), hides("more above"))


async def test_a_pane_that_a_narrow_terminal_shows_uses_its_width(console: ConsoleApp):
    long = with_session(1, state=SessionState.CANNOT_RUN, error="nothing to run, " * 20 + "at all")
    whole_row = Until(
        "a long row", lambda app: any(len(line.rstrip()) > 70 for line in read_screen(app).split("\n")[6:9])
    )
    await play(console, long, go_to("sessions"), sees("nothing to run"), sees("…"), whole_row, size=(80, 24))


@pytest.mark.parametrize(
    "error, line",
    [
        ("ruff is not found (pip install ruff)", "last output  ruff is not found (pip install ruff)"),
        (
            f"ruff is not {'found, ' * 9} (pip install ruff)",
            "last output  ruff is not found, fou… → pip install ruff",
        ),
        ("", "last output  the last line"),
    ],
)
def test_one_line_about_an_error_that_is_too_long_has_the_beginning_of_the_problem_and_its_fix(error: str, line: str):
    session = dataclasses.replace(read_sessions()[1], state=SessionState.CANNOT_RUN, error=error)
    text = make_glance("the last line", session, "", 55)
    assert text.removesuffix("…") == line
    assert cell_len(text) <= 55


@pytest.mark.parametrize("since, age", [(timedelta(seconds=59), "just now"), (timedelta(minutes=1), "oldest 1m")])
async def test_the_folded_queue_says_how_long_its_oldest_item_waits(console: ConsoleApp, since: timedelta, age: str):
    await play(console, with_changes_that_wait_for(since), sees(f", {age}"), size=(80, 24))


@pytest.mark.parametrize(
    "state, label", [(SessionState.RUNNING, "  live  "), (SessionState.SUCCEEDED, "  last output  ")]
)
async def test_output_below_the_cards_is_called_live_while_its_session_runs(
    console: ConsoleApp, state: SessionState, label: str
):
    await play(console, with_session(0, state=state, ended_at=NOW), sees(label), size=(80, 24))


async def test_all_clocks_change_in_the_same_frame(console: ConsoleApp):
    async with running(console):
        list_of_sessions = console.screen.query_one("#sessions", Rows)
        row_sets = set()
        for tenth in range(10):
            console.now = lambda tenth=tenth: NOW.replace(microsecond=0) + timedelta(seconds=tenth / 10)
            console.screen.tick()
            row_sets.add(tuple(list_of_sessions.rows))
        assert len(row_sets) == 1
