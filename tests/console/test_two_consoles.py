"""Two consoles over one engine decide at once (SPEC 7.5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.cli.demo import make_project
from engine import open_engine
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.engine import Engine
from engine.home import Home
from engine.model import Status
from engine.services import Overrides
from tests.conftest import MONDAY_MORNING
from tests.console.conftest import until, until_loaded
from tests.console.stories import text_in


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    at = MONDAY_MORNING + timedelta(hours=4)
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(make_project(tmp_path / "shop", at))],
        clock=FakeClock(at),
        start_schedule=False,
        overrides=Overrides(throw_away=True, unreachable=True),
    )
    dispatch(engine, "predict", {})
    yield engine
    engine.close()


@pytest.mark.long
async def test_the_second_console_says_that_the_card_runs_and_both_show_the_session(
    engine: Engine, tmp_path: Path
) -> None:
    def console() -> ConsoleApp:
        return ConsoleApp(lambda: engine, Home.locate(tmp_path / "home"), [], now=engine.clock.now)

    first, second = console(), console()
    async with (
        first.run_test(size=(120, 40), notifications=True) as first_pilot,
        second.run_test(size=(120, 40), notifications=True) as second_pilot,
    ):
        await until_loaded(first_pilot)
        await until_loaded(second_pilot)
        card = first.state.cards[0]
        assert second.state.cards[0].id == card.id
        first.simulate_key("right")
        second.simulate_key("right")
        await until(
            first_pilot, lambda: first.state.sessions and card.id not in {item.id for item in first.state.cards}
        )
        await until(
            second_pilot, lambda: second.state.sessions and card.id not in {item.id for item in second.state.cards}
        )
        assert engine.cards.get(card.id).status in (Status.APPROVED, Status.EXECUTED)
        assert len(engine.sessions.list()) == 1

        def messages() -> int:
            lines = [text_in(app, app.screen.query_one("#message").region) for app in (first, second)]
            return sum("was approved elsewhere, and" in line for line in lines)

        await until(first_pilot, lambda: messages() == 1, "for one message")
