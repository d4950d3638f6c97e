"""Reflogs, and commits that no branch holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.git import Git
from engine.git.lost_commits import is_reachable, read_lost_commits, read_reflog
from engine.git.reader import GitReader
from tests.conftest import Repository

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


def test_a_reflog_is_read_whatever_it_holds(repository: Repository) -> None:
    first = repository.commit("begin", at=ago(2))
    second = repository.commit("second: ünï", at=ago(1))
    log = repository.path / ".git/logs/HEAD"
    log.write_bytes(log.read_bytes() + b"garbage\n\xff\xfe\n" + b"0" * 40 + b" short\n")
    entries = read_reflog(Git(repository.path))
    assert [(entry.old, entry.new) for entry in entries] == [("0" * 40, first), (first, second)]
    assert entries[1].at == NOW - timedelta(days=1)
    assert entries[1].action == "commit: second: ünï"


def test_lost_commits_of_two_lines(repository: Repository) -> None:
    repository.commit("begin", {"a.txt": "1\n"}, at=ago(9))
    tips = []
    for name in ("left", "right"):
        repository.git("checkout", "-q", "--detach", "main", at=ago(5))
        repository.commit(f"{name} one", {f"{name}.txt": f"{name} has words\n"}, at=ago(4))
        tips.append(repository.commit(f"{name} two", {f"{name}.txt": f"{name} has others\n"}, at=ago(3)))
    repository.git("checkout", "-q", "main", at=ago(2))
    git, state = Git(repository.path), GitReader().read(repository.path)
    result = read_lost_commits(git, state, NOW)
    assert {line.tip for line in result} == {*tips}
    assert {line.number for line in result} == {2}
    assert not is_reachable(git, tips[0])
    repository.git("tag", "kept", tips[0])
    assert is_reachable(git, tips[0])
    assert [line.tip for line in read_lost_commits(git, state, NOW)] == [tips[1]]
    assert read_lost_commits(git, state, NOW + timedelta(days=31)) == ()
