"""The past of a repository: commits, tags and reflogs, and which revision is meant (SPEC 2.1)."""

from datetime import UTC, datetime

import pytest

from engine.git import Git
from engine.git.history import (
    Commit,
    ProjectIds,
    read_changes,
    read_reflog,
    to_datetime,
)
from tests.conftest import Repository

ISO_DAY = "2026-01-0{}T10:00:00+00:00"


def test_commits_have_files_and_tags_and_a_merge_has_no_files_of_its_own(repository: Repository):
    first = repository.commit("begin", {"a.py": "1\n", "dir/b c.py": "1\n"}, at=ISO_DAY.format(1))
    repository.git("tag", "v1.0")
    repository.git("tag", "-a", "-m", "the same", "first")
    repository.git("checkout", "-q", "-b", "side")
    repository.git("rm", "-q", "a.py")
    repository.commit("side", {"dir/b c.py": "2\n", "ü.py": "1\n"}, at=ISO_DAY.format(2))
    repository.git("checkout", "-q", "main")
    repository.commit("main", {"c.py": "1\n"}, at=ISO_DAY.format(3))
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side", at=ISO_DAY.format(4))
    history = read_changes(Git(repository.path))
    assert [(change.subject, change.parent_count, change.files, change.deleted) for change in history] == [
        ("begin", 0, ("a.py", "dir/b c.py"), ()),
        ("side", 1, ("a.py", "dir/b c.py", "ü.py"), ("a.py",)),
        ("main", 1, ("c.py",), ()),
        ("merge", 2, (), ()),
    ]
    assert (history[0].id, history[0].committed, set(history[0].tags)) == (first, 1767261600, {"v1.0", "first"})


def test_hostile_subjects_and_names_do_not_shift_fields(repository: Repository):
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    (repository.path / "\x01odd\nname").write_text("1\n")
    repository.commit("\x01 D 100 ")
    repository.commit("plain", {"M": "1\n"})
    history = read_changes(Git(repository.path))
    assert [(change.parent_count, change.files) for change in history] == [
        (0, ()),
        (1, ("\x01odd\nname",)),
        (1, ("M",)),
    ]


@pytest.mark.parametrize("seconds", ["1e30", "-1e30", "nonsense", "nan"])
def test_a_date_that_no_calendar_holds_is_the_beginning_of_1970(seconds: str):
    assert to_datetime(seconds) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "subject, target",
    [
        ("fixup! cart", "cart"),
        ("amend! fixup! cart", "cart"),
        ("squash! ", ""),
        ("cart fixup! it", None),
        ("fixup!cart", None),
    ],
)
def test_a_fixup_commit_names_the_subject_of_another(subject: str, target: str | None):
    commit = Commit("1", datetime(2026, 1, 5, tzinfo=UTC), "Ann", subject)
    assert (commit.is_fixup, commit.target_subject) == (target is not None, subject if target is None else target)


def test_a_reflog_is_read_whatever_it_holds(repository: Repository):
    first = repository.commit("begin", at=ISO_DAY.format(1))
    second = repository.commit("second: ünï", at=ISO_DAY.format(2))
    log = repository.path / ".git/logs/HEAD"
    log.write_bytes(log.read_bytes() + b"garbage\n\xff\xfe\n" + b"0" * 40 + b" short\n")
    entries = read_reflog(Git(repository.path))
    assert [(entry.old, entry.new) for entry in entries] == [("0" * 40, first), (first, second)]
    assert entries[1].at == datetime(2026, 1, 2, 10, tzinfo=UTC)
    assert entries[1].action == "commit: second: ünï"


def test_a_project_is_its_first_commit_and_a_shallow_clone_has_none(repository: Repository):
    first = repository.commit("one", {"a.py": "1\n"})
    repository.commit("two", {"a.py": "2\n"})
    shallow = repository.path.parent / "shallow"
    repository.git("clone", "-q", "--depth=1", repository.path.as_uri(), str(shallow))
    project_ids = ProjectIds()
    assert [project_ids.of(str(path)) for path in (repository.path, shallow, shallow / "missing")] == [first, "", ""]
