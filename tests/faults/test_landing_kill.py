"""kill -9 in the middle of landing, undoing, branching and discarding (SPEC 3.9, 11.3).

Real processes and real SIGKILL, at every single step. After `recover()` either everything of a decision happened or
nothing, in the files as in the database. `-s` prints how often which.
"""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model import ChangeState, Refusal
from engine.storage.state import read_unfinished_intents
from tests.execution.changesets.landing_world import FileStates, LandingWorld
from tests.faults.kill import fork_child

pytestmark = pytest.mark.faults

TEXT = "\n".join(f"line {number}" for number in range(30)) + "\n"


def edit(folder: Path):
    """Make each sort of change that a landing can do."""
    (folder / "a.txt").write_text((folder / "a.txt").read_text().replace("line 3\n", "theirs\n"))
    (folder / "b.txt").chmod(0o755)
    shutil.rmtree(folder / "d")
    (folder / "d").write_text("a file where a folder was\n")
    (folder / "e").unlink()
    (folder / "e/deep").mkdir(parents=True)
    (folder / "e/deep/new.bin").write_bytes(bytes(range(256)) * 400)
    (folder / "link").unlink()
    (folder / "link").symlink_to("e/deep")
    (folder / "gone.txt").unlink()


def prepare(folder: Path, work: Callable[[Path], object] = edit) -> tuple[str, str]:
    """A repository with a waiting change set in `folder`; returns its id and its session's."""
    world = LandingWorld(folder)
    world.repository.commit(
        "one",
        {"a.txt": TEXT, "b.txt": TEXT, "d/x/y.txt": "y\n", "e": "e\n", "gone.txt": "g\n", ".gitignore": "*.log\n"},
    )
    (world.root / "link").symlink_to("a.txt")
    world.write("noise.log", "ignored")
    world.write("a.txt", TEXT.replace("line 20\n", "mine\n"))
    world.git("add", "a.txt")
    world.write("b.txt", TEXT).chmod(0o640)
    change = world.make_change(work)
    world.write("a.txt", TEXT.replace("line 20\n", "mine, later\n"))
    world.close()
    return change.id, change.session_id


@pytest.fixture
def prepared_landing(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path, prepare(tmp_path)[0]


def run_in_process(folder: Path, work: Callable[[LandingWorld], object], at: int) -> bool:
    """Do `work` in a process that is killed at its step number `at`, if there are so many. Returns whether it was
    killed."""

    def do_work():
        count = 0

        def step(name: str):
            nonlocal count
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

        world = LandingWorld(folder, step)
        work(world)
        world.close()

    _, status = os.waitpid(fork_child(do_work), 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the child itself failed"
    return os.WIFSIGNALED(status)


def decide(change_set_id: str, decision: str) -> Callable[[LandingWorld], object]:
    return lambda world: getattr(world.changes, decision)(change_set_id)


def recover_and_check(
    folder: Path, change_set_id: str, before: FileStates, after: FileStates, final_state: ChangeState
) -> bool:
    """Recover after a kill, and check that all of a decision happened or nothing. Returns whether it happened."""
    world = LandingWorld(folder)
    try:
        state = world.git_state
        messages = world.changes.recover()
        now = world.changes.get(change_set_id).state
        assert world.git_state == state
        assert world.files == (after if now is final_state else before), messages
        assert read_unfinished_intents(world.database, "landing") == []
        assert world.changes.recover() == []
        assert world.git("fsck", "--no-dangling", "--no-progress") == ""
        return now is final_state
    finally:
        world.close()


def read_states_around_landing(folder: Path, change_set_id: str) -> tuple[FileStates, FileStates]:
    """The files before and after landing, from one landing and undo."""
    world = LandingWorld(folder)
    before = world.files
    world.changes.land(change_set_id)
    after = world.files
    world.changes.undo(change_set_id)
    assert world.files == before
    world.close()
    return before, after


def test_a_kill_at_any_step_leaves_a_landing_whole_or_undone(prepared_landing: tuple[Path, str]):
    folder, change_set_id = prepared_landing
    before, after = read_states_around_landing(folder, change_set_id)
    counted = Counter()
    for decision, start, end, final_state in (
        ("land", before, after, ChangeState.LANDED),
        ("undo", after, before, ChangeState.UNDONE),
    ):
        at = 0
        while run_in_process(folder, decide(change_set_id, decision), at):
            happened = recover_and_check(folder, change_set_id, start, end, final_state)
            counted[f"{decision} {'finished' if happened else 'undone'}"] += 1
            if happened:
                world = LandingWorld(folder)
                (world.changes.undo if decision == "land" else world.changes.land)(change_set_id)
                world.close()
            at += 1
        assert at > 10
        assert recover_and_check(folder, change_set_id, start, end, final_state)
    print(f"\nkill -9 at every step: {dict(counted)}")


@pytest.mark.parametrize("decision", ["branch", "discard"])
def test_a_kill_at_any_step_leaves_a_branch_or_discard_whole_or_undone(tmp_path: Path, decision: str):
    at = 0
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        change_set_id, session_id = prepare(folder, lambda inside: (inside / "new.txt").write_text("n\n"))
        killed = run_in_process(folder, decide(change_set_id, decision), at)
        world = LandingWorld(folder)
        world.changes.recover()
        change_set = world.changes.get(change_set_id)
        branches = world.git("branch", "--list", "clawpy/*").split()
        over = change_set.state is not ChangeState.WAITING
        assert branches == ([change_set.branch] if change_set.branch else [])
        assert bool(world.refs) is not over
        assert world.worktrees.folder_of(session_id).exists() is not over
        if over:
            with pytest.raises(Refusal, match="already"):
                getattr(world.changes, decision)(change_set_id)
        world.close()
        if not killed:
            break
        at += 1
    assert at >= 1
