"""Landing part of a change set, then the rest, and undoing each (SPEC 3.9)."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.events import LandingUndone
from engine.execution.diffs import Span, apply_hunks, find_hunks
from engine.model import ChangeSet, ChangeState, FilePart, Refusal
from engine.storage.state import unfinished_intents
from tests.execution.landing_pairs import EXISTING, LINES, Edit, do, line_places, names, operator_edits, session_edits
from tests.execution.landing_world import World, git_state, picture

TEXT = [f"line {number}\n" for number in range(40)]


def texts(**lines: str) -> str:
    """TEXT with other lines: `texts(n3="three")`."""
    changed = {int(name[1:]): f"{text}\n" for name, text in lines.items()}
    return "".join(changed.get(number, line) for number, line in enumerate(TEXT))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": texts(), "b.txt": "b\n", "old.txt": texts()})
    yield world
    world.close()


def edit(folder: Path) -> None:
    (folder / "a.txt").write_text(texts(n2="first", n20="second", n38="third"))
    (folder / "b.txt").unlink()
    (folder / "old.txt").rename(folder / "new.txt")
    (folder / "new.txt").write_text(texts(n5="five", n30="thirty"))
    (folder / "c.txt").write_text("c\n")


def read(world: World, name: str) -> str | None:
    path = world.root / name
    return path.read_text() if path.exists() else None


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refused:
        action()
    return refused.value.code


def test_a_file_lands_and_the_rest_waits(world: World) -> None:
    before, state = picture(world.root), git_state(world.root)
    change = world.changed(edit)

    part = world.changes.land(change.id, [FilePart("b.txt"), FilePart("c.txt")])

    assert (part.state, part.landed) == (ChangeState.WAITING, 2)
    assert [file.path for file in part.files] == ["a.txt", "new.txt"]
    assert [file.path for file in world.changes.diff(change.id)] == ["a.txt", "new.txt"]
    assert (read(world, "b.txt"), read(world, "c.txt"), read(world, "a.txt")) == (None, "c\n", texts())
    assert world.worktrees.folder_of("session_1").exists()
    assert [landed.id for landed in world.changes.undoable_landings(str(world.root))] == [change.id]
    assert git_state(world.root) == state

    complete = world.changes.land(change.id)
    assert (complete.state, complete.files) == (ChangeState.LANDED, change.files)
    assert read(world, "a.txt") == texts(n2="first", n20="second", n38="third")

    part = world.changes.undo(change.id)
    assert (part.state, read(world, "c.txt"), read(world, "a.txt")) == (ChangeState.WAITING, "c\n", texts())
    assert [file.path for file in part.files] == ["a.txt", "new.txt"]
    undone = world.changes.undo(change.id)
    assert (undone.state, undone.files, undone.landed) == (ChangeState.UNDONE, change.files, 0)
    assert (picture(world.root), git_state(world.root)) == (before, state)


def test_a_hunk_lands_beside_an_edit_of_yours(world: World) -> None:
    change = world.changed(edit)
    world.repository.write("a.txt", texts(n10="mine"))
    world.repository.write("c2.txt", "mine\n")

    world.changes.land(change.id, [FilePart("a.txt", (2,)), FilePart("new.txt", (1,))])

    assert read(world, "a.txt") == texts(n10="mine", n20="second")
    assert (read(world, "old.txt"), read(world, "new.txt")) == (None, texts(n5="five"))
    [a, b, c, new] = world.changes.diff(change.id)
    assert [(diff.hunks.count("@@ -"), diff.landed) for diff in (a, new)] == [(2, (2,)), (1, (1,))]
    assert (b.status, c.status) == ("deleted", "added")
    assert [file.status for file in world.changes.get(change.id).files if file.path == "new.txt"] == ["modified"]
    world.changes.land(change.id, [FilePart("a.txt", (1, 3))])
    assert read(world, "a.txt") == texts(n2="first", n10="mine", n20="second", n38="third")
    world.changes.undo(change.id)
    assert read(world, "a.txt") == texts(n10="mine", n20="second")


def test_hunks_keep_their_numbers_while_others_land(world: World) -> None:
    change = world.changed(edit)
    first, second, third = (FilePart("a.txt", (number,)) for number in (1, 2, 3))

    world.changes.land(change.id, [first])

    assert code_of(lambda: world.changes.land(change.id, [first])) == "already_decided"
    [a] = [diff for diff in world.changes.diff(change.id) if diff.path == "a.txt"]
    assert (a.landed, "+first" in a.hunks, "+second" in a.hunks) == ((1,), False, True)
    world.changes.land(change.id, [second])
    assert read(world, "a.txt") == texts(n2="first", n20="second")
    world.changes.undo(change.id)
    world.changes.land(change.id, [third, FilePart("c.txt")])
    assert read(world, "a.txt") == texts(n2="first", n38="third")
    assert code_of(lambda: world.changes.land(change.id, [FilePart("c.txt")])) == "already_decided"
    assert code_of(lambda: world.changes.land(change.id, [FilePart("a.txt", (2, 3))])) == "already_decided"
    world.changes.land(change.id, [FilePart("a.txt")])
    assert read(world, "a.txt") == texts(n2="first", n20="second", n38="third")


def test_what_is_left_after_a_discard_is_numbered_anew(world: World) -> None:
    change = world.changed(edit)
    world.changes.land(change.id, [FilePart("a.txt", (3,))])
    world.changes.land(change.id, [FilePart("a.txt", (1,))])
    world.changes.discard(change.id)
    world.changes.undo(change.id)
    [a] = world.changes.diff(change.id)
    assert (a.landed, "+first" in a.hunks) == ((2,), True)
    world.changes.land(change.id, [FilePart("a.txt", (1,))])
    assert read(world, "a.txt") == texts(n2="first", n38="third")


def test_a_comment_on_an_old_line_is_on_the_line_that_the_diff_shows(world: World) -> None:
    def more(folder: Path) -> None:
        (folder / "a.txt").write_text(texts(n2="first\n" + "added\n" * 10, n38="third"))

    change = world.changed(more)
    world.changes.land(change.id, [FilePart("a.txt", (1,))])
    [a] = world.changes.diff(change.id)
    assert a.hunks.startswith("@@ -36,5 +47,5 @@")
    [comment] = world.changes.comments.add(change.id, "a.txt", 39, "why?", old=True).comments
    assert comment.quote == "line 38"


def test_what_is_asked_for_must_be_there(world: World) -> None:
    change = world.changed(edit)
    before = picture(world.root)
    land = world.changes.land
    assert code_of(lambda: land(change.id, [FilePart("nope")])) == "unknown_file"
    assert code_of(lambda: land(change.id, [FilePart("a.txt", (4,))])) == "unknown_hunk"
    assert code_of(lambda: land(change.id, [FilePart("b.txt", (0,))])) == "unknown_hunk"
    assert picture(world.root) == before
    assert world.changes.preview_land(change.id, [FilePart("b.txt")]).files == 1


def test_a_file_in_place_of_another_lands_with_it_only(world: World) -> None:
    def folder_for_file(folder: Path) -> None:
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inside").write_text("x\n")

    change = world.changed(folder_for_file)
    assert code_of(lambda: world.changes.land(change.id, [FilePart("b.txt/inside")])) == "inseparable"
    world.changes.land(change.id, [FilePart("b.txt/inside"), FilePart("b.txt")])
    assert read(world, "b.txt/inside") == "x\n"


def test_the_rest_is_discarded_and_what_landed_can_be_undone(world: World) -> None:
    before = picture(world.root)
    change = world.changed(edit)
    world.changes.land(change.id, [FilePart("a.txt")])
    heard = world.bus.subscribe(lambda: None)

    narrowed = world.changes.discard(change.id)

    assert (narrowed.state, narrowed.note) == (ChangeState.LANDED, "the rest was discarded")
    assert [file.path for file in narrowed.files] == ["a.txt"]
    assert [event.kind for event in heard.drain()] == ["ChangeSetNarrowed"]
    assert not world.worktrees.folder_of("session_1").exists()
    world.changes.recover()
    world.repository.git("gc", "-q", "--prune=now")
    assert world.changes.undo(change.id).state is ChangeState.UNDONE
    assert picture(world.root) == before


def test_the_rest_becomes_a_branch(world: World) -> None:
    change = world.changed(edit)
    heard = world.bus.subscribe(lambda: None)
    world.changes.land(change.id, [FilePart("a.txt", (1,))])
    world.changes.land(change.id, [FilePart("a.txt")])
    branched = world.changes.branch(change.id)
    assert [event.sentence() for event in heard.drain()] == [
        f"landed: {change.id}, 1 file, 4 left",
        f"landed: {change.id}, 1 file, 3 left",
        f"changes {change.id} were committed to the branch clawpy/fix-the-cart",
    ]
    assert (branched.state, branched.branch) == (ChangeState.LANDED, "clawpy/fix-the-cart")
    changed = world.repository.git("diff", "--name-only", "--no-renames", "main", branched.branch).split()
    assert changed == ["b.txt", "c.txt", "new.txt", "old.txt"]
    world.changes.undo(change.id)
    assert world.changes.undo(change.id).state is ChangeState.UNDONE
    assert read(world, "a.txt") == texts()


def test_what_was_kept_of_it_outlives_a_smaller_landing_and_git_gc(world: World) -> None:
    change = world.changed(edit)
    world.changes.land(change.id, [FilePart("a.txt", (1, 2)), FilePart("new.txt", (1,))])
    world.changes.discard(change.id)
    complete = picture(world.root)
    world.changes.undo(change.id)
    world.changes.land(change.id, [FilePart("a.txt", (1,))])

    world.repository.git("gc", "-q", "--prune=now")

    assert [file.path for file in world.changes.diff(change.id)] == ["a.txt", "new.txt"]
    world.changes.land(change.id)
    assert picture(world.root) == complete


def test_files_of_an_earlier_part_are_ours_too(world: World) -> None:
    change = world.changed(edit)
    place = str(world.root)
    world.changes.land(change.id, [FilePart("a.txt")])
    world.changes.land(change.id, [FilePart("c.txt")])
    assert set(world.changes.written_by_us(place)) == {"a.txt", "c.txt"}
    world.changes.undo(change.id)
    assert set(world.changes.written_by_us(place)) == {"a.txt"}
    assert [landed.id for landed in world.changes.undoable_landings(place)] == [change.id]
    world.repository.write("a.txt", "mine\n")
    world.changes.land(change.id, [FilePart("c.txt")])
    assert world.changes.undoable_landings(place) == []


def test_a_file_that_is_edited_while_the_next_one_is_written_is_not_ours(world: World) -> None:
    change = world.changed(edit)

    def save(step: str) -> None:
        if step == "write c.txt":  # after a.txt
            world.repository.write("a.txt", "mine\n")
            os.utime(world.root / "a.txt", ns=(1, 1))

    world.step = save
    world.changes.land(change.id)
    assert world.changes.written_by_us(str(world.root))["a.txt"] != 1
    assert world.changes.undoable_landings(str(world.root)) == []


def test_the_undo_of_a_card_takes_back_every_part_or_none(world: World) -> None:
    before = picture(world.root)
    change = world.changed(edit)
    for part in (FilePart("a.txt", (1,)), FilePart("c.txt"), FilePart("a.txt")):
        world.changes.land(change.id, [part])
    world.repository.write("c.txt", "mine\n")
    landed = picture(world.root)

    assert code_of(lambda: world.changes.undo_session("session_1")) == "later_edits"
    assert picture(world.root) == landed

    world.repository.write("c.txt", "c\n")
    heard = world.bus.subscribe(lambda: None)
    assert world.changes.undo_session("session_1")
    assert picture(world.root) == before
    assert world.changes.get(change.id).state is ChangeState.UNDONE
    assert [event.left for event in heard.drain() if isinstance(event, LandingUndone)] == [2, 1, 0]


def test_an_edit_between_two_landings_of_a_file_stops_the_undo_of_a_card(world: World) -> None:
    change = world.changed(edit)
    world.changes.land(change.id, [FilePart("a.txt", (1,))])
    world.repository.write("a.txt", texts(n2="first", n10="mine"))
    world.changes.land(change.id, [FilePart("a.txt")])
    landed = picture(world.root)
    assert code_of(lambda: world.changes.undo_session("session_1")) == "later_edits"
    assert picture(world.root) == landed


def test_a_landing_of_what_you_typed_yourself_can_be_undone(world: World) -> None:
    change = world.changed(edit)
    world.repository.write("a.txt", texts(n2="first", n20="second", n38="third"))
    before = picture(world.root)
    part = world.changes.land(change.id, [FilePart("a.txt")])
    assert (part.landed, part.landings) == (0, 1)
    assert world.changes.undo_session("session_1")
    assert (world.changes.get(change.id).state, picture(world.root)) == (ChangeState.UNDONE, before)


def test_ends_of_files_and_of_lines(world: World) -> None:
    assert apply_hunks(b"a\nb", b"a\nb\n", [(0, 2, 0, 2)], {1}) == b"a\nb\n"
    assert apply_hunks(b"a\nb\n", b"a\nb", [(0, 2, 0, 2)], {1}) == b"a\nb"
    assert apply_hunks(b"", b"x\r\ny", [(0, 0, 0, 2)], {1}) == b"x\r\ny"
    assert apply_hunks(b"1\n2\n3\n", b"1\r\n2\n", [(0, 1, 0, 1), (2, 3, 2, 2)], {2}) == b"1\n2\n"


@given(st.data())
def test_a_file_tells_which_hunks_are_in_it(data: st.DataObject) -> None:
    """Lines repeat, hunks may be empty on a side and lie side by side: whatever is told makes the same file."""
    some = st.lists(st.sampled_from((b"a\n", b"b\n", b"a\r\n")), max_size=3)
    old, new = b"", b""
    spans: list[Span] = []
    for same, removed, added in data.draw(st.lists(st.tuples(some, some, some), max_size=6)):
        old, new = old + b"".join(same), new + b"".join(same)
        start, new_start = old.count(b"\n"), new.count(b"\n")
        old, new = old + b"".join(removed), new + b"".join(added)
        spans.append((start, old.count(b"\n"), new_start, new.count(b"\n")))
    chosen = data.draw(st.sets(st.integers(1, max(1, len(spans))), max_size=len(spans)))
    file = apply_hunks(old, new, spans, chosen)
    numbers = find_hunks(file, old, new, spans)
    assert numbers is not None
    assert apply_hunks(old, new, spans, numbers) == file
    assert find_hunks(file + b"more\n", old, new, spans) is None


def parts_of(world: World, change: ChangeSet, chance: random.Random) -> list[FilePart]:
    """Some of the files, some of the hunks of files."""
    parts = []
    for file in world.changes.diff(change.id):
        hunks = file.hunks.count("\n@@ -") + file.hunks.startswith("@@ -")
        if hunks > 1 and not file.all_or_nothing and chance.random() < 0.7:
            numbers = list(itertools.islice(file.numbers, hunks))
            chosen = sorted(chance.sample(numbers, chance.randint(1, hunks)))
            parts.append(FilePart(file.path, tuple(chosen)))
        elif chance.random() < 0.5:
            parts.append(FilePart(file.path))
    return parts


big_edits = st.lists(st.builds(Edit, st.just("line"), st.sampled_from(EXISTING), names, st.integers(0, 90)), max_size=6)


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(session_edits, big_edits, st.lists(operator_edits, max_size=2), st.integers(0, 2**32), line_places)
def test_any_parts_and_the_rest_are_the_whole(
    edits: list[Edit], more: list[Edit], meanwhile: list[Edit], seed: int, crlf: int
) -> None:
    """Part by part until nothing waits is the whole; undone one by one, every step is as it was, byte for byte."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            _try_parts(world, [*more, *edits], meanwhile, chance, "\r\n" if crlf == 0 else "\n")
        finally:
            world.close()


