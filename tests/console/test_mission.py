"""Mission control around the cards: panes, lists and what they open, toasts, messages."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest
from rich.cells import cell_len
from textual.content import Content

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission_panes import make_glance
from clawpy_console.widgets.rows import Rows
from engine.model import RailVerdict, SessionState, Verdict
from tests.console.conftest import read_screen, read_toasts, running
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, SHOP, cards, sessions
from tests.console.stories import (
    FIRST,
    SECOND,
    Given,
    Step,
    Stories,
    Until,
    called,
    carry_out,
    find_stand_in,
    hides,
    in_front,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    sees,
)

PANES = ("queue", "tasks", "agents", "sessions", "live")


def in_pane(name: str) -> Until:
    """This pane has the focus."""
    return Until(f"pane {name}", lambda app: app.screen.pane == name)


def go_to(pane: str) -> Step:
    """Put the focus on this pane."""
    return lambda app: app.screen.go_to(pane)


def has_row(list_id: str, text: str, below: str = "", mark: str = "") -> Until:
    """A list has a row with `text`; with `below` in the row below it and with this mark, "" for any."""

    def is_met(app: ConsoleApp) -> bool:
        rows = app.screen.query_one(list_id, Rows).rows
        index = next(index for index, row in enumerate(rows) if text in row.text)
        return (not below or below in rows[index + 1].text) and mark in ("", rows[index].mark)

    return Until(f"a row with {text}", is_met)


def with_session(number: int, **fields: object) -> Given:
    """The session at this place of the list has these fields."""

    def change(engine: StandIn) -> None:
        engine.sessions.all[number] = dataclasses.replace(engine.sessions.all[number], **fields)  # type: ignore[arg-type]

    return Given(change)


def remove_tasks_and_channels(app: ConsoleApp) -> None:
    """The engine has no task and no channel any more."""
    find_stand_in(app).tasks.list = lambda **_: []
    find_stand_in(app).settings.current.channels = ()
    app.reload(["tasks", "settings"])


def with_changes_that_wait_for(span: timedelta) -> Given:
    """The changes have waited so long."""

    def change(engine: StandIn) -> None:
        engine.changes.all = [dataclasses.replace(item, created_at=engine.now - span) for item in engine.changes.all]

    return Given(change)


def remove_cards(engine: StandIn) -> None:
    """No card, and no session that failed."""
    engine.cards.all = {}
    engine.sessions.all = engine.sessions.all[:2]


def remove_all_that_waits(engine: StandIn) -> None:
    """No card, no failed session and no changes."""
    remove_cards(engine)
    engine.changes.all = []


def find_problem(engine: StandIn, checked_at: datetime, kind: str = "secret") -> None:
    """The last run found a problem of this kind that is not committed, and the newest check was at this time."""
    facts = {"has_problem": True, "next": kind, "findings": [{"commit": "", "line": 3}]}
    fields = {"state": SessionState.SUCCEEDED, "error": "", "summary": "Do not push: 1 likely secret", "facts": facts}
    with_session(1, **fields).change(engine)
    engine.card_cycle.last_checked = lambda: {SHOP: checked_at}


LANDED_SESSION = Until("its session", lambda app: app.screen.session.id == "sess_000000000002")
STORIES: Stories = {
    "work says how each session ended and when": (
        Given(lambda engine: with_session(1, discarded_at=engine.now - timedelta(minutes=2)).change(engine)),
        has_row("#sessions", "Hunt flakes: 4 slowest", "15s · running", "◐"),
        has_row(
            "#sessions", "Format and fix", "14:10 · 1m 00s · discarded"
        ),  # when it was discarded, not when it ended
        has_row("#sessions", "Run the tests of", "13:51 · 1m 00s · 1 test failed"),
        has_row("#sessions", "blog: Summarise the day", "13:09 · 1m 00s · 4 commits, 2 test"),
        hides("succeeded"),
    ),
    "what could not run is not called a failure": (
        with_session(3, state=SessionState.CANNOT_RUN, error="ruff is not found"),
        has_row("#sessions", "Lint the 6 files", "could not run", "○"),
    ),
    "an empty stack names the changes that wait": (
        Given(remove_cards),
        sees("No cards · 1 change waits: press 2"),
        hides("Nothing needs you"),
    ),
    "an empty stack says why the last run went wrong, and what mends it": (
        Given(remove_all_that_waits),
        with_session(1, state=SessionState.CANNOT_RUN, error="ruff is not found (pip install ruff)"),
        sees("No cards · the last run could not run: press 2", "ruff is not found (pip install ruff)"),
        hides("Nothing needs you"),
    ),
    **{
        f"an empty stack is silent about a {kind} that is out of the history again": (
            Given(remove_all_that_waits),
            Given(lambda engine, kind=kind: find_problem(engine, checked_at=engine.now, kind=kind)),
            sees("✓ Nothing needs you"),
            hides("Do not push"),
        )
        for kind in ("secret", "large_file")
    },
    "an empty stack names the problem of another flow also after a later check": (
        Given(remove_all_that_waits),
        Given(lambda engine: find_problem(engine, checked_at=engine.now, kind="bisect")),
        sees("the last run found a problem: press 2", "Do not push"),
    ),
    "an empty stack names a secret until a later check": (
        Given(remove_all_that_waits),
        Given(lambda engine: find_problem(engine, checked_at=engine.now - timedelta(days=9))),
        sees("the last run found a problem: press 2", "Do not push"),
    ),
    "an empty stack gives the remark of the last check": (
        Given(remove_all_that_waits),
        Given(lambda engine: setattr(engine.card_cycle, "remarks", lambda: {SHOP: "no commit yet; make a commit"})),
        sees("shop: no commit yet"),
        hides("Nothing needs you"),
    ),
    "nothing says that all is well while everything is stopped": (
        Given(remove_all_that_waits),
        Given(lambda engine: engine.safety.kill_switch.stop("F12 pressed", "operator")),
        sees("No cards"),
        hides("Nothing needs you"),
    ),
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
async def test_tab_walks_through_all_panes_of_a_narrow_terminal(console: ConsoleApp) -> None:
    walk = [step for name in (*PANES, "stack") for step in (press("tab"), in_pane(name))]
    high = Until("its height", lambda app: app.screen.query_one("#live").region.height > 3)
    await play(console, *walk, press("shift+tab"), in_pane("live"), high, size=(80, 24))


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", PANES)
async def test_every_pane_has_the_common_keys_and_escape_leads_back_to_the_cards(
    console: ConsoleApp, name: str, size: tuple[int, int]
) -> None:
    useless = Until("no key of cards", lambda app: "→ approve" not in read_screen(app).split("\n")[-1])
    common = (press("w p"), called("run_cycle", True), press("n"), sees("New prompt"), press("escape"))
    leave = (press("escape"), in_pane("stack"), sees("only shop"), press("right"), called("approve", FIRST, None))
    await play(console, go_to(name), in_pane(name), useless, *common, *leave, size=size)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (100, 40), (159, 50), (160, 50)])
@pytest.mark.parametrize("keys", [(), ("2",), ("2", "f"), *((digit,) for digit in "34567")])
async def test_toasts_cover_nothing(
    console: ConsoleApp, engine: StandIn, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    engine.with_agent()
    async with running(console, *keys, size=size, notifications=True) as pilot:
        console.show_toast("something is wrong, and how to fix it")
        console.show_toast(f"something else is wrong, {'in more words than fit one line of a terminal, ' * 2}thus")
        await carry_out(pilot, sees("something is wrong, and how to fix it", "thus"))
        visible_regions = {
            widget: region.intersection(clip)
            for widget, (region, clip) in console.screen._compositor.visible_widgets.items()
            if widget.visible and not widget.children and region.intersection(clip).area
        }
        shown = [visible_regions.pop(toast) for toast in console.screen.query("Toast") if toast in visible_regions]
        assert len(shown) >= 2  # a slow machine has more to say
        assert not [item for item, region in visible_regions.items() for toast in shown if region.overlaps(toast)]


async def test_a_card_keeps_its_lines_below_the_greeting_and_a_banner_and_above_toasts(console: ConsoleApp) -> None:
    console.NOTIFICATION_TIMEOUT = 60
    async with running(console, "f12", size=(80, 24), notifications=True) as pilot:
        console.screen.greet([Content(f"line {number}") for number in range(4)])
        for number in range(6):
            console.show_toast(f"fact {number}")
        await carry_out(
            pilot, sees("■ STOPPED", "line 3", "fact 3", "fact 4", "fact 5", "read-only · runs", "┗━━", "? keys")
        )


async def test_the_heading_says_how_many_cards_the_list_hides_above(console: ConsoleApp) -> None:
    async with running(console, size=(80, 24)) as pilot:
        console.screen.greet([Content(f"line {number}") for number in range(4)])
        await carry_out(pilot, press("G"), sees("CARDS 5 of 5 ▲ 4 more above"), press("g"), hides("more above"))


async def test_a_pane_that_a_narrow_terminal_shows_uses_its_width(console: ConsoleApp) -> None:
    long = with_session(1, state=SessionState.CANNOT_RUN, error="nothing to run, " * 20 + "at all")
    whole_row = Until(
        "a long row", lambda app: any(len(line.rstrip()) > 70 for line in read_screen(app).split("\n")[6:9])
    )
    await play(console, long, go_to("sessions"), sees("nothing to run"), sees("…"), whole_row, size=(80, 24))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ruff is not found (pip install ruff)", "last output  ruff is not found (pip install ruff)"),
        (
            f"ruff is not {'found, ' * 9} (pip install ruff)",
            "last output  ruff is not found, fou… → pip install ruff",
        ),
        ("", "last output  the last line"),
    ],
)
def test_one_line_about_an_error_that_is_too_long_has_the_beginning_of_the_problem_and_its_fix(
    error: str, line: str
) -> None:
    session = dataclasses.replace(sessions()[1], state=SessionState.CANNOT_RUN, error=error)
    text = make_glance("the last line", session, "", 55)
    assert text.removesuffix("…") == line
    assert cell_len(text) <= 55


@pytest.mark.parametrize("name", ["cards", "work"])
async def test_long_toasts_on_a_low_terminal_keep_their_beginning_and_all_messages_can_be_read_in_full(
    console: ConsoleApp, name: str
) -> None:
    console.NOTIFICATION_TIMEOUT = 60
    async with running(console, size=(80, 24), notifications=True) as pilot:

        def sees_on_screen(*texts: str) -> Until:
            return Until(f"{texts}", lambda app: all(text in read_screen(app) for text in texts))

        await carry_out(pilot, *([] if name == "cards" else [press("2")]))
        console.show_toast(f"first fault: {'and more of it ' * 25}end_of_first")
        await carry_out(pilot, sees_on_screen("first fault: and"))
        console.show_toast(f"second fault: {'and more of it ' * 25}end_of_second")
        await carry_out(pilot, sees_on_screen("first fault: and", "second fault: and"))
        await carry_out(pilot, press("M"), sees_on_screen("Messages", "end_of_second", "close"))
        await carry_out(pilot, press("end"), sees_on_screen("end_of_first"))


async def test_a_long_message_is_shown_for_a_bounded_time_and_without_escape_codes(console: ConsoleApp) -> None:
    async with running(console, notifications=True) as pilot:
        console.show_toast("a \x1b[31mred\x1b[0m message, " + "and more of it " * 200)
        await carry_out(pilot, sees("a red message"))
        toast = next(toast for toast in console._notifications if "message" in toast.message)
        assert toast.message.startswith("a red message,")
        assert 5 <= toast.timeout <= 30


async def test_what_is_said_again_takes_the_place_of_its_toast(console: ConsoleApp) -> None:
    async with running(console, notifications=True) as pilot:
        for text in ("twice", "once", "twice"):
            console.show_toast(text)
        console.show_toast("the last of them", about="them")
        console.show_toast("the last but one is gone", about="them")
        await carry_out(pilot, sees("but one"))
        texts = [text for text in read_toasts(console).splitlines() if text in ("once", "twice") or "the last" in text]
        assert texts == ["once", "twice", "the last but one is gone"]


async def test_the_evidence_says_what_the_rails_say_now(console: ConsoleApp, engine: StandIn) -> None:
    """Not what they said when the card was made."""
    reason = "first days: 7 of 10 decisions made"
    off = "nothing runs by itself"
    engine.cards.rails = lambda id: (RailVerdict("gate", Verdict.ASK, f"{off}; {reason}; quiet hours"),)  # type: ignore[method-assign]
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees(f"▲ {off}"), sees(f"also: {reason}; quiet hours"))
        reason = "first days: 8 of 10 decisions made"
        engine.cards.dismiss(SECOND)  # in another console
        console.reload(["cards"])
        await carry_out(pilot, sees(reason))


async def test_before_there_is_learning_the_evidence_has_no_weights_and_one_reason_of_each_rail(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all = {card.id: card for card in cards(stated=False)}
    engine.cards.rails = lambda id: (  # type: ignore[method-assign]
        RailVerdict("cost", Verdict.ALLOW, "costs $0.00"), RailVerdict("gate", Verdict.ASK, "not by itself; phase 0"),
    )  # fmt: skip
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees("▲ not by itself", "✓ cost: no objection"), hides("phase 0", "(weight"))
        await carry_out(pilot, press("enter"), sees("also: phase 0", "cost       ✓ costs $0.00"))


@pytest.mark.long
async def test_on_a_wide_terminal_the_evidence_gets_the_lines_that_the_queue_leaves(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.changes.all = []
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees("Nothing."))
        await pilot.pause()
        why, queue = (console.screen.query_one(name).region for name in ("#pane-why", "#pane-queue"))
        assert queue.height == 2, "the heading and one line"
        assert why.bottom == queue.y


@pytest.mark.parametrize(("since", "age"), [(timedelta(seconds=59), "just now"), (timedelta(minutes=1), "oldest 1m")])
async def test_the_folded_queue_says_how_long_its_oldest_item_waits(
    console: ConsoleApp, since: timedelta, age: str
) -> None:
    await play(console, with_changes_that_wait_for(since), sees(f", {age}"), size=(80, 24))


@pytest.mark.parametrize(
    ("state", "label"), [(SessionState.RUNNING, "  live  "), (SessionState.SUCCEEDED, "  last output  ")]
)
async def test_output_below_the_cards_is_called_live_while_its_session_runs(
    console: ConsoleApp, state: SessionState, label: str
) -> None:
    await play(console, with_session(0, state=state, ended_at=NOW), sees(label), size=(80, 24))


async def test_a_message_is_removed_after_a_while(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawpy_console.screens.mission_panes.MESSAGE_S", 0.3)
    await play(console, press("escape up"), sees("Snoozed"), hides("Snoozed"))


async def test_the_first_check_is_not_called_no_check(console: ConsoleApp, engine: StandIn) -> None:
    engine.cards.all = {}
    engine.card_cycle.last_checked, engine.card_cycle.is_checking = dict, True
    async with running(console) as pilot:
        await carry_out(pilot, sees("No cards yet: your files are being checked."))
        engine.card_cycle.is_checking = False
        console.reload(["autonomy"])
        await carry_out(pilot, sees("No cards: nothing has been checked yet."))


async def test_all_clocks_change_in_the_same_frame(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console):
        tasks = console.screen.query_one("#sessions", Rows)
        row_sets = set()
        for tenth in range(10):
            console.now = lambda tenth=tenth: NOW.replace(microsecond=0) + timedelta(seconds=tenth / 10)
            console.screen.tick()
            row_sets.add(tuple(tasks.rows))
        assert len(row_sets) == 1
