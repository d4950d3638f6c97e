"""Approvals of cards: what the rails are asked, how edits and another runner are agreed to, the start, and what a crash
or a session that could not begin leaves (SPEC 2.7, 3.1, 3.8)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.model import Card, DecidedBy, Outcome, Refusal, RunnerInfo, SessionState, Status, TriggerType
from engine.prediction import RUN_FACT
from engine.prediction.tasks import TaskBoard
from engine.randomness import Randomness
from tests.prediction.deciding import SHOP, DecisionWorld, find_refusal_code, make_proposal
from tests.support.checks import refused


def test_a_blocked_card_stays_pending_with_the_reason(world: DecisionWorld):
    card = world.propose("run_tests paths=forbidden")
    refusal = refused("blocked", lambda: world.cards.approve(card.id))
    assert "allow it once in the list of blocked work on the safety screen" in str(refusal)
    [blocked] = world.cards.list_pending()
    assert blocked.note == "content: it is forbidden"
    assert world.sessions.started == []
    assert world.read_signals() == []


def test_an_edit_that_asks_is_shown_first(world: DecisionWorld):
    card = world.make_card()
    assert find_refusal_code(world.cards.approve, card.id, edit="paths=risky") == "needs_acknowledgement"
    card_after = world.cards.get(card.id)
    assert card_after.assignment.parameters == {"paths": "risky"}
    assert world.cards.approve(card.id).status is Status.APPROVED
    assert sorted(world.read_signals()) == ["approved", "original"]


def test_an_edited_prompt_that_names_a_flow_becomes_that_flow(world: DecisionWorld):
    card = world.propose("look at the cart")
    assert "takes prose" in card.note
    approved = world.cards.approve(card.id, edit=" Run the tests. ")
    assert (approved.assignment.flow, approved.assignment.prompt) == ("run_tests", "Run the tests.")
    assert approved.undo_note == "nothing to undo"
    assert world.sessions.started[0][1].flow == "run_tests"


@pytest.mark.parametrize("change", ["", "edited", "withdrawn", "demoted"])
def test_a_heartbeat_runs_by_itself_only_as_the_operator_wrote_it(world: DecisionWorld, change: str):
    board = TaskBoard(world.database, randomness=Randomness(2))
    task = world.database.write(
        lambda tx: board.add_heartbeat_task(tx, "lint", since=tx.now, channel="koji-core", workspace=SHOP, run=True)
    )
    card = world.make_card(kind="heartbeat-1", flow="run_tests", facts={"task": task, RUN_FACT: True}, task_id=task)
    if change == "edited":
        assert find_refusal_code(world.cards.approve, card.id, edit="paths=risky") == "needs_acknowledgement"
    elif change:
        items = {task: False} if change == "demoted" else {}
        world.database.write(lambda tx: board.update_from_heartbeats(tx, items, all_read=True))
    with suppress(Refusal):
        world.cards.approve(card.id, by=DecidedBy.AUTONOMY)
    assert world.rails.triggers[-1].is_ordered is (change == "")


def test_the_trigger_says_who_approved(world: DecisionWorld):
    """Of a program's, as of autonomy's, the rails are asked as for work that runs by itself (SPEC 3.1, 3.2)."""
    world.cards.approve(world.make_card("a").id, by=DecidedBy.AUTONOMY)
    world.cards.trigger(world.make_card("b").id, force=True, by="gateway")
    world.cards.approve(world.make_card("c").id, by=DecidedBy.API)
    assert [(trigger.type, trigger.decided_by, trigger.is_forced) for trigger in world.rails.triggers] == [
        (TriggerType.AUTONOMOUS, DecidedBy.AUTONOMY, False),
        (TriggerType.CRON, DecidedBy.AUTONOMY, True),
        (TriggerType.MANUAL, DecidedBy.API, False),
    ]
    assert [mode for _, _, mode in world.sessions.started] == ["autonomous", "autonomous", "approved"]
    assert world.read_signals() == ["approved"], "only the last is a decision of the operator"


def test_a_card_that_cannot_start_is_pending_again(world: DecisionWorld):
    card = world.make_card()
    world.sessions.cannot_start = True
    assert find_refusal_code(world.cards.approve, card.id) == "permit_used"
    after = world.cards.get(card.id)
    assert (after.status, after.decided_by) == (Status.PENDING, None)
    assert after.note.startswith("could not start")
    assert world.read_signals() == []


# Recovery after a crash


@contextmanager
def killed_before_the_start(world: DecisionWorld) -> Iterator[None]:
    """Approvals are stored, and the engine is killed before the session starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.approvals, "_start", lambda *_: None)
        yield


