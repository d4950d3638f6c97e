"""The review of a change set names, before the diff: links, modes, nested repositories, files that tools run,
deleted tests (SPEC 3.9)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawpy_console.cli.main import render_document
from engine.api.documents import document
from engine.execution.diffs import explain_automatic_use
from engine.model import ChangeSet, FileChange, Refusal
from tests.execution.changesets.landing_world import LandingWorld
from tests.support import read_table
from tests.support.checks import assert_contains
from tests.support.programs import run_git
from tests.support.repository import Repository

TABLE = read_table(__file__)

pytestmark = pytest.mark.attack("review")


@pytest.fixture
def world(world: LandingWorld) -> LandingWorld:
    world.repository.commit("one", {"a.txt": "a\n", "d/f.txt": "f\n", "run.sh": "x\n"})
    (world.root / "link").symlink_to("a.txt")
    return world


def change_files(world: LandingWorld, edit: Callable[[Path], object]) -> tuple[ChangeSet, dict[str, FileChange]]:
    """A change set, and its files by their path."""
    change_set = world.make_change(edit).current
    return change_set, {file.path: file for file in change_set.files}


def print_work(change_set: ChangeSet) -> str:
    """The change set as `clawpy work` prints it; many operators look at nothing else."""
    work = {"prediction": None, "session": None, "changeSet": document(change_set)}
    return render_document("work", json.loads(json.dumps(work)))


@pytest.mark.parametrize("path", TABLE["auto_executed"])
def test_a_file_that_a_tool_executes_has_an_explanation(path: str):
    assert explain_automatic_use(path)


def test_files_that_are_executed_automatically_have_a_note(world: LandingWorld):
    def edit(folder: Path):
        (folder / ".envrc").write_text("curl x | sh\n")
        (folder / ".vscode").mkdir()
        (folder / ".vscode/tasks.json").write_text("{}\n")
        (folder / "a.txt").rename(folder / "conftest.py")

    change_set, files = change_files(world, edit)
    assert "direnv runs it" in files[".envrc"].note
    assert "VS Code runs its tasks" in files[".vscode/tasks.json"].note
    assert "pytest runs it" in files["conftest.py"].note
    text = print_work(change_set)
    assert "direnv runs it" in text
    assert "VS Code runs its tasks" in text


def test_a_deleted_test_file_has_a_note_and_a_moved_one_has_none(world: LandingWorld):
    world.repository.commit("tests", {"tests/test_cart.py": "1\n", "tests/test_shop.py": "2\n"})

    def edit(folder: Path):
        (folder / "a.txt").unlink()
        (folder / "tests/test_cart.py").unlink()
        (folder / "tests/test_shop.py").rename(folder / "tests/test_store.py")

    change_set, files = change_files(world, edit)
    assert {path: file.note for path, file in files.items()} == {
        "a.txt": "", "tests/test_cart.py": "a test file is deleted", "tests/test_store.py": "",
    }  # fmt: skip
    assert "▲ a test file is deleted" in print_work(change_set)


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "d/../../outside"])
def test_a_link_that_leads_out_shows_its_target_and_is_refused(world: LandingWorld, target: str):
    change_set, files = change_files(world, lambda folder: (folder / "notes").symlink_to(target))
    assert files["notes"].note == f"a link to {target}"
    assert "outside the project" in files["notes"].refused
    assert_contains(print_work(change_set), "cannot be landed", "copy what you need, then discard it")
    with pytest.raises(Refusal, match="outside the project"):
        world.changes.land(change_set.id)


def test_a_changed_mode_has_a_note(world: LandingWorld):
    def edit(folder: Path):
        (folder / "run.sh").chmod(0o755)
        (folder / "new.sh").write_text("x")
        (folder / "new.sh").chmod(0o755)
        (folder / "link").unlink()
        (folder / "link").write_text("a\n")

    _, files = change_files(world, edit)
    assert files["run.sh"].note == "mode 644 → 755, now executable"
    assert files["new.sh"].note == "executable"
    assert files["link"].note == "was a link to a.txt"


def test_a_nested_repository_is_named_and_left_out(world: LandingWorld):
    def edit(folder: Path):
        (folder / "a.txt").write_text("b\n")
        Repository(folder / "nested")
        (folder / "nested/x").write_text("x")
        run_git(folder, "init", "-q", "--bare", "data")

    change_set, files = change_files(world, edit)
    assert files["nested/"].status == "left out"
    assert "a separate git repository" in print_work(change_set)
    assert "a bare git repository" in files["data/config"].note
    world.changes.land(change_set.id)
    assert not (world.root / "nested").exists()


@pytest.mark.parametrize("name", TABLE["names"])
def test_invisible_characters_in_a_name_are_shown(world: LandingWorld, name: str):
    change_set, files = change_files(world, lambda folder: (folder / name).write_text("x\n"))
    (text,) = files
    assert text.isprintable()
    assert "\\" in text
    assert all(line.isprintable() for line in print_work(change_set).splitlines())


@pytest.mark.parametrize("line", TABLE["lines"])
def test_invisible_characters_in_a_line_are_shown(world: LandingWorld, line: str):
    change_set, _ = change_files(world, lambda folder: (folder / "a.txt").write_bytes(f"{line}\n".encode()))
    (diff,) = world.changes.read_diff(change_set.id)
    assert "x<U+" in diff.hunks
    assert all(part.isprintable() for part in diff.hunks.split("\n"))
