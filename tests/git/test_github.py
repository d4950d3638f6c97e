"""`gh` is asked in the background, rarely, and no failure of it fails a cycle (SPEC 2.1)."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.git.github import GitHub, ask_github, find_address, parse_pull_requests
from tests.support import read_table
from tests.support.programs import make_program
from tests.support.repository import Repository

TABLE = read_table(__file__)


def make_gh(folder: Path, script: str) -> str:
    """Make a program that stands in for `gh`: it notes each call, then runs the script. Returns its path."""
    return str(make_program(folder / "gh", f"echo $1 >> {folder}/calls\n{script}"))


def describe_wait(**entry: object) -> str:
    """For what a pull request of ada's, changed by `entry`, waits for her; "" for nothing."""
    document = [{"number": 9, "title": "t", "headRefName": "b", "author": {"login": "ada"}, **entry}]
    wait = parse_pull_requests(json.dumps(document).encode(), "ada").pull_requests[0].wait
    return "" if wait is None else f"{wait.step.value} by {wait.by} since {wait.since}"


def test_a_pull_request_waits_for_you_in_these_states():
    me, bob = {"login": "ada"}, {"login": "bob"}
    comment = {"author": bob, "createdAt": "2026-01-04T08:00:00Z"}
    assert describe_wait(author=bob, reviewRequests=[{"login": "ada"}]) == "review by bob since None"
    assert describe_wait(author=bob, reviewRequests=[{"login": "ada"}], isDraft=True) == ""
    assert describe_wait(author=bob, reviewRequests=[{"slug": "team"}]) == ""
    changes = [{"author": bob, "state": "CHANGES_REQUESTED", "submittedAt": "2026-01-03T08:00:00Z"}]
    requested = describe_wait(reviewDecision="CHANGES_REQUESTED", latestReviews=changes)
    assert requested == "changes by bob since 2026-01-03 08:00:00+00:00"
    assert describe_wait(comments=[comment]) == "answer by bob since 2026-01-04 08:00:00+00:00"
    assert describe_wait(comments=[comment, {"author": me, "createdAt": "2026-01-04T09:00:00Z"}]) == ""
    assert describe_wait(comments=[{**comment, "author": {"login": "ci[bot]"}}]) == ""
    assert describe_wait(latestReviews=None, comments=None) == ""


def test_gh_is_asked_in_the_background_at_most_every_five_minutes(
    repository: Repository, tmp_path: Path, clock: FakeClock
):
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    shop = str(repository.path)
    (tmp_path / "answer.json").write_text(
        '[{"number": 7, "title": "Carts", "headRefName": "cart", '
        '"statusCheckRollup": [{"name": "tests", "conclusion": "FAILURE"}, {"name": "lint", "conclusion": "SUCCESS"}]}]'
    )
    github = GitHub(clock, make_gh(tmp_path, f"cat {tmp_path}/answer.json"))
    assert github.get_latest(shop) is None
    github.wait_for_answers(10)
    assert github.get_latest(shop).failing == (("cart", "tests"),)
    for seconds, calls in ((299, 1), (1, 2)):
        clock.advance(timedelta(seconds=seconds))
        github.get_latest(shop)
        github.wait_for_answers(10)
        assert (tmp_path / "calls").read_text().splitlines().count("pr") == calls


@pytest.mark.parametrize("script, error", TABLE["failures"])
def test_a_failure_of_gh_becomes_an_error(tmp_path: Path, script: str, error: str):
    state = ask_github("github.com/shop/cart", make_gh(tmp_path, script))
    assert error in state.error
    assert state.pull_requests == ()


@pytest.mark.parametrize("remotes, address", TABLE["remotes"])
def test_the_remote_is_read_by_our_own_git(repository: Repository, remotes: dict[str, str], address: str):
    for name, url in remotes.items():
        repository.git("remote", "add", name, url)
    assert find_address(repository.path) == address
