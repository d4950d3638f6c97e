"""F12 on every screen and in every dialog (SPEC 3.7), resuming, and leaving the console (SPEC 7.5)."""

import threading
from collections.abc import Iterator

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.attach.consoles import Consoles
from engine.home import Home
from tests.console.driving import make_console, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    Until,
    answers,
    called,
    carry_out,
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
    opened = threading.Event()
    engine = StandIn()

    def open_engine() -> StandIn:
        opened.wait(10)
        return engine

    app = make_console(home, open_engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f12")
        opened.set()
        await until(pilot, lambda: any(call[0] == "stop" for call in engine.call_log))


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
}


test_story = make_story_test(STORIES)


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
