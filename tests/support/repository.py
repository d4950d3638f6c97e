"""A real git repository in which a test writes history, with the times of commits and files."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from functools import cache
from pathlib import Path


@cache
def _empty_repository() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="clawpy-tests-"))
    atexit.register(shutil.rmtree, folder)
    subprocess.run(["git", "init", "-q", "-b", "main", "--template=", folder], check=True)
    for name in ("hooks", "info"):  # without git's sixteen samples
        (folder / ".git" / name).mkdir(exist_ok=True)
    return folder / ".git"


class Repository:
    """A real git repository in a folder, with methods that write its history."""

    def __init__(self, path: Path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        if not (path / ".git").exists():
            shutil.copytree(_empty_repository(), path / ".git")

    def git(self, *arguments: str, at: datetime | str = "") -> str:
        """Run git. `at`: the time of a commit that it makes, instead of now."""
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), str(at)) if at else {}
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, check=True, capture_output=True, text=True, env=os.environ | dates
        )
        return done.stdout.strip()

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def commit(self, message: str, files: dict[str, str] | None = None, *, at: datetime | str = "") -> str:
        """Write `files`, commit everything (`at` that time), return the commit's id."""
        for name, text in (files or {}).items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, at=at)
        return self._head()

    def link_environment(self, project: str = ""):
        """Give a project in it the environment of these tests, which has pytest."""
        (self.path / project / ".venv").symlink_to(sys.prefix, target_is_directory=True)

    def _head(self) -> str:
        """The commit of HEAD, mostly read without a process."""
        folder = self.path / ".git"
        if not folder.is_dir():  # that of a submodule is a file
            return self.git("rev-parse", "HEAD")
        head = (folder / "HEAD").read_text().strip()
        return (folder / head.removeprefix("ref: ")).read_text().strip() if head.startswith("ref: ") else head


A_FORMER_DAY = "2026-01-02T12:00:00+00:00"
"""The time of commits that are not from today."""


def add_conflicting_branches(repository: Repository):
    """Add two branches that change the same line. At any hour of the day there is a card about them."""
    current_branch = repository.git("branch", "--show-current").strip()
    for name in ("gifts", "express"):
        repository.git("switch", "--quiet", "--create", name, current_branch)
        repository.commit(name, {"cart.py": f"total = {len(name)}\n"}, at=A_FORMER_DAY)
    repository.git("switch", "--quiet", current_branch)


def touch(path: Path, at: datetime):
    """Set the time of a file."""
    os.utime(path, (at.timestamp(), at.timestamp()))
