"""Pipes in place of files that the engine or git reads: nothing waits for them without end (SPEC 11.4)."""

import contextlib
import os
from dataclasses import replace

import pytest

from engine.execution.prompts import ProjectPart
from engine.execution.runners.toolchains.projects import find_projects
from engine.execution.sandbox.mounts import find_protected_git_paths
from engine.git import Git
from engine.git.reader import GitReader
from engine.model import PromptRequest, Refusal
from tests.conftest import Repository
from tests.support.helpers import read_table

pytestmark = pytest.mark.attack("planted repository")


@pytest.mark.long
@pytest.mark.usefixtures("alarm_after_a_minute")
@pytest.mark.parametrize("name", read_table(__file__)["read_files"])
def test_a_pipe_in_the_tree_blocks_nothing(repository: Repository, name: str):
    repository.commit("one", {"a.py": "1"})
    if name == ".git/config.worktree":
        repository.git("config", "extensions.worktreeConfig", "true")
    (repository.path / name).unlink(missing_ok=True)
    (repository.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(repository.path / name)
    for read in (GitReader().read, find_projects):
        with contextlib.suppress(Refusal):  # git itself may need the file
            read(repository.path)
    find_protected_git_paths(repository.path)
    ProjectPart().make_part(PromptRequest("", "build", str(repository.path), "work", folder=str(repository.path)))


@pytest.mark.long
@pytest.mark.usefixtures("alarm_after_a_minute")
@pytest.mark.parametrize("name", ["sub/.gitignore", ".gitattributes", "sub/.git/HEAD"])
def test_a_pipe_that_git_itself_would_wait_for_ends_with_its_name(repository: Repository, name: str):
    repository.commit("one", {"a.py": "1"})
    (repository.path / name).parent.mkdir(parents=True, exist_ok=True)
    (repository.path / "sub").mkdir(exist_ok=True)
    repository.write("sub/new", "1")
    repository.write("a.py", "2")  # of the same size: git has to read it, and with it the attributes
    os.mkfifo(repository.path / name)
    git = replace(Git(repository.path), timeout=2)
    with pytest.raises(Refusal, match=name.replace(".", r"\.")):
        git.text("status", "--porcelain")
