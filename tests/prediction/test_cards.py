"""Cards: deciding, editing, undoing, expiring (SPEC 2.7, 2.9, 8.1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetDiscarded, EventBus, LandingUndone
from engine.storage.database import Database
from engine.values import (
    Band,
    DecidedBy,
    Outcome,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
    TriggerType,
    Verdict,
)
from tests.prediction.deciding import SHOP, World, proposal

MOMENT = timedelta(microseconds=1)


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    return World(database, clock)


def refusal(call: object, *arguments: object, **named: object) -> str:
    with pytest.raises(Refusal) as refused:
        call(*arguments, **named)  # type: ignore[operator]
    return refused.value.code


def test_a_card_says_all_that_is_known(world: World) -> None:
    world.rails.novel = True
    card = world.one()
    assert (card.status, card.source, card.band, card.confidence) == (Status.PENDING, Source.TEMPLATE, Band.CARD, 0.4)
    assert (card.agent, card.assignment.channel, card.assignment.flow) == ("backend_builder", "koji-core", "run_tests")
    assert card.expires_at == card.created_at + timedelta(hours=24)
    assert card.novel
    assert card.parts is not None
    assert card.signals[0].evidence == ("a",)
    assert world.cards.get(card.id) == card
    assert world.cards.recent() == [card]


def test_approve_runs_it_with_the_permit(world: World) -> None:
    card = world.cards.approve(world.one().id)
    assert (card.status, card.decided_by) == (Status.CONFIRMED, DecidedBy.OPERATOR)
    ((permit, assignment, mode),) = world.bench.started
    assert (permit.prediction_id, assignment, mode) == (card.id, card.assignment, "approved")
    assert card.session_id == "session_1"
    assert world.signals() == ["approved"]
    assert (world.rails.ruled[0].type, world.rails.ruled[0].from_channel) == (TriggerType.MANUAL, "owner")
    assert world.cards.pending() == []


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (SessionState.SUCCEEDED, Outcome.SUCCEEDED),
        (SessionState.FAILED, Outcome.FAILED),
        (SessionState.CANCELLED, Outcome.CANCELLED),
        (SessionState.BLOCKED, Outcome.BLOCKED),
        (SessionState.INTERRUPTED, Outcome.FAILED),
    ],
)
def test_the_end_of_the_session_is_the_outcome(world: World, state: SessionState, outcome: Outcome) -> None:
    card = world.cards.approve(world.one().id)
    world.bench.end(card.id, state)
    after = world.cards.get(card.id)
    assert (after.status, after.outcome) == (Status.EXECUTED, outcome)


def test_deciding_twice_is_refused(world: World) -> None:
    card = world.one()
    world.cards.dismiss(card.id)
    for call in (world.cards.approve, world.cards.dismiss, world.cards.snooze):
        assert refusal(call, card.id) == "already_decided"
    assert world.signals() == ["dismissed"]
    assert refusal(world.cards.get, "pred_none") == "unknown_card"


def test_what_a_rail_blocks_stays_pending_with_the_reason(world: World) -> None:
    card = world.one()
    blocked = refusal(world.cards.approve, world.cards.propose("run_tests paths=forbidden", workspace=SHOP).id)
    assert blocked == "blocked"
    stuck = next(one for one in world.cards.pending() if one.id != card.id)
    assert stuck.note == "content: it is forbidden"
    assert world.bench.started == []
    assert world.signals() == []


def test_approving_a_card_that_shows_its_ask_satisfies_it(world: World) -> None:
    card = world.cards.propose("run_tests paths=risky", workspace=SHOP)
    assert world.cards.approve(card.id).status is Status.CONFIRMED


def test_what_the_rails_would_say_now_is_asked_anew_and_decides_nothing(world: World) -> None:
    card = world.cards.propose("run_tests paths=risky", workspace=SHOP)
    world.rails.novel = True
    content, gate = world.cards.rails(card.id)
    assert (content.verdict, gate.rule) == (Verdict.ASK, "novel-pair")  # what it asks is not taken as acknowledged
    assert world.rails.ruled == []
    assert refusal(world.cards.rails, "pred_none") == "unknown_card"


def test_an_edit_that_asks_is_shown_first(world: World) -> None:
    card = world.one()
    assert refusal(world.cards.approve, card.id, edit="paths=risky") == "needs_acknowledgement"
    shown = world.cards.get(card.id)
    assert shown.assignment.parameters == {"paths": "risky"}
    assert world.cards.approve(card.id).status is Status.CONFIRMED
    assert sorted(world.signals()) == ["approved", "original"]


def test_editing_a_flow_edits_its_parameters(world: World) -> None:
    card = world.one()
    assert refusal(world.cards.approve, card.id, edit="nonsense") == "bad_parameters"
    world.cards.approve(card.id, edit="paths=src")
    assert world.bench.started[0][1].parameters == {"paths": "src"}
    assert sorted(world.signals()) == ["approved", "original"]


def test_prose_waits_for_a_runner(world: World) -> None:
    card = world.cards.propose("think about the cache", workspace=SHOP, channel="dream-weaver")
    assert (card.source, card.agent, card.assignment.flow) == (Source.OPERATOR, "dreamer", None)
    with pytest.raises(Refusal, match="takes prose") as refused:
        world.cards.approve(card.id)
    assert refused.value.code == "no_runner"
    assert world.cards.get(card.id).status is Status.PENDING


def test_a_prompt_of_ones_own(world: World) -> None:
    card = world.cards.propose("  Run tests\x1b[31m  ", workspace=SHOP)
    assert (card.assignment.prompt, card.assignment.flow, card.kind) == ("Run tests", "run_tests", "own")
    card = world.cards.propose("run_tests paths=src", workspace=SHOP)
    assert (card.assignment.flow, card.assignment.parameters) == ("run_tests", {"paths": "src"})
    assert world.cards.propose("run_tests of the cart", workspace=SHOP).assignment.flow is None
    world.one("urgent", share=0.9)
    assert world.cards.pending()[0].source is Source.OPERATOR, "one's own lies on top"
    assert refusal(world.cards.propose, " \n", workspace=SHOP) == "empty_prompt"
    assert refusal(world.cards.propose, "x", workspace=SHOP, channel="gardn") == "unknown_channel"


def test_who_approves_decides_what_is_triggered(world: World) -> None:
    world.cards.approve(world.one("a").id, by=DecidedBy.AUTONOMY)
    world.cards.approve(world.one("b").id, by=DecidedBy.API)
    assert [trigger.type for trigger in world.rails.ruled] == [TriggerType.AUTONOMOUS, TriggerType.MANUAL]
    assert [mode for _, _, mode in world.bench.started] == ["autonomous", "approved"]
    assert world.signals() == ["approved"], "autonomy says nothing about the operator"


def test_what_cannot_start_is_pending_again(world: World) -> None:
    card = world.one()
    world.bench.broken = True
    assert refusal(world.cards.approve, card.id) == "permit_used"
    after = world.cards.get(card.id)
    assert (after.status, after.decided_by) == (Status.PENDING, None)
    assert after.note.startswith("could not start")
    assert world.signals() == []


# -- undo


def test_undo_of_a_dismissal(world: World) -> None:
    card = world.one()
    world.cards.dismiss(card.id)
    assert world.cards.undo(card.id).status is Status.PENDING
    assert world.signals() == []
    assert world.cards.approve(card.id).status is Status.CONFIRMED


def test_a_dismissal_is_not_undone_when_its_evidence_is_gone(world: World) -> None:
    card = world.one()
    world.cards.dismiss(card.id)
    world.see()
    assert refusal(world.cards.undo, card.id) == "evidence_gone"
    world.see(proposal())
    assert world.cards.undo(card.id).status is Status.PENDING


def test_undo_of_a_snooze(world: World) -> None:
    card = world.one()
    world.cards.snooze(card.id)
    assert world.cards.undo(card.id).snoozed_until is None
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"


def test_undo_before_the_session_began(world: World) -> None:
    card = world.one()
    world.bench.hold = True
    world.cards.approve(card.id)
    after = world.cards.undo(card.id)
    assert (after.status, after.session_id) == (Status.PENDING, None)
    assert world.rails.revoked == [card.id]
    assert world.signals() == []


def test_undo_while_it_runs_cancels_it(world: World) -> None:
    card = world.one()
    world.cards.approve(card.id)
    after = world.cards.undo(card.id)
    assert (after.status, after.outcome) == (Status.EXECUTED, Outcome.CANCELLED)
    assert world.signals() == ["undone"]


def test_undo_later_reverses_the_landing(world: World) -> None:
    card = world.one()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"
    world.landed.sessions.add("session_1")
    assert world.cards.undo(card.id).status is Status.EXECUTED
    assert world.signals() == ["undone"]


def test_a_discarded_change_set_is_a_rejection_once(world: World, database: Database) -> None:
    card = world.one()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject="change_1", session_id="session_1")))
    world.cards.aftermath.catch_up()
    database.write(lambda tx: tx.record(LandingUndone(subject="change_1", session_id="session_1")))
    world.cards.aftermath.catch_up()
    assert world.signals() == ["discarded"]


def test_what_ran_by_itself_and_stands_for_a_day_was_wanted(world: World, clock: FakeClock) -> None:
    for name in "ab":
        world.cards.approve(world.one(name).id, by=DecidedBy.AUTONOMY)
        world.bench.end(world.cards.recent()[0].id)
    world.landed.sessions.add("session_1")
    world.cards.undo(world.bench.started[0][0].prediction_id)
    clock.advance(timedelta(hours=24) - MOMENT)
    assert world.cards.aftermath.credit_kept() == 0
    clock.advance(MOMENT)
    assert (world.cards.aftermath.credit_kept(), world.cards.aftermath.credit_kept()) == (1, 0)
    assert sorted(world.signals()) == ["kept", "undone"]


# -- time


def test_a_card_expires_after_24_hours(world: World, clock: FakeClock) -> None:
    card = world.one()
    clock.advance(timedelta(hours=24) - MOMENT)
    assert world.cards.expire_due() == 0
    clock.advance(MOMENT)
    assert world.cards.pending() == []
    assert refusal(world.cards.approve, card.id) == "already_decided"
    assert world.cards.expire_due() == 1
    assert world.cards.get(card.id).status is Status.EXPIRED
    assert world.signals() == [], "it was never shown"
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"


def test_one_that_was_shown_says_a_little_when_it_expires(world: World, clock: FakeClock) -> None:
    card = world.one()
    world.cards.mark_shown([card.id, "pred_none"])
    clock.advance(timedelta(hours=24))
    world.cards.expire_due()
    assert world.signals() == ["expired"]


def test_quiet_hours_do_not_count(database: Database, clock: FakeClock) -> None:
    world = World(database, clock, active_time=lambda start, span: start + span + timedelta(hours=9))
    card = world.one()
    assert card.expires_at - card.created_at == timedelta(hours=33)


def test_a_snoozed_card_sleeps_two_hours_and_does_not_expire(world: World, clock: FakeClock) -> None:
    card = world.one()
    clock.advance(timedelta(hours=23))
    until = world.cards.snooze(card.id).snoozed_until
    assert until == clock.now() + timedelta(hours=2)
    clock.advance(timedelta(hours=2) - MOMENT)
    assert world.cards.expire_due() == 0
    assert world.cards.pending() == []
    assert [one.id for one in world.cards.pending(include_snoozed=True)] == [card.id]
    clock.advance(MOMENT)
    assert [one.id for one in world.cards.pending()] == [card.id]
    assert world.signals() == []


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1), timedelta(days=30) + MOMENT])
def test_a_snooze_has_bounds(world: World, span: timedelta) -> None:
    assert refusal(world.cards.snooze, world.one().id, span=span) == "bad_span"


# -- the stack


def test_the_stack_is_ranked_and_filtered(world: World) -> None:
    world.workspaces = [SHOP, "/blog"]
    world.see(proposal("low", share=0.2), proposal("high", share=0.9), proposal("x", workspace="/blog", share=0.5))
    prompts = [card.assignment.prompt for card in world.cards.pending()]
    assert prompts == ["run the tests of high", "run the tests of x", "run the tests of low"]
    assert len(world.cards.pending(workspace="/blog")) == 1
    assert len(world.cards.pending(channel="garden")) == 0


def test_equal_ranks_are_ordered_by_urgency(world: World, clock: FakeClock) -> None:
    old = clock.now() - timedelta(hours=20)
    world.see(proposal("new", evidence_at=clock.now()), proposal("old", evidence_at=old))
    assert [card.assignment.prompt for card in world.cards.pending()] == [
        "run the tests of old",
        "run the tests of new",
    ]


def test_like_this_before(world: World) -> None:
    for name in "abc":
        world.cards.approve(world.one(name).id)
    world.cards.dismiss(world.one("d").id)
    assert world.cards.similar(world.one("e").id) == (3, 4, "approved 3 of 4 like this")


def test_approving_ones_own_prompt_earns_no_prediction_anything(world: World) -> None:
    for _ in range(11):
        world.cards.approve(world.cards.propose("run_tests", workspace=SHOP).id)
    assert world.cards.similar(world.one().id)[:2] == (0, 0)
    assert [past.waited_hours for past in world.decisions.after(0)] == [None] * 11


# -- starting again


def test_recovery_starts_what_was_approved_and_reopens_what_ran_out(world: World, clock: FakeClock) -> None:
    fresh, late, running = world.see(proposal("fresh"), proposal("late"), proposal("running"))
    world.cards.approve(running.id)
    start = world.cards._start
    world.cards._start = lambda *_: None  # type: ignore[method-assign]  # killed between the commit and the start
    world.cards.approve(late.id)
    clock.advance(timedelta(minutes=15))
    world.cards.approve(fresh.id)
    world.cards._start = start  # type: ignore[method-assign]
    permits = list(world.rails.open.values())
    assert len(world.cards.recover(permits, resume=False)) == 2
    assert world.cards.get(fresh.id).status is Status.CONFIRMED
    assert world.cards.get(late.id).status is Status.PENDING
    assert len(world.cards.recover(permits)) == 1
    assert world.cards.get(fresh.id).session_id == "session_2"
    assert world.cards.get(late.id).status is Status.PENDING
    assert world.cards.get(running.id).session_id == "session_1"
    assert world.cards.recover(list(world.rails.open.values())) == []


def test_recovery_starts_what_was_approved_a_second_time(world: World) -> None:
    card = world.one()
    world.bench.hold = True
    world.cards.approve(card.id)
    world.cards.undo(card.id)
    world.bench.hold = False
    start = world.cards._start
    world.cards._start = lambda *_: None  # type: ignore[method-assign]  # killed between the commit and the start
    world.cards.approve(card.id)
    world.cards._start = start  # type: ignore[method-assign]
    assert len(world.cards.recover(list(world.rails.open.values()))) == 1
    assert world.cards.get(card.id).session_id == "session_2", "the session of the first approval is over"


def test_an_answer_that_is_lost_does_not_make_a_started_card_pending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = world.one()
    start = world.bench.start

    def start_and_fail(*arguments: Any, **named: Any) -> None:
        start(*arguments, **named)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(world.bench, "start", start_and_fail)
    with pytest.raises(RuntimeError):
        world.cards.approve(card.id)
    after = world.cards.get(card.id)
    assert (after.status, after.session_id) == (Status.CONFIRMED, "session_1")
    assert refusal(world.cards.approve, card.id) == "already_decided"


def test_undo_in_the_moment_the_session_ends_undoes_what_came_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = world.one()
    world.cards.approve(card.id)
    running = world.bench.sessions[card.id]

    def ended_meanwhile(prediction_id: str) -> SessionView:
        world.bench.end(prediction_id)
        world.landed.sessions.add("session_1")
        return running

    monkeypatch.setattr(world.bench, "session_of", ended_meanwhile)
    assert world.cards.undo(card.id).status is Status.EXECUTED
    assert world.landed.sessions == set()
    assert world.signals() == ["undone"]


def test_every_transition_is_a_fact(world: World, bus: EventBus) -> None:
    heard = bus.subscribe(lambda: None)
    card = world.one()
    world.cards.snooze(card.id)
    world.cards.undo(card.id)
    world.cards.dismiss(card.id)
    world.cards.undo(card.id)
    world.cards.approve(card.id)
    world.bench.end(card.id)
    assert [event.kind for event in heard.drain()] == [
        "PredictionCreated", "CycleFinished", "PredictionSnoozed", "PredictionReopened", "PredictionRejected",
        "PredictionReopened", "PredictionConfirmed", "PredictionExecuted",
    ]  # fmt: skip


# Who would do it (SPEC 3.8): an approval agrees to that too


def test_a_card_says_who_would_do_it(world: World) -> None:
    world.bench.serves = "openai:gpt"
    world.bench.chooses = lambda one: (replace(one, runner="model"), "served by openai:gpt: Claude Code is not there")
    card = world.cards.propose("explain the cart", workspace=SHOP)
    assert card.served == "openai:gpt; network: api.example.com for it alone"
    assert card.note == "served by openai:gpt: Claude Code is not there"
    assert card.assignment.runner == "model"
    assert world.cards.approve(card.id).status is Status.CONFIRMED


def test_another_than_the_card_said_is_shown_first_and_done_only_when_approved_again(world: World) -> None:
    world.bench.serves = "ollama:qwen"
    world.bench.chooses = lambda one: (replace(one, runner="model"), "")
    card = world.cards.propose("explain the cart", workspace=SHOP)
    world.bench.serves, world.bench.estimate = "openai:gpt", 900_000
    with pytest.raises(Refusal) as caught:
        world.cards.approve(card.id)
    assert caught.value.code == "needs_acknowledgement"
    assert "openai:gpt" in caught.value.message
    assert not world.bench.started
    shown = world.cards.get(card.id)
    assert (shown.status, shown.estimate) == (Status.PENDING, 900_000)
    assert shown.served.startswith("openai:gpt")
    assert shown.note == caught.value.message
    assert world.cards.approve(card.id).status is Status.CONFIRMED
    assert world.bench.started[0][1].runner == "model"


def test_a_card_that_nobody_could_do_is_shown_once_somebody_can(world: World) -> None:
    card = world.cards.propose("explain the cart", workspace=SHOP)
    with pytest.raises(Refusal, match="prose"):
        world.cards.approve(card.id)
    world.bench.serves = "openai:gpt"
    with pytest.raises(Refusal) as caught:
        world.cards.approve(card.id)
    assert caught.value.code == "needs_acknowledgement"
    assert world.cards.approve(card.id).status is Status.CONFIRMED


def test_nothing_is_done_by_itself_by_another_than_the_card_said(world: World) -> None:
    world.bench.serves = "ollama:qwen"
    card = world.cards.propose("explain the cart", workspace=SHOP)
    world.bench.serves = "openai:gpt"
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            world.cards.approve(card.id, by=DecidedBy.AUTONOMY)
        assert caught.value.code == "needs_acknowledgement"
    assert world.cards.get(card.id).served.startswith("ollama:qwen"), "only the operator can agree to it"


def test_an_edit_and_another_who_would_do_it_are_judged_together(world: World) -> None:
    world.bench.serves = "ollama:qwen"
    card = world.cards.propose("explain the cart", workspace=SHOP)
    world.bench.serves = "openai:gpt"
    with pytest.raises(Refusal):
        world.cards.approve(card.id, edit="explain the till")
    shown = world.cards.get(card.id)
    assert shown.assignment.prompt == "explain the till"
    assert world.cards.approve(card.id).status is Status.CONFIRMED
