"""Any sequence of landed parts lands the whole and is undone step by step, and a kill at any step leaves no half
(SPEC 3.9)."""

import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model import ChangeSet, ChangeState, FilePart, Refusal
from engine.storage.state import read_unfinished_intents
from tests.execution.changesets.landing_scenarios import apply_edits
from tests.execution.changesets.landing_world import Change, Killed, LandingWorld
from tests.execution.changesets.parts_of_changes import FILES, edit_four_files
from tests.execution.changesets.random_edits import EXISTING, LINES, OPERATOR_EDITS, PATHS, SESSION_EDITS, Edit

pytestmark = pytest.mark.long


def draw_parts(change: Change, chance: random.Random) -> list[FilePart]:
    """Some of the files, some of the hunks of files."""
    parts = []
    for file in change.diff():
        hunks = file.hunks.count("\n@@ -") + file.hunks.startswith("@@ -")
        if hunks > 1 and not file.all_or_nothing and chance.random() < 0.7:
            numbers = list(itertools.islice(file.hunk_numbers, hunks))
            chosen = sorted(chance.sample(numbers, chance.randint(1, hunks)))
            parts.append(FilePart(file.path, tuple(chosen)))
        elif chance.random() < 0.5:
            parts.append(FilePart(file.path))
    return parts


LINE_EDITS_OF_LONG_FILES = st.lists(
    st.builds(Edit, st.just("line"), st.sampled_from(EXISTING), PATHS, st.integers(0, 90)), max_size=6
)


def _land_in_parts(
    world: LandingWorld, edits: list[Edit], meanwhile: list[Edit], chance: random.Random, line_break: str
):
    text = line_break.join(LINES * 8) + chance.choice((line_break, ""))
    world.repository.commit("one", {"a.txt": text, "b.txt": text[:200], "d/c.txt": text[100:], "x/y/z.txt": text * 2})

    def work(inside: Path):
        for session_edit in edits:
            session_edit.apply(inside)

    captured = world.run_session(work)
    if captured is None:
        return
    change = Change(world.changes, captured)
    apply_edits(world, meanwhile)
    start, state = world.files, world.git_state
    try:
        change.land()
    except Refusal:
        return
    complete = world.files
    change.undo()
    assert world.files == start
    steps = [start]
    while change.current.state is not ChangeState.LANDED:
        parts = draw_parts(change, chance) if len(steps) < 4 else []
        try:
            change.land(*parts)
        except Refusal as refusal:
            assert refusal.code == "inseparable" or meanwhile, refusal  # noqa: PT017 (a loop of cases)
            assert world.files == steps[-1]
            if meanwhile:
                return  # what you changed meanwhile takes the whole, but not this order of parts
            change.land()
        steps.append(world.files)
        assert world.git_state == state
    if not meanwhile:
        assert steps[-1] == complete
    for before in reversed(steps[:-1]):
        change.undo()
        assert world.files == before
    assert change.current.state is ChangeState.UNDONE
    assert world.git_state == state


def is_killed_at(number: int, world: LandingWorld, action: Callable[[], object]) -> bool:
    """Do `action`, and end it at its step of this number as a kill would. False if it had no such step."""
    numbers = itertools.count()

    def step(name: str):
        if next(numbers) == number:
            raise Killed(name)

    world.step = step
    try:
        action()
    except Killed:
        return True
    return False


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    SESSION_EDITS,
    LINE_EDITS_OF_LONG_FILES,
    st.lists(OPERATOR_EDITS, max_size=2),
    st.integers(0, 2**32),
    st.sampled_from(("\n", "\n", "\n", "\r\n")),
)
def test_any_sequence_of_parts_lands_the_whole_and_is_undone_step_by_step(
    edits: list[Edit], line_edits: list[Edit], meanwhile: list[Edit], seed: int, line_break: str
):
    with tempfile.TemporaryDirectory() as folder:
        world = LandingWorld(Path(folder))
        try:
            _land_in_parts(world, [*line_edits, *edits], meanwhile, random.Random(seed), line_break)
        finally:
            world.close()


DECISIONS: dict[str, Callable[[Change], ChangeSet]] = {
    "land a part": lambda change: change.land(FilePart("a.txt", (1, 3)), FilePart("new.txt")),
    "land the rest": Change.land,
    "undo the rest": Change.undo,
    "undo the part": Change.undo,
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_landing_that_is_killed_at_any_step_is_complete_or_rolled_back(tmp_path: Path, decision: str):
    """After a rollback the same decision succeeds."""
    outcomes = []
    completed = 0
    killed = True
    while killed:
        folder = tmp_path / str(len(outcomes))
        folder.mkdir()
        world = LandingWorld(folder)
        world.repository.commit("one", FILES)
        change = world.make_change(edit_four_files)
        for earlier in itertools.takewhile(lambda name: name != decision, DECISIONS):
            DECISIONS[earlier](change)
        files_before, before = world.files, change.current
        killed = is_killed_at(len(outcomes), world, lambda change=change: DECISIONS[decision](change))
        world.close()
        world = LandingWorld(folder)
        world.changes.recover()
        assert read_unfinished_intents(world.database, "landing") == []
        after = world.changes.get(before.id)
        if after.landed == before.landed:
            assert world.files == files_before
            assert after == before
            after = DECISIONS[decision](Change(world.changes, before))
        else:
            completed += killed
        outcomes.append((world.files, after.state, after.landed, after.files))
        world.close()
    assert len(outcomes) > 5
    assert completed
    assert all(outcome == outcomes[0] for outcome in outcomes)
