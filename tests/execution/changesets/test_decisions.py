"""Decisions on change sets: land, branch, discard, undo. Each is made once and whole, also after a crash (SPEC 3.9,
11.3)."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from engine.execution.change_store import NEXT_STATES
from engine.model import ChangeState, Refusal
from tests.execution.changesets.landing_world import Change, Decision, LandingWorld, add_line, kill_at, make_edits
from tests.support.helpers import refused

DECISIONS: dict[Decision, ChangeState] = {
    Change.land: ChangeState.LANDED,
    Change.branch: ChangeState.BRANCHED,
    Change.discard: ChangeState.DISCARDED,
    Change.undo: ChangeState.UNDONE,
}
"""The state after each decision."""


@pytest.mark.parametrize("earlier", [[], [Change.land], [Change.land, Change.undo], [Change.branch], [Change.discard]])
def test_an_illegal_decision_is_refused(world: LandingWorld, earlier: list[Decision]):
    change = world.make_change(add_line)
    for decide in earlier:
        decide(change)
    before = change.current.state

    for decide, after in DECISIONS.items():
        if after not in NEXT_STATES.get(before, set()):
            refused("already_decided", partial(decide, change))
            assert change.current.state is before


def test_an_unknown_change_set_is_refused(world: LandingWorld):
    changes = world.changes
    for action in (changes.get, changes.diff, changes.preview_land, changes.land, changes.branch, changes.undo):
        refused("unknown_change_set", partial(action, "change_x"))
    refused("unknown_change_set", lambda: changes.discard("change_x"))


def test_decisions_from_many_threads_decide_once(world: LandingWorld):
    change = world.make_change(add_line)
    decided = []
    refusals = []

    def try_to(decide: Decision):
        try:
            decided.append(decide(change))
        except Refusal as refusal:
            refusals.append(refusal.code)

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(try_to, (Change.land, Change.discard, Change.branch) * 3))

    assert len(decided) == 1
    assert refusals == ["already_decided"] * 8


def test_a_discard_leaves_nothing_behind(world: LandingWorld):
    files, state = world.files, world.git_state
    change = world.make_change(add_line)

    assert change.discard().state is ChangeState.DISCARDED

    assert world.refs == []
    assert not world.worktrees.folder_of("session_1").exists()
    assert (world.files, world.git_state) == (files, state)
    world.git("gc", "-q", "--prune=now")
    with pytest.raises(Refusal, match=r"git no longer has the contents.*clawpy propose TEXT"):
        change.diff()


def test_changes_of_a_repository_that_is_gone_can_be_discarded(world: LandingWorld):
    change = world.make_change(add_line)
    shutil.rmtree(world.root)

    assert "bring it back" in refused("no_folder", change.land).fix
    assert change.discard().state is ChangeState.DISCARDED
    refused("no_folder", change.diff)


def test_changes_of_a_folder_that_is_no_repository_any_more_can_be_discarded(world: LandingWorld):
    change = world.make_change(add_line)
    shutil.rmtree(world.root / ".git")

    assert "bring its .git folder back" in refused("no_repository", change.land).fix
    assert "bring its .git folder back" in refused("no_repository", change.branch).fix
    assert change.discard().state is ChangeState.DISCARDED


@pytest.mark.parametrize(
    "decide, step, state",
    [
        (Change.branch, "branch intent", ChangeState.WAITING),
        (Change.branch, "branch made", ChangeState.BRANCHED),
        (Change.discard, "discarded", ChangeState.DISCARDED),
    ],
)
def test_an_interrupted_decision_is_finished_or_undone_at_the_next_start(
    world: LandingWorld, decide: Decision, step: str, state: ChangeState
):
    change = world.make_change(add_line)
    kill_at(world, step, lambda: decide(change))
    world.changes.recover()
    assert change.current.state is state
    assert bool(world.refs) is (state is ChangeState.WAITING)
    assert world.git("branch", "--list", "clawpy/*").strip() == (
        "clawpy/fix-the-cart" if state is ChangeState.BRANCHED else ""
    )


@pytest.mark.long
def test_a_landing_can_be_undone_after_a_crash_and_git_gc(world: LandingWorld):
    before = world.files
    change = world.make_change(make_edits({"a.txt": None}))
    kill_at(world, "files done", change.land)
    world.changes.recover()
    assert change.current.state is ChangeState.LANDED
    world.git("gc", "-q", "--prune=now")
    change.undo()
    assert world.files == before
    world.git("gc", "-q", "--prune=now")
    assert change.land().state is ChangeState.LANDED