def test_recovery_starts_approved_cards_and_reopens_those_with_an_expired_permit(
    world: DecisionWorld, clock: FakeClock
):
    created = world.check(make_proposal("fresh"), make_proposal("late"), make_proposal("running"))
    fresh, late, running = sorted(created, key=lambda card: card.subject)
    world.cards.approve(running.id)
    with killed_before_the_start(world):
        world.cards.approve(late.id)
        clock.advance(timedelta(minutes=15))
        world.cards.approve(fresh.id)
    permits = list(world.rails.permits_by_card.values())
    expired = "pending again because its permit has expired: run the tests of late"
    waiting = "approved, waiting for the console: run the tests of fresh"
    assert sorted(world.approvals.recover(permits, resume=False)) == [waiting, expired]
    assert world.cards.get(late.id).note == "it was approved but did not start; approve it again"
    started = "started because it was approved before the interruption: run the tests of fresh"
    assert world.approvals.recover(permits) == [started]
    assert world.cards.get(fresh.id).session_id == "session_2"
    assert world.cards.get(late.id).status is Status.PENDING
    assert world.cards.get(running.id).session_id == "session_1"
    assert world.approvals.recover(list(world.rails.permits_by_card.values())) == []


def test_recovery_says_why_a_card_could_not_start(world: DecisionWorld):
    card = world.make_card("late")
    with killed_before_the_start(world):
        world.cards.approve(card.id)
    world.sessions.cannot_start = True
    assert world.approvals.recover([world.rails.permits_by_card[card.id]]) == [
        "pending again because it could not start: run the tests of late: the permit was used already"
    ]


def test_an_error_after_the_start_does_not_make_a_card_pending(world: DecisionWorld, monkeypatch: pytest.MonkeyPatch):
    card = world.make_card()
    start = world.sessions.start

    def start_and_fail(*arguments: Any, **named: Any):
        start(*arguments, **named)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(world.sessions, "start", start_and_fail)
    with pytest.raises(RuntimeError):
        world.cards.approve(card.id)
    after = world.cards.get(card.id)
    assert (after.status, after.session_id) == (Status.APPROVED, "session_1")
    assert find_refusal_code(world.cards.approve, card.id) == "already_decided"


# The runner to which an approval agrees (SPEC 3.8)


def test_another_runner_is_shown_first_and_used_when_approved_again(world: DecisionWorld):
    world.sessions.text_executor = "ollama:qwen"
    world.sessions.choose = lambda assignment: (replace(assignment, runner="model"), "")
    card = world.propose("explain the cart")
    world.sessions.text_executor, world.sessions.estimate = "openai:gpt", 900_000
    refusal = refused("needs_acknowledgement", lambda: world.cards.approve(card.id))
    assert "openai:gpt" in str(refusal)
    assert not world.sessions.started
    card_after = world.cards.get(card.id)
    assert (card_after.status, card_after.estimate) == (Status.PENDING, 900_000)
    assert card_after.note == refusal.message
    assert world.cards.approve(card.id).status is Status.APPROVED
    assert world.sessions.started[0][1].runner == "model"


def test_a_card_never_runs_by_itself_with_another_runner(world: DecisionWorld):
    world.sessions.text_executor = "ollama:qwen"
    card = world.propose("explain the cart")
    world.sessions.text_executor = "openai:gpt"
    for _ in range(2):
        assert find_refusal_code(world.cards.approve, card.id, by=DecidedBy.AUTONOMY) == "needs_acknowledgement"
    assert world.cards.get(card.id).consent_text.startswith("ollama:qwen"), "only the operator can agree to it"


