"""What a card is about (SPEC 2.9): the same from one look to the next, and never so wide that another thing hides."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.housekeeping import CALM, URGENT, Disk, is_urgent
from engine.execution.runners.toolchains.projects import projects
from engine.model import Proposal, Signal, Tier
from engine.prediction.context import WorkspaceContext
from engine.prediction.signals import WEIGHTS
from engine.prediction.templates.branches import lost_commits, unfinished_operation
from engine.prediction.templates.changes import leftovers, reclaim_space, secret
from engine.prediction.templates.history import summarise_day
from engine.prediction.templates.tests import update_lock
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


def test_a_rebase_stays_the_same_from_commit_to_commit(world: World, repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "tax")
    for name in ("cart.py", "b.py"):
        repository.commit(f"Change {name}", {name: "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("Ours", {"cart.py": "ours\n", "b.py": "ours\n"})
    repository.git("checkout", "-q", "tax")
    for command in (["rebase", "main"], ["-c", "core.editor=true", "rebase", "--continue"]):
        done = subprocess.run(["git", *command], cwd=repository.path, capture_output=True, check=False)
        assert done.returncode == 1
        [card] = unfinished_operation(world.sense())
        assert card.subject == "rebase of tax onto main"
        repository.git("add", ".")


def test_a_merge_of_a_commit_without_a_subject(world: World, repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "tax")
    repository.write("cart.py", "theirs\n")
    repository.git("commit", "-qam", "", "--allow-empty-message")
    repository.git("checkout", "-q", "main")
    repository.commit("Ours", {"cart.py": "ours\n"})
    subprocess.run(["git", "merge", "tax"], cwd=repository.path, capture_output=True, check=False)
    [card] = unfinished_operation(world.sense())
    assert card.reasoning == "Merging tax into main stopped with 1 file in conflict: cart.py."


def test_a_summary_of_the_day_that_was_dismissed_stays_away_the_next_evening(
    world: World, repository: Repository
) -> None:
    world.now = NOW.replace(hour=19)
    dated_commit(repository, "today", {"a.py": "1"}, world.now - timedelta(hours=3))
    [today] = summarise_day(world.sense())
    world.now += timedelta(days=1)
    dated_commit(repository, "tomorrow", {"a.py": "2"}, world.now - timedelta(hours=3))
    [tomorrow] = summarise_day(world.sense())
    assert today.subject == tomorrow.subject
    assert today.fingerprint != tomorrow.fingerprint


def test_lost_commits_are_named_by_their_last_one_before_and_after_the_checkout(
    world: World, repository: Repository
) -> None:
    repository.git("checkout", "-q", "--detach")
    tip = dated_commit(repository, "Try tax", {"tax.py": "RATE = 7\n"}, NOW - timedelta(days=1))
    assert subjects(lost_commits(world.sense())) == [tip[:10]]
    repository.git("checkout", "-q", "main")
    assert subjects(lost_commits(world.sense())) == [tip[:10]]


def test_a_branch_without_any_remote_is_pushed_nowhere(world: World, repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "tax")
    repository.git("branch", "-q", "--set-upstream-to=main")
    repository.commit("Configure", {"settings.py": f'KEY = "{KEY}"\n'})
    context = world.sense()
    assert context.git is not None
    assert (context.git.upstream, context.git.has_remote) == ("main", False)
    [card] = secret(context)
    assert card.tier is Tier.BLOCKS
    assert card.reasoning.endswith("which you can still change.")


def test_a_lock_is_as_old_as_the_change_of_its_own_manifest(world: World, repository: Repository) -> None:
    lock = '{"name": "web", "lockfileVersion": 3, "packages": {"": {"name": "web", "dependencies": {}}}}\n'
    for folder in ("", "web/"):
        repository.write(f"{folder}package.json", '{"name": "web"}\n')
        repository.write(f"{folder}package-lock.json", lock)
    repository.commit("Two projects")
    for folder, ago in (("", 1), ("web/", 20)):
        manifest = repository.write(f"{folder}package.json", '{"name": "web", "dependencies": {"left-pad": "^1"}}\n')
        touch(manifest, NOW - timedelta(hours=ago))
    world.project, *world.others = projects(repository.path)
    context = world.sense()
    assert {one.folder for one in context.locks} == {"", "web"}
    ages = {part.project.path: [one.evidence_at for one in update_lock(context, part)] for part in context.parts}
    assert ages == {"": [NOW - timedelta(hours=1)], "web": [NOW - timedelta(hours=20)]}


@given(st.booleans(), st.lists(st.integers(0, 5_000_000_000)))
def test_what_is_urgent_stays_so_until_there_is_clearly_more(before: bool, sizes: list[int]) -> None:
    for free in [*sizes, URGENT - 1, URGENT, CALM - 1, CALM, CALM - 1, URGENT]:
        after = is_urgent(free, before)
        assert after is (free < URGENT or (before and free < CALM))
        assert after is before or free < URGENT or free >= CALM
        before = after


def test_a_full_disk_is_one_card_whatever_its_caches_grow_to(tmp_path: Path) -> None:
    signals = tuple(Signal(name, 0.1, 0.5, ("seen",)) for name in WEIGHTS)

    def card(free: int, ours: int, urgent: bool) -> Proposal:
        disk = Disk(free, 100_000_000_000, ours, urgent, NOW - timedelta(hours=1))
        [found] = reclaim_space(WorkspaceContext(str(tmp_path), NOW, NOW, disk=disk, signals=signals))
        return found

    first, later = card(999_000_000, 900_000_000, True), card(1_001_000_000, 2_100_000_000, True)
    assert first.fingerprint == later.fingerprint
    assert first.tier is Tier.BROKEN
    assert first.evidence_at == later.evidence_at
    assert first.reasoning.startswith("Only 1.0 GB of 100 GB is free on this disk.")
    assert card(2_100_000_000, 900_000_000, False).tier is Tier.BLOCKS
