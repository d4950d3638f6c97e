"""When a run of tests becomes a card (SPEC 2.3c): CI that fails, tests that got slower or are unreliable."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from engine.git.github import GitHubState, PullRequest
from engine.prediction.templates.runs import failing_ci, slower_tests
from engine.prediction.templates.unreliable_tests import hunt_flakes
from tests.prediction.builders import NOW, get_only
from tests.prediction.sensing import SensedWorkspace
from tests.support.past_run import PastRun
from tests.support.repository import Repository

CART = "tests/test_cart.py::TestCart::test_cart"
HOUR = timedelta(hours=1)


def test_failing_ci_offers_a_run_here(workspace: SensedWorkspace, repository: Repository, head: str):
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    repository.git("checkout", "-q", "-b", "feature/x")
    state = GitHubState((PullRequest(7, "Carts", "feature/x", ("tests",)),))
    workspace.github = SimpleNamespace(get_latest=lambda workspace: state)
    workspace.runs = [PastRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"), full=False)]
    assert get_only(failing_ci(workspace.sense())).prompt == "Run the whole suite here: CI fails on feature/x"


@pytest.mark.parametrize(
    "times, expected",
    [
        ((3.0, 2.6, 0.5, 0.6, 0.5), "`test_cart` took at least 2.6 s in the last two runs, and 0.5 s before."),
        ((3.0, 0.6, 0.5, 0.6, 0.5), ""),
    ],
    ids=["twice as long", "only in the last run"],
)
def test_a_test_is_slower_when_it_took_twice_as_long_in_the_last_two_runs(
    workspace: SensedWorkspace, repository: Repository, head: str, times: tuple[float, ...], expected: str
):
    older = repository.git("rev-parse", "HEAD~1")
    workspace.runs = [
        PastRun(head if number < 2 else older, ran_at=NOW - (number + 1) * HOUR, durations=((CART, seconds),))
        for number, seconds in enumerate(times)
    ]
    proposals = slower_tests(*workspace.sense_top())
    assert [proposal.reasoning for proposal in proposals] == ([expected] if expected else [])
    assert all(proposal.parameters == {"tests": [CART], "fast": older} for proposal in proposals)


def test_a_test_that_passed_and_failed_on_the_same_files_is_run_many_times(workspace: SensedWorkspace, head: str):
    workspace.runs = [PastRun(head, tree="t"), PastRun(head, failing=(CART,), tree="t", ran_at=NOW - 2 * HOUR)]
    card = get_only(hunt_flakes(*workspace.sense_top()))
    assert (card.prompt, card.reasoning) == (
        "Run test_cart 20 times: unreliable?",
        "Two runs of the same files disagree about it.",
    )
