"""What a card is about (SPEC 2.9): the same from one look to the next, and never so wide that another thing hides."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.housekeeping import NOT_URGENT_BYTES, URGENT_BYTES, is_urgent
from engine.execution.runners.toolchains.projects import find_projects
from engine.model import Proposal
from engine.prediction.templates.branches import unfinished_operation
from engine.prediction.templates.changes import leftovers, secret
from engine.prediction.templates.failures import update_lock
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, touch

KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"  # put together here so that no scanner takes this file for a leak
TOKEN = "glp" + "at-" + "x7Kq2mWz9RtB4vNc8LpS"


@pytest.fixture
def world(repository: Repository) -> World:
    dated_commit(repository, "one", {"cart.py": "1", "b.py": "1"}, NOW - timedelta(days=30))
    return World(repository.path)


def subjects(proposals: list[Proposal]) -> list[str]:
    return [proposal.subject for proposal in proposals]


def test_a_breakpoint_is_something_else_than_the_todo_in_the_same_file(world: World, repository: Repository) -> None:
    repository.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices)\n")
    [card] = leftovers(world.sense())
    assert card.subject == "breakpoint in cart.py"
    repository.write("cart.py", "\n\ndef total(prices):\n    breakpoint()\n    return sum(prices)\n")
    [moved] = leftovers(world.sense())
    assert moved.prompt == "Show what is left in cart.py:4"
    assert moved.fingerprint == card.fingerprint, "lines above make no new card"
    repository.write("cart.py", "def total(prices):\n    breakpoint()\n    breakpoint()\n    return sum(prices)\n")
    [second] = leftovers(world.sense())
    assert second.fingerprint != card.fingerprint
    repository.write("größe neu.js", "  debugger;\n")
    assert subjects(leftovers(world.sense())) == ["breakpoint in cart.py, debugger statement in größe neu.js"]
    repository.write("rates.py", "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n")
    assert subjects(leftovers(world.sense())) == ["conflict marker in rates.py"]


def test_another_secret_in_the_same_file_is_another_subject(world: World, repository: Repository) -> None:
    repository.write("cart.py", f'KEY = "{KEY}"\n')
    [first] = secret(world.sense())
    assert first.subject == "AWS access key in cart.py"
    repository.write("cart.py", f'KEY = "{KEY}"\nHOST = "{TOKEN}"\n')
    [both] = secret(world.sense())
    assert both.subject == "AWS access key in cart.py, GitLab token in cart.py"
    assert both.prompt.endswith(", and 1 other finding")
    repository.commit("Configure")
    assert subjects(secret(world.sense())) == [both.subject], "committed, it is still the same"


@pytest.mark.long
@pytest.mark.parametrize("other", ["tax", "größe/neu"])
def test_each_merge_is_a_subject_of_its_own(world: World, repository: Repository, other: str) -> None:
    repository.git("checkout", "-q", "-b", other)
    repository.commit("Theirs", {"cart.py": "theirs\n", "b.py": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("Ours", {"cart.py": "ours\n", "b.py": "ours\n"})
    merge = subprocess.run(["git", "merge", other], cwd=repository.path, capture_output=True, check=False)
    assert merge.returncode == 1
    [card] = unfinished_operation(world.sense())
    assert card.subject == f"merge of {other} on main"
    repository.git("add", "b.py")
    [later] = unfinished_operation(world.sense())
    assert later.fingerprint == card.fingerprint, "one file that is settled makes no new card"
    repository.git("add", "cart.py")
    [settled] = unfinished_operation(world.sense())
    assert settled.fingerprint != card.fingerprint, "now it is to be tested"
    assert settled.subject == card.subject


@given(st.booleans(), st.lists(st.integers(0, 5_000_000_000)))
def test_what_is_urgent_stays_so_until_there_is_clearly_more(before: bool, sizes: list[int]) -> None:
    for free in [
        *sizes,
        URGENT_BYTES - 1,
        URGENT_BYTES,
        NOT_URGENT_BYTES - 1,
        NOT_URGENT_BYTES,
        NOT_URGENT_BYTES - 1,
        URGENT_BYTES,
    ]:
        after = is_urgent(free, before)
        assert after is (free < URGENT_BYTES or (before and free < NOT_URGENT_BYTES))
        assert after is before or free < URGENT_BYTES or free >= NOT_URGENT_BYTES
        before = after


def test_a_lock_is_as_old_as_the_change_of_its_own_manifest(world: World, repository: Repository) -> None:
    lock = '{"name": "web", "lockfileVersion": 3, "packages": {"": {"name": "web", "dependencies": {}}}}\n'
    for folder in ("", "web/"):
        repository.write(f"{folder}package.json", '{"name": "web"}\n')
        repository.write(f"{folder}package-lock.json", lock)
    repository.commit("Two projects")
    for folder, hours in (("", 1), ("web/", 20)):
        manifest = repository.write(f"{folder}package.json", '{"name": "web", "dependencies": {"left-pad": "^1"}}\n')
        touch(manifest, NOW - timedelta(hours=hours))
    world.project, *world.others = find_projects(repository.path)
    ages = {card.subject: card.evidence_at for card in update_lock(world.sense())}
    assert ages == {
        "package-lock.json": NOW - timedelta(hours=1),
        "web/package-lock.json": NOW - timedelta(hours=20),
    }
