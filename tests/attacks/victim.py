"""An operator whom commands in a sandbox attack: a home with secrets, a repository, an engine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox import PRIVATE_FOLDERS, Confinement, Sandbox
from engine.execution.sandbox.host_paths import link_tools, secret_places, session_environment
from engine.files import remove_folder
from engine.home import Home
from tests.conftest import Repository

PYTHON = (sys.executable, "-I", "-S", "-c")
"""Runs Python code that nothing of the operator's can change."""

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
    """The operator's home under a folder outside /tmp; `run` runs commands of a session that only checks."""

    def __init__(self, root: Path, rung: Sandbox) -> None:
        self.rung = rung
        self.user = root / "ann"
        self.project = self.user / "project"
        for name, text in FILES.items():
            self.file(f"project/{name}", text)
        self.commit("begin")
        python = self.project / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        self.home = Home.locate(self.user / ".clawpy")
        for folder in (self.home.config, self.home.data, self.home.logs):
            folder.mkdir(parents=True)
        self.confinement = self.session("sess_1")

    def session(self, name: str) -> Confinement:
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
            return replace(confinement, folder=copy)
        return confinement

    def file(self, name: str, text: str) -> Path:
        """A file in the operator's home."""
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message: str) -> str:
        """Commit what is in the project; the commit's id."""
        return Repository(self.project).commit(message)

    @property
    def environment(self) -> dict[str, str]:
        """The engine's environment."""
        return {**os.environ, "HOME": str(self.user)}

    def start(
        self,
        argv: Sequence[str],
        confinement: Confinement | None = None,
        inherited: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command of the session. `inherited` is the engine's environment, `extra` extends the session's."""
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

    def run(self, argv: Sequence[str], confinement: Confinement | None = None, **environment: Mapping[str, str]) -> str:
        """Run a command of the session to its end; what it printed."""
        output, _ = self.start(argv, confinement, **environment).communicate(timeout=60)
        return output

    def python(self, code: str, *arguments: object, confinement: Confinement | None = None) -> str:
        """The same with Python code."""
        return self.run([*PYTHON, code, *map(str, arguments)], confinement)

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


@contextlib.contextmanager
def folder_outside_tmp() -> Iterator[Path]:
    """A new folder outside /tmp, removed with all that commands left in it. Skips where there is no place for one."""
    for place in (Path.home(), Path.cwd(), Path("/srv")):
        if os.access(place, os.W_OK) and not any(
            place.resolve().is_relative_to(private) for private in PRIVATE_FOLDERS
        ):
            folder = Path(tempfile.mkdtemp(prefix=".clawpy-attack-", dir=place))
            try:
                yield folder
            finally:
                remove_folder(folder)
            return
    pytest.skip("no folder outside /tmp can be written")


def canary() -> str:
    """A word that nothing else says."""
    return f"canary-{secrets.token_hex(8)}"