def _try_parts(world: World, edits: list[Edit], meanwhile: list[Edit], chance: random.Random, end: str) -> None:
    text = end.join(LINES * 8) + chance.choice((end, ""))
    world.repository.commit("one", {"a.txt": text, "b.txt": text[:200], "d/c.txt": text[100:], "x/y/z.txt": text * 2})

    def work(inside: Path) -> None:
        for session_edit in edits:
            session_edit.apply(inside)

    change = world.session(work)
    if change is None:
        return
    do(world, meanwhile)
    start, state = picture(world.root), git_state(world.root)
    try:
        world.changes.land(change.id)
    except Refusal:
        return
    complete = picture(world.root)
    world.changes.undo(change.id)
    assert picture(world.root) == start
    steps = [start]
    while (change := world.changes.get(change.id)).state is not ChangeState.LANDED:
        parts = parts_of(world, change, chance) if len(steps) < 4 else []
        try:
            change = world.changes.land(change.id, parts)
        except Refusal as refusal:
            assert refusal.code == "inseparable" or meanwhile, refusal  # noqa: PT017 (a loop of cases)
            if not parts:
                return  # what you changed meanwhile takes the whole, but not this order of parts
            assert picture(world.root) == steps[-1]
            steps.append(steps.pop())
            change = world.changes.land(change.id) if not meanwhile else change
            if meanwhile:
                return
        steps.append(picture(world.root))
        assert git_state(world.root) == state
    if not meanwhile:
        assert steps[-1] == complete
    for before in reversed(steps[:-1]):
        world.changes.undo(change.id)
        assert picture(world.root) == before
    assert world.changes.get(change.id).state is ChangeState.UNDONE
    assert git_state(world.root) == state


