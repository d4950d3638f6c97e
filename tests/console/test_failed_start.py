"""A console whose engine cannot be opened: it says why, and lets the operator try again or leave (SPEC 11.4)."""

import pytest

from clawpy_console.last_screen import LastScreen, save_last_screen
from clawpy_console.state import AppState
from engine.home import Home
from engine.model import Refusal
from tests.console.driving import make_console, read_screen, until_loaded, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW

REFUSAL = Refusal("home_held", "another clawpy (process 4711) holds it", "use --home")


@pytest.mark.parametrize(
    "error, texts",
    [(REFUSAL, ("4711", "use --home")), (RuntimeError("disk on fire"), ("disk on fire",))],
    ids=["a_refusal", "an_unexpected_error"],
)
async def test_the_operator_leaves_with_exit_code_1(home: Home, error: Exception, texts: tuple[str, ...]):
    def open_engine() -> StandIn:
        raise error

    console = make_console(home, open_engine)
    async with console.run_test() as pilot:
        await until_shown(pilot, *texts, "try again")
        await pilot.press("q")
    assert console.return_code == 1


@pytest.mark.long
async def test_output_of_last_time_is_not_said_to_be_missing_until_it_can_be_read(home: Home):
    errors, engine = [REFUSAL], StandIn()
    last_state = AppState(sessions=tuple(engine.sessions.all[1:]))
    save_last_screen(home.last_screen, LastScreen(last_state, saved_at=NOW))

    def open_engine() -> StandIn:
        if errors:
            raise errors.pop()
        return engine

    console = make_console(home, open_engine)
    async with console.run_test(size=(200, 60)) as pilot:
        await until_shown(pilot, "try again", "LAST OUTPUT", "Its output is shown once the engine is open.")
        assert "No output yet" not in read_screen(console)
        await pilot.press("r")
        await until_loaded(pilot)
        assert "once the engine is open" not in read_screen(console)


@pytest.mark.parametrize("error", [REFUSAL, RuntimeError("disk on fire")], ids=["a_refusal", "an_unexpected_error"])
async def test_the_second_try_opens_the_console(home: Home, error: Exception):
    errors = [error]

    def open_engine() -> StandIn:
        if errors:
            raise errors.pop()
        return StandIn()

    console = make_console(home, open_engine)
    async with console.run_test() as pilot:
        await until_shown(pilot, "try again")
        await pilot.press("r")
        await until_loaded(pilot)
        assert len(console.screen_stack) == 1, "the question is gone"
    assert console.return_code != 1
