"""The state of a repository is read from git as cards need it, also in odd repositories (SPEC 2.1)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.git.reader import GitReader
from engine.git.state import FileState, GitState
from tests.support.repository import Repository, touch

T0 = datetime(2025, 6, 1, 12, tzinfo=UTC)
Read = Callable[[], GitState]


@pytest.fixture
def read_state(repository: Repository) -> Read:
    """Reads the repository, each time with what the same reader remembers."""
    reader = GitReader()
    return lambda: reader.read(repository.path)


def test_each_file_says_how_it_differs_from_head(repository: Repository, read_state: Read):
    repository.commit("one", {"kept.py": "1", "edited.py": "1", "gone.py": "1", "staged.py": "1"})
    repository.write("edited.py", "2")
    repository.write("staged.py", "2")
    repository.git("add", "staged.py")
    (repository.path / "gone.py").unlink()
    repository.write("new/folder with ü/näher.py", "1")
    state = read_state()
    files = {file.path: replace(file, modified_at=None) for file in state.files}
    assert files == {
        "edited.py": FileState("edited.py", modified=True),
        "staged.py": FileState("staged.py", staged=True),
        "gone.py": FileState("gone.py", modified=True, deleted=True),
        "new/folder with ü/näher.py": FileState("new/folder with ü/näher.py", untracked=True),
    }
    assert [file.path for file in state.files if file.modified_at is None] == ["gone.py"]


def test_a_clean_tree_is_clean_also_without_optional_locks(repository: Repository, read_state: Read):
    repository.commit("one", {"a.py": "1"})
    touch(repository.path / "a.py", T0)
    index = repository.path / ".git/index"
    before = index.stat().st_mtime_ns
    assert read_state().files == ()
    assert index.stat().st_mtime_ns == before, "reading must not write"


@pytest.mark.parametrize("value", ["a\fb", "a\u2028b", "a\x1cb", "a\x0bb", "a\x85b", "a\rb", "sess_1\n and more"])
def test_a_commit_message_cannot_break_the_list_of_branches(repository: Repository, read_state: Read, value: str):
    repository.commit("one", {"a.py": "1"})
    repository.git("switch", "-c", "theirs")
    repository.commit(f"theirs\n\nSession: {value}", {"b.py": "2"})
    repository.git("tag", "v1\u2028")
    repository.git("switch", "main")
    assert {branch.name for branch in read_state().branches} == {"main", "theirs"}


def test_a_setting_counts_at_once(repository: Repository, read_state: Read):
    read_state()
    repository.git("config", "user.email", "new@example.org")
    assert read_state().user_email == "new@example.org"


def test_a_clone_has_its_base_and_its_upstream_at_the_remote(repository: Repository, tmp_path: Path):
    repository.git("branch", "-m", "stable")
    repository.commit("one", {"a.py": "1"}, at=T0)
    repository.git("clone", "-q", ".", str(tmp_path / "clone"))
    repository.commit("theirs", {"a.py": "2"}, at=T0 + timedelta(days=1))
    clone = Repository(tmp_path / "clone")
    clone.commit("mine 1", {"b.py": "1"}, at=T0)
    clone.commit("mine 2", {"b.py": "2"}, at=T0)
    clone.git("fetch", "-q")
    state = GitReader().read(clone.path)
    assert (state.base, state.upstream, state.ahead, state.behind) == ("origin/stable", "origin/stable", 2, 1)
    assert [commit.subject for commit in state.recent] == ["mine 2", "mine 1", "one"]
