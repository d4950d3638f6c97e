"""The candidate screen: the queue, one candidate with all that speaks for it, and what the operator makes of it."""

from __future__ import annotations

import threading

import pytest
from textual.widgets import Input

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.learning.candidates import CandidatesScreen
from clawpy_console.screens.learning.decide import Decide
from clawpy_console.screens.learning.learnings import LearningsScreen
from clawpy_console.screens.mission.screen import MissionScreen
from clawpy_console.screens.work.screen import WorkScreen
from clawpy_console.sources import lead_to
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.tab_line import TabLine
from engine.values import PromptSource, Refusal, SourceKind
from engine.values.adaptation import CandidateStatus
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_adaptation import CHEAP, EMOJI, LINT, ROUNDING, STOCK, TRIES, YOUNG
from tests.console.test_snapshots import SIZES, run

WIDE = (150, 50)


@pytest.fixture(autouse=True)
def _learns(engine: StandIn) -> None:
    engine.learns = True


async def to_candidate(pilot, id: str, *keys: str) -> CandidatesScreen:
    """The candidate screen with the cursor on a candidate that was read; `keys` are pressed then."""
    await live(pilot)
    await pilot.press("5")
    screen = pilot.app.screen
    screen.select_candidate(id)
    await until(pilot, lambda: screen.view is not None and screen.view.candidate.id == id, f"for {id}")
    await pilot.press(*keys)
    await pilot.pause()
    return screen


def told(console: ConsoleApp) -> str:
    """What toasts say."""
    return "\n".join(one.message for one in console._notifications)


def noted(engine: StandIn, name: str) -> list[tuple]:
    return [one for one in engine.noted if one[0] == name]


def listed(screen: CandidatesScreen) -> list[str]:
    return [row.id for row in screen.query_one("#queue", Rows)._rows if row.id]


async def test_the_queue_by_standing_and_the_first_that_waits_beside_it(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        await pilot.press("5")
        screen = pilot.app.screen
        await until(pilot, lambda: screen.view is not None)
        assert listed(screen) == [one.id for one in (ROUNDING, CHEAP, STOCK, TRIES, LINT, EMOJI)]
        assert screen.view.candidate == ROUNDING
        text = screen_text(console)
        assert "[candidates 2]" in text
        assert "✓ corroborate" in text
        assert "+ 2. When test_a_discount_is_rounded is red" in text
        assert "Nothing to measure: it is not active." in text
        assert "SPEAK AGAINST IT  1" in text
        assert "3 attempts stayed red: 60 + 3 · 8" in text


async def test_words_and_standing_filter(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, ROUNDING.id, "slash", *"chronicler")
        assert listed(screen) == [CHEAP.id, EMOJI.id]
        await pilot.press("enter", "s")
        assert listed(screen) == [CHEAP.id]
        assert "only waits for you" in screen_text(console)
        await pilot.press("escape")
        assert len(listed(screen)) == 2
        await pilot.press("escape")
        assert len(listed(screen)) == 6
        await pilot.press(*["s"] * 6)
        assert len(listed(screen)) == 6


@pytest.mark.long
async def test_approving_shows_what_changes_and_can_be_taken_back(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, ROUNDING.id, "a")
        assert isinstance(console.screen, Decide)
        text = screen_text(console)
        assert "for backend_builder, coding runs in shop" in text
        assert "- 2. Look at what changed since it was green." in text
        await pilot.press("enter", "a", "y")
        assert not noted(engine, "approve_candidate")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.PROMOTED)
        assert noted(engine, "approve_candidate") == [("approve_candidate", ROUNDING.id)]
        await until(pilot, lambda: "● in force" in screen_text(console))
        await pilot.press("u")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.REVIEW)
        assert noted(engine, "undo_candidate") == [("undo_candidate", ROUNDING.id)]
        assert not noted(engine, "roll_back")
        await until(pilot, lambda: "▲ waits for you" in screen_text(console))
        assert not screen.check_action("undo", ())


