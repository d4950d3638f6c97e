"""Cards for tasks of the board (SPEC 2.1) and for flows that were learned (SPEC 5.2)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.prediction.kinds import BLOCKED_TASK, KINDS, OPEN_TASK, STALE_TASK
from engine.prediction.templates.work import LearnedWork, open_task, propose_learned
from tests.prediction.sensing import NOW, SensedWorkspace, make_session, make_task

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("age, kind", [(timedelta(days=7, seconds=-1), OPEN_TASK), (timedelta(days=7), STALE_TASK)])
def test_a_task_without_a_change_for_seven_days_is_stale(world: SensedWorkspace, age: timedelta, kind: str):
    world.tasks = [make_task("Rework the cart", age)]
    (card,) = open_task(world.sense())
    assert (card.kind, card.task_id, card.prompt, card.flow) == (kind, "task_cart", "Rework the cart", None)
    assert card.tier is KINDS[kind].tier
    [signal] = [signal for signal in card.signals if signal.relevance]
    assert signal.name == "tasks"
    assert signal.evidence == ("“Rework the cart”, unchanged since 29 December 2025",)


def test_stale_tasks_come_first_then_needed_ones_and_at_most_three(world: SensedWorkspace):
    stale = [make_task(f"stale{days}", timedelta(days=days)) for days in (8, 30)]
    waiting = make_task("release", timedelta(days=9), needs=("task_schema",), waits_for=("task_schema",))
    world.tasks = [make_task("docs", 2 * HOUR), make_task("schema", HOUR), waiting, *stale]
    cards = open_task(world.sense())
    assert [(card.kind, card.task_id) for card in cards] == [
        (STALE_TASK, "task_stale30"),
        (STALE_TASK, "task_stale8"),
        (BLOCKED_TASK, "task_schema"),
    ]
    assert "“release” waits for it" in cards[2].reasoning


def test_a_task_that_names_a_flow_runs_it_and_says_how_it_failed_last(world: SensedWorkspace):
    world.tasks = [make_task("run the tests", HOUR, note="failed: 2 tests", session_id="ses_1")]
    (card,) = open_task(world.sense())
    assert card.flow == "run_tests"
    assert card.reasoning == "On the task board since 08:30. The last try: failed: 2 tests."


def test_no_card_for_tasks_of_another_workspace_of_sessions_or_running_ones(world: SensedWorkspace):
    world.tasks = [
        make_task("a", HOUR, workspace="/other"),
        make_task("b", HOUR, source="session"),
        make_task("c", HOUR, state="running"),
    ]
    assert open_task(world.sense()) == []


WORK = LearnedWork("check_release", "Run git status, then pytest tests", NOW - timedelta(days=1))


def test_a_learned_flow_is_offered_for_a_commit_that_it_did_not_run_on(world: SensedWorkspace):
    (proposal,) = propose_learned(world.sense(), [WORK])
    assert (proposal.kind, proposal.flow, proposal.parameters) == ("check_release", "check_release", {})
    assert proposal.prompt == "Run git status, then pytest tests"
    assert "has not run here yet" in proposal.reasoning
    world.sessions = [replace(make_session("check_release"), created_at=NOW - timedelta(hours=1))]
    assert propose_learned(world.sense(), [WORK]) == []
    world.sessions = [replace(make_session("check_release"), created_at=NOW - timedelta(days=3))]
    (later_proposal,) = propose_learned(world.sense(), [WORK])
    assert later_proposal.fingerprint == proposal.fingerprint, "the same commit is the same card"
    assert "It ran last" in later_proposal.reasoning
