"""A console shows the cards and the work of its own repositories, and counts those of others (SPEC 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.home import Home
from tests.console.card_steps import FIRST, NEW, NEXT_STEP, SECOND, change_cards, in_front
from tests.console.driving import make_console
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import BLOG, SHOP
from tests.console.stories import hides, on_screen, play, press, sees
from tests.support.helpers import make_session_ended


def make_console_for_shop(home: Home, engine: StandIn) -> ConsoleApp:
    return make_console(home, lambda: engine, [SHOP])


async def test_a_console_shows_its_own_repository_and_counts_the_cards_of_others(home: Home, engine: StandIn):
    elsewhere = replace(NEXT_STEP, assignment=replace(NEXT_STEP.assignment, workspace=BLOG))
    ended = make_session_ended("sess_x", workspace=BLOG, summary="1 test passed")
    await play(
        make_console_for_shop(home, engine),
        sees("CARDS  1 of 4   +1 in 1 other repository: w"),
        press("right"),
        in_front(SECOND),
        change_cards(elsewhere),
        sees("CARDS  1 of 3   +2 in 1 other repository: w"),
        in_front(SECOND),
        lambda app: engine.bus.publish(ended),
        sees("blog: Done: 1 test passed"),
        press("w"),
        sees("CARDS  1 of 2   only blog"),
        in_front(elsewhere.id),
        press("w"),
        sees("of 5   all repositories"),
        press("w"),
        sees("of 3   +2 in 1 other repository: w"),
    )


@pytest.mark.long
async def test_the_first_card_is_in_front_when_w_has_hidden_the_one_before(home: Home, engine: StandIn):
    of_blog = (replace(card, assignment=replace(card.assignment, workspace=BLOG)) for card in (NEXT_STEP, NEW))
    engine.cards.all = {card.id: card for card in of_blog} | engine.cards.all
    await play(
        make_console_for_shop(home, engine),
        sees("CARDS  1 of 4   +3 in 1 other repository: w"),
        press("w j"),
        sees("CARDS  2 of 3   only blog"),
        press("w"),
        sees("CARDS  2 of 7   all repositories"),
        press("w"),
        sees("CARDS  1 of 4   +3 in 1 other repository: w"),
        in_front(FIRST),
    )


async def test_the_repositories_of_the_settings_are_those_of_each_console(home: Home, engine: StandIn):
    def configure(app: ConsoleApp):
        engine.configured_workspaces = [BLOG]
        app.reload(["place"])

    await play(make_console_for_shop(home, engine), sees("CARDS  1 of 4"), configure, sees("CARDS  1 of 5"))


@pytest.mark.long
async def test_a_repository_that_is_switched_off_stays_the_one_of_its_console(home: Home, engine: StandIn):
    engine.workspaces = [BLOG]
    await play(make_console_for_shop(home, engine), sees("shop main"), sees("+1 in 1 other repository: w"))


@pytest.mark.long
async def test_work_of_another_repository_is_on_the_work_screen_alone_and_named(home: Home, engine: StandIn):
    sessions = engine.sessions.list(limit=60)
    assert {session.workspace for session in sessions} == {SHOP, BLOG}
    prompts = [session.prompt for session in sessions if session.workspace == BLOG]
    await play(
        make_console_for_shop(home, engine),
        sees("WORK"),
        hides(*prompts),
        press("2"),
        on_screen("work"),
        *(sees(f"blog: {prompt[:20]}") for prompt in prompts),
        size=(200, 60),
    )
