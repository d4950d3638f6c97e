"""When templates propose a card (SPEC 2.1, 2.3): a bisect, runs of tests, a meeting, when a day begins, tasks of the
board, and flows that were learned (SPEC 5.2)."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from engine.git.github import GitHubState, PullRequest
from engine.prediction.kinds import KINDS, OPEN_TASK, STALE_TASK
from engine.prediction.signals import Meeting
from engine.prediction.templates.failures import still_red
from engine.prediction.templates.history import PREPARATION_TIME, ROUTINE_SUBJECT, prepare_meeting
from engine.prediction.templates.offers import find_day_begin
from engine.prediction.templates.runs import failing_ci, slower_tests
from engine.prediction.templates.tasks import LearnedFlowOffer, open_task, propose_learned_flows
from tests.conftest import Repository
from tests.prediction.sensing import NOW, SensedWorkspace, commit_at, get_only, make_session, make_task
from tests.support.helpers import read_table
from tests.support.past_run import PastRun

CART = "tests/test_cart.py::TestCart::test_cart"
HOUR = timedelta(hours=1)


def test_failing_ci_offers_a_run_here(world: SensedWorkspace, repository: Repository, head: str):
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    repository.git("checkout", "-q", "-b", "feature/x")
    state = GitHubState((PullRequest(7, "Carts", "feature/x", ("tests",)),))
    world.github = SimpleNamespace(latest=lambda workspace: state)
    world.runs = [PastRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"), full=False)]
    assert get_only(failing_ci(world.sense())).prompt == "Run the whole suite here: CI fails on feature/x"


def test_a_test_that_a_bisect_explained_is_not_run_alone(world: SensedWorkspace, head: str):
    bisected = PastRun(head, failing=(CART,), passed=0, full=False, tree="t1", session_id="ses_1", changed=False)
    world.runs = [PastRun(head, failing=(CART,), tree="t2", ran_at=bisected.ran_at + HOUR), bisected]
    world.sessions = [make_session("bisect", facts={"culprit": "0" * 40, "subject": "Faster cart"})]
    assert still_red(*world.sense_top()) == []
    world.sessions = [make_session("bisect", facts={})]
    assert get_only(still_red(*world.sense_top())).prompt.startswith("Run `test_cart` alone")


@pytest.mark.parametrize(
    "times, expected",
    [
        ((3.0, 2.6, 0.5, 0.6, 0.5), "`test_cart` took 2.6 s in the last two runs, and 0.5 s before."),
        ((3.0, 0.6, 0.5, 0.6, 0.5), ""),
    ],
    ids=["twice as long", "only in the last run"],
)
def test_a_test_is_slower_when_it_took_twice_as_long_in_the_last_two_runs(
    world: SensedWorkspace, repository: Repository, head: str, times: tuple[float, ...], expected: str
):
    older = repository.git("rev-parse", "HEAD~1")
    world.runs = [
        PastRun(head if number < 2 else older, ran_at=NOW - (number + 1) * HOUR, durations=((CART, seconds),))
        for number, seconds in enumerate(times)
    ]
    proposals = slower_tests(*world.sense_top())
    assert [proposal.reasoning for proposal in proposals] == ([expected] if expected else [])
    assert all(proposal.parameters == {"tests": [CART], "fast": older} for proposal in proposals)


@pytest.mark.parametrize("subject, routine", read_table(__file__)["subjects"])
def test_a_commit_that_only_releases_is_known_by_its_subject(subject: str, routine: bool):
    assert (ROUTINE_SUBJECT.match(subject) is not None) is routine


def test_a_working_day_begins_at_five_also_when_the_clocks_change():
    begin = find_day_begin(datetime(2026, 10, 25, 19, tzinfo=ZoneInfo("Europe/Berlin")))
    assert begin.isoformat() == "2026-10-25T05:00:00+01:00"
    assert find_day_begin(begin) == begin
    assert find_day_begin(begin - timedelta(minutes=1)).isoformat() == "2026-10-24T05:00:00+02:00"


def test_a_meeting_is_prepared_for_an_hour_before(repository: Repository):
    commit_at(repository, "round the cart", {"cart.py": "1"}, NOW - timedelta(hours=20))
    context = SensedWorkspace(repository.path).sense()

    def prepare_prompts(begins: datetime, last_held: timedelta) -> list[str]:
        meeting = Meeting("Stand-up", begins, NOW - last_held)
        return [proposal.prompt for proposal in prepare_meeting(replace(context, meetings=(meeting,)))]

    [prompt] = prepare_prompts(NOW + PREPARATION_TIME, timedelta(days=3))
    assert prompt.startswith("Prepare for “Stand-up” at ")
    assert "sum up 1 commit since" in prompt
    assert prepare_prompts(NOW + PREPARATION_TIME + timedelta(seconds=1), timedelta(days=3)) == []
    assert prepare_prompts(NOW + PREPARATION_TIME, HOUR) == [], "there is no commit since the last one"


@pytest.mark.parametrize("age, kind", [(timedelta(days=7, seconds=-1), OPEN_TASK), (timedelta(days=7), STALE_TASK)])
def test_a_task_without_a_change_for_seven_days_is_stale(world: SensedWorkspace, age: timedelta, kind: str):
    world.tasks = [make_task("Rework the cart", age)]
    (card,) = open_task(world.sense())
    assert (card.kind, card.task_id, card.prompt, card.flow) == (kind, "task_cart", "Rework the cart", None)
    assert card.tier is KINDS[kind].tier
    [signal] = [signal for signal in card.signals if signal.relevance]
    assert signal.name == "tasks"
    assert signal.evidence == ("“Rework the cart”, unchanged since 29 December 2025",)


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


WORK = LearnedFlowOffer("check_release", "Run git status, then pytest tests", NOW - timedelta(days=1))


def test_a_learned_flow_is_offered_for_a_commit_that_it_did_not_run_on(world: SensedWorkspace):
    (proposal,) = propose_learned_flows(world.sense(), [WORK])
    assert (proposal.kind, proposal.flow, proposal.parameters) == ("check_release", "check_release", {})
    assert proposal.prompt == "Run git status, then pytest tests"
    assert "has not run here yet" in proposal.reasoning
    world.sessions = [make_session("check_release", created_at=NOW - HOUR)]
    assert propose_learned_flows(world.sense(), [WORK]) == []
    world.sessions = [make_session("check_release", created_at=NOW - timedelta(days=3))]
    (later_proposal,) = propose_learned_flows(world.sense(), [WORK])
    assert later_proposal.fingerprint == proposal.fingerprint, "the same commit is the same card"