class Killed(BaseException):
    """What stands for a kill: no code of the landing handles it."""


STEPS: dict[str, Callable[[World, str], ChangeSet]] = {
    "land a part": lambda world, id: world.changes.land(id, [FilePart("a.txt", (1, 3)), FilePart("new.txt")]),
    "land the rest": lambda world, id: world.changes.land(id),
    "undo the rest": lambda world, id: world.changes.undo(id),
    "undo the part": lambda world, id: world.changes.undo(id),
}


def killing(at: int) -> Callable[[str], None]:
    """A step function that raises `Killed` at the step number `at`."""
    numbers = itertools.count()

    def step(name: str) -> None:
        if next(numbers) == at:
            raise Killed(name)

    return step


@pytest.mark.long
@pytest.mark.parametrize("verb", STEPS)
def test_killed_at_any_step_it_is_done_or_taken_back(tmp_path: Path, verb: str) -> None:
    """And when it was taken back, the same again does it."""
    outcomes: list[tuple[object, ...]] = []
    done = 0
    for at in itertools.count():
        folder = tmp_path / str(at)
        folder.mkdir()
        world = World(folder)
        world.repository.commit("one", {"a.txt": texts(), "b.txt": "b\n", "old.txt": texts()})
        id = world.changed(edit).id
        for earlier in itertools.takewhile(lambda earlier_verb: earlier_verb != verb, STEPS):
            STEPS[earlier](world, id)
        before, was = picture(world.root), world.changes.get(id)
        world.step = killing(at)
        killed = False
        try:
            STEPS[verb](world, id)
        except Killed:
            killed = True
        world.close()
        world = World(folder)
        world.changes.recover()
        assert unfinished_intents(world.database, "landing") == []
        now = world.changes.get(id)
        if now.landed == was.landed:
            assert (picture(world.root), now) == (before, was)
            STEPS[verb](world, id)
            now = world.changes.get(id)
        else:
            done += killed
        outcomes.append((picture(world.root), now.state, now.landed, now.files))
        world.close()
        if not killed:
            break
    assert len(outcomes) > 5
    assert done
    assert all(outcome == outcomes[0] for outcome in outcomes)
