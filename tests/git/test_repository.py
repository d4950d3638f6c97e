"""The repository of a folder is found, and a folder that cannot be used is refused in words (SPEC 3.8, 11.2)."""

import os
from pathlib import Path

import pytest

from engine.git import find_repository_root
from engine.git.repository import find_workspace_refusal
from tests.support import read_table
from tests.support.checks import refused
from tests.support.programs import run_git
from tests.support.repository import Repository

TABLE = read_table(__file__)


def test_the_root_is_found_from_any_folder_inside(tmp_path: Path):
    repository = Repository(tmp_path / "päth with spaces")
    repository.write("src/deep/a.py", "")
    assert find_repository_root(repository.path / "src" / "deep") == repository.path


@pytest.mark.parametrize("name, code", TABLE["no_working_tree"])
def test_folders_without_a_working_tree_are_refused(tmp_path: Path, name: str, code: str):
    run_git(tmp_path, "init", "-q", "--bare", "bare.git")
    (tmp_path / "plain").mkdir()
    refused(code, lambda: find_repository_root(tmp_path / name))


@pytest.mark.parametrize("file, content, part", TABLE["damaged"])
def test_a_damaged_repository_is_called_damaged(tmp_path: Path, file: str, content: str, part: str):
    """`git init` would be the wrong advice."""
    if file != ".git":
        Repository(tmp_path)
    (tmp_path / file).write_text(content)
    refusal = refused("broken_repository", lambda: find_repository_root(tmp_path))
    assert part in refusal.message
    assert "git init" not in refusal.fix


def test_a_folder_with_a_name_that_is_not_utf8_is_refused_each_time(tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    Repository(folder)
    for _ in range(2):
        refused("unfit_path", lambda: find_repository_root(folder))


def test_a_workspace_whose_repository_is_that_of_a_folder_above_is_lost(repository: Repository):
    inner = repository.path / "inner"
    inner.mkdir()
    refusal = find_workspace_refusal(str(inner))
    assert refusal.message == f"{inner} is no repository of its own any more"
    assert find_workspace_refusal(str(repository.path)) is None
