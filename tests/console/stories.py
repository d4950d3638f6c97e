"""Stories: tests as a list of steps. A step presses keys, or waits for a text on the screen or a call of the engine."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.palette import make_commands
from clawpy_console.widgets import Rows
from engine.frozen import frozen
from engine.model import Refusal
from tests.console.driving import read_screen, read_toasts, running, until
from tests.console.stand_in import StandIn

CHANGE = "chg_000000000001"
"""The id of the change set that waits."""


@frozen
class Press:
    """Keys that are pressed one after the other."""

    keys: tuple[str, ...]


def press(keys: str, times: int = 1) -> Press:
    """Press these keys, which are separated by spaces, so many times."""
    return Press((*keys.split(),) * times)


def type_text(text: str) -> Press:
    """Type a text."""
    return Press(tuple(text))


@frozen
class Given:
    """A change of the stand-in engine before the console starts."""

    change: Callable[[StandIn], object]


@frozen
class Until:
    """A condition that the story waits for."""

    description: str
    """In words, for the message when it is waited for in vain."""
    is_met: Callable[[ConsoleApp], object]


Step = Press | Given | Until | Callable[[ConsoleApp], object]
"""Keys to press, a change before the start, a condition to wait for, or a function to call."""

Stories = dict[str, tuple[Step, ...]]
"""The steps of each story, by what it shows."""


async def carry_out(pilot: Pilot[Any], *steps: Step):
    """Carry out the steps of a story."""
    app = pilot.app
    for step in steps:
        if isinstance(step, Press):
            await pilot.press(*step.keys)
        elif isinstance(step, Until):
            await until(pilot, partial(step.is_met, app), f"for {step.description}")
        elif not isinstance(step, Given):
            step(app)
            await pilot.pause()


async def play(console: ConsoleApp, *steps: Step, size: tuple[int, int] = (120, 40)):
    """Carry out a story in the console, once everything was read."""
    for step in steps:
        if isinstance(step, Given):
            step.change(console._open_engine())
    async with running(console, size=size, notifications=True) as pilot:
        await carry_out(pilot, *steps)


def make_story_test(
    stories: Stories, *opening: Step, size: tuple[int, int] = (120, 40)
) -> Callable[..., Awaitable[None]]:
    """A test that plays each of `stories`, after the steps of `opening`."""

    @pytest.mark.parametrize("steps", stories.values(), ids=stories)
    async def test(console: ConsoleApp, steps: tuple[Step, ...]):
        await play(console, *opening, *steps, size=size)

    return test


def read_visible_text(app: ConsoleApp) -> str:
    """The text on the screen and in toasts: as it is, and with single spaces and without frames."""
    text = read_screen(app)
    return "\n".join([text, " ".join(text.replace("│", " ").split()), read_toasts(app)])


def sees(*texts: str) -> Until:
    """All of these texts are on the screen."""
    return Until(f"{texts}", lambda app: all(text in read_visible_text(app) for text in texts))


def hides(*texts: str) -> Until:
    """None of these texts is on the screen."""
    return Until(f"no {texts}", lambda app: not any(text in read_screen(app) for text in texts))


def called(*call: Any, times: int = 1) -> Until:
    """The engine was called like this, by name and arguments."""
    return Until(f"{call}", lambda app: find_stand_in(app).call_log.count(call) == times)


def never_called(*names: str) -> Until:
    """The engine was not called by any of these names."""
    return Until(f"no call of {names}", lambda app: not find_calls(find_stand_in(app), *names))


def find_stand_in(app: ConsoleApp) -> StandIn:
    """The engine of a console of these tests."""
    return cast(StandIn, app.engine)


def find_calls(engine: StandIn, *names: str) -> list[tuple[Any, ...]]:
    """The calls of the engine by these names, each with its arguments."""
    return [call for call in engine.call_log if call[0] in names]


def cursor(rows: str, id: str) -> Until:
    """The cursor of a list stands on this row."""
    return Until(f"{id} in {rows}", lambda app: app.screen.query_one(rows, Rows).current == id)


def select(rows: str, id: str) -> Step:
    """Put the cursor of a list on this row, and the focus on the list."""

    def act(app: ConsoleApp):
        app.screen.set_focus(app.screen.query_one(rows))
        app.screen.query_one(rows, Rows).select(id)

    return act


def on_screen(mode: str, dialogs: int = 0) -> Until:
    """This screen is shown, below so many dialogs."""
    return Until(mode, lambda app: app.current_mode == mode and len(app.screen_stack) == 1 + dialogs)


CLOSED = Until("no dialog", lambda app: len(app.screen_stack) == 1)


def choose(title: str) -> Step:
    """Choose the command of the palette whose title begins like this."""
    return lambda app: next(item for item in make_commands(app, app.screen) if item.title.startswith(title)).callback()


def read_palette_titles(app: ConsoleApp) -> list[str]:
    """The titles of all commands of the palette."""
    return [item.title for item in make_commands(app, app.screen)]


def refused(call: str, message: str, fix: str = "", code: str = "refused", *, rail: str = "") -> Given:
    """The engine refuses the next call of this name, because of this rail where one is named."""
    return Given(lambda engine: engine.refuse.update({call: Refusal(code, message, fix, rail=rail)}))


def hold_back(service: object, method: str, release: threading.Event | None = None) -> threading.Event:
    """Calls of a method of the stand-in wait until an event is set, at most 10 seconds. Returns the event."""
    event = release or threading.Event()
    call = getattr(service, method)

    def wait_and_call(*args: Any, **keywords: Any) -> Any:
        event.wait(10)
        return call(*args, **keywords)

    setattr(service, method, wait_and_call)
    return event


def delayed(service: str, method: str) -> Given:
    """The engine answers calls of this method of a service only from `ANSWER` on."""
    return Given(lambda engine: setattr(engine, "delayed", hold_back(getattr(engine, service), method)))


ANSWER: Step = lambda app: find_stand_in(app).delayed.set()  # noqa: E731
"""The engine answers the calls that were delayed."""


def answers(event: threading.Event) -> Step:
    """The engine answers the calls that wait for this event."""
    return lambda app: event.set()


ALL_ANSWERED = Until("all answers", lambda app: all(worker.is_finished for worker in app.workers))


def has_said_nothing(text: str) -> Step:
    """No message so far contains this text."""

    def check(app: ConsoleApp):
        assert not [message for message in app.messages if text in message]

    return check


def set_change(engine: StandIn, **fields: object):
    """Set fields of the first change set."""
    engine.changes.all[0] = replace(engine.changes.all[0], **fields)


def read_text_in(app: ConsoleApp, place: Region) -> str:
    """The text on this part of the screen, as one line."""
    rows = read_screen(app).split("\n")[place.y : place.bottom]
    return " ".join(" ".join(row[place.x : place.right] for row in rows).split())