def test_pending_cards_name_their_runner_when_a_model_comes_or_goes(world: DecisionWorld):
    card = world.propose("think about the cache")
    assert "takes prose" in card.note
    assert world.approvals.refresh_runners() == 0
    world.sessions.text_executor = "ollama:qwen"
    assert world.approvals.refresh_runners() == 1
    with_model = world.cards.get(card.id)
    assert (with_model.note, with_model.consent_text) == ("", "ollama:qwen; network: api.example.com for it alone")
    world.sessions.text_executor = ""
    assert world.approvals.refresh_runners() == 1
    assert "takes prose" in world.cards.get(card.id).note


# Sessions that could not begin (SPEC 2.7, 3.8)


def fail_to_begin(world: DecisionWorld, card: Card) -> Card:
    """The card after its session could not begin, because its provider is down."""
    view = world.sessions.views[card.id]
    world.sessions.views[card.id] = replace(view, not_begun=True, error="openai cannot be reached")
    world.sessions.end(card.id, SessionState.FAILED)
    return world.cards.get(card.id)


def test_a_card_whose_session_could_not_begin_is_pending_again(world: DecisionWorld):
    card = world.start_card()
    back = fail_to_begin(world, card)
    assert (back.status, back.outcome, back.session_id) == (Status.PENDING, None, None)
    assert back.note == "not done: openai cannot be reached"
    assert world.read_signals() == [], "the operator will decide again"
    world.cards.approve(card.id)
    world.sessions.end(card.id)
    assert world.cards.get(card.id).outcome is Outcome.SUCCEEDED
    assert len(world.sessions.started) == 2


@pytest.mark.parametrize(
    "state, error", [(SessionState.INTERRUPTED, ""), (SessionState.CANCELLED, "the engine was closed")]
)
def test_interrupted_work_is_a_pending_card_again(world: DecisionWorld, state: SessionState, error: str):
    card = world.start_card()
    world.sessions.end(card.id, state, error=error)
    again, *_ = world.cards.list_pending()
    assert world.cards.get(card.id).status is Status.EXECUTED, "the decision stays"
    assert (again.assignment, again.note) == (card.assignment, "interrupted: the engine stopped while it ran")
    world.cards.approve(again.id)
    world.sessions.end(again.id)
    assert world.cards.list_pending() == []


@pytest.mark.parametrize("by", [DecidedBy.AUTONOMY, DecidedBy.OPERATOR])
def test_work_that_ran_by_itself_or_was_cancelled_is_not_offered_again(world: DecisionWorld, by: DecidedBy):
    card = world.start_card(by=by)
    if by is DecidedBy.AUTONOMY:
        world.sessions.end(card.id, SessionState.INTERRUPTED)
    else:
        world.sessions.end(card.id, SessionState.CANCELLED, error="stopped by you")
    assert world.cards.list_pending() == []


@pytest.mark.parametrize(
    "flow, way_out",
    [
        ("run_tests", "set the missing parameters: clawpy approve {} --edit 'KEY=VALUE …'"),
        (
            "learned",
            "this learned flow was rolled back: clawpy dismiss {}, or activate it again with clawpy candidates",
        ),
        (None, "name a flow, or configure a model or an agent"),
    ],
)
def test_a_refusal_says_what_makes_a_card_run(world: DecisionWorld, flow: str | None, way_out: str):
    card = world.make_card(flow=flow)
    world.sessions.check = lambda assignment: RunnerInfo(available=False, reason="nothing takes it")
    refusal = refused("no_runner", lambda: world.cards.approve(card.id))
    assert "nothing takes it" in str(refusal)
    assert refusal.fix == way_out.format(card.id)


def test_parameters_are_for_flows_and_a_prompt_has_a_maximum_length(world: DecisionWorld):
    card = world.propose("explain the cart")
    assert find_refusal_code(world.cards.approve, card.id, parameters={"paths": "src"}) == "bad_parameters"
    assert find_refusal_code(world.cards.approve, card.id, edit="x" * 20_001) == "long_prompt"
