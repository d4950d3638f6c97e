"""A file that belongs in no repository is in a commit that nobody else has yet."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long


def test_a_large_file_in_an_unpushed_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: data/dump.bin is 60 MB"
    done = monday.approve(first)
    assert done.summary == "Do not push: data/dump.bin is a large file, 60 MB (in 1 unpushed commit)"
    transcript = monday.transcript(done)
    assert "git rm -r --cached data/dump.bin" in transcript
    assert "git commit --amend" in transcript


def test_a_dump_that_was_removed_again_and_one_that_is_staged(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "numbers")
    culprit = monday.commit("Numbers", {"db backup.sql": "insert\n" * 300_000}, days_ago=0.3)
    (monday.path / "db backup.sql").unlink()
    monday.commit("Without the numbers", days_ago=0.2)
    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: db backup.sql is 2.1 MB (database dump)"
    assert f"edit {culprit[:10]}" in monday.transcript(monday.approve(first))

    monday.git("reset", "-q", "--hard", "main")
    monday.write("all.zip", "0" * 3_000_000)
    assert "large_file" not in monday.kinds()  # git does not know it
    monday.git("add", "all.zip")
    card = monday.card("large_file")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not commit yet: all.zip is 3.0 MB (archive)"


def test_packages_of_an_environment(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Web", {f"web/node_modules/left-pad/{name}.js": "x" for name in "abc"}, days_ago=0.1)
    first = monday.first("large_file")
    assert first.assignment.prompt == "Do not push yet: web/node_modules holds files that a tool fills"


@pytest.mark.parametrize("path", ["tests/data/all.zip", "schema.sql"])
def test_small_files_are_no_card(monday: Situation, path: str) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Data", {path: "0" * 900_000}, days_ago=0.1)
    assert "large_file" not in monday.kinds()


def test_the_other_side_has_the_like(monday: Situation) -> None:
    monday.commit("Model", {"model.bin": "0" * 12_000_000}, days_ago=20)
    monday.add_remote()
    monday.commit("Better model", {"model.bin": "1" * 12_000_000}, days_ago=0.1)
    assert "large_file" not in monday.kinds()
