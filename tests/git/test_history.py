"""Commits with their files, as git's log prints them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.git import Git
from engine.git.history import Change, read_changes, to_datetime
from tests.conftest import Repository

ISO_DAY = "2026-01-0{}T10:00:00+00:00"


def test_commits_with_files_tags_and_what_is_gone(repository: Repository) -> None:
    first = repository.commit("begin", {"a.py": "1\n", "dir/b c.py": "1\n"}, at=ISO_DAY.format(1))
    repository.git("tag", "v1.0")
    repository.git("tag", "-a", "-m", "the same", "first")
    repository.git("rm", "-q", "a.py")
    repository.commit("second", {"dir/b c.py": "2\n", "ü.py": "1\n"}, at=ISO_DAY.format(2))
    history = read_changes(Git(repository.path))
    assert [change.subject for change in history] == ["begin", "second"]
    begin, second = history
    assert (begin.id, begin.at, begin.parents) == (first, 1767261600, 0)
    assert (begin.files, begin.deleted, set(begin.tags)) == (("a.py", "dir/b c.py"), (), {"v1.0", "first"})
    assert (second.files, second.deleted, second.parents) == (("a.py", "dir/b c.py", "ü.py"), ("a.py",), 1)


def test_a_merge_has_no_files_of_its_own(repository: Repository) -> None:
    repository.commit("begin", {"a.py": "1\n"}, at=ISO_DAY.format(1))
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {"b.py": "1\n"}, at=ISO_DAY.format(2))
    repository.git("checkout", "-q", "main")
    repository.commit("main", {"c.py": "1\n"}, at=ISO_DAY.format(3))
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side", at=ISO_DAY.format(4))
    history = read_changes(Git(repository.path))
    assert {change.subject: (change.parents, change.files) for change in history} == {
        "begin": (0, ("a.py",)), "side": (1, ("b.py",)), "main": (1, ("c.py",)), "merge": (2, ()),
    }  # fmt: skip


def test_hostile_subjects_and_names_do_not_shift_fields(repository: Repository) -> None:
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    (repository.path / "\x01odd\nname").write_text("1\n")
    repository.commit("\x01 D 100 ")
    repository.commit("plain", {"M": "1\n"})
    history = read_changes(Git(repository.path))
    assert [(change.parents, change.files) for change in history] == [(0, ()), (1, ("\x01odd\nname",)), (1, ("M",))]


def history(*commits: str) -> list[Change]:
    """A commit a word: its files apart by commas; `-` before one that is deleted."""
    return [
        Change(
            str(number), number, 1, "change",
            tuple(sorted(name.lstrip("-") for name in commit.split(","))),
            tuple(name[1:] for name in commit.split(",") if name.startswith("-")),
        )
        for number, commit in enumerate(commits)
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", ["1e30", "-1e30", "nonsense", "nan"])
def test_dates_that_no_calendar_holds(seconds: str) -> None:
    assert to_datetime(seconds) == datetime(1970, 1, 1, tzinfo=UTC)
