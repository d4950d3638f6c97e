"""What mission control says when there is no card: what waits, and what is known to be wrong (SPEC 2.10, 9.3)."""

from datetime import timedelta

from clawpy_console.app import ConsoleApp
from engine.model import SessionState
from tests.console.driving import running
from tests.console.mission_steps import add_problem, remove_all_that_waits, remove_cards, with_session
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import BLOG, SHOP
from tests.console.stories import Given, Stories, carry_out, hides, make_story_test, sees

STORIES: Stories = {
    "an empty stack names the changes that wait": (
        Given(remove_cards),
        sees("No cards · 1 change waits: press 2"),
        hides("Nothing needs you"),
    ),
    "an empty stack says why the last run went wrong, and what mends it": (
        Given(remove_all_that_waits),
        with_session(1, state=SessionState.CANNOT_RUN, error="ruff is not found (pip install ruff)"),
        sees("No cards · the last run in shop could not run: press 2", "ruff is not found (pip install ruff)"),
        hides("Nothing needs you"),
    ),
    "an empty stack names the problem of another flow also after a later check": (
        Given(remove_all_that_waits),
        Given(lambda engine: add_problem(engine, checked_at=engine.now, kind="bisect")),
        sees("the last run in shop found a problem: press 2", "Do not push"),
    ),
    "an empty stack names a secret until a later check": (
        Given(remove_all_that_waits),
        Given(lambda engine: add_problem(engine, checked_at=engine.now - timedelta(days=9))),
        sees("the last run in shop found a problem: press 2", "Do not push"),
    ),
    "an empty stack does not name the only workspace": (
        Given(remove_all_that_waits),
        Given(lambda engine: engine.workspaces.remove(BLOG)),
        with_session(1, state=SessionState.CANNOT_RUN),
        sees("the last run could not run: press 2"),
    ),
    "an empty stack gives the remark of the last check": (
        Given(remove_all_that_waits),
        Given(lambda engine: setattr(engine.checks, "read_remarks", lambda: {SHOP: "no commit yet; make a commit"})),
        sees("shop: no commit yet"),
        hides("Nothing needs you"),
    ),
    "nothing says that all is well while everything is stopped": (
        Given(remove_all_that_waits),
        Given(lambda engine: engine.safety.kill_switch.stop("F12 pressed", "operator")),
        sees("No cards"),
        hides("Nothing needs you"),
    ),
}


test_story = make_story_test(STORIES)


async def test_the_first_check_is_not_called_no_check(console: ConsoleApp, engine: StandIn):
    engine.cards.all = {}
    engine.checks.read_last_checked, engine.checks.is_checking = dict, True
    async with running(console) as pilot:
        await carry_out(pilot, sees("No cards yet: your files are being checked."))
        engine.checks.is_checking = False
        console.reload(["autonomy"])
        await carry_out(pilot, sees("No cards: nothing has been checked yet."))
