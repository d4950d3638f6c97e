"""Cards that offer to run tests (SPEC 2.3): of changed files, because CI fails, and because a test got slower."""

from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.git.github import GitHub
from engine.prediction.templates.runs import failing_ci, run_tests, slower_tests
from tests.conftest import Repository
from tests.git.gh_program import make_answering_gh
from tests.prediction.sensing import NOW, PastRun, SensedWorkspace, commit_at, get_only

HOUR = timedelta(hours=1)


TEST = "tests/test_cart.py::test_total"


def make_measured_run(head: str, hours: int, seconds: float) -> PastRun:
    """A run so many hours ago in which `TEST` took so many seconds."""
    return PastRun(head, ran_at=NOW - timedelta(hours=hours), durations=((TEST, seconds),))


def test_the_same_changes_make_the_same_card(world: SensedWorkspace, repository: Repository, head: str):
    world.runs = [PastRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"))]
    repository.write("tax.py", "2")
    first = get_only(run_tests(*world.sense_top()))
    world.now += 3 * HOUR
    repository.write("tax.py", "3")
    assert get_only(run_tests(*world.sense_top())).fingerprint == first.fingerprint
    repository.write("cart.py", "3")
    assert get_only(run_tests(*world.sense_top())).fingerprint != first.fingerprint


def test_more_than_50_changed_files_run_the_whole_suite(world: SensedWorkspace, repository: Repository, head: str):
    world.runs = [PastRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"))]
    for number in range(51):
        repository.write(f"many/m{number}.py", "1")
    proposal = get_only(run_tests(*world.sense_top()))
    assert proposal.prompt == "Run the whole suite: 51 files changed"
    assert proposal.parameters == {"paths": []}
    assert "changed after the last test run, at " in proposal.reasoning


def test_failing_ci_offers_a_run_here(
    world: SensedWorkspace, repository: Repository, head: str, tmp_path: Path, clock: FakeClock
):
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    repository.git("checkout", "-q", "-b", "feature/x")
    world.github = GitHub(clock, make_answering_gh(tmp_path))
    world.runs = [PastRun(head, tree=repository.git("rev-parse", "HEAD^{tree}"), full=False)]
    world.sense()
    world.github.settle(10)
    assert get_only(failing_ci(world.sense())).prompt == "Run the whole suite here: CI fails on feature/x"


@pytest.mark.parametrize(
    "times, expected",
    [
        ((3.0, 2.6, 0.5, 0.6, 0.5), "`test_total` took 2.6 s in the last two runs, and 0.5 s before."),
        ((3.0, 0.6, 0.5, 0.6, 0.5), ""),
        ((0.9, 0.9, 0.1, 0.1, 0.1), ""),
        ((3.0, 3.0, 0.5, 0.5), ""),
    ],
    ids=["twice as long", "only in the last run", "by less than a second", "only four runs"],
)
def test_a_test_is_slower_when_it_took_twice_as_long_in_the_last_two_runs(
    repository: Repository, times: tuple[float, ...], expected: str
):
    first = commit_at(repository, "one", {"cart.py": "1"}, NOW - timedelta(hours=30))
    second = commit_at(repository, "two", {"cart.py": "2"}, NOW - timedelta(hours=3))
    world = SensedWorkspace(repository.path)
    heads = [second, second, *[first] * 3]
    world.runs = [
        make_measured_run(head, hours, seconds)
        for hours, (head, seconds) in enumerate(zip(heads, times, strict=False), 1)
    ]
    context = world.sense()
    proposals = [proposal for part in context.parts for proposal in slower_tests(context, part)]
    assert [proposal.reasoning for proposal in proposals] == ([expected] if expected else [])
    assert all(proposal.parameters == {"tests": [TEST], "fast": first} for proposal in proposals)
