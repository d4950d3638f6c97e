"""One prediction cycle (SPEC 2.1-2.9): what becomes a card, what is withdrawn, what is said when something fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.config import Autonomy, Settings, WorkspaceSettings
from engine.events import EventBus
from engine.git.commits import Commit
from engine.git.state import GitState
from engine.model import (
    Band,
    CycleReport,
    DecisionSignal,
    Outcome,
    Proposal,
    Refusal,
    Source,
    Status,
    Tier,
)
from engine.prediction.context import WorkspaceContext
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, World, proposal, teach


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    return World(database, clock)


def names(*letters: str) -> list[Proposal]:
    """Of two kinds in turn: five of one kind are never shown."""
    return [proposal(letter, kind="lint" if number % 2 else "run_tests") for number, letter in enumerate(letters)]


def test_at_most_five_from_the_top(world: World) -> None:
    tiers = [Tier.CHECK, Tier.BROKEN, Tier.CHECK, Tier.BLOCKS, Tier.UPKEEP, Tier.CHECK, Tier.CHECK, Tier.UPKEEP]
    created = world.see(*(proposal(str(at), kind=f"kind{at}", tier=tier) for at, tier in enumerate(tiers)))
    assert [card.tier for card in created] == [1, 2, 3, 3, 3]
    assert world.see(*world.seen) == []


def test_who_asks_for_cards_is_told_when_there_is_no_room_for_them(world: World) -> None:
    world.state = committed(world)
    world.see(*names(*"abcde"))
    assert world.predictions.run_cycle(requested=True).errors == (), "nothing else was found"
    world.seen = [*world.seen, proposal("f")]
    told = (
        "there is more, but at most 5 cards may wait in a workspace (maxPendingCards) and 12 in all "
        "(maxPendingCardsInAll): decide some first"
    )
    assert world.predictions.run_cycle(requested=True).errors == (told,)
    assert world.predictions.run_cycle().errors == (), "nobody asked"


def test_snoozed_own_and_undone_cards_and_the_five(world: World, clock: FakeClock) -> None:
    five = world.see(*names(*"abcdefgh"))
    world.cards.propose("run_tests", workspace=SHOP)
    world.cards.snooze(five[0].id)
    assert len(world.see(*world.seen)) == 1, "neither a snoozed nor an own card takes a seat"
    clock.advance(timedelta(hours=2))
    seats = [card for card in world.cards.pending() if card.source is not Source.OPERATOR]
    assert len(seats) == 5, "who wakes up waits for a seat"
    world.cards.dismiss(seats[0].id)
    assert five[0].id in [card.id for card in world.cards.pending()]
    assert world.see(*world.seen) == [], "and comes before new ones"
    returning = world.cards.undo(seats[0].id)
    after = [card for card in world.cards.pending() if card.source is not Source.OPERATOR]
    assert len(after) == 5
    assert returning.id in [card.id for card in after]


def test_one_card_a_fingerprint(world: World) -> None:
    assert len(world.see(proposal("a"), proposal("a"), proposal("a", workspace="/other"))) == 1
    world.cards.approve(world.cards.pending()[0].id)
    assert world.see(proposal("a")) == [], "it is under way"


def test_a_card_is_withdrawn_when_its_evidence_is_gone(world: World) -> None:
    card = world.card("a")
    world.cards.mark_shown([card.id])
    own = world.cards.propose("run_tests", workspace=SHOP)
    world.seen = []
    assert world.predictions.run_cycle().withdrawn == (card.id,)
    after = world.cards.get(card.id)
    assert (after.status, after.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
    assert world.signals() == []
    assert world.cards.get(own.id).status is Status.PENDING
    assert len(world.see(proposal("a"))) == 1, "a withdrawn one does not cool down"


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
    assert world.see() == []
    assert world.signals() == signals
    if shown:
        assert world.cards.get(card.id).note == "you did it yourself"


def test_what_was_not_seen_is_not_gone(world: World) -> None:
    card = world.card("a")
    world.errors = ("runs: the table is locked",)
    world.seen = []
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
    world.seen = [proposal("b")]
    report = world.predictions.run_cycle()
    assert [card.kind for card in report.created] == ["run_tests"]
    assert report.withdrawn == (), "what was not seen is not gone"
    assert report.errors == ("/shop: KeyError: 'head'",)
    assert world.cards.get(there.id).status is Status.PENDING


def test_what_the_content_rail_blocks_is_logged_and_not_shown(world: World, bus: EventBus) -> None:
    heard = bus.subscribe(lambda: None)
    for _ in range(2):
        assert world.see(proposal("a", prompt="forbidden")) == []
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
    world.seen = [proposal("a")]
    assert world.predictions.run_cycle() == CycleReport(errors=("F12 was pressed",))
    with pytest.raises(Refusal) as refused:
        world.predictions.run_cycle(requested=True)
    assert refused.value.code == "stopped"
    world.stopped = ""
    assert len(world.predictions.run_cycle(requested=True).created) == 1


def test_a_workspace_that_is_off_gets_no_cards(database: Database, clock: FakeClock) -> None:
    settings = Settings(workspaces={SHOP: WorkspaceSettings(autonomy=Autonomy.OFF)})
    world = World(database, clock, settings=settings)
    assert world.see(proposal("a")) == []
    assert "off" in world.predictions.run_cycle(requested=True).errors[0]


def test_never_two_at_once(world: World) -> None:
    inside, go_on = threading.Event(), threading.Event()
    contexts = world.predictions._contexts

    def slow(workspaces: object) -> object:
        inside.set()
        assert go_on.wait(10)
        return contexts(workspaces)  # type: ignore[arg-type]

    world.predictions._contexts = slow  # type: ignore[assignment]
    world.seen = [proposal("a")]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.predictions.run_cycle)
        assert inside.wait(10)
        threading.Timer(0.05, go_on.set).start()
        joined = world.predictions.run_cycle()
        report = first.result(10)
    assert report.fresh
    assert joined == replace(report, fresh=False)


def test_who_asks_for_another_workspace_gets_a_cycle_of_his_own(world: World) -> None:
    inside, go_on = threading.Event(), threading.Event()
    contexts = world.predictions._contexts

    def slow(workspaces: object) -> object:
        inside.set()
        assert go_on.wait(10)
        return contexts(workspaces)  # type: ignore[arg-type]

    world.predictions._contexts = slow  # type: ignore[assignment]
    world.seen = [proposal("a"), proposal("b", workspace="/blog")]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.predictions.run_cycle, workspaces=[SHOP])
        assert inside.wait(10)
        threading.Timer(0.05, go_on.set).start()
        report = world.predictions.run_cycle(workspaces=["/blog"], requested=True)
        assert [card.assignment.workspace for card in report.created] == ["/blog"]
        assert len(first.result(10).created) == 1


def test_what_was_ordered_takes_no_place_and_keeps_none_from_others(world: World) -> None:
    world.card("full")
    due = [proposal(str(number), kind=f"heartbeat-{number}", tier=Tier.BLOCKS) for number in range(6)]
    others = [proposal(str(number), kind=f"kind_{number}") for number in range(9)]
    made = world.see(*due, *others)
    assert {card.kind for card in made} >= {proposal.kind for proposal in due}
    assert len(made) == 6 + 5
