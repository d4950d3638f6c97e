"""The card stack and what is around it."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from textual.geometry import Region

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.stack import CardStack
from clawpy_console.words import name
from engine.values import (
    Card,
    CheckResult,
    LocalModels,
    Outcome,
    Phase,
    RailVerdict,
    Refusal,
    SessionState,
    Status,
    Tier,
    Verdict,
)
from tests.console import stand_in
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn

FIRST, SECOND, RISKY = "pred_000000000001", "pred_000000000002", "pred_000000000003"


def stack(app: ConsoleApp) -> CardStack:
    return app.screen.query_one("#stack", CardStack)


def front(app: ConsoleApp) -> str:
    card = stack(app).front
    return card.id if card else ""


def named(engine: StandIn, *names: str) -> list[tuple]:
    return [call for call in engine.noted if call[0] in names]


@pytest.mark.parametrize(
    ("key", "call"),
    [("right", "approve"), ("l", "approve"), ("left", "dismiss"), ("h", "dismiss"), ("up", "snooze"), ("s", "snooze")],
)
async def test_a_swipe_decides_the_card_on_screen_and_the_next_stands_there(
    console: ConsoleApp, engine: StandIn, key: str, call: str
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        assert front(console) == FIRST
        await pilot.press(key)
        assert front(console) == SECOND  # at once, before the engine answered
        await until(pilot, lambda: named(engine, call))
        assert named(engine, "approve", "dismiss", "snooze")[0][:2] == (call, FIRST)
        await until(pilot, lambda: all(one.id != FIRST for one in console.known.cards))
        assert front(console) == SECOND


async def test_before_tells_a_red_run_from_a_green_one_and_leaves_out_what_was_withdrawn(
    console: ConsoleApp, engine: StandIn
) -> None:
    red = CheckResult("pytest", 23, 12, failing=("tests/test_cart.py::test_total",))
    [ran] = [one for one in engine.sessions.all if one.prediction_id == "pred_000000000013"]
    engine.sessions.all.append(dataclasses.replace(ran, id="sess_red", prediction_id="pred_000000000014", check=red))
    gone = {"status": Status.EXPIRED, "outcome": Outcome.WITHDRAWN, "prompt": "Lint what is gone"}
    card = engine.cards.all["pred_000000000012"]
    engine.cards.all[card.id] = stand_in.card(12, gone.pop("prompt"), decided_at=card.decided_at, **gone)
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        [flakes] = [line for line in screen_text(console).split("\n") if "Rerun the 4 slowest" in line]
        [suite] = [line for line in screen_text(console).split("\n") if "Run the whole suite before" in line]
        assert [word in flakes for word in ("✓ Rerun", "succeeded")] == [True, True]
        assert [word in suite for word in ("▲ Run", "12 tests failed")] == [True, True]
        assert "Lint what is gone" not in screen_text(console)


@pytest.mark.parametrize("keys", [(), ("2",), ("2", "f"), ("3",), ("4",), ("5",), ("6",), ("7",)])
async def test_what_is_said_in_passing_covers_nothing_of_a_small_screen(
    console: ConsoleApp, engine: StandIn, keys: tuple[str, ...]
) -> None:
    engine.with_agent()
    async with console.run_test(size=(80, 24), notifications=True) as pilot:
        await live(pilot)
        await pilot.press(*keys)
        console.say("something is wrong, and how to mend it")
        console.say("something else is wrong, in more words than fit one line of so small a terminal, and mended thus")
        await until(pilot, lambda: "something is wrong, and how to mend it" in screen_text(console))
        await until(pilot, lambda: "mended thus" in screen_text(console))
        seen = {
            one: region.intersection(clip)
            for one, (region, clip) in console.screen._compositor.visible_widgets.items()
            if one.visible and not one.children
        }
        toasts = [region for one, region in seen.items() if one in console.screen.query("Toast")]
        others = [(one, region) for one, region in seen.items() if one not in console.screen.query("Toast")]
        assert len(toasts) >= 2  # a slow machine has more to say
        assert not [one for one, region in others for toast in toasts if region.overlaps(toast)]


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_what_is_next_names_the_repository_where_there_are_several(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    def next_line() -> str:
        [line] = [line for line in screen_text(console).split("\n") if "Rehearse merging" in line]
        return line

    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await pilot.press("escape")
        rehearsal = next(one for one in stack(console).cards if "Rehearse merging" in one.assignment.prompt)
        await until(pilot, lambda: f"  {name(rehearsal.assignment.workspace)} " in next_line())
        for id, card in engine.cards.all.items():
            here = dataclasses.replace(card.assignment, workspace=rehearsal.assignment.workspace)
            engine.cards.all[id] = dataclasses.replace(card, assignment=here)
        console.renew(["cards"])
        await until(pilot, lambda: f"  {name(rehearsal.assignment.workspace)} " not in next_line())
        assert f"  {rehearsal.assignment.channel} " in next_line()


async def test_a_refusal_brings_the_card_back_with_its_reason(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["approve"] = Refusal("blocked", "cost: the hour's cap is reached", "wait until 15:00")
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("right")
        await until(pilot, lambda: front(console) == FIRST)
        assert "the hour's cap is reached" in screen_text(console)
        assert "wait until 15:00" in shown(console, console.screen.query_one("#trail").region)


WHY = "the content filter would stop it: it deletes outside the workspace, where nothing of a session is undone"
MEND = (
    "edit its prompt in the details so that it names a folder of the workspace, or allow exactly this once on screen 6"
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("key", ["approve", "undo"])
async def test_the_whole_of_a_refusal_can_be_read(
    console: ConsoleApp, engine: StandIn, key: str, size: tuple[int, int]
) -> None:
    engine.refuse[key] = Refusal("blocked", WHY, MEND)
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await pilot.press(*(["right"] if key == "approve" else ["left", "u"]))
        trail = console.screen.query_one("#trail")
        await until(pilot, lambda: "✗" in shown(console, trail.region))
        assert shown(console, trail.region) == f"✗ {WHY} ({MEND})"
        assert stack(console).region.height >= 9
        await pilot.press("left")
        await until(pilot, lambda: trail.region.height == 1)


def shown(app: ConsoleApp, place: Region) -> str:
    """What stands on this part of the screen, as one line."""
    rows = screen_text(app).split("\n")[place.y : place.bottom]
    return " ".join(" ".join(row[place.x : place.right] for row in rows).split())


async def test_undo_takes_back_the_last_decision_then_the_one_before(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left")
        await pilot.press("left")
        await until(pilot, lambda: len(named(engine, "dismiss")) == 2)
        assert "CARDS  1 of 3" in screen_text(console)
        await pilot.press("u")
        await pilot.press("u")
        await until(pilot, lambda: len(named(engine, "undo")) == 2)
        assert [call[1] for call in named(engine, "undo")] == [SECOND, FIRST]
        await until(pilot, lambda: len(console.known.cards) == 5)
        assert "CARDS  1 of 5" in screen_text(console)
        await pilot.press("u")
        await until(pilot, lambda: "nothing to take back" in screen_text(console))


async def test_a_card_taken_back_is_on_top_at_once_and_stays(console: ConsoleApp, engine: StandIn) -> None:
    answered = threading.Event()
    snooze, undo = engine.cards.snooze, engine.cards.undo
    engine.cards.snooze = lambda *a, **k: (answered.wait(5), snooze(*a, **k))[1]  # type: ignore[method-assign]
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("s", "u")
        assert front(console) == FIRST
        assert "CARDS  1 of 5" in screen_text(console)
        assert not named(engine, "snooze", "undo")  # nothing has reached the engine yet
        console.renew(["cards"])
        answered.set()
        await until(pilot, lambda: named(engine, "undo") and not console._reading)
        assert [call[0] for call in named(engine, "snooze", "undo")] == ["snooze", "undo"]
        assert front(console) == FIRST
        assert len(stack(console).cards) == 5
        engine.cards.snooze, engine.cards.undo = snooze, undo  # type: ignore[method-assign]
        engine.cards.all.pop(FIRST)  # what was taken back does not outlive what the engine says later
        console.renew(["cards"])
        await until(pilot, lambda: front(console) == SECOND)


async def test_an_undo_that_is_refused_leaves_again_with_its_reason(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: named(engine, "dismiss"))
        engine.refuse["undo"] = Refusal("too_late", "it ran to its end already", "look at its session")
        await pilot.press("u")
        await until(pilot, lambda: front(console) == SECOND)
        assert "it ran to its end already" in screen_text(console)
        assert "CARDS  1 of 4" in screen_text(console)


async def test_a_risky_card_needs_its_own_second_key_and_never_enter(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left", "left")
        assert front(console) == RISKY
        assert "touches production" in screen_text(console)
        await pilot.press("A")  # not before its reason was pointed out
        await pilot.press("right", "right", "l")
        assert front(console) == RISKY
        assert stack(console).armed
        await pilot.press("enter")
        await pilot.press("enter")
        await pilot.press("escape")
        assert not named(engine, "approve")
        assert front(console) == RISKY
        await pilot.press("right", "A")
        await until(pilot, lambda: named(engine, "approve"))
        assert named(engine, "approve")[0][1] == RISKY


async def test_keys_are_ignored_for_a_moment_after_the_card_changed_under_the_hands(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        now = [100.0]
        stack(console).clock = lambda: now[0]
        engine.cards.all.pop(FIRST)  # withdrawn while the operator looks at it
        console.renew(["cards"])
        await until(pilot, lambda: front(console) == SECOND)
        now[0] += 0.149
        await pilot.press("right")
        assert front(console) == SECOND
        now[0] += 0.002
        await pilot.press("right")
        assert front(console) == RISKY  # and one's own swipe makes nobody wait
        await pilot.press("left")
        assert front(console) == "pred_000000000005"


async def test_a_new_card_never_takes_the_place_of_the_one_on_screen(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        engine.cards.all = {"pred_new": stand_in.card(77, "Something hotter", confidence=0.79), **engine.cards.all}
        console.renew(["cards"])
        await until(pilot, lambda: len(stack(console).cards) == 6)
        assert front(console) == FIRST


async def test_keys_of_the_stack_do_nothing_while_another_pane_has_the_focus(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("tab")
        assert console.screen.pane == "tasks"
        await pilot.press("l", "h", "right", "left", "s", "j", "k")
        assert front(console) == FIRST
        assert not named(engine, "approve", "dismiss", "snooze")


async def test_panes_are_walked_with_tab_both_ways(console: ConsoleApp) -> None:
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        seen = []
        for _ in range(5):
            await pilot.press("tab")
            seen.append(console.screen.pane)
        assert seen == ["tasks", "queue", "agents", "live", "stack"]
        await pilot.press("shift+tab")
        assert console.screen.pane == "live"
        assert console.screen.query_one("#live").region.height > 3  # folded columns unfold when they are looked at


@pytest.mark.parametrize(
    ("key", "reason"),
    [("1", "not-now"), ("2", "wrong"), ("3", "already-done"), ("4", "never-here"), ("5", "never-anywhere")],
)
async def test_a_key_just_after_a_dismissal_says_why(
    console: ConsoleApp, engine: StandIn, key: str, reason: str
) -> None:
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        await pilot.press("left", key)
        await until(pilot, lambda: named(engine, "explain"))
        assert named(engine, "dismiss", "explain") == [("dismiss", FIRST), ("explain", FIRST, reason)]
        assert console.current_mode == "mission"  # the digit led to no other screen
        await until(pilot, lambda: f"noted: {reason.replace('-', ' ')}" in screen_text(console))
        await pilot.press("2")
        assert console.current_mode == "work"  # once said, digits lead to screens again


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_all_reasons_are_offered_at_every_width(console: ConsoleApp, size: tuple[int, int]) -> None:
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: "5 never" in screen_text(console))
        assert all(word in screen_text(console) for word in ("1 not now", "2 wrong", "3 done", "4 never here"))


async def test_a_kind_that_a_reason_switches_off_is_told_with_the_way_back(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all[FIRST] = dataclasses.replace(engine.cards.all[FIRST], note="“lint” cards are switched off in shop")
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        await pilot.press("left", "4")
        told = "“lint” cards are switched off in shop  ·  u takes it back"
        await until(pilot, lambda: told in " ".join(screen_text(console).split("\n")))
        await pilot.press("u")
        await until(pilot, lambda: named(engine, "undo"))
        assert front(console) == FIRST


@pytest.mark.parametrize("between", ["j", "u", "wait"])
async def test_without_a_dismissal_just_before_a_digit_is_a_screen(
    console: ConsoleApp, engine: StandIn, between: str
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        moment = [0.0]
        stack(console).clock = lambda: moment[0]
        await pilot.press("j" if between == "j" else "left")
        if between == "u":
            await pilot.press("u")
        moment[0] += 60.0
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not named(engine, "explain")


@pytest.mark.parametrize("key", ["j", "k", "w", "tab", "7"])
async def test_any_other_key_ends_the_time_for_a_reason(console: ConsoleApp, engine: StandIn, key: str) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: "5 never" in screen_text(console))
        await pilot.press(key)
        await until(pilot, lambda: "5 never" not in screen_text(console))
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not named(engine, "explain")


async def test_a_reason_belongs_to_the_last_dismissal(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left", "left", "2")
        await until(pilot, lambda: named(engine, "explain"))
        assert named(engine, "explain") == [("explain", SECOND, "wrong")]


async def test_what_could_not_run_is_no_failure_among_the_tasks(console: ConsoleApp, engine: StandIn) -> None:
    at = next(at for at, one in enumerate(engine.sessions.all) if one.id == "sess_000000000004")
    ran = engine.sessions.all[at]
    engine.sessions.all[at] = dataclasses.replace(ran, state=SessionState.CANNOT_RUN, error="ruff is not found")
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        [line] = [line for line in screen_text(console).split("\n") if "Lint the 6 files: ruff" in line]
        assert ("○ Lint" in line, "✗" in line) == (True, False)


async def test_j_and_k_turn_the_stack_and_decide_nothing(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        assert "CARDS  1 of 5" in screen_text(console)
        await pilot.press("j", "down")
        await until(pilot, lambda: "CARDS  3 of 5" in screen_text(console))
        await pilot.press("k")
        assert front(console) == SECOND
        await pilot.press("k", "k")
        await until(pilot, lambda: "CARDS  5 of 5" in screen_text(console))  # from the first to the last
        assert not named(engine, "approve", "dismiss", "snooze")
        await pilot.press("j", "j", "left")  # what is shown is decided, and the one behind it stands in its place
        await until(pilot, lambda: named(engine, "dismiss"))
        assert named(engine, "dismiss") == [("dismiss", SECOND)]
        assert stack(console).place == (2, 4)


async def test_what_is_at_risk_comes_to_the_front_and_a_quick_check_does_not(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        shown = stack(console)
        check = replace(shown.cards[0], id="pred_check", tier=Tier.CHECK)
        shown.show([check], empty="")
        another = replace(check, id="pred_another")
        shown.show([another, check], empty="")
        assert shown.front is not None
        assert shown.front.id == "pred_check", "it stays while you look at it"
        urgent = replace(check, id="pred_urgent", tier=Tier.BLOCKS)
        shown.show([urgent, another, check], empty="")
        assert shown.front.id == "pred_urgent"
        shown.show([replace(check, id="pred_secret", tier=Tier.BROKEN), urgent, another, check], empty="")
        assert shown.front.id == "pred_secret"
        shown.show([urgent, another, check], empty="")
        assert shown.front.id == "pred_urgent", "what is decided makes room"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("pane", ["tasks", "queue", "agents", "live"])
async def test_escape_leads_back_to_the_cards_from_every_pane(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int], pane: str
) -> None:
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        console.screen.go_to(pane)
        await until(pilot, lambda: console.screen.pane == pane)
        await until(pilot, lambda: "→ approve" not in screen_text(console).split("\n")[-1])  # it would do nothing
        await pilot.press("escape")
        assert console.screen.pane == "stack"
        await pilot.press("right")
        await until(pilot, lambda: named(engine, "approve"))


async def test_a_screen_is_reached_by_a_click_on_its_tab(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        header = screen_text(console).split("\n")[0]
        for tab, mode in (("4 memory", "memory"), ("1 mission", "mission")):
            await pilot.click(offset=(header.index(tab) + 3, 0))
            await until(pilot, lambda mode=mode: console.current_mode == mode)


@pytest.mark.parametrize(("since", "told"), [(timedelta(seconds=59), "just now"), (timedelta(minutes=1), "oldest 1m")])
async def test_folded_the_queue_tells_how_long_something_waits(
    console: ConsoleApp, engine: StandIn, since: timedelta, told: str
) -> None:
    engine.changes.all = [dataclasses.replace(one, created_at=engine.now - since) for one in engine.changes.all]
    engine.permissions.all = []
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        await until(pilot, lambda: f", {told}" in screen_text(console))


async def test_the_queue_leads_to_the_session(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: console.current_mode == "work")
        await until(pilot, lambda: console.screen.session and console.screen.session.id == "sess_000000000002")


async def test_a_prompt_of_ones_own(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"look", "ctrl+w", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert named(engine, "propose") == [("propose", "look", stand_in.BLOG)]


async def test_a_prompt_that_was_left_is_there_again_until_it_is_a_card(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"look", "escape", "n", *"er", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert [call[1] for call in named(engine, "propose")] == ["looker"]
        await pilot.press("n", "ctrl+s")
        assert len(named(engine, "propose")) == 1, "nothing is left"


async def test_a_prompt_that_is_refused_is_there_again_with_what_is_right(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = engine.cards.propose

    def strict(text: str, *, workspace: str) -> Card:
        if "=" in text:
            return propose(text, workspace=workspace)
        raise Refusal("bad_parameters", f"bisect: '{text[7:]}' is not a parameter", "`bisect test=… good=… [bad=…]`")

    monkeypatch.setattr(engine.cards, "propose", strict)
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"bisect a.py", "ctrl+w", "ctrl+s")
        await until(pilot, lambda: "`bisect test=… good=… [bad=…]`" in screen_text(console))
        await pilot.press("=", "b", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert named(engine, "propose") == [("propose", "bisect a.py=b", stand_in.BLOG)]


async def test_predict_now_and_filter_by_workspace(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("p")
        await until(pilot, lambda: ("run_cycle", True) in engine.noted)
        await until(pilot, lambda: "Nothing new." in screen_text(console))
        await pilot.press("w", "w")
        assert front(console) == "pred_000000000004"
        assert "only blog" in screen_text(console)
        await pilot.press("w")
        assert len(stack(console).cards) == 5


async def test_the_empty_stack_says_when_the_next_look_is(console: ConsoleApp, engine: StandIn) -> None:
    engine.cards.all = {}
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        assert "the next look is at 14:30" in screen_text(console)
        await pilot.press("right", "left", "up", "enter")
        assert not named(engine, "approve", "dismiss", "snooze")


async def test_the_card_on_screen_counts_as_shown_once(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: len(named(engine, "mark_shown")) == 2)
        assert named(engine, "mark_shown") == [("mark_shown", FIRST), ("mark_shown", SECOND)]


HOSTILE = [
    "[/foo] [b]bold",
    "[@click=app.quit]x[/]",
    "a [link=http://x]b",
    "漢字 🎉 👩‍👩‍👧‍👦 e\u0301",
    "x" * 4000,
    "$accent $ %s {0}",
]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_text_from_elsewhere_is_shown_literally_and_breaks_no_column(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    first = engine.cards.all[FIRST]
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        for text in HOSTILE:
            engine.cards.all[FIRST] = dataclasses.replace(
                first,
                assignment=dataclasses.replace(first.assignment, prompt=text),
                reasoning=text,
                note=text,
                undo_note=text,
                signals=(dataclasses.replace(first.signals[4], evidence=(text,)),),
                verdicts=(RailVerdict("content", Verdict.BLOCK, text, text),),
            )
            console.renew(["cards"])
            await until(pilot, lambda text=text: front_prompt(console) == text)
            await pilot.pause()
            strips = console.screen._compositor.render_strips()
            assert {sum(segment.cell_length for segment in strip) for strip in strips} == {size[0]}
            assert text[:12].split(" 🎉")[0] in screen_text(console)
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("escape")


def front_prompt(app: ConsoleApp) -> str:
    card = stack(app).front
    return card.assignment.prompt if card else ""


async def test_details_approve_with_edited_parameters(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("j", "enter", "e")
        editor = console.screen.query_one("#editor")
        await until(pilot, lambda: editor.has_focus)
        assert editor.text == 'paths = ["shop/cart.py", "shop/price.py", "shop/tax.py"]'
        editor.text = 'paths = ["shop/cart.py"]'
        await pilot.press("ctrl+s")
        await until(pilot, lambda: named(engine, "approve"))
        assert named(engine, "approve") == [("approve", SECOND, {"paths": ["shop/cart.py"]})]
        await until(pilot, lambda: len(console.screen_stack) == 1)
        assert front(console) == RISKY


async def test_before_the_twin_has_learnt_a_card_shows_its_tier_and_after_that_its_confidence(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all = {one.id: one for one in stand_in.cards(stated=False)}
    engine.phase = Phase(0, 3, "the Twin joins in after 30 decisions of yours", 30)
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        await until(pilot, lambda: "Learning: 3 of 30" in screen_text(console))
        text = screen_text(console)
        assert text.count("Learning") == 1
        assert [word in text for word in ("▲ at risk", "blocks soon", "quick check", "upkeep")] == [True] * 4
        assert "40%" not in text
        await pilot.press("enter")
        await until(pilot, lambda: "PLACE IN THE STACK" in screen_text(console))
        told = screen_text(console)
        assert "1 of 4  at risk: something is broken or about to be lost" in told
        assert "Test that broke" in told
        assert "CONFIDENCE" not in told


async def test_details_say_why_a_card_was_moved_and_what_its_confidence_is_made_of(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 60)) as pilot:
        await live(pilot)
        assert "Learning" not in screen_text(console)
        await pilot.press("j", "enter")
        await until(pilot, lambda: "PLACE IN THE STACK" in screen_text(console))
        told = screen_text(console)
        assert "moved up to “blocks soon”: you approved 19 of 19 like it" in told
        assert "sum         = 0.720" in told
        assert "72% blocks soon" in told


async def test_details_say_what_a_card_lacks_where_it_can_be_given(console: ConsoleApp, engine: StandIn) -> None:
    lacks = "bisect needs test and good"
    engine.cards.all[FIRST] = dataclasses.replace(engine.cards.all[FIRST], note=lacks)
    async with console.run_test(size=(80, 30)) as pilot:
        await live(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "Why this card" in screen_text(console))
        told = [line.strip(" │▃▅▆▇█") for line in screen_text(console).splitlines()]
        assert told.index(f"▲ {lacks}") < told.index("PLACE IN THE STACK")


async def test_details_have_no_heading_with_nothing_under_it(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 60)) as pilot:
        await live(pilot)
        shown = stack(console).front
        await pilot.press("enter")
        await until(pilot, lambda: "approved 6 of 7" in screen_text(console))
        assert "SIGNALS" in screen_text(console)
        await pilot.press("escape")
        bare = dataclasses.replace(shown, id="pred_bare", signals=(), verdicts=(), note="", reasoning="")
        bare = dataclasses.replace(bare, assignment=dataclasses.replace(bare.assignment, parameters={}))
        console.engine.cards.all[bare.id] = bare
        console.deck.show_details(bare)
        await until(pilot, lambda: "none is set; key = value" in screen_text(console))
        told = [line.strip(" │") for line in screen_text(console).splitlines()]
        assert "WORK" in told
        assert not [one for one, below in itertools.pairwise(told) if one.isupper() and not below]


async def test_details_hand_a_sentence_in_place_of_parameters_to_the_engine(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("enter", "e")
        console.screen.query_one("#editor").text = "only the cart, and say why"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(named(engine, "approve")))
        assert "only the cart, and say why" in str(named(engine, "approve"))


def found(name: str, title: str, missing: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, title=title, missing=missing, hosts=("api.example.com",), login=f"run {name}")


async def test_the_first_run_says_who_could_take_prose_and_a_key_hires_it(console: ConsoleApp, engine: StandIn) -> None:
    engine.hiring.serves, engine.hiring.here = "", [found("claude", "Claude Code"), found("codex", "Codex", "npm i")]
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await until(pilot, lambda: "H takes Claude Code" in screen_text(console))
        await pilot.press("H")
        await until(pilot, lambda: "once its adapter is there: npm i" in screen_text(console))
        assert not named(engine, "hire")
        await pilot.press("enter", "1")
        await until(pilot, lambda: named(engine, "hire") == [("hire", "claude")])
        await until(pilot, lambda: "run claude" in screen_text(console))
        await pilot.press("escape")
        assert len(console.screen_stack) == 1


async def test_the_first_run_says_which_models_of_this_machine_could(console: ConsoleApp, engine: StandIn) -> None:
    engine.hiring.serves, engine.hiring.local = "", LocalModels(("ollama:qwen3", "ollama:llama3.2:3b"))
    async with console.run_test(size=(120, 40), notifications=True) as pilot:
        await live(pilot)
        await until(pilot, lambda: "H takes ollama:qwen3 or" in screen_text(console))
        await pilot.press("H")
        await until(pilot, lambda: "a model of this machine" in screen_text(console))
        await pilot.press("2")
        await until(pilot, lambda: "koji-core is served by ollama:llama3.2:3b" in screen_text(console))
        assert named(engine, "take_model") == [("take_model", "ollama:llama3.2:3b")]
        assert named(engine, "look_again") == [("look_again",)]
        assert len(console.screen_stack) == 1


async def test_what_listens_and_tells_no_model_is_told_of_when_one_is_looked_for(
    console: ConsoleApp, engine: StandIn
) -> None:
    fault = "ollama at 127.0.0.1:11434 did not tell its models within 0.5 s"
    engine.hiring.serves, engine.hiring.local = "", LocalModels(faults=(fault,))
    async with console.run_test(size=(200, 60), notifications=True) as pilot:
        await live(pilot)
        await pilot.press("H")
        await until(pilot, lambda: "ollama at 127.0.0.1:11434 did not tell its" in screen_text(console))
        assert "no coding agent is on the PATH" in screen_text(console)


async def test_the_first_run_says_who_takes_prose_where_somebody_does(console: ConsoleApp, engine: StandIn) -> None:
    engine.hiring.serves = "ollama:qwen3"
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        await until(pilot, lambda: "hides this" in screen_text(console))
        assert "prose is done by ollama:qwen3" in screen_text(console)
        assert "prose needs" not in screen_text(console)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_first_run_says_what_to_press_and_what_happens(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    engine.hiring.serves = ""
    engine.settings.current.keys = {"work.land": "P"}
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await until(pilot, lambda: "hides this" in screen_text(console))
        for said in (
            "The next useful work, as a card: → runs it, ← dismisses it, ↑ puts it off",
            "What was changed waits as a diff: 2 shows it, P lands it, u undoes that",
            "n takes a prompt of your own; prose needs an agent: clawpy key set openai",
            "--workspace DIR adds folders · nothing runs by itself · esc hides this",
        ):
            assert said in screen_text(console)  # each on a line of its own


async def test_a_prompt_of_ones_own_comes_on_top(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"lint it", "ctrl+s")
        await until(pilot, lambda: front(console) == stand_in.card(90, "").id)


async def test_the_first_run_line_goes_with_escape_for_good(console: ConsoleApp, home) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        assert "hides this" in screen_text(console)
        await pilot.press("left")
        assert "hides this" in screen_text(console)
        await pilot.press("escape")
        await pilot.pause()
        assert "hides this" not in screen_text(console)
        await console._save()
    from clawpy_console import last_screen

    assert last_screen.load(home.last_screen).welcomed


async def test_after_an_absence_five_lines_until_a_key(home, engine: StandIn) -> None:
    from datetime import timedelta

    from clawpy_console import last_screen
    from clawpy_console.known import Known

    since = stand_in.NOW - timedelta(hours=3)
    last_screen.save(home.last_screen, last_screen.LastScreen(Known(), welcomed=True, saved_at=since))
    app = ConsoleApp(lambda: engine, home, [], now=lambda: stand_in.NOW)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "While you were away, 3h" in screen_text(app))
        text = screen_text(app)
        for word in ("done", "approved", "rejected", "learnt", "spent"):
            assert word in text
        assert "2 learnings carried up" in text
        await pilot.press("y")
        await pilot.pause()
        assert "While you were away" not in screen_text(app)


async def test_enter_on_who_or_what_never_ran_leads_somewhere_all_the_same(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(120, 40), notifications=True) as pilot:
        await live(pilot)
        tasks = console.screen.query_one("#tasks", Rows)
        tasks.focus()
        tasks.select("task_2")
        await pilot.press("enter")
        await until(pilot, lambda: "nothing has run for it yet" in screen_text(console))
        agents = console.screen.query_one("#agents", Rows)
        idle = next(
            row.id for row in agents._rows if row.id and all(one.agent != row.id for one in engine.sessions.all)
        )
        agents.focus()
        agents.select(idle)
        await pilot.press("enter")
        await until(pilot, lambda: console.current_mode == "hierarchy")
