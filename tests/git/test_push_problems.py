"""Secrets and large files in unpushed commits (SPEC 2.1, 2.9)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.git import Git, push_problems
from engine.git.inspection import Inspection
from engine.git.push_problems import CommitSpan, PushProblem, UnpushedWork, read_commits
from engine.git.reader import GitReader
from tests.support import read_table
from tests.support.keys import GITHUB_TOKEN
from tests.support.repository import Repository


def inspect_repository(repository: Repository, now: datetime | None = None) -> Inspection:
    reader = GitReader()
    now = now or datetime.now(UTC)
    return reader.inspect(repository.path, reader.read(repository.path), now, now)


def find_problems(repository: Repository, base: str) -> tuple[PushProblem, ...]:
    return read_commits(Git(repository.path), CommitSpan("HEAD", base)).committed


def list_places(result: UnpushedWork) -> list[tuple[str, int]]:
    return [(problem.path, problem.line) for problem in result.committed]


def test_commits_of_any_remote_branch_are_pushed(repository: Repository, tmp_path: Path):
    repository.commit("begin", {"a.py": "x = 1\n"})
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "origin.git"))
    repository.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    repository.git("fetch", "-q", "origin")
    repository.git("switch", "-q", "-c", "work")
    repository.commit("key", {"Schlüssel für alle.txt": f"x = 1\nKEY = '{GITHUB_TOKEN}'\n"})
    for _ in ("work", "a detached HEAD"):
        result = inspect_repository(repository).unpushed
        assert (result.commits, result.has_remote, list_places(result)) == (1, True, [("Schlüssel für alle.txt", 2)])
        repository.git("switch", "-q", "--detach")
    repository.git("push", "-q", "origin", "work:elsewhere")
    repository.git("fetch", "-q", "origin")
    assert inspect_repository(repository).unpushed == UnpushedWork()


def test_without_a_remote_the_commits_of_the_last_week_are_not_pushed(repository: Repository):
    now = datetime(2026, 3, 2, tzinfo=UTC)
    repository.commit("begin", {"a.py": "x = 1\n"}, at=now - timedelta(days=30))
    repository.commit("key", {"config.py": f"KEY = '{GITHUB_TOKEN}'\n"}, at=now - timedelta(days=2))
    result = inspect_repository(repository, now).unpushed
    assert (result.has_remote, list_places(result)) == (False, [("config.py", 1)])
    assert list_places(inspect_repository(repository, now + timedelta(days=6)).unpushed) == []


def test_files_that_belong_in_no_repository_are_found(repository: Repository):
    base = repository.commit("begin", dict.fromkeys(("old.sql", "grown.sql"), "x" * 600_000))
    files = read_table(__file__)
    repository.commit("all", {path: "x" * size for path, (size, _) in files.items()})
    kinds = {problem.path.removesuffix("/"): problem.kind for problem in find_problems(repository, base)}
    expected = {path: kind for path, (_, kind) in files.items() if kind}
    expected["node_modules"] = expected.pop("node_modules/x/a.js")
    assert kinds == expected


def test_a_file_that_a_later_commit_removed_is_still_in_the_history(repository: Repository):
    base = repository.commit("begin", {"a.py": "x = 1\n"})
    repository.commit("add", {".env": "KEY=1234\n", "a.zip": "x" * 2_000_000, "b.zip": "x" * 2_000_000})
    repository.git("rm", "-q", ".env", "a.zip")
    repository.commit("remove", {"a.py": "x = 2\n"})
    problems = find_problems(repository, base)
    assert {problem.path: problem.is_in_history_only for problem in problems} == {
        ".env": True,
        "a.zip": True,
        "b.zip": False,
    }


def test_what_a_merge_commit_itself_adds_is_read_and_what_it_brings_in_is_not(repository: Repository):
    key = f"KEY = '{GITHUB_TOKEN}'\n"
    repository.commit("begin", {"a.py": "x = 1\n"})
    repository.git("switch", "-q", "-c", "upstream")
    theirs = repository.commit("theirs", {"a.py": f"x = 2\n{key}", "theirs.py": key})
    repository.git("switch", "-q", "main")
    repository.commit("ours", {"ours.py": "y = 1\n"})
    repository.git("merge", "-q", "--no-commit", theirs)
    repository.commit("merge", {"ours.py": f"y = 1\nz = 2\n{key}", "b.zip": "x" * 2_000_000})
    problems = find_problems(repository, theirs)
    assert [(problem.path, problem.line) for problem in problems] == [("ours.py", 3), ("b.zip", 0)]


def test_commits_beyond_the_limits_are_counted_and_not_read(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(push_problems, "MAX_BYTES", 10_000)
    monkeypatch.setattr(push_problems, "MAX_COMMITS", 2)
    base = repository.commit("begin", {"a.py": "x = 1\n"})
    repository.commit("too many", {"a.py": f"KEY = '{GITHUB_TOKEN}'\n"})
    repository.commit("vendored", {"much.py": f"KEY = '{GITHUB_TOKEN}'\n" + "x = 1\n" * 10_000})
    repository.commit("key", {"config.py": f"KEY = '{GITHUB_TOKEN}'\n"})
    result = read_commits(Git(repository.path), CommitSpan("HEAD", base, max_commits=2))
    assert (result.commits, result.unread, list_places(result)) == (3, 2, [("config.py", 1)])


def test_many_leftovers_hide_no_secret(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(push_problems, "MAX_PROBLEMS", 1)
    repository.commit("key", {"config.py": f"KEY = '{GITHUB_TOKEN}'\n"})
    repository.commit("debugging", {"a.py": "breakpoint()\n"})
    result = read_commits(Git(repository.path), CommitSpan("HEAD"), leftovers=True)
    assert list_places(result) == [("config.py", 1)]
