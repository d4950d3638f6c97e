"""Decisions on change sets: land, branch, discard and undo. Each is made once and whole, also after a crash (SPEC 3.9,
11.3)."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from engine.execution.change_store import NEXT_STATES
from engine.model import ChangeState, Refusal
from tests.execution.changesets.landing_world import Change, Decision, LandingWorld, add_line, kill_at, make_edits
from tests.support.checks import refused

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
    refused("unknown_change_set", lambda: world.changes.land("change_x"))


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


@pytest.mark.parametrize(
    "gone, code, fix", [(".", "no_folder", "bring it back"), (".git", "no_repository", "bring its .git folder back")]
)
def test_changes_of_a_repository_that_is_gone_can_be_discarded(world: LandingWorld, gone: str, code: str, fix: str):
    change = world.make_change(add_line)
    shutil.rmtree(world.root / gone)

    for decide in (change.land, change.branch):
        assert fix in refused(code, decide).fix
    assert change.discard().state is ChangeState.DISCARDED
    refused(code, change.diff)


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
def test_a_landing_that_was_finished_after_a_crash_survives_git_gc(world: LandingWorld):
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
