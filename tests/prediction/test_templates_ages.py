"""From what age on something is brought up (docs/CARDS.md)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from engine.prediction.templates import propose
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, touch

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def commit_that_is_not_pushed(repository: Repository, age: timedelta) -> None:
    repository.git("init", "-q", "--bare", str(repository.path.parent / "origin"))
    repository.git("remote", "add", "origin", str(repository.path.parent / "origin"))
    repository.git("push", "-q", "-u", "origin", "main")
    dated_commit(repository, "two", {"cart.py": "2"}, NOW - age)


def commit_of_a_branch(repository: Repository, age: timedelta) -> None:
    repository.git("switch", "-q", "-c", "coupons")
    dated_commit(repository, "two", {"cart.py": "2"}, NOW - age)


def change_that_is_not_committed(repository: Repository, age: timedelta) -> None:
    touch(repository.write("cart.py", "2"), NOW - age)


def branch_without_a_commit(repository: Repository, age: timedelta) -> None:
    commit_of_a_branch(repository, age)
    repository.git("switch", "-q", "main")


@pytest.mark.parametrize(
    ("make", "kind", "age"),
    [
        (commit_that_is_not_pushed, "waiting_work", 2 * DAY),
        (commit_of_a_branch, "waiting_work", 2 * DAY),
        (change_that_is_not_committed, "waiting_work", 2 * DAY),
        (branch_without_a_commit, "report_branches", 30 * DAY),
    ],
)
def test_it_is_brought_up_at_this_age_and_not_a_minute_sooner(
    repository: Repository, make: Callable[[Repository, timedelta], None], kind: str, age: timedelta
) -> None:
    dated_commit(repository, "one", {"cart.py": "1"}, NOW - 90 * DAY)
    make(repository, age)
    for now, is_offered in ((NOW - MINUTE, False), (NOW, True)):
        context = World(repository.path, now=now).sense()
        assert (kind in [proposal.kind for proposal in propose(context)]) is is_offered
