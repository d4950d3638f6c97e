"""git runs no program of a repository, minds no variables of others, and leaves no file behind (SPEC 3.9, 11.1)."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.git import Git, environment
from tests.support.repository import Repository


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


def test_the_git_of_the_machine_is_found_for_a_repository_at_the_root():
    assert environment.run_git(["--version"], Path("/"), {}, excluded_folders=(Path("/"),)).returncode == 0
