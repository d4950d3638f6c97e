"""Histories read from real repositories."""

from __future__ import annotations

from engine.git import Git
from engine.git.history import read_history
from tests.conftest import Repository

DAY = "2026-01-0{}T10:00:00+00:00"


def test_commits_with_files_tags_and_what_is_gone(repository: Repository) -> None:
    first = repository.commit("begin", {"a.py": "1\n", "dir/b c.py": "1\n"}, at=DAY.format(1))
    repository.git("tag", "v1.0")
    repository.git("tag", "-a", "-m", "the same", "first")
    repository.git("rm", "-q", "a.py")
    repository.commit("second", {"dir/b c.py": "2\n", "ü.py": "1\n"}, at=DAY.format(2))
    history = read_history(Git(repository.path))
    assert [change.subject for change in history] == ["begin", "second"]
    begin, second = history
    assert (begin.id, begin.at, begin.parents) == (first, 1767261600, 0)
    assert (begin.files, begin.deleted, set(begin.tags)) == (("a.py", "dir/b c.py"), (), {"v1.0", "first"})
    assert (second.files, second.deleted, second.parents) == (("a.py", "dir/b c.py", "ü.py"), ("a.py",), 1)


def test_a_merge_has_no_files_of_its_own(repository: Repository) -> None:
    repository.commit("begin", {"a.py": "1\n"}, at=DAY.format(1))
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {"b.py": "1\n"}, at=DAY.format(2))
    repository.git("checkout", "-q", "main")
    repository.commit("main", {"c.py": "1\n"}, at=DAY.format(3))
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side", at=DAY.format(4))
    history = read_history(Git(repository.path))
    assert {change.subject: (change.parents, change.files) for change in history} == {
        "begin": (0, ("a.py",)), "side": (1, ("b.py",)), "main": (1, ("c.py",)), "merge": (2, ()),
    }  # fmt: skip


def test_hostile_subjects_and_names_do_not_shift_fields(repository: Repository) -> None:
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    (repository.path / "\x01odd\nname").write_text("1\n")
    repository.commit("\x01 D 100 ")
    repository.commit("plain", {"M": "1\n"})
    history = read_history(Git(repository.path))
    assert [(change.parents, change.files) for change in history] == [(0, ()), (1, ("\x01odd\nname",)), (1, ("M",))]
