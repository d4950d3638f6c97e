"""Two consoles over one engine decide at once (SPEC 7.5)."""

import pytest

from clawpy_console.app import ConsoleApp
from engine.engine import Engine
from engine.home import Home
from engine.model import Status
from tests.console.driving import make_console, until, until_loaded
from tests.console.stories import read_text_in


@pytest.mark.long
async def test_the_second_console_says_that_the_card_runs_and_both_show_the_session(demo_engine: Engine, home: Home):
    demo_engine.checks.run(requested=True)

    def make_shared_console() -> ConsoleApp:
        return make_console(home, lambda: demo_engine, now=demo_engine.clock.now)

    first, second = make_shared_console(), make_shared_console()
    async with (
        first.run_test(size=(120, 40), notifications=True) as first_pilot,
        second.run_test(size=(120, 40), notifications=True) as second_pilot,
    ):
        for pilot in (first_pilot, second_pilot):
            await until_loaded(pilot)
        card = first.state.cards[0]
        assert second.state.cards[0].id == card.id
        first.simulate_key("right")
        second.simulate_key("right")
        for pilot, app in ((first_pilot, first), (second_pilot, second)):
            await until(
                pilot, lambda app=app: app.state.sessions and card.id not in [item.id for item in app.state.cards]
            )
        assert demo_engine.cards.get(card.id).status in (Status.APPROVED, Status.EXECUTED)
        assert len(demo_engine.sessions.list()) == 1

        def count_messages() -> int:
            lines = [read_text_in(app, app.screen.query_one("#message").region) for app in (first, second)]
            return sum("was approved elsewhere, and" in line for line in lines)

        await until(first_pilot, lambda: count_messages() == 1, "for one message")
