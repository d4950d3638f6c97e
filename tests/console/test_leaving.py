"""Leaving the console: the engine ends with it, or goes on without it (SPEC 7.5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clawpy_console.attach.consoles import Consoles
from clawpy_console.dialogs.question import Question
from engine.home import Home
from tests.console.conftest import live, make_console, until
from tests.console.stand_in import StandIn


@pytest.fixture
def consoles(home: Home, engine: StandIn) -> Iterator[Consoles]:
    consoles = Consoles(lambda: engine, home, owns_engine=True)  # type: ignore[arg-type, return-value]
    yield consoles
    consoles.close()
    consoles.release_clients()


@pytest.mark.long
@pytest.mark.parametrize(("key", "kept"), [("Q", False), ("k", True)])
async def test_leaving_asks_whether_the_engine_goes_on(
    home: Home, engine: StandIn, consoles: Consoles, key: str, kept: bool
) -> None:
    app = make_console(home, lambda: engine, consoles=consoles)
    async with app.run_test(size=(100, 30)) as pilot:
        await live(pilot)
        assert app.state.running, "the still engine has a running session"
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("enter")  # the safe answer: it stays
        await until(pilot, lambda: not isinstance(app.screen, Question))
        assert app.is_running
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running or app._exit)
    assert consoles.keeps_running is kept


async def test_nothing_is_asked_while_the_engine_stays_anyway(home: Home, engine: StandIn) -> None:
    """That of `clawpy run`, or one that has another console."""
    consoles = Consoles(lambda: engine, home, owns_engine=False)  # type: ignore[arg-type, return-value]
    app = make_console(home, lambda: engine, consoles=consoles)
    async with app.run_test(size=(100, 30)) as pilot:
        await live(pilot)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running or app._exit)
    consoles.close()
    consoles.release_clients()
