"""Tasks of the board as cards (SPEC 2.1): stale ones first, then what others wait for, then the rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.model import Task
from engine.prediction.kinds import BLOCKED_TASK, KINDS, OPEN_TASK, STALE_TASK
from engine.prediction.templates import propose
from engine.prediction.templates.work import MAX_TASKS, open_task
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit


@pytest.fixture
def shop(repository: Repository) -> World:
    dated_commit(repository, "one", {"cart.py": "1"}, NOW - timedelta(hours=2))
    made = World(repository.path)
    made.tasks = []
    return made


def task(world: World, name: str, age: timedelta, **more: object) -> Task:
    at = NOW - age
    made = Task(f"task_{name}", f"Rework the {name}", "open", "", str(world.path), "operator", at, at)
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("age", "kind"), [(timedelta(days=7, seconds=-1), OPEN_TASK), (timedelta(days=7), STALE_TASK)])
def test_a_task_that_nobody_touched_for_seven_days_is_stale(shop: World, age: timedelta, kind: str) -> None:
    shop.tasks = [task(shop, "cart", age)]
    (found,) = open_task(shop.sense())
    assert (found.kind, found.task_id, found.prompt, found.flow) == (kind, "task_cart", "Rework the cart", None)
    assert found.tier is KINDS[kind].tier
    assert next(signal for signal in found.signals if signal.name == "tasks").weight == 0.2


def test_stale_ones_come_first_then_what_others_wait_for_and_no_more_than_three(shop: World) -> None:
    stale = [task(shop, f"stale{days}", timedelta(days=days)) for days in (8, 30)]
    needed = task(shop, "schema", timedelta(hours=1))
    waiting = task(shop, "release", timedelta(days=9), needs=("task_schema",), waits_for=("task_schema",))
    shop.tasks = [task(shop, "docs", timedelta(hours=2)), needed, waiting, *stale]
    found = open_task(shop.sense())
    assert [(item.kind, item.task_id) for item in found] == [
        (STALE_TASK, "task_stale30"),
        (STALE_TASK, "task_stale8"),
        (BLOCKED_TASK, "task_schema"),
    ]
    assert len(found) == MAX_TASKS
    assert "“Rework the release” waits for it" in found[2].reasoning


def test_words_that_name_a_flow_run_it_and_a_failed_try_is_told(shop: World) -> None:
    shop.tasks = [
        task(shop, "x", timedelta(hours=1), title="run the tests", note="failed: 2 tests", session_id="ses_1")
    ]
    (found,) = open_task(shop.sense())
    assert (found.flow, found.reasoning) == ("run_tests", "On the task board for 1 h. The last try: failed: 2 tests.")


def test_tasks_of_elsewhere_of_sessions_and_running_ones_are_none(shop: World) -> None:
    hour = timedelta(hours=1)
    shop.tasks = [
        task(shop, "a", hour, workspace="/other"),
        task(shop, "b", hour, source="session"),
        task(shop, "c", hour, state="running"),
    ]
    assert open_task(shop.sense()) == []


def test_a_task_of_no_workspace_is_offered_in_the_first_one_alone(shop: World) -> None:
    shop.tasks = [task(shop, "taxes", timedelta(hours=1), workspace="")]
    context = shop.sense()
    assert [proposal.task_id for proposal in open_task(context)] == ["task_taxes"]
    assert open_task(replace(context, first=False)) == []


def test_what_a_heartbeat_ordered_is_offered_also_where_git_cannot_be_read(shop: World) -> None:
    shop.tasks = [task(shop, "cart", timedelta(0), source="heartbeat"), task(shop, "docs", timedelta(0))]
    (shop.path / ".git" / "HEAD").write_text("not a commit")
    context = shop.sense()
    assert context.git is None
    assert [proposal.task_id for proposal in propose(context)] == ["task_cart"]
