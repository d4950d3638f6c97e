"""An operator whom commands in a sandbox attack: a home with secrets, a repository, an engine."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox import PRIVATE, Confinement, Sandbox, link_tools, secret_places, session_environment
from engine.home import Home
from engine.plain_files import remove_folder

FILES = {
    "src/shop.py": "def price():\n    return 3\n",
    "tests/test_shop.py": "def test_price():\n    assert True\n",
    ".envrc": "export A=1\n",
    ".vscode/tasks.json": "{}\n",
    "package.json": "{}\n",
    "conftest.py": "",
    "build/kept.txt": "built\n",
}


class Victim:
    """The operator's home under a folder outside /tmp; commands of a session that only checks are run in `run`."""

    def __init__(self, root: Path, rung: Sandbox) -> None:
        self.rung = rung
        self.user = root / "ann"
        self.project = self.user / "project"
        for name, text in FILES.items():
            self.file(f"project/{name}", text)
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)
        self.commit("begin")
        python = self.project / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        self.home = Home.locate(self.user / ".clawpy")
        for folder in (self.home.config, self.home.data, self.home.logs):
            folder.mkdir(parents=True)
        self.confinement = self.session("sess_1")

    def session(self, name: str, **changes: object) -> Confinement:
        """What a session that checks may touch: in a copy where the rung can lay nothing over the tree."""
        scratch = self.home.cache / "scratch" / name
        confinement = Confinement(
            self.project,
            scratch,
            scratch / "caches",
            tree=self.project,
            hidden=secret_places(self.home, self.environment),
        )
        confinement.make()
        link_tools(confinement.home, self.environment)
        if not self.rung.can_overlay(confinement):
            copy = self.home.worktrees / name
            shutil.copytree(self.project, copy, symlinks=True, ignore=shutil.ignore_patterns("*.sock", "pipe"))
            confinement = replace(confinement, folder=copy)
        return replace(confinement, **changes)  # type: ignore[arg-type]

    def file(self, name: str, text: str) -> Path:
        """A file in the operator's home."""
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message: str) -> str:
        """Commit what is in the project; the commit."""
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        for argv in (["add", "-A"], [*who, "commit", "-q", "--allow-empty", "-m", message]):
            subprocess.run(["git", *argv], cwd=self.project, check=True)
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=self.project, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    @property
    def environment(self) -> dict[str, str]:
        """The engine's environment."""
        return {**os.environ, "HOME": str(self.user)}

    def begin(
        self,
        argv: Sequence[str],
        confinement: Confinement | None = None,
        inherited: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command of the session."""
        confined = confinement or self.confinement
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HOME", str(self.user))
            wrapped = self.rung.wrap(argv, confined, cwd=confined.folder)
        environment = session_environment(confined, self.rung, "sess_1", inherited or self.environment)
        return subprocess.Popen(
            wrapped,
            cwd=confined.folder,
            env=environment | dict(extra or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(
        self,
        argv: Sequence[str],
        confinement: Confinement | None = None,
        inherited: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command of the session to its end; what it printed."""
        process = self.begin(argv, confinement, inherited, extra)
        output, _ = process.communicate(timeout=60)
        return output

    def python(self, code: str, *arguments: object, confinement: Confinement | None = None) -> str:
        """The same with Python code."""
        return self.run([sys.executable, "-I", "-S", "-c", code, *map(str, arguments)], confinement)

    def state(self) -> dict[str, tuple[object, ...]]:
        """All of the operator's files, but for the engine's cache: mode, owner, time, links, bytes."""
        entries: dict[str, tuple[object, ...]] = {}
        for folder, folders, names in os.walk(self.user):
            if Path(folder) == self.home.cache:
                folders.clear()
                continue
            for name in (*folders, *names):
                path = Path(folder, name)
                status = path.lstat()
                is_file = stat.S_ISREG(status.st_mode)
                data = path.read_bytes() if is_file else bytes(path.readlink()) if path.is_symlink() else b""
                counted = (status.st_mtime_ns, status.st_nlink, status.st_ino) if is_file else ()
                entries[str(path)] = (status.st_mode, status.st_uid, *counted, data)
        return entries


def outside_folder() -> Path:
    """A new folder outside /tmp. Skips where there is no place for one."""
    for place in (Path.home(), Path.cwd(), Path("/srv")):
        if os.access(place, os.W_OK) and not any(place.resolve().is_relative_to(private) for private in PRIVATE):
            return Path(tempfile.mkdtemp(prefix=".clawpy-victim-", dir=place))
    pytest.skip("no folder outside /tmp can be written")


def removed(folder: Path) -> None:
    """Clear it away, whatever commands left in it."""
    remove_folder(folder)


def canary() -> str:
    """A word that nothing else says."""
    return f"canary-{secrets.token_hex(8)}"
