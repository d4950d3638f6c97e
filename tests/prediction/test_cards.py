"""Cards: deciding, undoing, expiring (SPEC 2.7, 2.9, 8.1)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetDiscarded
from engine.model import (
    Outcome,
    SessionView,
    Source,
    Status,
    Tier,
    TriggerType,
)
from engine.prediction.card_rows import Prediction
from engine.safety.trigger_history import chain_start
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from tests.prediction.deciding import SHOP, World, proposal, refusal

MOMENT = timedelta(microseconds=1)


def test_deciding_twice_is_refused(world: World) -> None:
    card = world.card()
    world.cards.dismiss(card.id)
    for call in (world.cards.approve, world.cards.dismiss, world.cards.snooze):
        assert refusal(call, card.id) == "already_decided"
    assert world.signals() == ["dismissed"]
    assert refusal(world.cards.get, "pred_none") == "unknown_card"


def test_what_a_program_suggests_is_of_its_own_source(world: World, database: Database) -> None:
    own = world.cards.propose("think about the cache", workspace=SHOP)
    put = world.cards.propose("tidy the cart", workspace=SHOP, reasoning="suggested by claude")
    assert (own.source, own.kind) == (Source.OPERATOR, "own")
    assert (put.source, put.kind, put.reasoning) == (Source.PREDICTOR_HOOK, "suggested", "suggested by claude")
    made = {entry.subject: entry.payload["source"] for entry in Ledger(database).since(0, 50)}
    assert made[put.id] == "predictor-hook", "it is notified as any new card, and counted as a prediction"
    world.cards.approve(world.cards.propose("run_tests", workspace=SHOP, reasoning="suggested by claude").id)
    assert [decision.kind for decision in world.decisions.load_newest()] == ["suggested"], (
        "no decision on what he wrote himself"
    )


def test_suggestions_are_of_the_five_and_do_not_fill_them(world: World) -> None:
    tiers = [Tier.UPKEEP, Tier.CHECK, Tier.CHECK, Tier.BLOCKS, Tier.BROKEN]
    known = world.see(*(proposal(f"p{at}", tier=tier, kind=f"k{at}") for at, tier in enumerate(tiers, 1)))
    put = [world.cards.propose(f"part {number}", workspace=SHOP, reasoning="by claude") for number in range(3)]
    pending = world.cards.pending()
    assert len(pending) == 5
    assert {card.id for card in put} < {item.id for item in pending}
    assert {card.assignment.prompt for card in known} - {item.assignment.prompt for item in pending} == {
        f"run the tests of p{number}" for number in (1, 2, 3)
    }, "the least make room, without a signal, and come back when there is a seat"
    assert world.signals() == []
    assert refusal(world.cards.propose, "one more", workspace=SHOP, reasoning="by claude") == "too_many_cards"
    assert len(world.cards.pending()) == 5
    world.cards.dismiss(put[0].id)
    assert world.cards.propose("one more", workspace=SHOP, reasoning="by claude").source is Source.PREDICTOR_HOOK
    world.cards.propose("his own", workspace=SHOP)
    assert len(world.cards.pending()) == 6, "what the operator writes takes nobody's seat"


def test_a_prompt_of_ones_own(world: World) -> None:
    card = world.cards.propose("  Run tests\x1b[31m  ", workspace=SHOP)
    assert (card.assignment.prompt, card.assignment.flow, card.kind) == ("Run tests", "run_tests", "own")
    card = world.cards.propose("run_tests paths=src", workspace=SHOP)
    assert (card.assignment.flow, card.assignment.parameters) == ("run_tests", {"paths": "src"})
    assert world.cards.propose("run_tests of the cart", workspace=SHOP).assignment.flow is None
    world.card("urgent", tier=Tier.BROKEN)
    assert world.cards.pending()[0].source is Source.OPERATOR, "one's own lies on top"
    assert refusal(world.cards.propose, " \n", workspace=SHOP) == "empty_prompt"
    assert refusal(world.cards.propose, "x", workspace=SHOP, channel="gardn") == "unknown_channel"


def test_no_key_gets_into_a_prompt(world: World) -> None:
    key = "sk-test-0123456789abcdefghijklmnop"
    assert refusal(world.cards.propose, f"call the API with {key}", workspace=SHOP) == "secret_in_text"
    card = world.cards.propose("call the API with $OPENAI_API_KEY", workspace=SHOP)
    assert refusal(world.cards.approve, card.id, edit=f"with {key}") == "secret_in_text"
    assert world.cards.get(card.id).assignment.prompt == "call the API with $OPENAI_API_KEY"


def test_a_program_makes_no_chain_longer_than_it_is(world: World, database: Database) -> None:
    """SPEC 3.3: whoever asks for a follow-up, its link comes from the channel that it follows."""
    card = world.card()

    def follow(tx: Transaction) -> None:
        row = tx.session.get(Prediction, card.id)
        assert row is not None
        row.source, row.from_channel = Source.FOLLOW_UP.value, "garden"

    database.write(follow)
    world.cards.trigger(card.id, force=True, by="gateway")
    (ruled,) = world.rails.ruled
    assert (ruled.type, ruled.from_channel, ruled.force) == (TriggerType.FOLLOW_UP, "garden", True)
    assert chain_start(ruled) == "garden"


# -- undo


def test_an_undone_dismissal_stays_as_long_as_there_is_evidence(world: World, clock: FakeClock) -> None:
    card = world.card()
    world.cards.dismiss(card.id)
    clock.advance(timedelta(hours=25))
    assert world.cards.undo(card.id).expires_at == clock.now() + timedelta(hours=24)
    world.see(proposal())
    assert world.cards.get(card.id).status is Status.PENDING
    world.see()
    assert world.cards.get(card.id).outcome is Outcome.WITHDRAWN


def test_undo_before_the_session_began(world: World) -> None:
    card = world.card()
    world.bench.hold = True
    world.cards.approve(card.id)
    after = world.cards.undo(card.id)
    assert (after.status, after.session_id) == (Status.PENDING, None)
    assert world.rails.revoked == [card.id]
    assert world.signals() == []


def test_undo_while_it_runs_cancels_it(world: World) -> None:
    card = world.card()
    world.cards.approve(card.id)
    after = world.cards.undo(card.id)
    assert (after.status, after.outcome) == (Status.EXECUTED, Outcome.CANCELLED)
    assert world.signals() == ["undone"]


def test_undo_later_reverses_the_landing(world: World) -> None:
    card = world.card()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"
    world.landed.sessions.add("session_1")
    assert world.cards.undo(card.id).status is Status.EXECUTED
    assert world.signals() == ["undone"]


def test_a_correction_of_a_prompt_outlasts_the_result(world: World, database: Database) -> None:
    flow = world.card()
    world.cards.approve(flow.id, edit="paths=src")
    world.bench.serves = "ollama:qwen"
    card = world.cards.propose("explain the cart", workspace=SHOP)
    same = world.cards.propose("explain the till", workspace=SHOP)
    assert world.cards.correction(card.id) is None, "nobody has approved it"
    world.cards.approve(card.id, edit="explain the shop")
    world.cards.approve(same.id)
    assert world.cards.correction(card.id) == ("explain the cart", "explain the shop")
    world.bench.end(card.id)
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject="change_1", session_id="session_2")))
    world.cards.follow_landings()
    assert "discarded" in world.signals()
    assert world.cards.correction(card.id) == ("explain the cart", "explain the shop")
    assert world.cards.correction(flow.id) is None, "parameters are no words"
    assert world.cards.correction(same.id) is None, "nothing was changed"


def test_a_card_that_comes_back_from_a_dismissal_still_says_why_it_could_not_run(world: World) -> None:
    card = world.cards.propose("run_tests paths=forbidden", workspace=SHOP)
    assert refusal(world.cards.approve, card.id) == "blocked"
    note = world.cards.get(card.id).note
    for _ in range(2):
        assert world.cards.dismiss(card.id).note == note != ""
        assert world.cards.undo(card.id).note == note


# -- time


def test_a_snoozed_card_sleeps_two_hours_and_does_not_expire(world: World, clock: FakeClock) -> None:
    card = world.card()
    clock.advance(timedelta(hours=23))
    until = world.cards.snooze(card.id).snoozed_until
    assert until == clock.now() + timedelta(hours=2)
    clock.advance(timedelta(hours=2) - MOMENT)
    assert world.cards.expire_due() == 0
    assert world.cards.pending() == []
    assert [card.id for card in world.cards.pending(include_snoozed=True)] == [card.id]
    clock.advance(MOMENT)
    assert [card.id for card in world.cards.pending()] == [card.id]
    assert world.signals() == []


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1), timedelta(days=30) + MOMENT])
def test_a_snooze_has_bounds(world: World, span: timedelta) -> None:
    assert refusal(world.cards.snooze, world.card().id, span=span) == "bad_span"


# -- the stack


def test_a_dismissed_subject_comes_back_early_only_when_it_escalates(world: World) -> None:
    world.cards.dismiss(world.card("secret in a.py", kind="secret", tier=Tier.BLOCKS).id)
    again = {"kind": "secret", "subject": "secret in a.py", "facts": {"committed": True}}
    assert world.see(proposal(tier=Tier.BLOCKS, **again)) == []
    (card,) = world.see(proposal(tier=Tier.BROKEN, **again))
    assert card.tier is Tier.BROKEN
    world.cards.dismiss(card.id)
    again["facts"] = {"committed": True, "more": True}
    assert world.see(proposal(tier=Tier.BROKEN, **again)) == [], "it was dismissed as broken, too"


def test_approving_ones_own_prompt_earns_no_prediction_anything(world: World) -> None:
    for _ in range(11):
        world.cards.approve(world.cards.propose("run_tests", workspace=SHOP).id)
    assert world.cards.similar(world.card().id) == (0, 0)
    assert [past.waited_hours for past in world.decisions.load_after(0)] == [None] * 11


def test_undo_in_the_moment_the_session_ends_undoes_what_came_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = world.card()
    world.cards.approve(card.id)
    running = world.bench.sessions[card.id]

    def ended_meanwhile(prediction_id: str) -> SessionView:
        world.bench.end(prediction_id)
        world.landed.sessions.add("session_1")
        return running

    monkeypatch.setattr(world.bench, "of_prediction", ended_meanwhile)
    assert world.cards.undo(card.id).status is Status.EXECUTED
    assert world.landed.sessions == set()
    assert world.signals() == ["undone"]
