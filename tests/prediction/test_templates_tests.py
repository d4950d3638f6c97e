"""Cards about the project's tests: each appears on its evidence and on nothing else."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flows import FLOWS
from engine.git.github import GitHub
from engine.model import Proposal, SessionState, Task, Tier
from engine.prediction.kinds import BLOCKED_TASK, KINDS, OPEN_TASK, STALE_TASK
from engine.prediction.templates import propose
from engine.prediction.templates.failures import bisect
from engine.prediction.templates.runs import failing_ci, run_tests
from engine.prediction.templates.work import MAX_TASKS, open_task
from engine.storage.validation_runs import flipped_tests, verdict_on
from tests.conftest import Repository
from tests.git.test_github import answering
from tests.prediction.sensing import NOW, MadeRun, World, dated_commit, session

CART = "tests/test_cart.py::TestCart::test_cart"
HOUR = timedelta(hours=1)


@pytest.fixture
def world(repository: Repository) -> World:
    dated_commit(repository, "one", {"cart.py": "1", "tax.py": "1", "notes.md": "1"}, NOW - 30 * HOUR)
    dated_commit(repository, "two", {"cart.py": "2"}, NOW - 20 * HOUR)
    return World(repository.path)


@pytest.fixture
def head(repository: Repository, world: World) -> str:
    return repository.git("rev-parse", "HEAD")


@pytest.fixture
def older(repository: Repository, world: World) -> str:
    return repository.git("rev-parse", "HEAD~1")


def only(proposals: list[Proposal]) -> Proposal:
    (proposal,) = proposals
    FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))
    return proposal


# -- run_tests ------------------------------------------------------------------------------------------------------


def test_the_same_state_is_the_same_card_later_and_another_change_is_another(
    world: World, repository: Repository, head: str
) -> None:
    world.runs = [MadeRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"))]
    repository.write("tax.py", "2")
    first = only(run_tests(*world.top()))
    world.now += 3 * HOUR
    repository.write("tax.py", "3")
    assert only(run_tests(*world.top())).fingerprint == first.fingerprint
    repository.write("cart.py", "3")
    assert only(run_tests(*world.top())).fingerprint != first.fingerprint


def test_too_many_changes_are_the_whole_suite(world: World, repository: Repository, head: str) -> None:
    world.runs = [MadeRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"))]
    for number in range(51):
        repository.write(f"many/m{number}.py", "1")
    proposal = only(run_tests(*world.top()))
    assert proposal.prompt == "Run the whole suite: 51 files changed"
    assert proposal.parameters == {"paths": []}


def test_failing_ci_asks_for_a_run_here(
    world: World, repository: Repository, head: str, tmp_path: Path, clock: FakeClock
) -> None:
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    repository.git("checkout", "-q", "-b", "feature/x")
    world.github = GitHub(clock, answering(tmp_path))
    world.runs = [MadeRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"), full=False)]
    world.sense()
    world.github.settle(10)
    assert only(failing_ci(world.sense())).prompt == "Run the whole suite here: CI fails on feature/x"


# -- bisect ---------------------------------------------------------------------------------------------------------


def red_head(head: str, older: str) -> list[MadeRun]:
    return [
        MadeRun(head, failing=(CART,), tree="t2", ran_at=NOW - HOUR),
        MadeRun(head, failing=(CART,), tree="t2", ran_at=NOW - 2 * HOUR),
        MadeRun(older, tree="t1", ran_at=NOW - 26 * HOUR),
    ]


def change(runs: list[MadeRun], index: int, **details: object) -> list[MadeRun]:
    return [dataclasses.replace(run, **details) if at == index else run for at, run in enumerate(runs)]  # type: ignore[arg-type]


@pytest.mark.long
def test_no_bisect_without_all_of_its_evidence(world: World, head: str, older: str, repository: Repository) -> None:
    runs = red_head(head, older)
    repository.git("checkout", "-q", "-b", "side", older)
    elsewhere = repository.commit("side", {"side.py": "1"})
    repository.git("checkout", "-q", "main")
    green_now = MadeRun(head, tree="t3", ran_at=NOW)
    for case in (
        runs[:2],  # never green
        [green_now, *runs],  # green by now
        [dataclasses.replace(run, clean=False) if run.head == head else run for run in runs],  # red with local edits
        change(runs, 2, clean=False),  # green with local edits
        change(runs, 2, head=elsewhere),  # green on another line of history
        change(runs, 2, full=False),  # a part ran, without this test
        change(runs, 2, passed=0),  # nothing ran
        change(runs, 2, failing=(CART,)),  # red already
    ):
        world.runs = case
        assert bisect(*world.top()) == []


def test_without_a_green_run_the_last_tag_is_looked_back_to(world: World, head: str, repository: Repository) -> None:
    world.runs = [MadeRun(head, failing=(CART, "tests/test_tax.py::test_tax"), tree="t2")]
    repository.git("tag", "v1.2", "HEAD")
    assert bisect(*world.top()) == [], "HEAD is the tag"
    repository.git("tag", "-d", "v1.2")
    repository.git("tag", "v1.2", "HEAD~1")
    proposal = only(bisect(*world.top()))
    assert proposal.prompt == "Find what broke `test_cart`: look back to v1.2"
    assert proposal.tier is Tier.BLOCKS, "nobody saw it pass"
    assert proposal.reasoning == (
        "It fails at HEAD, with 1 other. No passing run of it is known; v1.2 may have passed."
    )
    assert proposal.parameters == {"test": CART, "good": "v1.2", "bad": head}
    world.runs = [dataclasses.replace(world.runs[0], clean=False)]
    assert bisect(*world.top()) == [], "red with local edits"


@pytest.mark.long
def test_what_a_bisect_found_is_not_asked_again(world: World, repository: Repository, head: str, older: str) -> None:
    repository.git("tag", "v1.2", "HEAD~1")
    answer = MadeRun(head, failing=(CART,), tree="t2", full=False, passed=0, session_id="ses_1")
    for runs in ([MadeRun(head, failing=(CART,), tree="t2")], red_head(head, older)):
        world.runs = [answer, *runs]
        world.sessions = [session("bisect", SessionState.FAILED)]
        assert only(bisect(*world.top())), "it did not get so far"
        world.sessions = [session("bisect")]
        assert bisect(*world.top()) == []
    repository.commit("three", {"cart.py": "3"})
    now = repository.git("rev-parse", "HEAD")
    world.runs = [MadeRun(now, failing=(CART,), tree="t3"), *world.runs]
    assert only(bisect(*world.top())), "another HEAD is another question"


# -- hunt_flakes ----------------------------------------------------------------------------------------------------


def test_what_a_run_says_of_a_test() -> None:
    assert verdict_on(MadeRun("h", failing=("t",)), "t") is False
    assert verdict_on(MadeRun("h"), "t") is True
    assert verdict_on(MadeRun("h", full=False), "t") is None
    assert verdict_on(MadeRun("h", full=False, durations=(("t", 0.1),)), "t") is True
    assert verdict_on(MadeRun("h", passed=0), "t") is None


def test_a_flip_needs_the_same_files() -> None:
    red, green = MadeRun("h", failing=("t",), tree="1"), MadeRun("h", tree="1")
    assert flipped_tests([red, green]) == [("t", "1")]
    assert flipped_tests([red, dataclasses.replace(green, tree="2")]) == []
    assert flipped_tests([dataclasses.replace(red, tree=""), dataclasses.replace(green, tree="")]) == []


# -- check_clean_head -----------------------------------------------------------------------------------------------


# Tasks of the board as cards (SPEC 2.1): stale ones first, then what others wait for, then the rest.


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
