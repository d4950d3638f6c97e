"""A card whose session could not even begin is pending again, with the reason (SPEC 2.7, 3.8): a provider is down."""

from __future__ import annotations

from dataclasses import replace

from engine.clock import FakeClock
from engine.model import Card, Outcome, SessionState, Status
from engine.storage.database import Database
from tests.prediction.deciding import World


def could_not_begin(world: World, card: Card) -> Card:
    """Its session fails for want of something."""
    view = world.bench.sessions[card.id]
    world.bench.sessions[card.id] = replace(view, not_begun=True, error="openai cannot be reached")
    world.bench.end(card.id, SessionState.FAILED)
    return world.cards.get(card.id)


def test_it_is_pending_again_and_says_why(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    card = world.cards.approve(world.card().id)
    back = could_not_begin(world, card)
    assert (back.status, back.outcome, back.session_id) == (Status.PENDING, None, None)
    assert back.note == "not done: openai cannot be reached"
    assert world.signals() == []  # nothing was decided yet: it will be decided again
    again = world.cards.approve(card.id)
    world.bench.end(card.id)
    assert world.cards.get(again.id).outcome is Outcome.SUCCEEDED
    assert len(world.bench.started) == 2


def test_a_card_for_the_same_that_is_pending_already_is_enough(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    card = world.cards.approve(world.card().id)
    world.cards.give_back(card.id, "once more")
    done = could_not_begin(world, card)
    assert (done.status, done.outcome) == (Status.EXECUTED, Outcome.FAILED)


def test_what_you_took_back_meanwhile_stays_taken_back(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    card = world.cards.approve(world.card().id)
    world.cards.undo(card.id)
    assert could_not_begin(world, card).status is not Status.CONFIRMED