@pytest.mark.long
async def test_leaving_the_question_decides_nothing(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, ROUNDING.id, "a", "escape", "x", "n", "o", "escape")
        assert console.screen is screen
        assert not noted(engine, "approve_candidate")
        assert not noted(engine, "reject_candidate")


@pytest.mark.long
async def test_rejecting_keeps_the_reason(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, TRIES.id, "x")
        assert "Nothing changes in how agents act." in screen_text(console)
        await pilot.press(*"two are few", "enter")
        assert isinstance(console.screen, Decide)  # Enter decides nothing
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.REJECTED)
        assert noted(engine, "reject_candidate") == [("reject_candidate", TRIES.id, "two are few")]
        await pilot.press("u")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.DRAFTED)
        await pilot.press("x")
        await until(pilot, lambda: "two are few" in screen_text(console))  # it is there again, to be kept or mended
        await pilot.press(*" indeed", "ctrl+s")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.REJECTED)
        assert noted(engine, "reject_candidate")[-1] == ("reject_candidate", TRIES.id, "two are few indeed")


@pytest.mark.long
async def test_rolling_back_says_that_it_will_be_as_it_was(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, STOCK.id, "b")
        text = screen_text(console)
        assert "its changes are removed" in text
        assert "- 3. Look at what changed since it was green." in text
        await pilot.press("ctrl+s")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.ROLLED_BACK)
        await pilot.press("u")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.PROMOTED)


@pytest.mark.long
async def test_a_key_pressed_while_an_undo_runs_is_answered(console: ConsoleApp, engine: StandIn) -> None:
    answered, undo = threading.Event(), engine.adaptation.undo
    async with console.run_test(size=WIDE, notifications=True) as pilot:
        screen = await to_candidate(pilot, STOCK.id, "b", "ctrl+s")
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.ROLLED_BACK)
        engine.adaptation.undo = lambda id: (answered.wait(5), undo(id))[1]
        await pilot.press("u", "b", "u")
        await until(pilot, lambda: "Undo is still running. Try again in a moment." in screen_text(console))
        answered.set()
        await until(pilot, lambda: screen.view and screen.view.candidate.status is CandidateStatus.PROMOTED)
        assert noted(engine, "undo_candidate") == [("undo_candidate", STOCK.id)]
        await pilot.press("b")
        assert isinstance(console.screen, Decide)


@pytest.mark.long
async def test_keys_that_can_do_nothing_are_not_offered(console: ConsoleApp, engine: StandIn) -> None:
    offers = {
        ROUNDING.id: {"approve", "reject"}, TRIES.id: {"reject"}, STOCK.id: {"roll_back"},
        LINT.id: {"approve", "reject"}, EMOJI.id: set(),
    }  # fmt: skip
    async with console.run_test(size=WIDE) as pilot:
        for id, offered in offers.items():
            screen = await to_candidate(pilot, id)
            assert {one for one in ("approve", "reject", "roll_back") if screen.check_action(one, ())} == offered


