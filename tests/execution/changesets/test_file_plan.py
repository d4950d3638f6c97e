"""The plan of a change of files: what it observes, whether it was carried out, and what is left to do (SPEC 3.9)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.beneath import Beneath
from engine.execution import file_plan
from engine.execution.file_plan import ABSENT, Image, ImageKind, Plan, PlanEntry, compute_blob_id
from engine.files import TEMPORARY_PREFIX


@pytest.fixture
def top_folder(tmp_path: Path) -> Iterator[Beneath]:
    with Beneath.open(tmp_path) as opened:
        yield opened


def make_file_image(text: str) -> Image:
    return Image(ImageKind.FILE, compute_blob_id(text.encode()), 0o644)


def test_another_spelling_is_another_file_where_case_is_folded(tmp_path: Path, top_folder: Beneath):
    (tmp_path / "a").write_text("one")
    plan = Plan("t", (), folds_case=True)
    assert plan.observe_image(top_folder, "a").kind is ImageKind.FILE
    assert plan.observe_image(top_folder, "A") == ABSENT


def test_whether_a_plan_is_carried_out_is_asked_without_a_change_and_its_rest_is_done_after(
    tmp_path: Path, top_folder: Beneath
):
    plan = Plan(
        "land_x",
        (PlanEntry("a", ABSENT, make_file_image("one")),),
        old_folders=(("old", 0o755),),
        new_folders=(("new", 0o755),),
    )
    (tmp_path / "a").write_text("one")
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "old").mkdir()
    temporary = tmp_path / f"{TEMPORARY_PREFIX}land_x-0"
    temporary.write_text("one")

    assert file_plan.is_carried_out(top_folder, plan)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "old", temporary.name}

    for _ in range(2):
        file_plan.finish_plan(top_folder, plan)
        assert {path.name for path in tmp_path.iterdir()} == {"a", "new"}

    (tmp_path / "a").write_text("edited")
    assert not file_plan.is_carried_out(top_folder, plan)


def test_a_file_is_removed_again_if_the_disk_fails_just_after_it_was_made(
    tmp_path: Path, top_folder: Beneath, monkeypatch: pytest.MonkeyPatch
):
    def fail_once(path: str):
        monkeypatch.undo()
        raise OSError(path)

    def follow(step: str):
        if step == "write a":
            monkeypatch.setattr(top_folder, "unlink", fail_once)

    plan = Plan("land_x", (PlanEntry("a", ABSENT, make_file_image("one")),))
    with pytest.raises(OSError, match="land_x"):
        file_plan.carry_out(top_folder, plan, lambda blobs: dict.fromkeys(blobs, b"one"), follow)
    assert list(tmp_path.iterdir()) == []
