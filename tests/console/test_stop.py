"""F12 on every screen and in every dialog (SPEC 3.7), resuming, and leaving the console (SPEC 7.5)."""

import threading
from collections.abc import Iterator

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.attach.consoles import Consoles
from engine.events import CostWarned, HoldLifted, HoldPlaced
from engine.home import Home
from tests.console.driving import make_console, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    answers,
    called,
    carry_out,
    choose,
    hides,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
)

STOPPED = Until("the stop", lambda app: any(hold.word == "stop" for hold in app.state.holds))
NOT_RESUMED = never_called("resume")

PLACES = {
    "mission": "", "work": "2", "safety": "6", "details": "1 enter", "editor": "1 enter e x", "prompt": "1 n x",
    "help": "question_mark", "filter": "2 slash x", "palette": "ctrl+p x", "quit": "ctrl+q", "confirm": "2 D",
}  # fmt: skip
"""The keys that lead to each place."""


def publish(*events: object) -> Step:
    def publish_all(app: ConsoleApp):
        for event in events:
            app.engine.bus.publish(event)

    return publish_all


@pytest.mark.long
async def test_f12_stops_on_every_screen_and_in_every_dialog_and_text_field(console: ConsoleApp, engine: StandIn):
    async with running(console) as pilot:
        for keys in PLACES.values():
            stopped = called("stop", "F12 pressed in the console")
            await carry_out(pilot, press(f"{keys} f12"), stopped, STOPPED, sees("■ STOPPED"))
            await carry_out(pilot, lambda app: app.resume("stop"))
            await carry_out(pilot, sees("● WATCHING"))  # live again, also below a dialog
            while len(console.screen_stack) > 1:
                console.pop_screen()
            await pilot.pause()
            engine.call_log.clear()


async def test_f12_shows_at_once_without_waiting_for_the_engine(console: ConsoleApp, engine: StandIn):
    answer = hold_back(engine.safety.kill_switch, "stop")
    await play(console, press("f12"), sees("STOPPED"), answers(answer))


@pytest.mark.long
async def test_f12_before_the_engine_is_open_stops_as_soon_as_it_is(home: Home):
    opened, engine = threading.Event(), StandIn()

    def open_engine() -> StandIn:
        opened.wait(10)
        return engine

    app = make_console(home, open_engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f12")
        opened.set()
        await until(pilot, lambda: any(call[0] == "stop" for call in engine.call_log))


LUNCH, SETTINGS = "kill: stop: lunch", "kill: crossPollEnabled is false in the settings"
PLACED = HoldPlaced(subject="stop", reason="F12 pressed in the console")
COST = CostWarned(subject="hour", window="hour", spent=1_600_000, cap=2_000_000)
STORIES: Stories = {
    "a stop that fails says what else stops": (
        Given(lambda engine: engine.refuse.update(stop=OSError("no more threads"))),  # type: ignore[call-overload]
        press("f12"),
        sees("Stop failed: no more threads. Run `clawpy stop`."),
        hides("STOPPED"),
        press("R"),
        NOT_RESUMED,
        press("f12"),
        STOPPED,
    ),
    "a stop that is not recorded stays in sight, and is resumed": (
        refused("stop", "everything was stopped, but the stop could not be recorded: the disk is full"),
        press("f12"),
        sees("Everything was stopped, but the stop could not be recorded: the disk is full", "STOPPED", "R resume"),
        press("R y"),
        called("resume", "stop"),
        hides("STOPPED"),
    ),
    "a second stop is not shown as one that is still being carried out": (
        press("f12"),
        STOPPED,
        press("f12"),
        Until("both stops", lambda app: [name for name, *_ in app.engine.call_log].count("stop") == 2),
        Until("what it read", lambda app: not any(worker.is_running for worker in app.workers)),
        hides("Stopping…"),
    ),
    "one key resumes, after a question": (
        press("R"),
        NOT_RESUMED,
        press("f12"),
        STOPPED,
        sees("Press R to resume"),
        press("R R enter"),
        NOT_RESUMED,
        press("R y"),
        called("resume", "stop"),
        hides("STOPPED"),
    ),
    "what was said of a stop goes when it ends": (
        publish(PLACED, COST),
        sees("stop: F12 pressed", "cost: 80 %"),
        publish(HoldLifted(subject="stop", reason="resumed by you")),
        sees("The stop ended."),
        hides("stop: F12 pressed"),
        sees("cost: 80 %"),
    ),
    "a card that a stop refused says so until that ends": (
        refused("approve", LUNCH, rail="kill"),
        press("f12"),
        STOPPED,
        press("right"),
        sees(f"✗ {LUNCH}"),
        lambda app: app.resume("stop"),
        hides(LUNCH),
    ),
    "what no hold refused stays told": (
        refused("approve", SETTINGS, rail="kill"),
        press("right"),
        sees(f"✗ {SETTINGS}"),
        lambda app: app.screen.draw(frozenset({"cards"})),
        sees(f"✗ {SETTINGS}"),
    ),
}


test_story = make_story_test(STORIES)


@pytest.mark.parametrize("theme", ["clawpy-dark", pytest.param("clawpy-ansi", marks=pytest.mark.long)])
async def test_a_stop_is_seen_above_the_palette(console: ConsoleApp, theme: str):
    async with running(console) as pilot:
        console.theme = theme
        await carry_out(pilot, press("ctrl+p"), sees("WATCHING"), press("f12"), sees("STOPPED"))


@pytest.mark.long
@pytest.mark.parametrize("screen", ["1", "6"])
async def test_the_palette_resumes_only_after_y(console: ConsoleApp, screen: str):
    question = Until("a question", lambda app: len(app.screen_stack) == 2)
    resume = (choose("Resume after the stop"), question, press("enter"), CLOSED, NOT_RESUMED)
    await play(console, press(f"{screen} f12"), STOPPED, *resume)


# Leaving


@pytest.fixture
def consoles(home: Home, engine: StandIn) -> Iterator[Consoles]:
    consoles = Consoles(lambda: engine, home, owns_engine=True)
    yield consoles
    consoles.close()
    consoles.release_clients()


LEFT = Until("the end", lambda app: not app.is_running or app._exit)
ASKED = sees("Quit?", "1 running session")


@pytest.mark.long
@pytest.mark.parametrize("key, keeps_running", [("Q", False), ("k", True)])
async def test_quitting_asks_whether_the_engine_keeps_running(
    home: Home, engine: StandIn, consoles: Consoles, key: str, keeps_running: bool
):
    app = make_console(home, lambda: engine, host=consoles)
    enter_is_safe = (press("ctrl+q"), ASKED, press("enter"), CLOSED)
    await play(app, *enter_is_safe, press("ctrl+q"), ASKED, press(key), LEFT)
    assert consoles.keeps_running is keeps_running


async def test_quitting_asks_nothing_if_the_engine_outlives_the_console(
    home: Home, engine: StandIn, consoles: Consoles
):
    """That of `clawpy run`, or one that has another console."""
    consoles.owns_engine = False
    await play(make_console(home, lambda: engine, host=consoles), press("ctrl+q"), LEFT)
