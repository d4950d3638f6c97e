"""One prediction cycle (SPEC 2.1-2.9): what becomes a card, what is withdrawn, what is said when something fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config import Autonomy, Settings, WorkspaceSettings
from engine.events import EventBus, SessionEnded
from engine.git.history import Commit
from engine.git.state import Branch, GitState
from engine.model import (
    Band,
    CheckResult,
    CycleReport,
    DecisionSignal,
    Outcome,
    Proposal,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
    Tier,
)
from engine.prediction.card_rows import Prediction
from engine.prediction.context import WorkspaceContext
from engine.prediction.cycle import FOLLOW_UPS_OF_FAILED_TESTS, is_done_by_operator, next_kinds
from engine.prediction.kinds import FIX_BY_AGENT
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING as MADE
from tests.prediction.deciding import SHOP, World, proposal, teach
from tests.prediction.sensing import MadeRun


def names(*letters: str) -> list[Proposal]:
    """Of two kinds in turn: five of one kind are never shown."""
    return [proposal(letter, kind="lint" if number % 2 else "run_tests") for number, letter in enumerate(letters)]


def test_at_most_five_from_the_top(world: World) -> None:
    tiers = [Tier.CHECK, Tier.BROKEN, Tier.CHECK, Tier.BLOCKS, Tier.UPKEEP, Tier.CHECK, Tier.CHECK, Tier.UPKEEP]
    created = world.cycle(*(proposal(str(at), kind=f"kind{at}", tier=tier) for at, tier in enumerate(tiers)))
    assert [card.tier for card in created] == [1, 2, 3, 3, 3]
    assert world.cycle(*world.proposals) == []


def test_who_asks_for_cards_is_told_when_there_is_no_room_for_them(world: World) -> None:
    world.state = committed(world)
    world.cycle(*names(*"abcde"))
    assert world.predictions.run_cycle(requested=True).errors == (), "nothing else was found"
    world.proposals = [*world.proposals, proposal("f")]
    told = (
        "there is more, but at most 5 cards may wait in a workspace (maxPendingCards) and 12 in all "
        "(maxPendingCardsInAll): decide some first"
    )
    assert world.predictions.run_cycle(requested=True).errors == (told,)
    assert world.predictions.run_cycle().errors == (), "nobody asked"


def test_snoozed_own_and_undone_cards_and_the_five(world: World, clock: FakeClock) -> None:
    five = world.cycle(*names(*"abcdefgh"))
    world.propose("run_tests")
    world.cards.snooze(five[0].id)
    assert len(world.cycle(*world.proposals)) == 1, "neither a snoozed nor an own card takes a seat"
    clock.advance(timedelta(hours=2))
    seats = [card for card in world.cards.pending() if card.source is not Source.OPERATOR]
    assert len(seats) == 5, "who wakes up waits for a seat"
    world.cards.dismiss(seats[0].id)
    assert five[0].id in [card.id for card in world.cards.pending()]
    assert world.cycle(*world.proposals) == [], "and comes before new ones"
    returning = world.cards.undo(seats[0].id)
    after = [card for card in world.cards.pending() if card.source is not Source.OPERATOR]
    assert len(after) == 5
    assert returning.id in [card.id for card in after]


def test_one_card_a_fingerprint(world: World) -> None:
    assert len(world.cycle(proposal("a"), proposal("a"), proposal("a", workspace="/other"))) == 1
    world.cards.approve(world.cards.pending()[0].id)
    assert world.cycle(proposal("a")) == [], "it is under way"


def test_a_card_is_withdrawn_when_its_evidence_is_gone(world: World) -> None:
    card = world.card("a")
    world.cards.mark_shown([card.id])
    own = world.propose("run_tests")
    world.proposals = []
    assert world.predictions.run_cycle().withdrawn == (card.id,)
    after = world.cards.get(card.id)
    assert (after.status, after.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
    assert world.signals() == []
    assert world.cards.get(own.id).status is Status.PENDING
    assert len(world.cycle(proposal("a"))) == 1, "a withdrawn one does not cool down"


def committed(world: World) -> GitState:
    now = world.clock.now()
    return GitState(head="new", recent=(Commit("new", now, "a", "commit"),))


@pytest.mark.parametrize(("shown", "signals"), [(True, ["did_himself"]), (False, [])])
def test_what_the_operator_did_himself_was_chosen(
    world: World, clock: FakeClock, shown: bool, signals: list[str]
) -> None:
    card = world.card("a", kind="report_branches", facts={"branches": [["x", "t"]]})
    if shown:
        world.cards.mark_shown([card.id])
    clock.advance(timedelta(minutes=5))
    world.state = committed(world)
    assert world.cycle() == []
    assert world.signals() == signals
    if shown:
        assert world.cards.get(card.id).note == "you did it yourself"


def test_what_was_not_seen_is_not_gone(world: World) -> None:
    card = world.card("a")
    world.errors = ("runs: the table is locked",)
    world.proposals = []
    report = world.predictions.run_cycle()
    assert report.withdrawn == ()
    assert report.errors == ("/shop: runs: the table is locked",)
    world.errors, world.state = (), None
    assert world.predictions.run_cycle().withdrawn == ()
    assert world.cards.get(card.id).status is Status.PENDING


def test_a_fault_of_a_template_costs_no_card_that_another_found(world: World) -> None:
    there = world.card("a")
    propose = world.predictions._propose

    def faulty(context: WorkspaceContext, failed: list[Exception]) -> list[Proposal]:
        failed.append(KeyError("head"))
        return list(propose(context, failed))

    world.predictions._propose = faulty
    world.proposals = [proposal("b")]
    report = world.predictions.run_cycle()
    assert [card.kind for card in report.created] == ["run_tests"]
    assert report.withdrawn == (), "what was not seen is not gone"
    assert report.errors == ("/shop: KeyError: 'head'",)
    assert world.cards.get(there.id).status is Status.PENDING


def test_what_the_content_rail_blocks_is_logged_and_not_shown(world: World, bus: EventBus) -> None:
    heard = bus.subscribe(lambda: None)
    for _ in range(2):
        assert world.cycle(proposal("a", prompt="forbidden")) == []
    assert [event.kind for event in heard.drain()].count("TriggerBlocked") == 1


def test_phase_0_is_fixed_and_phase_1_asks_the_twin(world: World) -> None:
    teach(world, 29)
    card = world.card("a")
    assert (card.confidence, card.source, world.predictions.phase().number) == (0.4, Source.TEMPLATE, 0)
    teach(world, 1, DecisionSignal.DISMISSED, kind="other")
    card = world.card("b", evidence_at=world.clock.now() - timedelta(days=2))
    assert (card.source, card.band, world.predictions.phase().number) == (Source.EMBEDDED_TWIN, Band.ACT, 1)
    assert card.parts is not None
    assert card.parts.words == (
        "you approved 29 of 29 like this in the morning",
        "moved up to “blocks soon”: you approved 29 of 29 like it",
    )
    assert card.tier is Tier.BLOCKS


def test_a_stopped_engine_predicts_nothing(world: World) -> None:
    world.stopped = "F12 was pressed"
    world.proposals = [proposal("a")]
    assert world.predictions.run_cycle() == CycleReport(errors=("F12 was pressed",))
    with pytest.raises(Refusal) as refused:
        world.predictions.run_cycle(requested=True)
    assert refused.value.code == "stopped"
    world.stopped = ""
    assert len(world.predictions.run_cycle(requested=True).created) == 1


def test_a_workspace_that_is_off_gets_no_cards(database: Database, clock: FakeClock) -> None:
    settings = Settings(workspaces={SHOP: WorkspaceSettings(autonomy=Autonomy.OFF)})
    world = World(database, clock, settings=settings)
    assert world.cycle(proposal("a")) == []
    assert "off" in world.predictions.run_cycle(requested=True).errors[0]


def test_never_two_at_once(world: World) -> None:
    inside, go_on = threading.Event(), threading.Event()
    contexts = world.predictions._contexts
    looked: list[Sequence[str]] = []

    def slow(workspaces: Sequence[str]) -> Sequence[WorkspaceContext]:
        looked.append(workspaces)
        inside.set()
        assert go_on.wait(10)
        return contexts(workspaces)

    world.predictions._contexts = slow
    world.proposals = [proposal("a"), proposal("b", workspace="/blog")]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.predictions.run_cycle, workspaces=[SHOP])
        assert inside.wait(10)
        second = pool.submit(world.predictions.run_cycle, workspaces=["/blog"], requested=True)
        assert looked == [[SHOP]]
        go_on.set()
        made = [card.assignment.workspace for report in (first, second) for card in report.result(10).created]
    assert made == [SHOP, "/blog"]


def test_what_was_ordered_takes_no_place_and_keeps_none_from_others(world: World) -> None:
    world.card("full")
    due = [proposal(str(number), kind=f"heartbeat-{number}", tier=Tier.BLOCKS) for number in range(6)]
    others = [proposal(str(number), kind=f"kind_{number}") for number in range(9)]
    made = world.cycle(*due, *others)
    assert {card.kind for card in made} >= {proposal.kind for proposal in due}
    assert len(made) == 6 + 5


# One rule a kind: did the operator do himself what the card proposed? (SPEC 2.9)


LATER, EARLIER = MADE + timedelta(hours=1), MADE - timedelta(hours=1)


RUN = MadeRun("h", session_id="own", ran_at=LATER)


def at(moment: datetime, **state: Any) -> dict[str, Any]:
    return {"git": GitState(recent=(Commit("c", moment, "a", "s"),), **state)}


@pytest.mark.parametrize(
    ("kind", "seen", "himself"),
    [
        ("run_tests", {"runs": (RUN,)}, True),
        ("run_tests", {"runs": (replace(RUN, ran_at=EARLIER),)}, False),
        ("run_tests", {"runs": (replace(RUN, session_id="of another card"),)}, False),
        ("run_tests", {"runs": (RUN,), "git": None}, False),
        ("rehearse_merge", at(LATER, branch="x"), True),
        ("rehearse_merge", at(EARLIER, branch="x"), False),
        ("rehearse_merge", at(LATER, branch="y"), False),
        ("rehearse_merge", at(LATER, branch="x", behind_base=2), False),
        ("report_branches", {}, True),
        ("report_branches", {"git": GitState(branches=(Branch("x", "t", EARLIER),))}, False),
        ("lint", {"runs": (RUN,)}, False),
    ],
)
def test_what_the_operator_did_without_the_card(kind: str, seen: dict[str, Any], himself: bool) -> None:
    columns: Any = {"kind": kind, "facts": {"branches": [["x", "t"]]}, "parameters": {"target": "x"}}
    row = Prediction(created_at=MADE, **columns)
    given: Any = {"git": GitState()} | seen
    context = WorkspaceContext(SHOP, LATER, LATER, **given)
    assert is_done_by_operator(row, context, {"own"}) is himself


# SPEC 2.10: what a finished session leads to, once, from real evidence, and never as one of the five.


NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
RED, GREEN = CheckResult("pytest", passed=3, failed=1), CheckResult("pytest", passed=4, failed=0)
BROKEN = CheckResult("pytest", passed=0, failed=0, errors=1)


def ended(flow: str | None = "run_tests", **more: object) -> SessionView:
    view = SessionView(
        "sess_1", "pred_1", "run", SHOP, "koji-core", "backend_builder", "flow", flow, SessionState.SUCCEEDED,
        "approved", "none", SHOP, NOW, NOW, NOW, 0, 0, "",
    )  # fmt: skip
    return replace(view, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "kinds"),
    [
        (ended(check=RED), FOLLOW_UPS_OF_FAILED_TESTS),
        (ended(check=BROKEN), FOLLOW_UPS_OF_FAILED_TESTS),
        (ended("bisect", check=RED), tuple(kind for kind in FOLLOW_UPS_OF_FAILED_TESTS if kind != "bisect")),
        (ended(check=GREEN), ()),
        (ended(check=CheckResult("pytest", passed=0, failed=0)), ()),
        (ended("lint"), ()),
        (ended("lint", next_step="fix_lint"), ("fix_lint",)),
        (ended("fix_lint"), (FIX_BY_AGENT,)),
        (ended("lint", state=SessionState.FAILED), ()),
        (ended(None), ()),
    ],
)
def test_what_may_follow(view: SessionView, kinds: tuple[str, ...]) -> None:
    assert next_kinds(view) == kinds


def end(world: World, name: str = "a", *beside: Proposal) -> str:
    """The operator has the tests of `name` run, and they are red; cards for what is `beside` stay."""
    made = world.cycle(proposal(name), *beside)
    card = world.cards.approve(next(card.id for card in made if card.kind == "run_tests"))
    world.sessions.end(card.id)
    view = world.sessions.views[card.id] = replace(world.sessions.views[card.id], check=RED)
    tell(world, view.id)
    return view.id


def tell(world: World, session_id: str) -> None:
    """The ledger says that a session has ended."""
    fact = SessionEnded(subject=session_id, prediction_id="", state="succeeded", summary="", cost=0)
    world.database.write(lambda tx: tx.record(fact))


def test_red_tests_lead_to_one_card_that_is_none_of_the_five(world: World) -> None:
    end(world)
    five = [proposal(f"five{number}", kind="lint" if number % 2 else "run_tests") for number in range(5)]
    world.cycle(*five)
    assert len(world.cards.pending()) == 5
    end_of = proposal("broken", kind="bisect")
    world.proposals = [*five, end_of, proposal("other", kind="hunt_flakes")]
    end(world, "five9")
    world.proposals = [*five, end_of, proposal("other", kind="hunt_flakes")]
    [card] = world.predictions.follow_up()
    assert (card.kind, card.source, card.status) == ("bisect", Source.FOLLOW_UP, Status.PENDING)
    assert world.predictions.follow_up() == []
    assert card.id in [card.id for card in world.cards.pending()]


def test_it_goes_when_its_evidence_is_gone_and_comes_only_once(world: World) -> None:
    end(world)
    world.proposals = [proposal("broken", kind="bisect")]
    [card] = world.predictions.follow_up()
    world.cycle(proposal("broken", kind="bisect"))
    assert [card.id for card in world.cards.pending()] == [card.id]
    world.cycle()
    assert world.cards.get(card.id).status is Status.EXPIRED


def test_what_was_turned_down_or_done_lately_gives_way_to_the_next_kind(world: World) -> None:
    done, dismissed = proposal("done", kind="bisect"), proposal("dismissed", kind="hunt_flakes")
    [first, other] = world.cycle(done, dismissed)
    by_kind = {card.kind: card.id for card in (first, other)}
    world.cards.approve(by_kind["bisect"])
    world.sessions.end(by_kind["bisect"])
    world.cards.dismiss(by_kind["hunt_flakes"])
    end(world)
    world.proposals = [done, dismissed, proposal("red", kind="still_red")]
    assert [card.kind for card in world.predictions.follow_up()] == ["still_red"]


def test_what_is_on_the_stack_already_is_the_follow_up(world: World) -> None:
    broken = proposal("broken", kind="bisect")
    end(world, "a", broken)
    [card] = world.cards.pending()
    world.proposals = [broken, proposal("red", kind="still_red")]
    assert world.predictions.follow_up() == []
    assert world.cards.get(card.id).status is Status.PENDING


def test_nothing_follows_while_all_is_stopped_and_nothing_is_lost(world: World) -> None:
    end(world)
    world.proposals = [proposal("broken", kind="bisect")]
    world.stopped = "stopped from outside"
    assert world.predictions.follow_up() == []
    world.stopped = ""
    assert len(world.predictions.follow_up()) == 1


@pytest.mark.parametrize(("age", "cards"), [(timedelta(hours=24), 1), (timedelta(hours=24, seconds=1), 0)])
def test_nothing_follows_what_ended_more_than_a_day_ago(
    world: World, clock: FakeClock, age: timedelta, cards: int
) -> None:
    end(world)
    clock.advance(age)
    world.proposals = [proposal("broken", kind="bisect")]
    assert len(world.predictions.follow_up()) == cards
