"""Git runs without side effects, and a folder that cannot be used is refused in words (SPEC 3.8, 11.2)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.git import Git, environment, find_repository_root
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


@pytest.mark.parametrize(
    "name, code", [("bare.git", "bare_repository"), ("plain", "no_repository"), ("gone", "no_folder")]
)
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


def test_the_git_of_the_machine_is_found_for_a_repository_at_the_root():
    assert environment.run_git(["--version"], Path("/"), {}, without=(Path("/"),)).returncode == 0


def test_a_folder_with_a_name_that_is_not_utf8_is_refused_each_time(tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    Repository(folder)
    for _ in range(2):
        refused("unfit_path", lambda: find_repository_root(folder))


def test_a_repository_cannot_make_us_run_its_programs(repository: Repository):
    """Neither hooks nor a file-system monitor named in the repository's configuration are started."""
    repository.commit("one", {"a.txt": "1"})
    trap = repository.write("trap.sh", f"#!/bin/sh\ntouch {repository.path}/sprung\n")
    trap.chmod(0o755)
    repository.git("config", "core.fsmonitor", str(trap))
    hook = repository.path / ".git/hooks/post-checkout"
    hook.write_text(trap.read_text())
    hook.chmod(0o755)
    git = Git(repository.path)
    git.text("status", "--porcelain")
    git.text("checkout", "-q", "--detach", "HEAD")
    assert not (repository.path / "sprung").exists()


RUN_GIT_UNTIL_KILLED = """
import sys
from pathlib import Path
from engine.git import Git
print(Git(Path(sys.argv[1])).text("rev-parse", "--is-inside-work-tree"), flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_the_temporary_files_of_a_killed_process_are_removed_by_the_next_one(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    def run_git_until_killed() -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", RUN_GIT_UNTIL_KILLED, str(repository.path)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"true\n"
        return process

    with run_git_until_killed() as living:
        [of_living] = temporary.iterdir()
        with run_git_until_killed() as killed:
            [of_killed] = set(temporary.iterdir()) - {of_living}
            killed.kill()
        with run_git_until_killed() as next_process:
            assert of_living.exists()
            assert not of_killed.exists()
            next_process.communicate()
        living.communicate()
    assert list(temporary.iterdir()) == []


def test_the_environment_cannot_point_git_elsewhere(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert Git(repository.path).text("rev-parse", "--is-inside-work-tree") == "true"


def test_a_workspace_whose_repository_is_that_of_a_folder_above_is_lost(repository: Repository):
    inner = repository.path / "inner"
    inner.mkdir()
    refusal = find_workspace_refusal(str(inner))
    assert refusal.message == f"{inner} is no repository of its own any more"
    assert find_workspace_refusal(str(repository.path)) is None