@pytest.mark.long
async def test_what_the_engine_refuses_is_said(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["approve_candidate"] = Refusal("already_decided", "it was rejected meanwhile")
    async with console.run_test(size=WIDE) as pilot:
        await to_candidate(pilot, ROUNDING.id, "a", "ctrl+s")
        await until(pilot, lambda: "it was rejected meanwhile" in told(console))


async def test_lift_with_its_interval_or_that_nobody_can_tell(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, STOCK.id)
        text = screen_text(console)
        assert "31 of  38 went well" in text
        assert "80 % interval: +2 to +58" in text
        engine.adaptation.lift = YOUNG
        screen.read_again()
        await until(pilot, lambda: "not enough evidence · 5 runs so far" in screen_text(console))


@pytest.mark.long
async def test_a_record_leads_to_its_session(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        screen = await to_candidate(pilot, ROUNDING.id, "enter", "down")
        await until(pilot, lambda: "It did not happen in a session." in screen_text(console))
        await pilot.press("enter")
        await until(pilot, lambda: "It does not come from a session." in told(console))
        assert console.screen is screen
        await pilot.press("up", "enter")
        await until(pilot, lambda: isinstance(console.screen, WorkScreen))
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000002")


@pytest.mark.long
async def test_what_waits_in_mission_control_leads_here(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        assert isinstance(console.screen, MissionScreen)
        queue = console.screen.query_one("#queue", Rows)
        console.screen.go_to("queue")
        queue.select(CHEAP.id)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, CandidatesScreen))
        await until(pilot, lambda: console.screen.view and console.screen.view.candidate == CHEAP)


@pytest.mark.long
async def test_a_line_of_a_prompt_leads_here(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        lead_to(console, PromptSource(SourceKind.OVERLAY, STOCK.id, "overlay over_000000000001"), "sess_000000000002")
        await until(pilot, lambda: isinstance(console.screen, CandidatesScreen))
        await until(pilot, lambda: console.screen.view and console.screen.view.candidate == STOCK)


async def test_a_candidate_that_is_gone_is_said(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        console.open_candidate("cand_gone")
        await until(pilot, lambda: "Candidate cand_gone no longer exists" in told(console))


@pytest.mark.long
async def test_tab_and_clicks_lead_to_the_learnings_and_back(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to_candidate(pilot, ROUNDING.id, "tab")
        assert isinstance(console.screen, LearningsScreen)
        await pilot.press("shift+tab")
        assert isinstance(console.screen, CandidatesScreen)
        await pilot.click(TabLine, offset=(18, 0))
        await until(pilot, lambda: isinstance(console.screen, LearningsScreen))
        await pilot.press("5")
        assert isinstance(console.screen, CandidatesScreen)


async def test_a_narrow_terminal_shows_one_side(console: ConsoleApp) -> None:
    async with console.run_test(size=(80, 24)) as pilot:
        screen = await to_candidate(pilot, ROUNDING.id)
        assert not screen.query_one("#right").display
        await pilot.press("right")
        assert screen.query_one("#right").display
        assert "LIFECYCLE" in screen.query_one("#detail").render().plain
        await pilot.press("left")
        assert screen.query_one("#left").display
        await pilot.press("enter", "escape")
        assert screen.pane == "queue"


async def test_nothing_yet_says_where_candidates_come_from(console: ConsoleApp, engine: StandIn) -> None:
    engine.adaptation.all = {}
    async with console.run_test(size=WIDE) as pilot:
        await live(pilot)
        await pilot.press("5")
        await until(pilot, lambda: "when the same thing happens repeatedly" in screen_text(console))


async def test_the_reason_line_takes_letters_that_are_keys_elsewhere(console: ConsoleApp) -> None:
    async with console.run_test(size=WIDE) as pilot:
        await to_candidate(pilot, ROUNDING.id, "x", *"a1x5")
        assert console.screen.query_one(Input).value == "a1x5"


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks(console: ConsoleApp, snap_compare, size: str) -> None:
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run("5", "right"))


@pytest.mark.long
def test_how_a_lift_looks_without_colour(home, engine: StandIn, snap_compare, monkeypatch) -> None:
    from tests.console.stand_in_data import NOW

    monkeypatch.setenv("NO_COLOR", "1")
    app = ConsoleApp(lambda: engine, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    assert snap_compare(app, terminal_size=(120, 40), run_before=run("5", "down", "down"))


@pytest.mark.long
def test_how_the_question_looks(console: ConsoleApp, engine: StandIn, snap_compare) -> None:
    engine.settings.current.console.theme = "clawpy-high-contrast"
    assert snap_compare(console, terminal_size=(80, 24), run_before=run("5", "a"))
